"""Who measures: this process, or several, each with the device opened for itself."""

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

from accprobe.devices import open_device
from accprobe.devices.protocol import Device
from accprobe.errors import DeviceError
from accprobe.evaluate.tiles import share_cores
from accprobe.isa.instructions import Instruction
from accprobe.survey.surveyor import RowAndExchanges, Surveyor

MOST_JOBS = 8

# Seconds between two looks for finished rows.
POLL = 0.02


def default_jobs() -> int:
    """Worker processes where nothing else is asked for: one a core, and no more than MOST_JOBS."""
    return min(len(os.sched_getaffinity(0)), MOST_JOBS)


def here(
    device: Device, insts: Iterable[Instruction], dots: int, seed: int, record: bool
) -> Generator[RowAndExchanges, None, None]:
    surveyor = Surveyor(device, record)
    for inst in insts:
        yield surveyor.measured(inst, dots, seed)


@cache
def _surveyor(name: str, record: bool) -> Surveyor:
    """This worker process's own."""
    return Surveyor(open_device(name), record)


# Where this worker process sends its rows.
_finished: SimpleQueue[RowAndExchanges] | None = None


def _begin_worker(jobs: int, finished: SimpleQueue[RowAndExchanges]) -> None:
    global _finished
    _finished = finished
    end_with_parent()
    share_cores(jobs)


def end_with_parent() -> None:
    """In a worker: a parent that was killed cannot end its workers, and they would wait for it."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
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

    Those that take longest come first: of floats, which may have become several opcodes; integers last.
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
) -> Generator[RowAndExchanges, None, None]:
    """Rows as they are finished. Workers end with this generator, in the middle of a row where it is closed early.

    prepare: what this process does while they start.
    """
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    finished: SimpleQueue[RowAndExchanges] = context.SimpleQueue()
    left = len(insts)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker, initargs=(jobs, finished)) as pool:
        try:
            with interrupts_held_back():
                for _ in range(jobs):
                    pool.submit(_open_in_worker, name, record)
            prepare()
            with interrupts_held_back():
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
def interrupts_held_back() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, SIGTERM or a time limit: a blocked signal is inherited. This process sees it
    afterwards.

    That it is blocked here is not enough: another thread of this process takes it, and the main thread would be interrupted.
    The tracker that multiprocessing starts before its first process unblocks both as it starts.
    """
    resource_tracker.ensure_running()
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _INTERRUPTS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


_INTERRUPTS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM
