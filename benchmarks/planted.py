"""Devices with arithmetics and faults of our own choosing, characterised by the default run, and counted.

    python benchmarks/planted.py --seeds 0-299 --jobs 16 -o benchmarks/results/planted/0-299.jsonl

What a seed plants is drawn in tests/support/drawn_plants.py; how it is judged, against answers computed without accprobe's
evaluators, stands in tests/support/judge.py. Each device has a process of its own; one that crashes, or takes more than
--limit seconds of CPU time, is counted as such. Prints every seed that is not as it should be, and a table, a line a kind; -o
writes one line of JSON a device, as each is done. Exits 1 where a row is confirmed and wrong or a finding is exact and false.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from apart import Work, each_apart
from drawn_plants import KINDS, drawn
from judge import Judgement, Verdict, judged

LIMIT = 120
"""Seconds of CPU time a device."""


def seeds(text: str) -> list[int]:
    """ "0-9,17" """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def without_row(seed: int, verdict: Verdict, reason: str, seconds: float) -> Judgement:
    plant = drawn(seed)
    return Judgement(
        seed, plant.kind, plant.family, plant.instruction.name, plant.parameters(), verdict, "", reason, round(seconds, 2)
    )


def all_judged(wanted: list[int], jobs: int, limit: float) -> Iterator[Judgement]:
    """As they are done."""
    return each_apart(Work(lambda seed: judged(drawn(seed)), without_row), wanted, jobs, limit)


COLUMNS = (
    "devices",
    "unseen",
    "right",
    "wrong",
    "excluded",
    "not begun",
    "not confirmed",
    "too late",
    "crashed",
    "false exact",
    "slow",
)


def counted(judgements: list[Judgement]) -> Counter[str]:
    """By column: verdicts, devices with a finding that is exact and false, those whose oddity no fresh operand shows."""
    count: Counter[str] = Counter(judgement.verdict for judgement in judgements)
    count["devices"] = len(judgements)
    count["unseen"] = sum(j.family in ("wider", "outside") and bool(j.status) and not j.visible for j in judgements)
    count["false exact"] = sum(bool(j.false_exact) for j in judgements)
    count["slow"] = sum(j.too_slow for j in judgements)
    return count


def table(judgements: list[Judgement]) -> Iterator[str]:
    kinds = list(dict.fromkeys((family, kind) for kind, family, _ in KINDS))
    width = max(len(kind) for _, kind in kinds)
    yield f"{'':{width}}  " + "  ".join(COLUMNS)
    rows = [(kind, [j for j in judgements if j.kind == kind and j.family == family]) for family, kind in kinds]
    families = list(dict.fromkeys(family for family, _ in kinds))
    rows += [(f"all {family}", [j for j in judgements if j.family == family]) for family in families]
    for title, some in [*rows, ("all", judgements)]:
        if some:
            count = counted(some)
            yield f"{title:{width}}  " + "  ".join(f"{count[name] or '·':>{len(name)}}" for name in COLUMNS)


def told(judgement: Judgement) -> Iterator[str]:
    """What is not as it should be."""
    at = f"seed {judgement.seed}, {judgement.kind}, {judgement.instruction}"
    if judgement.verdict in ("wrong", "crashed", "too late"):
        yield f"{at}: {judgement.verdict}; {judgement.reason or f'{judgement.contradicted} of {judgement.fresh} fresh answers'}"
    if judgement.family == "inside" and judgement.verdict == "not confirmed":
        yield f"{at}: {judgement.status}; {judgement.reason}"
    if judgement.false_exact:
        yield f"{at}: {judgement.status}, {len(judgement.false_exact)} exact and false: {'; '.join(judgement.false_exact[:3])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, required=True, metavar="FIRST-LAST", help="which devices to draw")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="devices at once")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help="of CPU time a device, %(default)s by default"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write one line of JSON a device")
    options = parser.parse_args()
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.unlink(missing_ok=True)
    found: list[Judgement] = []
    for judgement in all_judged(options.seeds, options.jobs, options.limit):
        found.append(judgement)
        print(f"\r{len(found)} of {len(options.seeds)}", end="", file=sys.stderr, flush=True)
        if options.output:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(judgement.as_json()) + "\n")
    print(file=sys.stderr)
    found.sort(key=lambda judgement: judgement.seed)
    print("\n".join(line for judgement in found for line in told(judgement)), end="\n\n")
    print("\n".join(table(found)))
    count = counted(found)
    return 1 if count["wrong"] or count["false exact"] else 0


if __name__ == "__main__":
    sys.exit(main())
