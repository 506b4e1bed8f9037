"""Work on many seeds, each in a process of its own, so that one that crashes or never ends costs no other."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Generic, Literal, NamedTuple, TypeVar

from accprobe.evaluate.tiles import share_cores

PATIENCE = 30
"""Times the limit that a seed may take by the clock, on a machine that is busy."""

T = TypeVar("T")
Failure = Literal["crashed", "too late"]


class _Late(BaseException):
    """No `Exception`, which a survey would take for a defect of one instruction."""


class _Running(NamedTuple):
    seed: int
    process: BaseProcess
    answer: Connection
    deadline: float


@dataclass(frozen=True)
class Work(Generic[T]):
    """do: what is done with a seed. failed: what is said where that fails: seed, how, why, seconds."""

    do: Callable[[int], T]
    failed: Callable[[int, Failure, str, float], T]


def _work(work: Work[T], seed: int, jobs: int, limit: float, answer: Connection) -> None:
    def late(signum: int, frame: FrameType | None) -> None:
        raise _Late

    share_cores(jobs)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    started = time.process_time()
    try:
        found = work.do(seed)
    except _Late:
        found = work.failed(seed, "too late", f"no row in {limit:g} s", limit)
    except Exception as e:
        found = work.failed(seed, "crashed", f"{type(e).__name__}: {e}", time.process_time() - started)
    signal.setitimer(signal.ITIMER_PROF, 0)
    answer.send(found)


def each_apart(work: Work[T], seeds: list[int], jobs: int, limit: float) -> Iterator[T]:
    """As they are done, so many at once. limit: seconds of CPU time a seed."""
    context = multiprocessing.get_context("fork")
    left, running = seeds[::-1], list[_Running]()
    while left or running:
        while left and len(running) < jobs:
            seed = left.pop()
            answer, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(work, seed, jobs, limit, theirs))
            process.start()
            theirs.close()
            running.append(_Running(seed, process, answer, time.monotonic() + PATIENCE * limit))
        wait([each.answer for each in running], timeout=1)
        for each in list(running):
            done = each.answer.poll()
            if not done and each.process.is_alive() and time.monotonic() < each.deadline:
                continue
            running.remove(each)
            yield _answer(work, each, done, limit)


def _answer(work: Work[T], each: _Running, done: bool, limit: float) -> T:
    try:
        if done:
            found: T = each.answer.recv()
            return found
        late = each.process.is_alive()
    except EOFError:
        late = False
    finally:
        each.process.kill()
        each.process.join()
    if late:
        return work.failed(each.seed, "too late", f"killed after {limit:g} s", limit)
    return work.failed(each.seed, "crashed", f"the process ended with {each.process.exitcode}", 0.0)
