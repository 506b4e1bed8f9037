"""How scales are applied: which of them to which block, in which order, rounded how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.random import Generator

from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.adapter import ones
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.distributions import random_lines
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.prescaled import ScaledCall, applied_before, is_far_off
from accprobe.gemm.spec import BLOCK
from accprobe.gemm.units import power
from accprobe.gemm.verification import count_wrong, drawn, of_lines, scale_words
from accprobe.isa.formats import Bits
from accprobe.model.product import Scales, Scaling, restricted

SIDE, WIDE = 64, 512
"""Rows, and columns, of a call on which ways to scale are compared; and of calls in which each element is a product or two."""

UNORDERED_SIDE = 8
"""Rows of the same where partial sums are added in any order, each of which is tried."""

MOST_DRAWN = 256
"""Operands of a product or two an element that are drawn in search of some that tell ways to scale apart."""

_NEAR = 2.0**-9
"""By how much, at most, the scales of two blocks differ whose products take each other away."""

OTHER_FACTOR = "ones come out with another factor than the product of their scales"
"""What is said of scales that are no block's."""

KINDS = ("normal", "same sign", "wide")


@dataclass(frozen=True)
class Scaled:
    """The plan with its scales. wrong: elements that it does not explain, of `elements`; left: other ways that explain all.

    misplaced: what is said of scales that went elsewhere, "" where each is applied to its own block. before: how scales are
    applied before the product, "" where they are not. plan: None where they are, or where its results are far off.
    """

    plan: ProductPlan | None
    wrong: int
    elements: int
    left: tuple[str, ...]
    misplaced: str
    before: str = ""


def with_scales(
    asked: RecordedCallable, plan: ProductPlan, rows: Ints, columns: Ints, seed: int, evaluate: Evaluate = on_cpu
) -> Scaled:
    """Asks with scales that are no powers of two, whose products must be rounded."""
    rng = np.random.default_rng((seed, 0x5CA1E))
    wide = rows[:WIDE], columns[:WIDE]
    rows, columns = rows[: UNORDERED_SIDE if plan.unordered else SIDE], columns[:SIDE]
    calls = []
    for kind in KINDS:
        a, b, scales = drawn(asked.spec, kind, rng, rows, columns)
        assert scales is not None
        d = asked.product(a, b, scales, keep=False)[np.ix_(rows, columns)]
        calls.append(ScaledCall(a[rows], b[columns], of_lines(scales, rows, columns), d))
    ways = list(_ways(plan))
    counts = {way: sum(_wrong(evaluate, replace(plan, scales=way), *call) for call in calls) for way in ways}
    for _ in range(MOST_DRAWN):
        possible = [way for way in ways if not counts[way]]
        if len(possible) < 2:
            break
        few = _wrong_of_few if ways[0].inside else _wrong_of_one
        for way, wrong in zip(possible, few(asked, plan, possible, *wide, rng, evaluate), strict=True):
            counts[way] += wrong
    best = min(counts, key=lambda way: counts[way])
    elements = sum(call.d.size for call in calls)
    left = tuple(scaling_in_words(way) for way, wrong in counts.items() if wrong == 0 and way != best)
    misplaced, before, found = _misplaced(asked, rows, columns, rng), "", replace(plan, scales=best)
    if counts[best] and misplaced in ("", OTHER_FACTOR) and not plan.unordered:
        before = applied_before(plan.model(), calls)
        if before or is_far_off(found.model(), calls):
            return Scaled(None, counts[best], elements, left, misplaced, before)
    return Scaled(found, counts[best], elements, left, misplaced)


def scaling_in_words(scales: Scales) -> str:
    """ "RNE(sa·sb), applied once after the sum"."""
    how = {"product of scales": "RNE(sa·sb)", "a then b": "sa, then sb", "b then a": "sb, then sa"}[scales.how]
    if not scales.inside:
        return f"{how}, applied once after the sum"
    return f"{how}, applied to each {BLOCK} products{' by the multiply-add that adds them' if scales.fused else ''}"


def _ways(plan: ProductPlan) -> Iterator[Scales]:
    assert plan.spec.scale is not None
    for how in get_args(Scaling):
        ways = Scales(plan.spec.scale, how)
        yield ways
        if ways.inside and plan.spec.k > BLOCK:
            yield replace(ways, fused=True)


def _wrong(evaluate: Evaluate, plan: ProductPlan, a: Bits, b: Bits, scales: ScaleWords | None, d: Bits) -> int:
    return count_wrong(evaluate, plan.model(), a, b, scales, d)


