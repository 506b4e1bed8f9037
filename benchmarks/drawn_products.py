"""Planted matrix products and reductions drawn by seed, with mistakes that no plan describes: those of `products.py`.

`planted_plans.py` of tests/support draws the plans without faults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np
import planted_plans
import planted_reductions
from planted_disturbances import Around, Kind, Mispaired, Mistake
from planted_plans import FMAS, HOPPER
from planted_products import Merge, Planted
from planted_reductions import COMPENSATED, Fault, Sum, backwards, blocks, butterfly, cascade, lanes, pairwise, sequential


def drawn_mistake(rng: np.random.Generator, m: int, n: int, k: int) -> Mispaired:
    """Draw a mistake and its place."""
    mistake: Mistake = rng.choice(["rolled", "exchanged", "columns", "rows"]).item()
    if mistake == "rolled":
        return Mispaired(mistake, to=int(rng.choice([1, 2, 16])))
    lines = {"exchanged": k, "columns": n, "rows": m}[mistake]
    count = int(rng.choice([1, 4, 16] if lines > 32 else [1, 4]))
    at, to = (int(x) * count for x in rng.permutation(lines // count)[:2])
    return Mispaired(mistake, at, to, count)


def _around(plan: Planted, kind: Kind, first: int = 0) -> Planted:
    """Return a computation around a product of floats of even sizes, without scales, with one order of addition."""
    even = replace(_small(plan), m=plan.m // 2 * 2, n=plan.n // 2 * 2, around=Around(kind, first))
    return replace(even, out="f32", result_rounding="RNE")  # where all sums show


def _small(plan: Planted) -> Planted:
    """Return one chain of 256 products of floats, without scales."""
    one = replace(HOPPER if plan.a == "s8" else plan, k=256, slices=(), interleave=None, partial_format="f32", merge="forward")
    return replace(one, m=plan.m, n=plan.n, seed=plan.seed, scales=None, promote_every=None)


def _atomics(rng: np.random.Generator, plan: Planted) -> Planted:
    """Draw slices that are added in a new order for each call or tile."""
    slices, orders = int(rng.integers(3, 9)), rng.choice(["call", "tile"]).item()
    every = 64 if rng.random() < 0.3 else None
    sliced = replace(_small(plan), k=128 * slices, slices=(128,) * slices, promote_every=every)
    return replace(sliced, merge="unordered", orders=orders, out="f32", result_rounding="RNE")


def _lanes(rng: np.random.Generator, plan: Planted) -> Planted:
    """Draw accumulators that take turns along K, 2 to 64 of them."""
    count = 1 << int(rng.integers(1, 7))
    merges: list[Merge] = ["forward", "butterfly", "tree"]
    k = count * int(rng.integers(4, 9))
    merge: Merge = rng.choice(merges[: 1 if count == 2 else 3]).item()
    return replace(_of_multiply_adds(plan, k), slices=(k // count,) * count, interleave=1, merge=merge)


def _butterfly(rng: np.random.Generator, plan: Planted) -> Planted:
    """Draw slices of which the halves are added, one by one."""
    count, size = int(rng.choice([4, 8])), 16 * int(rng.integers(2, 5))
    return replace(_of_multiply_adds(plan, count * size), slices=(size,) * count, merge="butterfly")


def _truncated(rng: np.random.Generator, plan: Planted) -> Planted:
    """Draw one promotion of many whose sum is truncated; the first has nothing to truncate, and D hides the last one's."""
    count, size = int(rng.integers(8, 17)), 16 * int(rng.integers(1, 3))
    step = int(rng.integers(1, count - 1))
    return replace(_of_multiply_adds(plan, count * size), promote_every=size, truncated_step=step)


def _of_multiply_adds(plan: Planted, k: int) -> Planted:
    """Return a chain of multiply-adds with the formats of the plan."""
    a, b, out = ("bf16", "bf16", "f32") if plan.a == "s8" else (plan.a, plan.b, plan.out)
    return replace(FMAS, a=a, b=b, out=out, m=min(plan.m, 32), n=min(plan.n, 32), k=k, seed=plan.seed)


Family = Callable[[np.random.Generator, Planted], Planted]
"""Plants something on a plan that was drawn without faults."""

FIRST_OF_FAMILIES = 10_000
"""Seeds below it draw plans without faults."""

FAMILIES: list[Family] = [
    lambda rng, plan: plan,
    lambda rng, plan: replace(plan, mispaired=drawn_mistake(rng, *plan.shape)),
    lambda rng, plan: _around(plan, "first calls", int(rng.integers(1, 6))),
    lambda rng, plan: _around(plan, rng.choice(["scaled by tensor", "Strassen"]).item()),
    _atomics,
    _lanes,
    _butterfly,
    _truncated,
]
"""The families of seeds from there on, in turn."""


def drawn_product(seed: int) -> Planted:
    """Draw a plan, and from `FIRST_OF_FAMILIES` on what its family plants on it."""
    plan = planted_plans.drawn(seed)
    if seed < FIRST_OF_FAMILIES:
        return plan
    return FAMILIES[seed % len(FAMILIES)](np.random.default_rng([seed, 17]), plan)


def drawn_reduction(seed: int) -> planted_reductions.Planted:
    """Draw a reduction of 24 to 160 elements."""
    rng = np.random.default_rng([seed, 19])
    kind = rng.choice(["f32", "f64", "bf16", "f16"], p=[0.55, 0.1, 0.2, 0.15]).item()
    others = {"f32": ["f32", "f32", "f32", "f64", "bf16", "f16"], "f64": ["f64"], "bf16": ["f32", "f32", "bf16"]}
    partial = rng.choice(others.get(kind, ["f32", "f32", "f16"])).item()
    faults: tuple[Fault, ...] = get_args(Fault)[1:]
    fault = faults[rng.integers(len(faults))] if rng.random() < 0.3 else ""
    k = 1 << int(rng.integers(5, 8)) if fault.startswith("mean") else int(rng.integers(24, 161))
    if fault != "atomics" and fault != "another row" and rng.random() < 0.08:
        compensated = COMPENSATED[rng.integers(2)]
        name, order = compensated.__name__, compensated
    else:
        name, order = _drawn_order(rng, k, int(rng.integers(1, 4)))
    slots = int(rng.integers(3, 9))
    return planted_reductions.Planted(order, name, int(rng.integers(4, 17)), k, kind, partial, fault, slots)


def _drawn_order(rng: np.random.Generator, k: int, depth: int) -> tuple[str, Sum]:
    """Draw an order of k elements: simple ones, or lanes and blocks of them."""
    simple = (sequential, backwards, pairwise, butterfly)
    chosen = simple[rng.integers(len(simple))]
    if depth == 1 or k < 4:
        return chosen.__name__, chosen
    how = rng.integers(5)
    if how == 0:
        size = int(rng.integers(3, 9))
        return f"cascade of {size}", cascade(size)
    if how < 3:
        count = int(rng.choice([2, 3, 4, 8, 16, 32]))
        name, last = _drawn_order(rng, count, depth - 1)
        return f"{count} lanes ({name})", lanes(count, last)
    size = int(rng.choice([4, 8, 16, 32, int(rng.integers(3, 48))]))
    (inside, inner), (outside, outer) = (_drawn_order(rng, n, depth - 1) for n in (size, -(-k // size)))
    return f"blocks of {size} ({inside}; {outside})", blocks(size, inner, outer)
