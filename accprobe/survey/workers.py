"""Workers of a survey: this process, or several processes that each open the device."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import resource_tracker
from multiprocessing.queues import SimpleQueue

from accprobe.build.atomic import SIGNALS, uninterrupted
from accprobe.devices import open_device
from accprobe.devices.recording import Exchanges
from accprobe.errors import DeviceError
from accprobe.evaluate.tiles import share_cores
from accprobe.isa.instructions import Instruction
from accprobe.records.rows import Row
from accprobe.survey.row import Surveyor

MOST_JOBS = 8

POLL = 0.02  # Seconds between two checks for finished rows.


def default_jobs() -> int:
    """Return the default number of worker processes: one per core, at most MOST_JOBS."""
    return min(len(os.sched_getaffinity(0)), MOST_JOBS)


@cache
def _surveyor(name: str, record: bool) -> Surveyor:
    """Return the surveyor of this worker process."""
    return Surveyor(open_device(name), record)


# Where this worker process sends its rows.
_finished: SimpleQueue[tuple[Row, Exchanges]] | None = None


def _begin_worker(jobs: int, finished: SimpleQueue[tuple[Row, Exchanges]]) -> None:
    global _finished
    _finished = finished
    end_with_parent()
    share_cores(jobs)


def end_with_parent() -> None:
    """End this worker when its parent ends: a killed parent cannot end its workers, which would wait forever."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _rows_in_worker(name: str, insts: Sequence[Instruction], dots: int, seed: int, record: bool) -> None:
    """Send each row as soon as it is finished; without instructions, open the device before the first row needs it."""
    assert _finished is not None
    surveyor = _surveyor(name, record)
    for inst in insts:
        _finished.put(surveyor.measured(inst, dots, seed))


def _tasks(insts: Iterable[Instruction]) -> list[list[Instruction]]:
    """Group the instructions of one arithmetic, so that operands made for one of them serve all.

    Groups that take longest come first: floats that may become several opcodes; integers come last.
    """
    alike: dict[Hashable, list[Instruction]] = {}
    for inst in insts:
        alike.setdefault((inst.family, inst.a, inst.b, inst.c, inst.d, inst.stored.k, inst.satfinite), []).append(inst)

    def order(task: list[Instruction]) -> tuple[bool, bool, int]:
        first = task[0]
        return first.is_integer, not first.family.converts, -first.a.bits * first.stored.k

    return sorted(alike.values(), key=order)


def in_processes(
    name: str, insts: Sequence[Instruction], dots: int, seed: int, jobs: int, record: bool, prepare: Callable[[], None]
) -> Generator[tuple[Row, Exchanges], None, None]:
    """Yield rows as they are finished. Workers end with this generator, even in the middle of a row.

    prepare: called in this process while they start.
    """
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    finished: SimpleQueue[tuple[Row, Exchanges]] = context.SimpleQueue()
    missing = len(insts)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(jobs, finished)) as pool:
        try:
            with interrupts_held_back():
                for _ in range(jobs):
                    pool.submit(_rows_in_worker, name, (), dots, seed, record)
            prepare()
            with interrupts_held_back():
                futures = [pool.submit(_rows_in_worker, name, task, dots, seed, record) for task in _tasks(insts)]
            while missing:
                if finished.empty():
                    for future in filter(Future.done, futures):
                        future.result()  # raises what ended it
                    time.sleep(POLL)
                else:
                    missing -= 1
                    yield finished.get()
        except BrokenProcessPool:
            raise DeviceError("a worker process died, perhaps for lack of memory; use fewer --jobs") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hide Ctrl-C, SIGTERM and time limits from processes started inside; this process gets them afterwards.

    A process inherits blocked signals. Blocking them is not enough here: another thread of this process would take the signal
    and interrupt the main thread. The resource tracker that multiprocessing starts with its first process unblocks signals, so
    it is started before.
    """
    resource_tracker.ensure_running()
    with uninterrupted():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
