"""Infer how scales are applied: to the operands or to the sums of blocks, in which order, and with which rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.random import Generator

from accprobe.callables.operands import Ints, draw_operands, layout_of, make_scales, power, random_scales, unit_scales
from accprobe.callables.spec import BLOCK, Spec
from accprobe.evaluate.any_order import Evaluate
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import ScaleWords, Singles, is_multiply_add, product
from accprobe.evaluate.quantised import nearest_patterns
from accprobe.gemm.blackbox import Call, RecordedCallable, scales_of_lines
from accprobe.gemm.verification import count_wrong
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel, Scales, Scaling, multiply_add, restricted
from accprobe.operands.distributions import random_lines

# Rows, and columns, of a call on which ways to scale are compared; and of calls in which an element is one or two products.
SIDE, WIDE = 64, 512
# SIDE for rows if partial sums are added in any order, because each order is tried.
UNORDERED_SIDE = 8
# Draws of one or two products for each element in search of some that distinguish ways to scale.
MOST_DRAWN = 256
# Relative difference of the scales of two blocks with cancelling products.
_NEAR = 2.0**-9
# Formats to which scaled operands may be rounded.
SCALED_FORMATS = ("f32", "bf16", "f16")
# A plan is too far off to be suggested if a result differs by more than this share of the largest result.
MOST_ERROR = 2.0**-4
OTHER_FACTOR = "ones are scaled by another factor than the product of their scales"
KINDS = ("normal", "same sign", "wide", "cancelling")


@dataclass(frozen=True)
class Scaled:
    """The plan with its scales. It is None if `before` explains the results, or if its results are far off.

    mismatches: of `elements` compared. others: other ways that explain all. misplaced: which block has the scales of another
    one, or OTHER_FACTOR; "" if neither. before: how scales are applied before the product, or rounded first; "" if not.
    """

    plan: ProductModel | None
    mismatches: int
    elements: int
    others: tuple[str, ...]
    misplaced: str
    before: str = ""


def infer_scales(subject: RecordedCallable, plan: ProductModel, rows: Ints, columns: Ints) -> Scaled:
    """Probe with scales that are not powers of two: their products must be rounded."""
    rng = subject.rng(0x5CA1E)
    probes = _FewProducts(subject, plan, rows[:WIDE], columns[:WIDE], rng)
    rows, columns = rows[: SIDE if plan.is_ordered else UNORDERED_SIDE], columns[:SIDE]
    calls = []
    for kind in KINDS:
        a, b, scales = draw_operands(subject.spec, kind, rng)
        calls.append(Call(a, b, scales, subject.product(a, b, scales, keep=False)).part(rows, columns))
    ways = list(_ways(subject.spec))
    counts = {way: sum(count_wrong(subject.evaluate, replace(plan, scales=way), *call) for call in calls) for way in ways}
    for _ in range(MOST_DRAWN):
        possible = [way for way in ways if not counts[way]]
        if len(possible) < 2:
            break
        wrong = probes.of_two_blocks(possible) if ways[0].by_block else probes.of_one_product(possible)
        for way, count in zip(possible, wrong, strict=True):
            counts[way] += count
    best = min(counts, key=lambda way: counts[way])
    others = tuple(scaling_in_words(way) for way in ways if way != best and not counts[way])
    misplaced, before = _misplaced(subject, rows, columns, rng), ""
    found: ProductModel | None = replace(plan, scales=best)
    if found and counts[best] and misplaced in ("", OTHER_FACTOR) and plan.is_ordered:
        before = _applied_before(plan, calls) or _rounded_first(plan, ways, calls, subject.evaluate)
        if before or any(_relative_error(found, call) > MOST_ERROR for call in calls):
            found = None
    return Scaled(found, counts[best], sum(call.d.size for call in calls), others, misplaced, before)


def scaling_in_words(scales: Scales) -> str:
    """Return a description such as "RNE(sa·sb), applied once after the sum"."""
    how = {"product of scales": "RNE(sa·sb)", "a then b": "sa, then sb", "b then a": "sb, then sa"}[scales.how]
    if not scales.by_block:
        return f"{how}, applied once after the sum"
    return f"{how}, applied to each {BLOCK} products{' by the multiply-add that adds them' if scales.fused else ''}"


def _ways(spec: Spec) -> Iterator[Scales]:
    assert spec.scale is not None
    for how in get_args(Scaling):
        ways = Scales(spec.scale, how)
        yield ways
        if ways.by_block and spec.k > BLOCK:
            yield replace(ways, fused=True)


@dataclass(frozen=True)
class _FewProducts:
    """Calls with one or two products in each element, to compare ways to scale."""

    subject: RecordedCallable
    plan: ProductModel
    rows: Ints
    columns: Ints
    rng: Generator

    def of_two_blocks(self, ways: Sequence[Scales]) -> list[int]:
        """Count the elements that each way does not explain; 0 without a probe if all ways predict the same.

        The same product of two blocks cancels, and their scales are nearly equal, so that a D of few bits shows what was
        rounded.
        """
        spec, rows, columns, rng = self.subject.spec, self.rows, self.columns, self.rng
        scales, few = random_scales(spec, rng), np.arange(0, min(spec.k, 2 * BLOCK), BLOCK)
        assert scales is not None
        a, b = layout_of(spec).blank()
        a[np.ix_(rows, few)], b[np.ix_(columns, few)] = (
            random_lines(fmt, (len(lines), 1), "normal", rng) for fmt, lines in ((spec.a, rows), (spec.b, columns))
        )
        if len(few) > 1:
            b[columns, few[1]] ^= spec.b.dtype.type(spec.b.sign_bit)
            scales.a[:, 1] = scales.a[:, 0] * rng.uniform(1 - _NEAR, 1 + _NEAR, spec.m)
            scales.b[1] = scales.b[0]
        smaller, ks = restricted(self.plan, few)
        expected = self._expected(smaller, ways, a[rows][:, ks], b[columns][:, ks], scales_of_lines(scales, rows, columns))
        return self._wrong(a, b, scales, expected) if (expected != expected[0]).any() else [0] * len(ways)

    def of_one_product(self, ways: Sequence[Scales]) -> list[int]:
        """Count as `of_two_blocks`, with one scale for all rows of A and one for all columns of B, which distinguish ways."""
        spec, rng, plain = self.subject.spec, self.rng, unit_scales(self.subject.spec)
        smaller, ks = restricted(self.plan, np.zeros(1, np.int64))
        x, y = (random_lines(fmt, (WIDE, 1), "normal", rng) * (ks == 0).astype(fmt.dtype) for fmt in (spec.a, spec.b))
        pairs = ScaleWords(*(rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in ((WIDE, 1), (1, WIDE))))
        expected = self._expected(smaller, ways, x, y, pairs)
        differing = np.argwhere((expected != expected[0]).any(axis=0))
        if not len(differing):
            return [0] * len(ways)
        i, j = differing[0]
        a, b = layout_of(spec).blank()
        a[self.rows, 0], b[self.columns, 0] = x[i].max(), y[j].max()
        return self._wrong(a, b, ScaleWords(plain.a * pairs.a[i], plain.b * pairs.b[0, j]), expected[:, i, j, None, None])

    def _expected(self, model: ProductModel, ways: Sequence[Scales], a: Bits, b: Bits, scales: ScaleWords) -> Bits:
        return np.stack([self.subject.evaluate(replace(model, scales=way), a, b, scales) for way in ways])

    def _wrong(self, a: Bits, b: Bits, scales: ScaleWords, expected: Bits) -> list[int]:
        """Return how many results of a call differ from each of those that are expected, [ways, rows, columns]."""
        d = self.subject.product(a, b, scales, keep=False)[np.ix_(self.rows, self.columns)]
        return [int(count) for count in (expected != d).sum(axis=(1, 2))]


def _misplaced(subject: RecordedCallable, rows: Ints, columns: Ints, rng: Generator) -> str:
    """Name the scales of another block, "" if each block has its own: ones at one k of each block, scaled by powers of two."""
    spec = subject.spec
    scales = make_scales(spec, lambda shape: np.exp2(rng.integers(-6, 7, shape)).astype(np.float32))
    blocks = -(-spec.k // BLOCK) if spec.scale in ("1x128", "128x128") else 1
    for block in range(blocks):
        a, b = layout_of(spec).blank()
        a[:, block * BLOCK], b[:, block * BLOCK] = power(spec.a, 0), power(spec.b, 0)
        got = spec.out.values(subject.product(a, b, scales, keep=False))[np.ix_(rows, columns)]
        same = [np.array_equal(got, _factors(scales, i, rows, columns, blocks)) for i in range(blocks)]
        if not same[block]:
            other = f"block {same.index(True)}" if any(same) else "no block"
            return OTHER_FACTOR if blocks == 1 else f"block {block} has the scales of {other}"
    return ""


def _factors(scales: ScaleWords, block: int, rows: Ints, columns: Ints, blocks: int) -> Floats:
    some = scales_of_lines(scales, rows, columns)
    a, b = (some.a[:, [block]], some.b[[block]]) if blocks > 1 or scales.a.shape[1] > 1 else (some.a, some.b)
    return np.broadcast_to(a.astype(np.float64) * b, (len(rows), len(columns)))


def _applied_before(model: ProductModel, calls: Sequence[Call]) -> str:
    """Describe scales that are applied before the product, if that explains every scaled result; otherwise "".

    model: the scales of its results do not matter.
    """
    some = [call for call in calls if call.scales is not None]
    if not some or not model.is_ordered:
        return ""
    steps = [multiply_add(), multiply_add(fused=False)] if is_multiply_add(model) else [model.step]
    for name in SCALED_FORMATS:
        fmt = FORMATS[name]
        for step in steps:
            plain = replace(model, a=fmt, b=fmt, scales=None, step=step)
            if all(np.array_equal(product(plain, *_scaled_operands(call, model, fmt)), call.d) for call in some):
                return f"the scales are applied to A and B before the product, rounded to {name}"
    return ""


# How scales may be rounded before they are applied: to bf16, or to powers of two like scales of MX blocks.
ROUNDED_SCALES: Mapping[str, Callable[[Singles], Singles]] = {
    "bf16": lambda x: FORMATS["bf16"].values(nearest_patterns(FORMATS["bf16"], x)).astype(np.float32),
    "powers of two, upward": lambda x: np.exp2(np.ceil(np.log2(x))),
    "powers of two, downward": lambda x: np.exp2(np.floor(np.log2(x))),
    "powers of two, to nearest": lambda x: np.exp2(np.rint(np.log2(x))),
}


def _rounded_first(plan: ProductModel, ways: Sequence[Scales], calls: Sequence[Call], evaluate: Evaluate) -> str:
    """Describe scales that are rounded before they are applied, if that explains every scaled result; otherwise ""."""
    for name, rounded in ROUNDED_SCALES.items():
        some = [call._replace(scales=ScaleWords(*map(rounded, call.scales))) for call in calls if call.scales is not None]
        if any(not any(count_wrong(evaluate, replace(plan, scales=way), *call) for call in some) for way in ways):
            return f"the scales are rounded to {name}, before they are applied"
    return ""


def _scaled_operands(call: Call, model: ProductModel, fmt: Format) -> tuple[Bits, Bits]:
    assert call.scales is not None
    words = []
    for operand, patterns, scales in ((model.a, call.a, call.scales.a), (model.b, call.b, call.scales.b.T)):
        each = np.repeat(scales, BLOCK, axis=1)[:, : call.a.shape[1]] if scales.shape[1] > 1 else scales
        with np.errstate(all="ignore"):
            words.append(fmt.patterns(operand.values(patterns).astype(np.float32) * each.astype(np.float32)))
    return words[0], words[1]


def _relative_error(model: ProductModel, call: Call) -> float:
    """Return the largest error of the model's finite results, relative to the largest result."""
    got, expected = (model.result.values(d) for d in (call.d, product(model, call.a, call.b, scales=call.scales)))
    finite = np.isfinite(got) & np.isfinite(expected)
    return float(np.max(abs(got - expected)[finite], initial=0) / max(np.max(abs(got)[finite], initial=0), 2.0**-126))
