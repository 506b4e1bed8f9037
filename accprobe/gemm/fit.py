"""Fit a plan to results: try arithmetics until one explains them all, or return the one with the fewest mismatches.

A fitted plan is then compared with every kept result, and replaced by a similar plan if that explains them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np

from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import on_cpu
from accprobe.gemm import dots
from accprobe.gemm.blackbox import KeptPart, RecordedCallable
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.dots import FIRST, SparseDots
from accprobe.gemm.plans import (
    additions_of,
    any_steps,
    known_steps,
    rounding_alternatives,
    single_steps,
    variants,
    with_additions,
    with_step,
)
from accprobe.gemm.tree.decomposition import with_first_sums_swapped
from accprobe.gemm.tree.slices import slice_readings
from accprobe.gemm.verification import TOGETHER
from accprobe.infer.neighbours import alternatives
from accprobe.infer.tree_builder import NoTree
from accprobe.isa.formats import Bits
from accprobe.model.product import Merged, ProductModel, SubnormalSums
from accprobe.model.tree import Arithmetic, FloatArithmetic

# Maximum width of a fused sum to search the arithmetic of: twice the widest published one (mxf4nvf4 of sm_100: 64).
WIDEST_SUM = 128


def fit(spec: Spec, order: ProductModel, probed: SparseDots, inner: SparseDots) -> tuple[ProductModel, int]:
    """Return the plan with the fewest mismatches, and their number.

    order: a plan without known arithmetic. inner: dots within one chain, unaffected by split-K.
    """
    readings = list(slice_readings(order.tree)) if order.is_ordered else [order.tree]
    start = _fit_chain(spec, replace(order, tree=readings[0]), inner)
    if _count_fewer(start, inner, 1) is None:  # no reading changes the sums of one chain
        readings = readings[:1]
    best, fewest = start, len(probed) + 1

    for plan in (with_additions(replace(start, tree=reading), additions_of(start)) for reading in readings):
        count = _count_fewer(plan, probed, len(probed))
        most = len(probed) if count is None else count
        found, wrong = _improved(plan, most, probed, lambda plan: (x.plan for x in rounding_alternatives(spec, plan)))
        if wrong < fewest:
            best, fewest = found, wrong
        if not fewest:
            break
    return best, fewest


def _fit_chain(spec: Spec, order: ProductModel, inner: SparseDots) -> ProductModel:
    """Return the plan with the fused sum, and the later roundings, that explain most results of one chain. Raises NoTree."""
    products = order.step.products
    if products > WIDEST_SUM:
        raise NoTree(f"{products} products seem to be added in one fused sum; accprobe searches sums of up to {WIDEST_SUM}")
    known = [*(single_steps() if products == 1 else ()), *(step for _, step in known_steps(spec.a, spec.b, products))]
    later = (x.plan for x in rounding_alternatives(spec, order) if x.property != "promotion_rounding")
    plans = [order, *later]
    best, fewest = None, len(inner) + 1
    for steps in (known, any_steps(products) if products > 1 else ()):
        for other in (with_step(plan, step) for plan in plans for step in steps):
            if (count := _count_fewer(other, inner, fewest)) is not None:
                best, fewest = other, count
            if not fewest and best is not None:
                return best
    if best is None:
        raise NoTree(f"no fused sum of {products} products is known for {spec.a} and {spec.b}")
    return _improved(best, fewest, inner, other_bits)[0] if products > 1 else best


def _improved(
    plan: ProductModel, fewest: int, probed: SparseDots, others: Callable[[ProductModel], Iterable[ProductModel]]
) -> tuple[ProductModel, int]:
    """Take other plans while they have fewer mismatches. Return the last one and its mismatches."""
    before = fewest + 1
    while 0 < fewest < before:
        before = fewest
        for other in others(plan):
            if fewest and (count := _count_fewer(other, probed, fewest)) is not None:
                plan, fewest = other, count
    return plan, fewest


def other_bits(plan: ProductModel) -> Iterator[ProductModel]:
    arithmetic = plan.step.root.arithmetic
    if isinstance(arithmetic, FloatArithmetic):
        yield from (with_step(plan, step) for step in variants(arithmetic, plan.step.products))


def _count_fewer(plan: ProductModel, probed: SparseDots, fewest: int) -> int | None:
    """Count the mismatches of a plan if it can be evaluated and they are fewer than `fewest`."""
    count = 0
    for part in (slice(FIRST), slice(FIRST, None)):
        try:
            count += dots.count_mismatches(plan, probed[part])
        except AccprobeError:
            return None
        if count >= fewest:
            return None
    return count


# A [..., M, K], B [..., N, K] and D [..., M, N] of kept calls.
_Batch = tuple[Bits, Bits, Bits]


def is_contradicted(plan: ProductModel, probed: Sequence[SparseDots], batches: Sequence[_Batch] = ()) -> bool:
    """Return whether some result contradicts the plan, or it cannot be evaluated."""
    if any(_count_fewer(plan, each, 1) is None for each in probed):
        return True
    try:
        return any((on_cpu(plan, a, b, None) != d).any() for a, b, d in batches)
    except AccprobeError:
        return True


def refit(
    plan: ProductModel, others: Iterable[ProductModel], probed: Sequence[SparseDots], batches: Sequence[_Batch] = ()
) -> ProductModel | None:
    """Return the first of some other plans that explains all results; None if none does, or nothing contradicts the plan."""
    against = [each[np.flatnonzero(dots.mismatching(plan, each))[:FIRST]] for each in probed]
    if not batches and not any(map(len, against)):
        return None
    return next((x for x in others if not is_contradicted(x, against, batches) and not is_contradicted(x, probed)), None)


class KeptResults(NamedTuple):
    """Kept results, and mismatches: all, those where the plan overflows, those where both are subnormal."""

    results: int = 0
    contradicting: int = 0
    overflowed: int = 0
    subnormal: int = 0

    @property
    def only_range_errors(self) -> bool:
        return self.contradicting == self.overflowed + self.subnormal


def compare_kept(
    subject: RecordedCallable,
    plan: ProductModel,
    region: Region,
    probed: Sequence[SparseDots],
    similar: bool,
    first: int = 0,
) -> tuple[ProductModel, KeptResults]:
    """Compare a plan with the kept results of a region, from the call `first` on.

    similar: compare a similar plan instead if it explains all of them.
    """
    batches = list(_region_batches(subject.kept[first:], region))

    def contradicting(plan: ProductModel) -> list[_Batch]:
        return [(a, b, d) for a, b, d in batches if (subject.evaluate(plan, a, b, None) != d).any()]

    failed = contradicting(plan)
    if failed and similar and (other := refit(plan, _similar(plan), probed, failed)):
        plan, failed = other, contradicting(other)
    fmt = plan.result
    wrong = overflowed = subnormal = 0
    for a, b, d in failed:
        expected = on_cpu(plan, a, b, None)
        differ = expected != d
        wrong += int(np.count_nonzero(differ))
        overflowed += int(np.count_nonzero(differ & np.isinf(fmt.values(expected)))) if fmt.is_float else 0
        subnormal += int(np.count_nonzero(differ & fmt.is_subnormal(d) & fmt.is_subnormal(expected)))
    return plan, KeptResults(sum(each[2].size for each in batches), wrong, overflowed, subnormal)


def _similar(plan: ProductModel) -> Iterator[ProductModel]:
    """Yield the plan with one property changed: chains with their first two sums swapped, the fused sum, or what sums flush."""

    def without_floor(arithmetic: Arithmetic) -> Arithmetic:
        """Align small terms like all others, and keep the sign of underflows."""
        if isinstance(arithmetic, FloatArithmetic):
            return replace(arithmetic, min_exponent=None, underflow_sign="kept")
        return arithmetic

    yield replace(plan, tree=with_first_sums_swapped(plan.tree, plan.step.products))
    yield replace(plan, step=plan.step.with_arithmetic(without_floor))
    yield from (with_step(plan, alternative.model) for alternative in alternatives(plan.step, {}))
    if plan.step.products == 1 and plan.a.is_float:
        yield from (with_step(plan, step) for step in single_steps())
    if isinstance(plan.tree, Merged) and isinstance(plan.tree.arithmetic, FloatArithmetic):
        how = additions_of(plan)
        yield from (with_additions(plan, how._replace(subnormals=subnormals)) for subnormals in get_args(SubnormalSums))


def _region_batches(kept: Sequence[KeptPart], region: Region) -> Iterator[_Batch]:
    """Yield the region's part of the calls without scales. Small calls of one shape are stacked."""
    alike: dict[tuple[int, ...], list[_Batch]] = {}
    for call, rows, columns in kept:
        there = np.flatnonzero(np.isin(rows, region.rows)), np.flatnonzero(np.isin(columns, region.columns))
        if call.scales is None and all(map(len, there)):
            a, b, _, d = call.part(*there)
            alike.setdefault(d.shape, []).append((a, b, d))
    for calls in alike.values():
        count = max(1, TOGETHER // calls[0][2].size)
        for start in range(0, len(calls), count):
            a, b, d = (np.stack(each) for each in zip(*calls[start : start + count], strict=True))
            yield a, b, d
