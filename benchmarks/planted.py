"""Devices with arithmetics and faults of our own choosing, characterised by the default run, and counted.

    python benchmarks/planted.py --seeds 0-299 --jobs 16 -o benchmarks/results/planted/0-299.jsonl

tests/support/drawn_plants.py draws the arithmetic or fault of a seed, from seed 9000 on also faults that depend on the query.
tests/support/judge.py judges the report by results that are computed without accprobe's evaluators. Each device has its own
process. A process that crashes, or takes more than --limit seconds of CPU time, is counted as such. Prints every unexpected
seed, and a table with a line for each kind; -o writes one line of JSON for each device as soon as it is done. Exit status 1: a
row is confirmed and wrong, or a finding is exact and false.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from census import Census, Failure
from drawn_plants import KINDS, Kind, drawn, faulty
from judge import Judgement, judged
from plants import SPARSE, Plant, Rng

BEYOND = {
    "mma.sync.m16n8k16.f32.bf16.bf16.f32": "HMMA.16816.F32.BF16",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32": "HMMA.1688.F32.TF32",
    "mma.sync.m16n8k16.f16.f16.f16.f16": "HMMA.16816.F16",
    "wgmma.m64n8k32.f16.e5m2.e5m2": "QGMMA.64x8x32.F16.E5M2.E5M2",
}
"""Instructions whose products can be far beyond the largest result."""


def huge_cancels(rng: Rng) -> Plant:
    """Draw a device on which products beyond the largest result, from some size on, cancel to a wrong result."""
    plant = faulty("huge cancels", names=BEYOND)(rng)
    inst = plant.instruction
    assert plant.fault is not None
    beyond = int(rng.integers(inst.d.max_exponent + 1, inst.a.max_exponent + inst.b.max_exponent - 1))
    return replace(plant, fault=replace(plant.fault, number=beyond, how="flip"))


QUERIES: tuple[Kind, ...] = (
    *[("in the self-test", "query", faulty("one hot", (1, 2, 7, 24)))] * 2,
    *[("in the self-test of a sparse A", "query", faulty("one hot", (1, 2, 7, 24), names=SPARSE))] * 2,
    *[("the first answers", "query", faulty("until answer", (200, 1_500, 3_000, 20_000), ""))] * 2,
    ("the first answers of a sparse A", "query", faulty("until answer", (200, 1_500, 8_000), "", SPARSE)),
    ("the first calls", "query", faulty("until call", (1, 2, 5, 20), "")),
    *[("at some sizes", "query", faulty("size remainder", tuple(range(8)), ""))] * 2,
    *[("at sizes of an octave", "query", faulty("size from", (1, 2, 4, 8, 60, 500, 4_000, 8_000, 33_000), ""))] * 2,
    ("late in large queries", "query", faulty("late in batch", (7_000, 20_000, 50_000), "")),
    *[("after an equal one", "query", faulty("after equal", (1,), ""))] * 2,
    ("after a pattern", "query", faulty("after pattern", (2, 30, 300), "")),
    *[("huge products cancel", "query", huge_cancels)] * 3,
)
"""Kinds that seeds from `FROM` on have beside all others."""

FROM = 9000


def drawn_device(seed: int) -> Plant:
    return drawn(seed, KINDS if seed < FROM else (*KINDS, *QUERIES))


def without_row(seed: int, verdict: Failure, reason: str) -> Judgement:
    plant = drawn_device(seed)
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


CENSUS = Census(Judgement, lambda seed: judged(drawn_device(seed)), without_row, told, table)


if __name__ == "__main__":
    sys.exit(CENSUS.run(__doc__, "device"))
