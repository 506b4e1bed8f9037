"""Devices with arithmetics and faults of our own choosing, characterised by the default run, and counted.

    python benchmarks/planted.py --seeds 0-299 --jobs 16 -o benchmarks/results/planted/0-299.jsonl

tests/support/drawn_plants.py draws the arithmetic or fault of a seed. tests/support/judge.py judges the report by results that
are computed without accprobe's evaluators. Each device has its own process. A process that crashes, or takes more than --limit
seconds of CPU time, is counted as such. Prints every unexpected seed, and a table with a line for each kind; -o writes one line
of JSON for each device as soon as it is done. Exit status 1: a row is confirmed and wrong, or a finding is exact and false.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from census import Census, Failure
from drawn_plants import KINDS, QUERIES, drawn
from judge import Judgement, judged


def without_row(seed: int, verdict: Failure, reason: str) -> Judgement:
    plant = drawn(seed)
    return Judgement(
        seed=seed,
        kind=plant.kind,
        family=plant.family,
        instruction=plant.instruction.name,
        parameters=plant.parameters(),
        verdict=verdict,
        reason=reason,
    )


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
)


def counted(judgements: list[Judgement]) -> Counter[str]:
    """By column: verdicts, devices with a finding that is exact and false, those whose oddity no fresh operand shows."""
    count: Counter[str] = Counter(judgement.verdict for judgement in judgements)
    count["devices"] = len(judgements)
    count["unseen"] = sum(j.family in ("wider", "outside") and bool(j.status) and not j.visible for j in judgements)
    count["false exact"] = sum(bool(j.false_exact) for j in judgements)
    return count


def table(judgements: list[Judgement]) -> Iterator[str]:
    kinds = list(dict.fromkeys((family, kind) for kind, family, _ in (*KINDS, *QUERIES)))
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
    """Yield each unexpected outcome of a seed."""
    at = f"seed {judgement.seed}, {judgement.kind}, {judgement.instruction}"
    if judgement.verdict in ("wrong", "crashed", "too late"):
        yield f"{at}: {judgement.verdict}; {judgement.reason or f'{judgement.contradicted} of {judgement.fresh} fresh answers'}"
    if judgement.family == "inside" and judgement.verdict == "not confirmed":
        yield f"{at}: {judgement.status}; {judgement.reason}"
    if judgement.false_exact:
        yield f"{at}: {judgement.status}, {len(judgement.false_exact)} exact and false: {'; '.join(judgement.false_exact[:3])}"


CENSUS = Census(Judgement, lambda seed: judged(drawn(seed)), without_row, told, table)


if __name__ == "__main__":
    sys.exit(CENSUS.run(__doc__, "device"))
