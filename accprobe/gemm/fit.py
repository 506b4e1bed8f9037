"""Fit a plan to results: try arithmetics until one explains them all, or return the one with the fewest mismatches.

A fitted plan is then compared with every kept result, and replaced by a similar plan if that explains them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.product import rounded_words
from accprobe.gemm import dots
from accprobe.gemm.blackbox import Call, RecordedCallable
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.dots import FIRST, ProbedDots, SparseDots
from accprobe.gemm.layout import Ints, power
from accprobe.gemm.plans import ProductPlan, rounding_alternatives
from accprobe.gemm.spec import Spec
from accprobe.gemm.steps import any_steps, known_steps, single_steps, variants
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction, width, with_first_sums_swapped
from accprobe.gemm.tree.slices import slice_readings
from accprobe.gemm.tree.tree_builder import NoTree
from accprobe.gemm.verification import TOGETHER
from accprobe.infer.alternatives.neighbours import alternatives
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import OPERAND_ROUNDINGS, multiply_add
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, Rounding

# Maximum number of passes over all roundings.
FIT_ROUNDS = 4

# Maximum width of a fused sum whose arithmetic is searched: twice the widest published one (mxf4nvf4 of sm_100: 64).
WIDEST_SUM = 128

# Numbers from 1 on in steps of half a last bit: ties above even and odd values.
_HALF_STEPS = 8


@dataclass(frozen=True)
class Fitted:
    """The plan with the fewest mismatches, among `results`."""

    plan: ProductPlan
    mismatches: int
    results: int


def fit(
    spec: Spec,
    tree: FusedGroups | Reduction,
    probed: ProbedDots,
    inner: ProbedDots,
    unordered: bool = False,
    operand_rounding: Rounding = "RZ",
) -> Fitted:
    """Return the plan with the fewest mismatches. inner: results of one chain only, which do not depend on the slices."""
    start: ProductPlan | None = None
    best: Fitted | None = None
    for reading in (tree,) if unordered else slice_readings(tree):
        any_order = unordered and isinstance(reading, Reduction)
        if start is None:
            blank = ProductPlan(spec, reading, multiply_add(), unordered=any_order, operand_rounding=operand_rounding)
            start = _fit_chain(blank, inner)
        found = _fit_roundings(replace(start, tree=reading, unordered=any_order), probed)
        if best is None or found.mismatches < best.mismatches:
            best = found
        if not best.mismatches or _count(start, inner):  # no reading changes the sums of one chain
            break
    assert best is not None
    return best


def _fit_chain(blank: ProductPlan, inner: ProbedDots) -> ProductPlan:
    """Return the plan with the fused sum, and the later roundings, that explain most results of one chain."""
    spec, products = blank.spec, width(blank.tree)
    if products > WIDEST_SUM:
        raise NoTree(f"{products} products seem to be added in one fused sum; accprobe searches sums of up to {WIDEST_SUM}")
    plans = [
        blank,
        *(x.plan for x in rounding_alternatives(blank) if x.property not in ("promotion_rounding", "operand_rounding")),
    ]
    best, fewest = None, len(inner) + 1
    for steps in (list(_known_steps(spec, products)), any_steps(products) if products > 1 else ()):
        for plan in plans:
            for step in steps:
                count = _count_fewer(replace(plan, step=step), inner, fewest)
                if count is not None:
                    best, fewest = replace(plan, step=step), count
                if not fewest and best is not None:
                    return best
    best = best and _refined(best, inner, fewest)
    if best is None:
        raise NoTree(f"no fused sum of {products} products is known for {spec.a} and {spec.b}")
    return best


def _known_steps(spec: Spec, products: int) -> Iterator[DotModel]:
    if products == 1:
        yield from single_steps()
    for _, step in known_steps(spec.a, spec.b, products):
        yield step


def _refined(plan: ProductPlan, inner: ProbedDots, fewest: int) -> ProductPlan:
    """Vary the bits of the fused sum, one field at a time, while that reduces the mismatches."""
    improved = plan.step.products > 1
    while improved:
        improved = False
        arithmetic = plan.step.root.arithmetic
        for step in variants(arithmetic, plan.step.products) if isinstance(arithmetic, FloatArithmetic) else ():
            count = _count_fewer(replace(plan, step=step), inner, fewest)
            if count is not None:
                plan, fewest, improved = replace(plan, step=step), count, True
    return plan


def _fit_roundings(plan: ProductPlan, probed: ProbedDots) -> Fitted:
    fewest = _count(plan, probed)
    if fewest is None:
        fewest = len(probed)
    for _ in range(FIT_ROUNDS):
        changed = False
        for other in rounding_alternatives(plan):
            if not fewest:
                break
            count = _count_fewer(other.plan, probed, fewest)
            if count is not None:
                plan, fewest, changed = other.plan, count, True
        if not changed:
            break
    return Fitted(plan, fewest, len(probed))


def _count(plan: ProductPlan, probed: ProbedDots) -> int | None:
    """Count the mismatches of a plan; None if it cannot be evaluated."""
    try:
        return dots.count_mismatches(plan.model(), probed)
    except AccprobeError:
        return None


def _count_fewer(plan: ProductPlan, probed: ProbedDots, fewest: int) -> int | None:
    """Count the mismatches of a plan if they are fewer than `fewest`."""
    first = _count(plan, probed[:FIRST])
    if first is None or first >= fewest:
        return None
    rest = _count(plan, probed[FIRST:])
    return None if rest is None or first + rest >= fewest else first + rest


def is_contradicted(plan: ProductPlan, probed: Sequence[ProbedDots]) -> bool:
    """Return whether some result contradicts the plan, or it cannot be evaluated."""
    try:
        model = plan.model()
        return any(dots.count_mismatches(model, each[part]) for part in (slice(FIRST), slice(FIRST, None)) for each in probed)
    except AccprobeError:
        return True


def refit_step(plan: ProductPlan, probed: Sequence[ProbedDots]) -> ProductPlan | None:
    """Return the plan with other bits in its fused sum that explains all results; None if none does."""
    if not isinstance(plan.step.root.arithmetic, FloatArithmetic):
        return None
    model = plan.model()
    contradicting = [each[np.flatnonzero(dots.mismatching(model, each))[:FIRST]] for each in probed]
    contradicting = [each for each in contradicting if len(each)]
    steps = variants(plan.step.root.arithmetic, plan.step.products) if contradicting else ()
    others = (replace(plan, step=step) for step in steps)
    return next((x for x in others if not is_contradicted(x, contradicting) and not is_contradicted(x, probed)), None)


# A [..., M, K], B [..., N, K] and D [..., M, N] of kept calls.
_Batch = tuple[Bits, Bits, Bits]


@dataclass(frozen=True)
class KeptResults:
    """Kept results of one region, and those that contradict a plan: in all, where the plan overflows, and where both words are
    subnormal.
    """

    plan: ProductPlan
    results: int
    contradicting: int
    overflowed: int
    subnormal: int


def compare_kept(
    plan: ProductPlan, calls: Sequence[Call], region: Region, probed: Sequence[ProbedDots], refit: bool, evaluate: Evaluate
) -> KeptResults:
    """Compare a plan with all kept results of a region. refit: return a similar plan if that explains all of them."""
    batches = list(_region_batches(calls, region))

    def contradicting(plan: ProductPlan) -> list[_Batch]:
        return [each for each in batches if _wrong(plan, each, evaluate).any()]

    failed = contradicting(plan)
    if failed and refit and (other := _refit(plan, probed, failed)):
        plan = other
        failed = contradicting(plan)
    fmt = plan.spec.out
    wrong = overflowed = subnormal = 0
    for a, b, d in failed:
        expected = on_cpu(plan.model(), a, b, None)
        differ = expected != d
        wrong += int(np.count_nonzero(differ))
        overflowed += int(np.count_nonzero(differ & _is_infinite(fmt, expected)))
        subnormal += int(np.count_nonzero(differ & fmt.is_subnormal(d) & fmt.is_subnormal(expected)))
    return KeptResults(plan, sum(each[2].size for each in batches), wrong, overflowed, subnormal)


def _region_batches(calls: Sequence[Call], region: Region) -> Iterator[_Batch]:
    """Yield the region's part of the calls without scales. Small calls of one shape are stacked."""
    alike: dict[tuple[int, ...], list[_Batch]] = {}
    for call in calls:
        rows, columns = np.isin(call.rows, region.rows), np.isin(call.columns, region.columns)
        words = call.a[rows], call.b[columns], call.d[np.ix_(rows, columns)]
        if words[2].size and call.scales is None:
            alike.setdefault(words[2].shape, []).append(words)
    for several in alike.values():
        count = max(1, TOGETHER // several[0][2].size)
        for start in range(0, len(several), count):
            a, b, d = (np.stack(each) for each in zip(*several[start : start + count], strict=True))
            yield a, b, d


def _wrong(plan: ProductPlan, batch: _Batch, evaluate: Evaluate = on_cpu) -> Truths:
    a, b, d = batch
    return np.asarray(evaluate(plan.model(), a, b, None) != d)


def _is_infinite(fmt: Format, patterns: Bits) -> Truths:
    infinity = fmt.infinity if fmt.is_float else None
    unsigned = patterns & fmt.dtype.type(fmt.sign_bit - 1)
    return np.zeros(patterns.shape, bool) if infinity is None else np.asarray(unsigned == infinity)


def _refit(plan: ProductPlan, probed: Sequence[ProbedDots], failed: Sequence[_Batch]) -> ProductPlan | None:
    """Return a plan that explains all results: the first two products of chains swapped, or one field of the step changed."""
    steps = (plan.step.with_arithmetic(_without_floor), *(alternative.model for alternative in alternatives(plan.step, {})))
    for other in (replace(plan, tree=with_first_sums_swapped(plan.tree)), *(replace(plan, step=step) for step in steps)):
        try:
            if any(_wrong(other, batch).any() for batch in failed):
                continue
            if not any(dots.count_mismatches(other.model(), each) for each in probed):
                return other
        except AccprobeError:
            continue
    return None


def _without_floor(arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with small terms aligned like all others, and the sign of underflows kept."""
    if not isinstance(arithmetic, FloatArithmetic):
        return arithmetic
    return replace(arithmetic, min_exponent=None, underflow_sign="kept")


def fit_operand_rounding(
    subject: RecordedCallable, chain: FusedGroups, rows: Ints, columns: Ints
) -> tuple[Rounding, ProbedDots]:
    """Determine whether excess operand bits (tf32) are truncated or rounded, by the library or the instruction.

    Operands at ties and beside them are multiplied by 1, and added to a cancelling -1 in the same chain.
    """
    spec = subject.spec
    of_a, of_b = _ties(spec.a), _ties(spec.b)
    one_a, one_b = np.full(len(of_b), power(spec.a, 0), spec.a.dtype), np.full(len(of_a), power(spec.b, 0), spec.b.dtype)
    a, b = np.concatenate([of_a, one_a]), np.concatenate([one_b, of_b])
    ks = [k for group in chain for k in group][:2]
    positive = spec.a.values(a) * spec.b.values(b) > 0
    minus = np.where(positive, power(spec.a, 0, negative=True), power(spec.a, 0)).astype(spec.a.dtype)
    terms = [(a, b), (minus, np.full(len(a), power(spec.b, 0), spec.b.dtype))][: len(ks)]
    found = SparseDots(np.tile(np.array(ks), (len(a), 1)), *(np.stack(each, axis=1) for each in zip(*terms, strict=True)))
    probed = dots.probe(subject, found, rows, columns)
    got = spec.out.values(probed.d)

    def wrong(how: Rounding) -> int:
        x, y = (fmt.values(rounded_words(fmt, words, how)) for fmt, words in ((spec.a, found.a), (spec.b, found.b)))
        return int(np.count_nonzero((x * y).sum(axis=1)[: len(got)] != got))

    return min(OPERAND_ROUNDINGS, key=wrong), probed


def _ties(fmt: Format) -> Bits:
    """Return operands at ties and beside them; none if the format fills its words."""
    if not fmt.ignored_low_bits:
        return np.zeros(0, fmt.dtype)
    half = 1 << (fmt.ignored_low_bits - 1)
    above = np.add.outer(np.arange(_HALF_STEPS) * half, [-1, 0, 1]).reshape(-1) + power(fmt, 0)
    return np.concatenate([above, above | fmt.sign_bit]).astype(fmt.dtype)
