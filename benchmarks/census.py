"""A census of seeds: judge each in its own process, so that a crash costs no other seed; write and count the judgements."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from judgements import Judgement

from accprobe.evaluate.tiles import share_cores

BAD = ("wrong", "called unstable")
"""Verdicts that no seed may have."""

LIMIT = 120
"""Seconds of CPU time a seed."""

PATIENCE = 30
"""Wall time allowed to a seed on a busy machine, as a multiple of its limit of CPU time."""

Failure = Literal["crashed", "too late"]


J = TypeVar("J", bound=Judgement)


@dataclass(frozen=True)
class Census(Generic[J]):
    """judge: judges a seed. failed: makes the judgement if that fails, from seed, failure and reason.

    defects: yields the defects of a judgement; table: counts all judgements.
    """

    judgement: type[J]
    judge: Callable[[int], J]
    failed: Callable[[int, Failure, str], J]
    defects: Callable[[J], Iterator[str]]
    table: Callable[[list[J]], Iterator[str]]

    def run(self, description: str, what: str) -> int:
        """Run the command line; what: noun of a planted thing. Return 1 if a verdict is BAD or an exact finding is false."""
        options = _options(description, what)
        if options.alone:
            share_cores(options.jobs)
            print("\n" + json.dumps(asdict(self.judge(options.seeds[0]))))
            return 0
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.unlink(missing_ok=True)
        found: list[J] = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for done in as_completed([pool.submit(self._judged, seed, options) for seed in options.seeds]):
                found.append(done.result())
                print(f"\r{len(found)} of {len(options.seeds)}", end="", file=sys.stderr, flush=True)
                if options.output:
                    with options.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(found[-1])) + "\n")
        print(file=sys.stderr)
        found.sort(key=lambda judgement: judgement.seed)
        print("\n".join(line for judgement in found for line in self.defects(judgement)), end="\n\n")
        print("\n".join(self.table(found)))
        return 1 if any(judgement.verdict in BAD or judgement.false_exact for judgement in found) else 0

    def _judged(self, seed: int, options: argparse.Namespace) -> J:
        """Judge a seed in a process of its own, which the kernel ends at the limit of CPU time."""
        command = [sys.executable, sys.argv[0], "--alone", "--seeds", str(seed), "--jobs", str(options.jobs)]
        limit: int = options.limit
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE * limit,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            )
        except subprocess.TimeoutExpired:
            return self.failed(seed, "too late", f"no row in {PATIENCE * limit} s")
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return self.failed(seed, "too late", f"no row in {limit} s of CPU time")
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            return self.failed(seed, "crashed", f"the process ended with {done.returncode}: {last}")
        return self.judgement(**json.loads(done.stdout.splitlines()[-1]))


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
        "--limit", type=int, default=LIMIT, metavar="SECONDS", help=f"of CPU time a {what}, %(default)s by default"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"write one line of JSON a {what}")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()
