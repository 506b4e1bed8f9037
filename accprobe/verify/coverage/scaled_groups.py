"""Events of products that are scaled at once: what their sum does before it is scaled, and as a term beside others.

What it does by itself counts where all other terms are zero and the result is a normal number, which has all of its bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import exponents_of, values_of
from accprobe.evaluate.error_free import Integers, Truths
from accprobe.evaluate.rounding import bit_length
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic, FusedSum
from accprobe.operands.request import Request
from accprobe.verify.coverage.sums import Sums

Seen = Iterator[tuple[str, NDArray[np.integer], NDArray[np.integer]]]

SIGNS = ("positive", "negative")


class ScaledGroups:
    """The groups of a sum: `ks` [groups, products of each]. Products are counted in the smallest one.

    carry: bits by which products of one size exceed the largest; depth: bits of the largest that may cancel; leads: of sums.
    """

    def __init__(self, inst: Instruction, node: FusedSum, size: int) -> None:
        self.inst, self.ks = inst, np.array(node.products).reshape(-1, size)
        self.lowest = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.a, inst.b))
        a, b = (float(fmt.values(np.array([fmt.largest], fmt.dtype))[0]) for fmt in (inst.a, inst.b))
        largest = int(a * b * 2.0**-self.lowest)
        self.carry, self.depth, self.leads = size.bit_length() - 1, largest.bit_length() - 1, (largest * size).bit_length()

    def products(self, request: Request) -> Integers:
        """Return the products without their scales, [n, groups, products]."""
        values = values_of(request.a, self.inst.a, "kept") * values_of(request.b, self.inst.b, "kept") * 2.0**-self.lowest
        return np.asarray(values[:, self.ks].astype(np.int64))

    def exponents(self, request: Request) -> Integers:
        """Return the exponents of the scales, of groups of zeros too, [groups, n]."""
        fmt, block = self.inst.scale, self.inst.scale_block
        assert fmt is not None
        assert block is not None
        blocks = self.ks[:, 0] // block
        scales = (x for x in (request.scales_a, request.scales_b) if x is not None)
        return np.asarray(np.sum([exponents_of(x[:, blocks].T, fmt, "kept", counted=True) for x in scales], axis=0))


def _groups(inst: Instruction, node: FusedSum) -> ScaledGroups | None:
    size = node.arithmetic.scaled_products if isinstance(node.arithmetic, FloatArithmetic) else None
    return ScaledGroups(inst, node, size) if size is not None and node.products else None


def group_names(inst: Instruction, node: FusedSum) -> dict[str, list[str]]:
    """Return the names of events by family; none of a sum that scales each product for itself."""
    of = _groups(inst, node)
    if of is None:
        return {}
    names = [f"{ks[0]}-{ks[-1]}" for ks in of.ks.tolist()]
    depths = [*(f"{depth} bits" for depth in range(1, of.depth + 1)), "to nothing"]
    return {
        "group carry": [
            f"{name} added, {sign}, carry {carry} bits" for name, carry, sign in product(names, range(of.carry + 1), SIGNS)
        ],
        "group lead": [
            f"{name} added, {sign}, 2^{of.lowest + lead} before its scales"
            for name, lead, sign in product(names, range(of.leads), SIGNS)
        ],
        "group cancelled": [f"{name} added, cancelled {depth}" for name, depth in product(names, depths)],
        "group largest": [f"{k} the largest of those that are scaled with it" for k in of.ks.ravel()],
        "group cut": [f"a group {word}, {sign}" for word, sign in product(("cut in part", "cut away"), SIGNS)],
        "group idle": [
            "a group that cancels the largest term, others cut",
            "a group of zeros with scales far above every term",
        ],
    }


def groups_seen(inst: Instruction, node: FusedSum, sums: Sums, request: Request) -> Seen:
    """Yield the codes of `group_names`."""
    of = _groups(inst, node)
    if of is None:
        return
    products = of.products(request)
    total, busy = products.sum(axis=2), (products != 0).any(axis=2)
    yield from _by_themselves(of, sums, products, total, busy)
    if sums.arithmetic.alignment_bits is not None:
        yield from _cut(sums, (total < 0).T)
        yield from _idle(of, sums, request, busy.T, total.T == 0)


def _by_themselves(of: ScaledGroups, sums: Sums, products: Integers, total: Integers, busy: Truths) -> Seen:
    sizes, fmt = np.abs(products), sums.arithmetic.result
    lead, top, sign = bit_length(np.abs(total)) - 1, bit_length(sizes.max(axis=2)) - 1, (total < 0).astype(np.int64)
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
        own = sizes[shown, group]
        first = own == own.max(axis=1, initial=0)[:, None]
        alone = (first.sum(axis=1) == 1) & ((own > 0).sum(axis=1) > 1)
        yield "group largest", shown, np.where(alone, group * len(ks) + np.argmax(first, axis=1), -1)


def _cut(sums: Sums, negative: Truths) -> Seen:
    lost, away = sums.cuts["product"].lost & sums.finite & sums.some, sums.cuts["product"].gone
    for code, which in enumerate((lost & ~away, lost & away)):
        for sign in (0, 1):
            rows = np.flatnonzero((which & (negative == bool(sign))).any(axis=0))
            yield "group cut", rows, np.full(len(rows), 2 * code + sign)


def _idle(of: ScaledGroups, sums: Sums, request: Request, busy: Truths, zero: Truths) -> Seen:
    """Groups that come to nothing, and yet count in the alignment, or do not."""
    exponents, bits = sums.terms["product"].exponents, sums.arithmetic.alignment_bits
    assert bits is not None
    lost = np.logical_or.reduce([cut.lost.any(axis=0) for cut in sums.cuts.values()])
    first = (busy & zero & (exponents == sums.largest)).any(axis=0)
    far = (~busy & (of.exponents(request) > sums.largest + bits)).any(axis=0)
    for code, which in enumerate((first & lost, far)):
        rows = np.flatnonzero(sums.finite & sums.some & which)
        yield "group idle", rows, np.full(len(rows), code)
