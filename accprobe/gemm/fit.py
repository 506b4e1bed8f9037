"""Which plan explains the answers: arithmetics are tried until none is contradicted, or the one is left that is least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.product import rounded_words
from accprobe.gemm.battery import Answered, Sparse, query, wrong
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.candidates import any_steps, beside, known_steps, single_steps
from accprobe.gemm.decomposition import FusedGroups, Reduction, width
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan, plan_alternatives
from accprobe.gemm.slices import slice_readings
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree_builder import NoTree
from accprobe.gemm.units import power
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import OPERAND_ROUNDINGS, multiply_add
from accprobe.model.tree import DotModel, FloatArithmetic, Rounding

# How often all respects are gone through.
FIT_ROUNDS = 4

# Results of a battery that a plan is compared with before all others.
FIRST = 96

# Products of a fused sum whose arithmetic is searched for: twice those of the widest published (mxf4nvf4 of sm_100: 64).
WIDEST_SUM = 128


@dataclass(frozen=True)
class Fitted:
    """The plan that explains most. wrong: answers that it does not explain, of `answers`."""

    plan: ProductPlan
    wrong: int
    answers: int


def fit(
    spec: Spec,
    tree: FusedGroups | Reduction,
    answered: Answered,
    inner: Answered,
    unordered: bool = False,
    operand_rounding: Rounding = "RZ",
) -> Fitted:
    """The plan with the fewest contradictions. inner: those of the answers whose terms are all of one chain, which do not tell
    chunks from slices.
    """
    started: ProductPlan | None = None
    best: Fitted | None = None
    for reading in (tree,) if unordered else slice_readings(tree):
        any_order = unordered and isinstance(reading, Reduction)
        if started is None:
            started = _started(
                ProductPlan(spec, reading, multiply_add(), unordered=any_order, operand_rounding=operand_rounding), inner
            )
        found = _others(replace(started, tree=reading, unordered=any_order), answered)
        if best is None or found.wrong < best.wrong:
            best = found
        if not best.wrong or _wrong(started, inner):  # No reading changes what one chain adds up.
            break
    assert best is not None
    return best


def _started(blank: ProductPlan, inner: Answered) -> ProductPlan:
    """The plan with the chains that explain most, and with what their sums are rounded to later on."""
    spec, products = blank.spec, width(blank.tree)
    if products > WIDEST_SUM:
        raise NoTree(f"{products} products seem to be added in one fused sum; sums of at most {WIDEST_SUM} are searched for")
    best, fewest = None, len(inner) + 1
    for steps in (list(_known(spec, products)), any_steps(products) if products > 1 else ()):
        for plan in _roundings(blank):
            for step in steps:
                count = _fewer(replace(plan, step=step), inner, fewest)
                if count is not None:
                    best, fewest = replace(plan, step=step), count
                if not fewest and best is not None:
                    return best
    best = best and _refined(best, inner, fewest)
    if best is None:
        raise NoTree(f"no sum of {products} products is known for {spec.a} and {spec.b}")
    return best


def _refined(plan: ProductPlan, inner: Answered, fewest: int) -> ProductPlan:
    """The plan with other bits of its sums, one field at a time, while that explains more."""
    improved = plan.step.products > 1
    while improved:
        improved = False
        arithmetic = plan.step.root.arithmetic
        for step in beside(arithmetic, plan.step.products) if isinstance(arithmetic, FloatArithmetic) else ():
            count = _fewer(replace(plan, step=step), inner, fewest)
            if count is not None:
                plan, fewest, improved = replace(plan, step=step), count, True
    return plan


def _roundings(plan: ProductPlan) -> Iterator[ProductPlan]:
    """The plan, and those in which sums are rounded again: kept in another format, or to D's otherwise."""
    yield plan
    for respect, _, other in plan_alternatives(plan):
        if respect not in ("promotion_rounding", "operand_rounding"):
            yield other


