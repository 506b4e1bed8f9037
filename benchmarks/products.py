"""Characterise planted matrix products and reductions with the default run, and count the verdicts.

    python benchmarks/products.py --seeds 1000-1199 --jobs 16 -o benchmarks/results/products/1000-1199.jsonl
    python benchmarks/products.py --seeds 20000-20199 -o benchmarks/results/products/20000-20199.jsonl

drawn_products.py draws the product of a seed, from seed 20000 on a reduction; product_judge.py and reduction_judge.py of
tests/support compare its row with fresh results of the planted evaluator. Each runs in its own
process; one that crashes, or takes more than --limit seconds of CPU time, is counted as such. Prints every seed that is not
confirmed, and a table; -o writes one line of JSON for each that is finished. Exit status 1 if a confirmed row is wrong or an
exact finding is false.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import product_judge
import reduction_judge
from census import Census, Failure
from drawn_products import drawn_product, drawn_reduction
from product_judge import Judgement, parameters

FIRST_REDUCTION = 20_000


CAUSES = {
    "no tree": r"in a sum of|large products|added to another|no whole number|border of two chains|sums of \d+ products, and",
    "too many calls": r"not determined within",
    "arithmetic": r"sparse dot products",
    "scales": r"scaled elements|has the scales of",
    "kept results": r"kept results contradict",
    "fresh elements": r"fresh elements differ",
    "regions": r"elements with other bits",
    "dependence": r"an output depends on",
    "first calls": r"give other bits than later ones|gives other bits than later ones",
}
"""Causes for which a plan is not confirmed, and regular expressions of the reasons."""


def cause(judgement: Judgement) -> str:
    """Return the reason in a word."""
    return next((name for name, words in CAUSES.items() if re.search(words, judgement.reason)), "other")


def judged(seed: int) -> Judgement:
    if seed < FIRST_REDUCTION:
        return product_judge.judged(replace(drawn_product(seed), seed=seed))
    return reduction_judge.judged(drawn_reduction(seed), seed)


def failed(seed: int, verdict: Failure, reason: str) -> Judgement:
    plant = parameters(drawn_product(seed)) if seed < FIRST_REDUCTION else drawn_reduction(seed).parameters()
    return Judgement(seed=seed, parameters=plant, verdict=verdict, reason=reason)


def told(judgement: Judgement) -> Iterator[str]:
    """Yield the deviations of a judgement from the plant."""
    at = f"seed {judgement.seed}"
    if judgement.verdict == "wrong":
        yield f"{at}: wrong; {judgement.contradicted} of {judgement.fresh} fresh elements"
    elif judgement.verdict != "right":
        yield f"{at}: {judgement.verdict} ({cause(judgement)}); {judgement.reason}"
    if judgement.false_exact:
        yield f"{at}: {len(judgement.false_exact)} exact and false: {'; '.join(judgement.false_exact)}"
    if judgement.undetermined:
        yield f"{at}: undetermined: {', '.join(judgement.undetermined)}"


def table(judgements: list[Judgement]) -> Iterator[str]:
    """Count the verdicts by cause, false exact findings and undetermined ones."""
    count: Counter[str] = Counter()
    for judgement in judgements:
        count[judgement.verdict] += 1
        count["exact and false"] += bool(judgement.false_exact)
        count["undetermined"] += bool(judgement.undetermined)
        if judgement.verdict == "not confirmed":
            count[f"  {cause(judgement)}"] += 1
    causes = sorted((name for name in count if name.startswith("  ")), key=lambda name: -count[name])
    failed = ["too late", "crashed", "exact and false", "undetermined"]
    rows = ["right", "wrong", "called unstable", "not confirmed", *causes, *failed]
    yield f"{'products':18} {len(judgements):4}"
    for name in rows:
        yield f"{name:18} {count[name]:4}"


CENSUS = Census(Judgement, judged, failed, told, table)


if __name__ == "__main__":
    sys.exit(CENSUS.run(__doc__, "product"))
