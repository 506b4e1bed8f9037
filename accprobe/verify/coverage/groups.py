"""Events of products that are scaled at once: what their sum does before it is scaled, and as a term beside others.

What it does by itself counts where all other terms are zero and the result is a normal number, which has all of its bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from accprobe.evaluate.decoding import exponents_of, values_of
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.rounding import bit_length
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic, FusedSum
from accprobe.operands.kinds import floats
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.events import NO_BITS, ONE_TERM, SIGNS, Event, EventFamily
from accprobe.verify.coverage.factors import Whole
from accprobe.verify.coverage.scaled_placing import spelled, table_of_products
from accprobe.verify.coverage.spans import Bounds
from accprobe.verify.coverage.terms import Sums

Seen = Iterator[tuple[str, Whole, Whole]]

CUT = ("cut in part", "cut away")

RANDOM = 16  # Sums of any products, for each group.


class ScaledGroups:
    """The groups of a sum: `ks` [groups, products of each]."""

    def __init__(self, inst: Instruction, node: FusedSum, size: int) -> None:
        self.inst, self.size = inst, size
        self.ks = np.array(node.products).reshape(-1, size)
        self.table = table_of_products(inst.a, inst.b, size)
        self.carry = size.bit_length() - 1
        self.depth = int(self.table.multiples[-1]).bit_length() - 1
        self.leads = self.table.max_sum.bit_length()

    def products(self, request: Request) -> Whole:
        """Products without their scales, as multiples of the smallest, [n, groups, products]."""
        unit = 2.0**-self.table.lowest
        values = values_of(request.a, self.inst.a, "kept") * values_of(request.b, self.inst.b, "kept") * unit
        whole: Whole = values[:, self.ks].astype(np.int64)
        return whole

    def exponents(self, request: Request) -> Whole:
        """Those of their scales, of groups of zeros too, [groups, n]."""
        fmt, block = self.inst.scale, self.inst.scale_block
        assert fmt is not None
        assert block is not None
        blocks = self.ks[:, 0] // block
        both = (x for x in (request.scales_a, request.scales_b) if x is not None)
        found: Whole = np.sum([exponents_of(x[:, blocks].T, fmt, "kept", counted=True) for x in both], axis=0)
        return found


def _groups(inst: Instruction, node: FusedSum) -> ScaledGroups | None:
    size = node.arithmetic.scaled_products if isinstance(node.arithmetic, FloatArithmetic) else None
    return ScaledGroups(inst, node, size) if size is not None and node.products else None


def group_families(inst: Instruction, node: FusedSum, bound: Bounds) -> dict[str, EventFamily]:
    """None of a sum that scales each product for itself."""
    of = _groups(inst, node)
    if of is None:
        return {}
    names = [f"{ks[0]}-{ks[-1]}" for ks in of.ks.tolist()]
    alone = ONE_TERM if bound.terms < 2 else ""
    bits, span = bound.arithmetic.alignment_bits, bound.slots["product"].span
    reach = bound.reach("product")

    def able(least: int) -> str:
        return "" if bits is not None and reach is not None and least < reach - bits else NO_BITS

    return {
        "group carry": tuple(
            Event(f"{name} added, {sign}, carry {carry} bits")
            for name, carry, sign in product(names, range(of.carry + 1), SIGNS)
        ),
        "group lead": tuple(
            Event(f"{name} added, {sign}, 2^{of.table.lowest + lead} before its scales", "", True)
            for name, lead, sign in product(names, range(of.leads), SIGNS)
        ),
        "group cancelled": tuple(
            Event(f"{name} added, cancelled {f'{depth} bits' if depth <= of.depth else 'to nothing'}", "", True)
            for name, depth in product(names, range(1, of.depth + 2))
        ),
        "group largest": tuple(Event(f"{k} the largest of those that are scaled with it") for k in of.ks.ravel()),
        "group cut": tuple(
            Event(f"a group {word}, {sign}", able(least), least != span.lsb_exponent)
            for (word, least), sign in product(zip(CUT, (span.lsb_exponent, span.leads[0]), strict=True), SIGNS)
        ),
        "group idle": (
            Event("a group that cancels the largest term, others cut", alone or able(span.lsb_exponent), True),
            Event("a group of zeros with scales far above every term", alone, True),
        ),
    }


def groups_seen(inst: Instruction, node: FusedSum, sums: Sums, request: Request) -> Seen:
    """Codes of `group_families`."""
    of = _groups(inst, node)
    if of is None:
        return
    products = of.products(request)
    sizes, total = np.abs(products), products.sum(axis=2)
    largest, whole = sizes.max(axis=2), np.abs(total)
    busy: Truths = np.asarray(largest > 0)
    lead, top = bit_length(whole) - 1, bit_length(largest) - 1
    sign = (total < 0).astype(np.int64)
    fmt = sums.arithmetic.result
    normal = (sums.lead >= fmt.min_exponent) & (sums.lead <= fmt.max_exponent)
    others = sum(sums.nonzero(role).sum(axis=0) for role in sums.terms if role != "product")
    by_itself = sums.finite & (others == 0) & (busy.sum(axis=1) == 1) & (sums.nonzero("product").sum(axis=0) == 1)
    for group, ks in enumerate(of.ks):
        shown = np.flatnonzero(by_itself & normal & busy[:, group])
        high, low, negative = lead[shown, group], top[shown, group], sign[shown, group]
        carry = np.clip(high - low, 0, of.carry)
        yield "group carry", shown, np.where(high >= low, 2 * (group * (of.carry + 1) + carry) + negative, -1)
        yield "group lead", shown, 2 * (group * of.leads + high) + negative
        yield "group cancelled", shown, np.where(high < low, group * (of.depth + 1) + low - high - 1, -1)
        nothing = np.flatnonzero(by_itself & busy[:, group] & (total[:, group] == 0))
        yield "group cancelled", nothing, np.full(len(nothing), group * (of.depth + 1) + of.depth)
        first = (sizes[shown, group] == largest[shown, group, None]) & (busy[shown, group, None])
        alone = (first.sum(axis=1) == 1) & ((sizes[shown, group] > 0).sum(axis=1) > 1)
        yield "group largest", shown, np.where(alone, group * len(ks) + np.argmax(first, axis=1), -1)
    yield from _cut(sums, sign.T)
    yield from _idle(of, sums, request, busy.T, total.T == 0)


def _cut(sums: Sums, sign: Whole) -> Seen:
    if "product" not in sums.cuts:
        return
    lost = sums.cuts["product"].lost & sums.finite & sums.some
    away = sums.cuts["product"].gone
    for code, which in enumerate((lost & ~away, lost & away)):
        for negative in (0, 1):
            rows = np.flatnonzero((which & (sign == negative)).any(axis=0))
            yield "group cut", rows, np.full(len(rows), 2 * code + negative)


def _idle(of: ScaledGroups, sums: Sums, request: Request, busy: Truths, zero: Truths) -> Seen:
    """ScaledGroups that come to nothing, and yet count in the alignment, or do not."""
    exponents, bits = sums.terms["product"].exponents, sums.arithmetic.alignment_bits
    if bits is None:
        return
    lost = np.logical_or.reduce([cut.lost.any(axis=0) for cut in sums.cuts.values()])
    first = (busy & zero & (exponents == sums.largest)).any(axis=0)
    rows = np.flatnonzero(sums.finite & sums.some & first & lost)
    yield "group idle", rows, np.zeros(len(rows), np.int64)
    far = (~busy & (of.exponents(request) > sums.largest + bits)).any(axis=0)
    rows = np.flatnonzero(sums.finite & sums.some & far)
    yield "group idle", rows, np.ones(len(rows), np.int64)


def group_operands(inst: Instruction, node: FusedSum, rng: np.random.Generator) -> Request | None:
    """Dot products for all of them; None of a sum that scales each product for itself."""
    of = _groups(inst, node)
    if of is None:
        return None
    parts = [_by_themselves(of, ks, rng) for ks in of.ks]
    if node.has_addend and isinstance(node.arithmetic, FloatArithmetic) and node.arithmetic.alignment_bits is not None:
        parts += [_beside_c(of, ks, node.arithmetic.alignment_bits, rng) for ks in of.ks]
    return joined(parts)


def _by_themselves(of: ScaledGroups, ks: Whole, rng: np.random.Generator) -> Request:
    """One group: so many of the largest product; powers of two; each product the largest; sums that cancel; any."""
    size, table = of.size, of.table
    last = len(table.multiples) - 1
    rows = [[last] * n + [0] * (size - n) for n in range(1, size + 1)]
    powers = np.int64(1) << np.arange(of.leads)
    rows += np.stack(list(spelled(powers, table, size)), axis=1).tolist()
    signs = [[sign] * size for sign in (1, -1)]
    made = [(row, sign) for row in rows for sign in signs]
    less = table.multiples[-1] - np.array([*powers[: of.depth], 0])
    apart = np.stack(list(spelled(less, table, size - 1)), axis=1).tolist()
    made += [([last, *row], [1] + [-1] * (size - 1)) for row in apart]
    order = [rng.permutation(size) for _ in made]
    any_ = rng.integers(0, last + 1, (RANDOM, size))
    largest = np.where(np.eye(size, dtype=bool), last, rng.integers(0, last, (size, size)))
    made += [(row, rng.choice((-1, 1), size).tolist()) for row in (*any_.tolist(), *largest.tolist(), *largest.tolist())]
    order += [np.arange(size)] * (len(made) - len(order))
    asked = _scaled(of, ks, len(made), 0, rng)
    for i, ((which, sign), places) in enumerate(zip(made, order, strict=True)):
        _put(of, asked, i, ks[places], np.array(which), np.array(sign))
    return asked


def _beside_c(of: ScaledGroups, ks: Whole, bits: int, rng: np.random.Generator) -> Request:
    """A group of large scales that is zero or cancels, and C below its last bit kept, or about it."""
    fmt = of.inst.c
    asked = _scaled(of, ks, 8, of.inst.scale.max_exponent // 2 if of.inst.scale else 0, rng)
    top = of.exponents(asked).max(axis=0)
    last = len(of.table.multiples) - 1
    for i in range(len(asked)):
        cancels = i < len(asked) // 2
        lead = int(top[i]) - bits + (fmt.mantissa_bits // 2 if cancels else -2)
        fraction = int(rng.integers(0, 1 << fmt.mantissa_bits)) | 1
        asked.c[i] = (lead + fmt.bias) << fmt.mantissa_bits | fraction | (i % 2) * fmt.sign_bit
        if cancels:
            _put(of, asked, i, ks[:2], np.array([last, last]), np.array([1, -1]))
    return asked


def _scaled(of: ScaledGroups, ks: Whole, n: int, exponent: int, rng: np.random.Generator) -> Request:
    """Zeros; the two scales of that block are any numbers about that exponent, those of others one."""
    asked, fmt = Request.zeros(of.inst, n), of.inst.scale
    assert fmt is not None
    for scales in (asked.scales_a, asked.scales_b):
        assert scales is not None
        scales[:, ks[0] // (of.inst.scale_block or 1)] = floats(fmt, rng, exponent + rng.integers(-2, 3, n))
    return asked


def _put(of: ScaledGroups, asked: Request, row: int, ks: Whole, which: Whole, sign: Whole) -> None:
    signs = np.where(sign < 0, of.inst.a.sign_bit, 0).astype(of.inst.a.dtype)
    asked.a[row, ks], asked.b[row, ks] = of.table.a[which] | signs, of.table.b[which]
