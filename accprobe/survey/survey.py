"""A survey: every instruction of a device characterised, verified against fresh random operands, challenged by rivals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from functools import cache
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from accprobe.devices import open_device
from accprobe.devices.protocol import Device, HasUuid, Identifies, Prepares
from accprobe.devices.recording import Exchanges, Recording
from accprobe.errors import DeviceError, RecordingError, UnknownName, nearest
from accprobe.evaluate.cores import share_cores
from accprobe.isa.instructions import Instruction, architectures_with, parse
from accprobe.report.report import Report, Row, Run
from accprobe.sass.lowering import Lowering
from accprobe.survey.surveyor import Measured, Surveyor, copied, counted, witnessed

DOTS = 1 << 14
"""Dot products that a model is verified on where nothing else is asked for."""

MOST_JOBS = 8

POLL = 0.02
"""Seconds between two looks for finished rows."""

OnRow = Callable[[Report], None]
Profiler = Callable[[Sequence[Instruction]], Mapping[str, Lowering]]
"""Tells what instructions executed, by name: `ncu.lowerings` of a device."""


def survey(
    device: str | Device,
    select: Sequence[str] = (),
    dots: int = DOTS,
    seed: int = 0,
    jobs: int | None = None,
    on_row: OnRow = lambda _: None,
    profiler: Profiler | None = None,
    with_uuid: bool = False,
    record: Path | None = None,
) -> Report:
    """The report of a device, by name ("cuda:0") or already open (then in this process, whatever `jobs` says).

    select: globs or names of instructions; none of them: all. on_row: called with the report so far, first with the skipped
    rows alone, then after each row. profiler: is asked what was executed, and must agree with the disassembly. with_uuid:
    whether the report says which board it is of. record: the file that gets every exchange with the device,
    at the end or where the run is cut short.
    Raises UnknownName where a glob selects nothing, DeviceError where the device stops working.
    """
    started = time.perf_counter()
    name = device if isinstance(device, str) else None
    opened = open_device(device) if isinstance(device, str) else device
    wanted = selected(opened, select)
    skipped = {inst.name: reason for inst in wanted if (reason := opened.why_not(inst))}
    groups = _same_function(opened, [inst for inst in wanted if inst.name not in skipped])
    leaders = [group[0] for group in groups]
    workers = min(jobs or default_jobs(), len(groups)) if name else 1
    rows = {key: Row(name=key, status="skipped", reason=reason) for key, reason in skipped.items()}
    empty = Report.empty(opened, name, seed)
    if with_uuid:
        empty = _identified(empty, opened)

    def so_far() -> Report:
        run = Run(jobs=max(workers, 1), seconds=round(time.perf_counter() - started, 3), selected=len(wanted))
        return empty.model_copy(update={"run": run, "instructions": tuple(rows[i.name] for i in wanted if i.name in rows)})

    def prepare() -> None:
        if isinstance(opened, Prepares):
            opened.prepare(leaders)

    on_row(so_far())
    spread = workers > 1
    if profiler or not spread:
        prepare()
    executed = profiler(leaders) if profiler else {}
    members = {group[0].name: group[1:] for group in groups}
    with (
        closing(
            _in_processes(name, leaders, dots, seed, workers, record is not None, prepare)
            if name and spread
            else _here(opened, leaders, dots, seed, record is not None)
        ) as measured,
        _recording(record, opened, f"--dots {dots} --seed {seed}", wanted, groups) as keep,
    ):
        for row, exchanges in measured:
            if row.name in executed:
                row = counted(row, executed[row.name])
            rows[row.name] = row
            rows |= {inst.name: copied(row, inst, opened.lowering(inst)) for inst in members[row.name]}
            keep([row, *(rows[inst.name] for inst in members[row.name])], exchanges)
            on_row(so_far())
    return so_far()


@contextmanager
def _recording(
    path: Path | None, device: Device, asked: str, wanted: Iterable[Instruction], groups: Iterable[Sequence[Instruction]]
) -> Iterator[Callable[[Sequence[Row], Exchanges], None]]:
    """Keeps exchanges in the file; whatever happens inside, those of finished rows are there."""
    if path is None:
        yield lambda rows, exchanges: None
        return
    recording = Recording.of(device, asked)
    recording.announce(device, wanted, {inst.name: group[0].name for group in groups for inst in group})

    def keep(rows: Sequence[Row], exchanges: Exchanges) -> None:
        recording.add({row.name: witnessed(row) for row in rows}, exchanges)

    try:
        yield keep
    finally:
        try:
            recording.save(path)
        except OSError as e:
            raise RecordingError(f"{path} cannot be written: {e.strerror}") from None


def selected(device: Device, select: Sequence[str]) -> list[Instruction]:
    """The instructions of a device that any glob matches, in catalog order, then those that were named and are in no catalog.

    Raises UnknownName where one selects nothing.
    """
    known = {inst.name: inst for inst in device.instructions()}
    if not select:
        return list(known.values())
    names: set[str] = set()
    for glob in select:
        found = matching(known, glob)
        if not found:
            inst = _unlisted(glob, device.architecture, known)
            known[inst.name] = inst
            found = [inst.name]
        names.update(found)
    return [inst for name, inst in known.items() if name in names]


def matching(names: Iterable[str], glob: str) -> list[str]:
    """The names that a glob matches; a glob may also be a full PTX opcode."""
    found = [name for name in names if fnmatchcase(name, glob)]
    if found or any(mark in glob for mark in "*?["):
        return found
    try:
        canonical = parse(glob).name
    except UnknownName:
        return []
    return [name for name in names if name == canonical]


def default_jobs() -> int:
    """Worker processes where nothing else is asked for: one a core, and no more than MOST_JOBS."""
    return min(len(os.sched_getaffinity(0)), MOST_JOBS)


def _unlisted(glob: str, architecture: str, known: Mapping[str, Instruction]) -> Instruction:
    """An instruction that the catalog leaves out, such as a wgmma of another n."""
    if any(mark in glob for mark in "*?["):
        near = nearest(glob.replace("*", ""), known)
        all_of_them = f"`accprobe list --instructions {architecture}` names all {len(known)}"
        raise UnknownName(f"'{glob}' selects no instruction of {architecture}; {near} ({all_of_them})")
    inst = parse(glob)
    if architecture not in architectures_with(inst):
        raise UnknownName(f"{architecture} has no {inst.name}; it is of {', '.join(architectures_with(inst))}")
    return inst


def _same_function(device: Device, insts: Sequence[Instruction]) -> list[list[Instruction]]:
    groups: dict[Hashable, list[Instruction]] = {}
    for inst in insts:
        identity = device.identity(inst) if isinstance(device, Identifies) else None
        groups.setdefault(inst.name if identity is None else identity, []).append(inst)
    return list(groups.values())


def _identified(report: Report, device: Device) -> Report:
    """The report with the UUID of its GPU. Raises DeviceError."""
    if not isinstance(device, HasUuid):
        raise DeviceError(f"{device.name} has no UUID; leave --with-uuid out")
    facts = {**report.device.facts, "uuid": device.uuid()}
    return report.model_copy(update={"device": report.device.model_copy(update={"facts": facts})})


def _here(device: Device, insts: Iterable[Instruction], dots: int, seed: int, record: bool) -> Generator[Measured, None, None]:
    surveyor = Surveyor(device, record)
    for inst in insts:
        yield surveyor.measured(inst, dots, seed)


@cache
def _surveyor(name: str, record: bool) -> Surveyor:
    """This worker process's own."""
    return Surveyor(open_device(name), record)