def _wrong_of_few(
    asked: RecordedCallable,
    plan: ProductPlan,
    ways: Sequence[Scales],
    rows: Ints,
    columns: Ints,
    rng: Generator,
    evaluate: Evaluate,
) -> list[int]:
    """Of each way, elements of one product that it does not explain; nothing is asked where all ways give the same.

    The product less the same of the next block, whose scales are nearly the same: what is rounded off shows in a D of few bits.
    """
    spec = asked.spec
    few = np.arange(0, min(spec.k, 2 * BLOCK), BLOCK)
    scales = scale_words(spec, rng)
    assert scales is not None
    a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
    a[np.ix_(rows, few)], b[np.ix_(columns, few)] = (
        random_lines(fmt, (count, 1), "normal", rng) for fmt, count in ((spec.a, len(rows)), (spec.b, len(columns)))
    )
    if len(few) > 1:
        b[columns, few[1]] ^= spec.b.dtype.type(spec.b.sign_bit)
        scales.a[:, 1] = scales.a[:, 0] * rng.uniform(1 - _NEAR, 1 + _NEAR, spec.m)
        scales.b[1] = scales.b[0]
    smaller, ks = restricted(plan.model(), few)
    words = of_lines(scales, rows, columns)
    expected = [evaluate(replace(smaller, scales=way), a[rows][:, ks], b[columns][:, ks], words) for way in ways]
    if all(np.array_equal(expected[0], other) for other in expected[1:]):
        return [0] * len(ways)
    d = asked.product(a, b, scales, keep=False)[np.ix_(rows, columns)]
    return [int(np.count_nonzero(each != d)) for each in expected]


def _wrong_of_one(
    asked: RecordedCallable,
    plan: ProductPlan,
    ways: Sequence[Scales],
    rows: Ints,
    columns: Ints,
    rng: Generator,
    evaluate: Evaluate,
) -> list[int]:
    """The same where a row of A, and a column of B, has one scale: many pairs are tried; one that tells ways apart is asked."""
    spec = asked.spec
    smaller, ks = restricted(plan.model(), np.zeros(1, np.int64))
    x, y = (random_lines(fmt, (WIDE, 1), "normal", rng) * (ks == 0).astype(fmt.dtype) for fmt in (spec.a, spec.b))
    pairs = ScaleWords(*(rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in ((WIDE, 1), (1, WIDE))))
    expected = np.stack([evaluate(replace(smaller, scales=way), x, y, pairs) for way in ways])
    apart = np.argwhere((expected != expected[0]).any(axis=0))
    if not len(apart):
        return [0] * len(ways)
    i, j = apart[0]
    a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
    a[rows, 0], b[columns, 0] = x[i].max(), y[j].max()
    plain = ones(spec)
    scales = ScaleWords(plain.a * pairs.a[i], plain.b * pairs.b[0, j])
    d = asked.product(a, b, scales, keep=False)[np.ix_(rows, columns)]
    return [int(np.count_nonzero(each != d)) for each in expected[:, i, j]]


def _misplaced(asked: RecordedCallable, rows: Ints, columns: Ints, rng: Generator) -> str:
    """Ones at one k of each block alone, under powers of two: whose scales came out."""
    spec = asked.spec
    words = scale_words(spec, rng)
    assert words is not None
    scales = ScaleWords(*(np.exp2(rng.integers(-6, 7, x.shape)).astype(np.float32) for x in words))
    if spec.scale == "128x128":
        scales = ScaleWords(scales.a, scales.b[:, np.arange(spec.n) // BLOCK * BLOCK])
    blocks = -(-spec.k // BLOCK) if spec.scale in ("1x128", "128x128") else 1
    for block in range(blocks):
        a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
        a[:, block * BLOCK], b[:, block * BLOCK] = power(spec.a, 0), power(spec.b, 0)
        got = spec.out.values(asked.product(a, b, scales, keep=False))[np.ix_(rows, columns)]
        expected = [_of_block(scales, i, rows, columns, blocks) for i in range(blocks)]
        if not np.array_equal(got, expected[block]):
            other = next((i for i in range(blocks) if np.array_equal(got, expected[i])), None)
            if blocks == 1:
                return OTHER_FACTOR
            return f"block {block} has the scales of {'no block' if other is None else f'block {other}'}"
    return ""


def _of_block(
    scales: ScaleWords, block: int, rows: Ints, columns: Ints, blocks: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    some = of_lines(scales, rows, columns)
    a, b = (some.a[:, [block]], some.b[[block]]) if blocks > 1 or scales.a.shape[1] > 1 else (some.a, some.b)
    return np.broadcast_to(a.astype(np.float64) * b, (len(rows), len(columns)))