def _known(spec: Spec, products: int) -> Iterator[DotModel]:
    if products == 1:
        yield from single_steps()
    for _, step in known_steps(spec.a, spec.b, products):
        yield step


def _others(plan: ProductPlan, answered: Answered) -> Fitted:
    fewest = _wrong(plan, answered)
    if fewest is None:
        fewest = len(answered)
    for _ in range(FIT_ROUNDS):
        changed = False
        for _, _, other in plan_alternatives(plan):
            if not fewest:
                break
            count = _fewer(other, answered, fewest)
            if count is not None:
                plan, fewest, changed = other, count, True
        if not changed:
            break
    return Fitted(plan, fewest, len(answered))


def _wrong(plan: ProductPlan, answered: Answered) -> int | None:
    """Answers that a plan contradicts; None where it cannot be evaluated."""
    try:
        return wrong(plan.model(), answered)
    except AccprobeError:
        return None


def _fewer(plan: ProductPlan, answered: Answered, fewest: int) -> int | None:
    """Count the results that a plan contradicts, where they are fewer than `fewest`. Most plans fail at the first few."""
    first = _wrong(plan, answered[:FIRST])
    if first is None or first >= fewest:
        return None
    rest = _wrong(plan, answered[FIRST:])
    return None if rest is None or first + rest >= fewest else first + rest


def within(answered: Answered, groups: Iterable[int]) -> Answered:
    """The answers whose terms are all among those k."""
    inside = np.isin(answered.dots.ks, np.fromiter(groups, np.int64)) | (answered.dots.a == 0)
    rows = inside.all(axis=1)
    return Answered(answered.dots[rows], answered.d[rows])


# Numbers from 1 on in steps of half a last bit: ties above even and odd values.
_HALF_STEPS = 8


class LowBits(NamedTuple):
    """The rounding that explains most results."""

    rounding: Rounding
    answered: Answered


def low_bits(asked: RecordedCallable, chain: FusedGroups, rows: Ints, columns: Ints) -> LowBits:
    """Determine whether excess operand bits (tf32) are truncated or rounded, by the library or the instruction.

    Operands at ties and beside them are multiplied by 1, and added to a cancelling -1 in the same chain.
    """
    spec = asked.spec
    of_a, of_b = _words(spec.a), _words(spec.b)
    one_a, one_b = np.full(len(of_b), power(spec.a, 0), spec.a.dtype), np.full(len(of_a), power(spec.b, 0), spec.b.dtype)
    a, b = np.concatenate([of_a, one_a]), np.concatenate([one_b, of_b])
    ks = [k for group in chain for k in group][:2]
    less = spec.a.values(a) * spec.b.values(b) > 0
    minus = np.where(less, power(spec.a, 0, negative=True), power(spec.a, 0)).astype(spec.a.dtype)
    columns_of = [(a, b), (minus, np.full(len(a), power(spec.b, 0), spec.b.dtype))][: len(ks)]
    dots = Sparse(np.tile(np.array(ks), (len(a), 1)), *(np.stack(each, axis=1) for each in zip(*columns_of, strict=True)))
    answered = query(asked, dots, rows, columns)
    found = spec.out.values(answered.d)

    def wrong(how: Rounding) -> int:
        x, y = (fmt.values(rounded_words(fmt, words, how)) for fmt, words in ((spec.a, dots.a), (spec.b, dots.b)))
        return int(np.count_nonzero((x * y).sum(axis=1)[: len(found)] != found))

    return LowBits(min(OPERAND_ROUNDINGS, key=wrong), answered)


def _words(fmt: Format) -> Bits:
    """Return these operands, [n]; none if the format fills its words."""
    if not fmt.ignored_low_bits:
        return np.zeros(0, fmt.dtype)
    half = 1 << (fmt.ignored_low_bits - 1)
    above = np.add.outer(np.arange(_HALF_STEPS) * half, [-1, 0, 1]).reshape(-1) + power(fmt, 0)
    return np.concatenate([above, above | fmt.sign_bit]).astype(fmt.dtype)
