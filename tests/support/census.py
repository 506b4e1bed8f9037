"""A census of seeds: judge each in its own process, so that a crash costs no other seed; write and count the judgements."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from accprobe.evaluate.tiles import share_cores

BAD = ("wrong", "called unstable")
"""Verdicts that no seed may have."""

LIMIT = 120
"""Seconds of CPU time a seed."""


PATIENCE = 30
"""Wall time allowed to a seed on a busy machine, as a multiple of its limit of CPU time."""

Failure = Literal["crashed", "too late"]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A judgement of accprobe's result for a seed.

    parameters: of the plant. status, reason: accprobe's. seconds: of CPU time. fresh: results of the plant after
    the run; contradicted: those of them that differ from the model found. false_exact: "finding: value, truth".
    """

    seed: int
    parameters: dict[str, Any]
    verdict: str
    status: str = ""
    reason: str = ""
    seconds: float = 0.0
    fresh: int = 0
    contradicted: int = 0
    false_exact: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


J = TypeVar("J", bound=Judgement)


class _Late(BaseException):
    """The time limit of a seed. Not an `Exception`, which a survey would report as a defect of one instruction."""


class _Running(NamedTuple):
    seed: int
    process: BaseProcess
    results: Connection
    deadline: float


def _judge(census: Census[J], seed: int, jobs: int, limit: float, results: Connection) -> None:
    def late(signum: int, frame: FrameType | None) -> None:
        raise _Late

    share_cores(jobs)
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    started = time.process_time()
    try:
        found = census.judge(seed)
    except _Late:
        found = census.failed(seed, "too late", f"no row in {limit:g} s", limit)
    except Exception as e:
        found = census.failed(seed, "crashed", f"{type(e).__name__}: {e}", time.process_time() - started)
    signal.setitimer(signal.ITIMER_PROF, 0)
    results.send(found)


def _judgements(census: Census[J], seeds: list[int], jobs: int, limit: float) -> Iterator[J]:
    """Yield judgements as they are done, `jobs` at once. limit: CPU seconds per seed."""
    context = multiprocessing.get_context("fork")
    left, running = seeds[::-1], list[_Running]()
    while left or running:
        while left and len(running) < jobs:
            seed = left.pop()
            results, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_judge, args=(census, seed, jobs, limit, theirs))
            process.start()
            theirs.close()
            running.append(_Running(seed, process, results, time.monotonic() + PATIENCE * limit))
        wait([each.results for each in running], timeout=1)
        for each in list(running):
            done = each.results.poll()
            if not done and each.process.is_alive() and time.monotonic() < each.deadline:
                continue
            running.remove(each)
            yield _judgement(census, each, done, limit)


def _judgement(census: Census[J], each: _Running, done: bool, limit: float) -> J:
    try:
        if done:
            found: J = each.results.recv()
            return found
        late = each.process.is_alive()
    except EOFError:
        late = False
    finally:
        each.process.kill()
        each.process.join()
    if late:
        return census.failed(each.seed, "too late", f"ended after {limit:g} s", limit)
    return census.failed(each.seed, "crashed", f"the process ended with {each.process.exitcode}", 0.0)


@dataclass(frozen=True)
class Census(Generic[J]):
    """judge: judges a seed. failed: makes the judgement if that fails, from seed, failure, reason, seconds.

    defects: yields the defects of a judgement; table: counts all judgements.
    """

    judge: Callable[[int], J]
    failed: Callable[[int, Failure, str, float], J]
    defects: Callable[[J], Iterator[str]]
    table: Callable[[list[J]], Iterator[str]]

    def run(self, description: str, what: str) -> int:
        """Run the command line; what: noun of a planted thing. Return 1 if a verdict is BAD or an exact finding is false."""
        options = _options(description, what)
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.unlink(missing_ok=True)
        found: list[J] = []
        for judgement in _judgements(self, options.seeds, options.jobs, options.limit):
            found.append(judgement)
            print(f"\r{len(found)} of {len(options.seeds)}", end="", file=sys.stderr, flush=True)
            if options.output:
                with options.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(judgement.as_json()) + "\n")
        print(file=sys.stderr)
        found.sort(key=lambda judgement: judgement.seed)
        print("\n".join(line for judgement in found for line in self.defects(judgement)), end="\n\n")
        print("\n".join(self.table(found)))
        return 1 if any(judgement.verdict in BAD or judgement.false_exact for judgement in found) else 0


def seeds(text: str) -> list[int]:
    """Parse "0-9,17"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _options(description: str, what: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, required=True, metavar="FIRST-LAST", help=f"which {what}s to draw")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help=f"{what}s at once")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"of CPU time a {what}, %(default)s by default"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"write one line of JSON a {what}")
    return parser.parse_args()
