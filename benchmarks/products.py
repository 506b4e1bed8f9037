"""Matrix products with plans of our own choosing, characterised by the default run, and counted.

    python benchmarks/products.py --seeds 1000-1199 --jobs 16 -o benchmarks/results/products/1000-1199.jsonl

What a seed plants is drawn in tests/support/planted_plans.py; how it is judged, against fresh results of the planted evaluator,
stands in tests/support/product_judge.py. Each product has a process of its own; one that crashes, or takes more than --limit
seconds of CPU time, is counted as such. Prints every seed that is not confirmed, and a table; -o writes one line of JSON a
product, as each is done. Exits 1 where a row is confirmed and wrong or a finding is exact and false.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from apart import Failure, Work, each_apart
from planted_plans import drawn
from planted_products import Planted
from product_judge import Judgement, judged, without_row

LIMIT = 120
"""Seconds of CPU time a product."""


def seeds(text: str) -> list[int]:
    """ "0-9,17" """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def planted(seed: int) -> Planted:
    return replace(drawn(seed), seed=seed)


def failed(seed: int, verdict: Failure, reason: str, seconds: float) -> Judgement:
    return without_row(planted(seed), verdict, reason, seconds)


def all_judged(wanted: list[int], jobs: int, limit: float) -> Iterator[Judgement]:
    """As they are done."""
    return each_apart(Work(lambda seed: judged(planted(seed)), failed), wanted, jobs, limit)


def told(judgement: Judgement) -> Iterator[str]:
    """What is not as it should be."""
    at = f"seed {judgement.seed}"
    if judgement.verdict == "wrong":
        yield f"{at}: wrong; {judgement.contradicted} of {judgement.fresh} fresh elements"
    elif judgement.verdict != "right":
        yield f"{at}: {judgement.verdict} ({judgement.cause}); {judgement.reason}"
    if judgement.false_exact:
        yield f"{at}: {len(judgement.false_exact)} exact and false: {'; '.join(judgement.false_exact)}"
    if judgement.undetermined:
        yield f"{at}: undetermined: {', '.join(judgement.undetermined)}"


def table(judgements: list[Judgement]) -> Iterator[str]:
    """Verdicts, of those that are not confirmed by cause; what is exact and false, and undetermined."""
    count: Counter[str] = Counter()
    for judgement in judgements:
        count[judgement.verdict] += 1
        count["exact and false"] += bool(judgement.false_exact)
        count["undetermined"] += bool(judgement.undetermined)
        if judgement.verdict == "not confirmed":
            count[f"  {judgement.cause}"] += 1
    causes = sorted((name for name in count if name.startswith("  ")), key=lambda name: -count[name])
    rows = ["right", "wrong", "not confirmed", *causes, "too late", "crashed", "exact and false", "undetermined"]
    yield f"{'products':18} {len(judgements):4}"
    for name in rows:
        yield f"{name:18} {count[name]:4}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, required=True, metavar="FIRST-LAST", help="which products to draw")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="products at once")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help="of CPU time a product, %(default)s by default"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write one line of JSON a product")
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
    return 1 if any(judgement.verdict == "wrong" or judgement.false_exact for judgement in found) else 0


if __name__ == "__main__":
    sys.exit(main())
