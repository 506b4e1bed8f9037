"""Products made to err, compared with the bounds of their errors: how many exceed them, and how near the worst comes.

    python benchmarks/bounds.py --outputs 1e8 --seed 0 -o benchmarks/results/bounds/0.json

Each call takes the arithmetic of every distinct float chain in the recorded reports and the published models. It draws K,
promotion, split-K and the format of the result from --seed. Operands are of one of the kinds in tests/support/adversarial.py.
The evaluator's results are compared with exact sums in float64, with an allowance for the error of float64. Prints for each
arithmetic the largest error divided by its bound; -o keeps them. Exit status 1: an element exceeds its bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.random import Generator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from adversarial import ADVERSARIES, crafted, float_models

from accprobe.budget.errors import exact_product
from accprobe.budget.worst_error import worst_case
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import Merged, ProductModel, addition, in_chunks
from accprobe.model.tree import DotModel

SIDE = 256

KS = (32, 64, 96, 128, 256)

OUTS = (None, "bf16", "f16", "f32")

SMALL_SIDE = 64
"""Side of products whose sums numpy computes one after the other, in integers of several words."""


@dataclass
class Seen:
    """Results of one arithmetic. largest: error over its bound, by kind of operands. unbounded: outputs that may overflow."""

    outputs: int = 0
    exceeding: int = 0
    unbounded: int = 0
    largest: dict[str, float] = field(default_factory=dict)


def plan(sums: DotModel, a: Format, b: Format, rng: Generator) -> ProductModel:
    """Return a plan with a random K, promotion, split-K and result format."""
    k, pattern = int(rng.choice(KS)), tuple(range(sums.products))
    k -= int(rng.integers(0, 2)) * int(rng.integers(0, sums.products))
    chain = sums.root.arithmetic.result
    wide = chain is FORMATS["f64"]
    slices = 1 if wide else int(rng.choice([1, 1, 2, 4]))
    every = None if wide else rng.choice([None, 32, 64])
    size = -(-k // slices // len(pattern)) * len(pattern)
    parts = [range(i, min(i + size, k)) for i in range(0, k, size)]
    chains = tuple(in_chunks(ks, int(every or len(ks)), pattern, addition()) for ks in parts)
    kept = FORMATS["bf16"] if rng.integers(0, 4) == 0 else None
    order = str(rng.choice(["forward", "backward", "tree"]))
    tree = chains[0] if len(chains) == 1 else Merged(chains, order, addition(), kept)  # type: ignore[arg-type]  # a known order
    out = rng.choice(OUTS)
    return ProductModel(a, b, k, sums, tree, chain if out is None or wide else FORMATS[str(out)])


def compare(model: ProductModel, kind: str, seen: Seen, rng: Generator) -> None:
    side = SMALL_SIDE if model.a is FORMATS["f64"] else SIDE
    a, b = crafted(kind, model, side, side, rng)
    with np.errstate(all="ignore"):
        values, exact = model.result.values(product(model, a, b)), exact_product(model, a, b)
        off = np.maximum(np.abs(values - exact.sums) - exact.off, 0.0)
        bound = worst_case(model, a, b)
        bounded = np.isfinite(bound)
        over = np.where(bounded & (off > 0), off / bound, 0.0)
    seen.outputs += off.size
    seen.unbounded += int(np.count_nonzero(~bounded))
    seen.exceeding += int(np.count_nonzero(bounded & ~(off <= bound)))
    seen.largest[kind] = max(seen.largest.get(kind, 0.0), float(over.max()))


def held(outputs: float, seed: int) -> dict[str, Seen]:
    """Every arithmetic in turn, with every kind of operands, until there are so many outputs."""
    models = {name: (sums, a, b) for name, sums, a, b in float_models()}
    found = {name: Seen() for name in models}
    turn = 0
    while sum(seen.outputs for seen in found.values()) < outputs:
        for i, (name, (sums, a, b)) in enumerate(models.items()):
            rng = np.random.default_rng((seed, turn, i))
            compare(plan(sums, a, b, rng), ADVERSARIES[(turn + i) % len(ADVERSARIES)], found[name], rng)
        turn += 1
        done = sum(seen.outputs for seen in found.values())
        print(f"{done:,} outputs, {sum(seen.exceeding for seen in found.values())} exceed", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=float, default=1e8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", type=Path)
    args = parser.parse_args()
    start = perf_counter()
    found = held(args.outputs, args.seed)
    for name, seen in found.items():
        kind = max(seen.largest, key=lambda kind: seen.largest[kind])
        print(f"{name:52} {seen.outputs:11,} {seen.exceeding:3} exceed  {seen.largest[kind]:.3f} of its bound  {kind}")
    whole: dict[str, Any] = {
        "seed": args.seed,
        "seconds": round(perf_counter() - start),
        "outputs": sum(seen.outputs for seen in found.values()),
        "unbounded": sum(seen.unbounded for seen in found.values()),
        "exceeding": sum(seen.exceeding for seen in found.values()),
    }
    print(", ".join(f"{key} {value:,}" for key, value in whole.items()))
    if args.o is not None:
        rows = {name: vars(seen) for name, seen in found.items()}
        args.o.parent.mkdir(parents=True, exist_ok=True)
        args.o.write_text(json.dumps({**whole, "arithmetics": rows}, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if whole["exceeding"] else 0)


if __name__ == "__main__":
    main()