_finished: SimpleQueue[Measured] | None = None
"""Where this worker process sends its rows."""


def _begin_worker(jobs: int, finished: SimpleQueue[Measured]) -> None:
    global _finished
    _finished = finished
    threading.Thread(target=_end_with_parent, daemon=True).start()
    share_cores(jobs)


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, and they would wait for it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _open_in_worker(name: str, record: bool) -> None:
    """The device is open before the first row needs it."""
    _surveyor(name, record)


def _rows_in_worker(name: str, insts: Sequence[Instruction], dots: int, seed: int, record: bool) -> None:
    """Each row is sent as soon as it is finished."""
    assert _finished is not None
    for inst in insts:
        _finished.put(_surveyor(name, record).measured(inst, dots, seed))


def _tasks(insts: Iterable[Instruction]) -> list[list[Instruction]]:
    """Instructions of one arithmetic together, so that operands looked for serve them all.

    Those that take longest come first: mma.sync of floats, which may have become several instructions; integers last.
    """
    alike: dict[Hashable, list[Instruction]] = {}
    for inst in insts:
        alike.setdefault((inst.family, inst.a, inst.b, inst.c, inst.d, inst.k, inst.satfinite), []).append(inst)

    def order(task: list[Instruction]) -> tuple[bool, bool, int]:
        first = task[0]
        return first.is_integer, first.family != "mma.sync", -first.a.bits * first.k

    return sorted(alike.values(), key=order)


def _in_processes(
    name: str, insts: Sequence[Instruction], dots: int, seed: int, jobs: int, record: bool, prepare: Callable[[], None]
) -> Generator[Measured, None, None]:
    """Rows as they are finished. Workers end with this generator, in the middle of a row where it is closed early.

    prepare: what this process does while they start.
    """
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    finished: SimpleQueue[Measured] = context.SimpleQueue()
    left = len(insts)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(jobs, finished)) as pool:
        try:
            with _interrupts_held_back():
                for _ in range(jobs):
                    pool.submit(_open_in_worker, name, record)
            prepare()
            with _interrupts_held_back():
                futures = [pool.submit(_rows_in_worker, name, task, dots, seed, record) for task in _tasks(insts)]
            while left:
                if finished.empty():
                    _raise_failures(futures)
                    time.sleep(POLL)
                else:
                    left -= 1
                    yield finished.get()
        except BrokenProcessPool:
            raise DeviceError("a worker process died, perhaps for want of memory; fewer --jobs need less") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()


def _raise_failures(futures: Iterable[Future[None]]) -> None:
    for future in futures:
        if future.done():
            future.result()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes started inside never see Ctrl-C or SIGTERM: a blocked signal is inherited. This process sees it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
