"""One fused sum of many dot products as the reference evaluator computes it: its terms, their alignment, and their sum.

Events of products that are scaled at once: of their sum before it is scaled, and as a term beside others. Events before scaling
count only if all other terms are zero and the result is normal: it then has all bits of the group's sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import ABSENT, NOTHING, exponents_of, values_of
from accprobe.evaluate.error_free import Floats, Integers, Truths, power_of_two
from accprobe.evaluate.reference import Chunk
from accprobe.evaluate.rounding import bit_length, to_integer
from accprobe.evaluate.terms import CachedTerms, Others
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import SIGNS, CodeArrays, EventNames, TermRole, signed

Alignments = NDArray[np.int16]

Placed = tuple[Floats, Alignments, Alignments]  # Values, exponents and leads of `Terms`.


class Terms(NamedTuple):
    """Terms of one role in a sum, [m, n].

    values: float64; products of f64 do not fit into float64, so their values have the right sign, infinity or NaN only.
    exponents: in the alignment; leads: of the leading bits; both are NOTHING for zeros. lost, gone: which lose bits, or all
    of them, in the alignment; odd: which have the last kept bit set.
    """

    values: Floats
    exponents: Alignments
    leads: Alignments
    lost: Truths
    gone: Truths
    odd: Truths

    @property
    def nonzero(self) -> Truths:
        return np.asarray(self.exponents > ABSENT)


class Sums:
    """One fused sum of n dot products.

    total: before rounding; if nothing was truncated, its last bit may be sticky. finite: whether all terms are finite; the
    other fields are meaningless for other sums. some: whether a term is not zero. largest: the largest exponent of a term;
    aligned_to: the exponent to which terms are aligned; lead: exponent of the leading bit of the largest magnitude.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, request: Request) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic = node.arithmetic
        chunk = Chunk(inst, request)
        others = chunk.others(node, model)
        self.total = chunk.before_rounding(node.products, others, model.subnormal_operands, node.arithmetic)
        self.finite = np.ones(len(request), bool)
        self.finite[self.total.specials.rows] = False
        found: dict[TermRole, Placed] = {}
        if node.products:
            exact = inst.a.name == "f64"
            made = (_exact_products if exact else self._products)(chunk, node.products, model.subnormal_operands)
            found["product"] = made
        if node.has_addend:
            found["C"] = self._others(chunk.terms, others[:1])
        if node.children:
            found["inner sum"] = self._others(chunk.terms, others[node.has_addend :])
        self.terms = {role: self._aligned(*placed) for role, placed in found.items()}
        self.largest, self.lead = (
            np.maximum.reduce([getattr(terms, name).max(axis=0) for terms in self.terms.values()])
            for name in ("exponents", "leads")
        )
        self.some = self.largest > ABSENT
        bits = self.arithmetic.alignment_bits
        self.aligned_to = self.largest if bits is None else self.total.exponent + bits

    def _products(self, chunk: Chunk, ks: tuple[int, ...], subnormals: Subnormals) -> Placed:
        """Return products times their block scales, or sums of products that are scaled at once."""
        kept, size = chunk.terms, self.arithmetic.scaled_products
        values, _ = kept.products(ks, subnormals, size)
        if size is not None:
            negative = np.signbit(kept.products(ks, subnormals, None)[0]).reshape(-1, size, len(kept)).all(axis=1)
            values = np.where((values == 0) & negative, -0.0, values)
        leads = _leads(values)
        if self.arithmetic.alignment_bits is None:
            return values, leads, leads
        exponents = kept.exponents(ks, subnormals, self.arithmetic.product_exponent, False, size)
        return values, np.maximum(exponents, np.int16(NOTHING)), leads

    def _others(self, kept: CachedTerms, others: Others) -> Placed:
        values, exponents = (np.stack(each) for each in zip(*map(kept.decoded, others), strict=True))
        leads = _leads(values)
        return values, leads if self.arithmetic.alignment_bits is None else exponents, leads

    def _aligned(self, values: Floats, exponents: Alignments, leads: Alignments) -> Terms:
        exponents, leads = (np.where(self.finite, x, np.int16(NOTHING)) for x in (exponents, leads))
        if self.arithmetic.alignment_bits is None:
            return Terms(values, exponents, leads, *[np.zeros(values.shape, bool)] * 3)
        aligned = np.where(self.finite, values * power_of_two(-self.total.exponent), 0.0)
        whole = to_integer(self.arithmetic.alignment_rounding, aligned.copy())
        return Terms(values, exponents, leads, whole != aligned, (whole == 0) & (aligned != 0), whole.astype(np.int64) & 1 == 1)


def _exact_products(chunk: Chunk, ks: tuple[int, ...], subnormals: Subnormals) -> Placed:
    """Return products of f64, which do not fit into float64."""
    products = [chunk.terms.exact_product(k, subnormals) for k in ks]
    high, low, lowest, stand_in = (
        np.stack([getattr(x, name) for x in products]) for name in ("high", "low", "lowest", "stand_in")
    )
    a, b = chunk.terms.operands(ks)
    values = np.copysign(stand_in, np.where((a ^ b) >> a.dtype.type(63), -1.0, 1.0))
    below_power = (np.frexp(np.abs(high))[0] == 0.5) & (np.signbit(low) != np.signbit(high)) & (low != 0)
    leads = np.where(high == 0, NOTHING, _leads(high) - below_power + lowest).astype(np.int16)
    return values, leads, leads


def _leads(values: Floats) -> Alignments:
    """Return the exponents of the leading bits, NOTHING of zeros."""
    return np.where(values == 0, NOTHING, np.frexp(values)[1] - 1).astype(np.int16)


class ScaledGroups(NamedTuple):
    """The groups of a sum. ks: [groups, products of each]; products are integers in units of the smallest, 2^lowest.

    carry: bits by which the sum of a group can exceed its largest product. depth: bits of the largest product that can cancel.
    leads: number of possible exponents of a group's sum.
    """

    ks: NDArray[np.intp]
    lowest: int
    carry: int
    depth: int
    leads: int


def _groups(inst: Instruction, node: FusedSum) -> Iterator[ScaledGroups]:
    """Yield the groups of a sum, if its products are scaled in groups."""
    size = node.arithmetic.scaled_products if isinstance(node.arithmetic, FloatArithmetic) else None
    if size is not None and node.products:
        lowest = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.a, inst.b))
        largest = int(inst.a.largest_value * inst.b.largest_value * 2.0**-lowest)
        bits = size.bit_length() - 1, largest.bit_length() - 1, (largest * size).bit_length()
        yield ScaledGroups(np.array(node.products).reshape(-1, size), lowest, *bits)


def _scale_exponents(inst: Instruction, of: ScaledGroups, request: Request) -> Integers:
    """Return the exponents of the scales, of groups of zeros too, [groups, n]."""
    assert inst.scale is not None
    assert inst.scale_block is not None
    blocks = of.ks[:, 0] // inst.scale_block
    scales = (x[:, blocks].T for x in (request.scales_a, request.scales_b) if x is not None)
    return np.asarray(np.sum([exponents_of(x, inst.scale, "kept", counted=True) for x in scales], axis=0))


def group_families(inst: Instruction, node: FusedSum) -> dict[str, EventNames]:
    """Return all events by family; none of a sum that scales each product for itself."""
    found: dict[str, EventNames] = {}
    for of in _groups(inst, node):
        names = [f"{ks[0]}-{ks[-1]} added" for ks in of.ks.tolist()]
        depths = [*(f"{depth} bits" for depth in range(1, of.depth + 1)), "to nothing"]
        leads = range(of.lowest, of.lowest + of.leads)
        every = product(names, range(of.carry + 1), SIGNS)
        found["group carry"] = tuple(f"{name}, {sign}, carry {carry} bits" for name, carry, sign in every)
        every = product(names, leads, SIGNS)
        found["group lead"] = tuple(f"{name}, {sign}, 2^{lead} before its scales" for name, lead, sign in every)
        found["group cancelled"] = tuple(f"{name}, cancelled {depth}" for name, depth in product(names, depths))
        found["group largest"] = tuple(f"{k} the largest of those that are scaled with it" for k in of.ks.ravel())
        found["group truncated"] = signed(["a group truncated in part", "a group truncated away"])
        found["group idle"] = (
            "a group that cancels the largest term, others truncated",
            "a group of zeros with scales far above every term",
        )
    return found


def group_codes(inst: Instruction, node: FusedSum, sums: Sums, request: Request) -> CodeArrays:
    for of in _groups(inst, node):
        values = values_of(request.a, inst.a, "kept") * values_of(request.b, inst.b, "kept") * 2.0**-of.lowest
        products = values.T[of.ks].astype(np.int64)
        total, busy = products.sum(axis=1), (products != 0).any(axis=1)
        yield from _by_themselves(of, sums, products)
        bits, terms, some = sums.arithmetic.alignment_bits, sums.terms["product"], sums.finite & sums.some
        if bits is None:
            return
        for code, which in enumerate((terms.lost & ~terms.gone, terms.lost & terms.gone)):
            yield "group truncated", which & some, 2 * code + (total < 0)
        lost = np.logical_or.reduce([each.lost.any(axis=0) for each in sums.terms.values()])
        first = (busy & (total == 0) & (terms.exponents == sums.largest)).any(axis=0)
        yield "group idle", some & first & lost, 0
        yield "group idle", some & (~busy & (_scale_exponents(inst, of, request) > sums.largest + bits)).any(axis=0), 1


def _by_themselves(of: ScaledGroups, sums: Sums, products: Integers) -> CodeArrays:
    fmt, sizes, total = sums.arithmetic.result, np.abs(products), products.sum(axis=1)
    busy, sign = (products != 0).any(axis=1), (total < 0).astype(np.int64)
    lead, top = bit_length(np.abs(total)) - 1, bit_length(sizes.max(axis=1)) - 1
    others = sum(terms.nonzero.sum(axis=0) for role, terms in sums.terms.items() if role != "product")
    by_itself = busy & sums.finite & (others == 0) & (busy.sum(axis=0) == 1)
    shown = by_itself & (sums.terms["product"].nonzero.sum(axis=0) == 1)
    shown &= (sums.lead >= fmt.min_exponent) & (sums.lead <= fmt.max_exponent)
    group = np.arange(len(of.ks))[:, None]
    carry, depth = np.clip(lead - top, 0, of.carry), np.where(total == 0, of.depth, top - lead - 1)
    yield "group carry", shown & (lead >= top), 2 * (group * (of.carry + 1) + carry) + sign
    yield "group lead", shown, 2 * (group * of.leads + lead) + sign
    yield "group cancelled", shown & (lead < top) | by_itself & (total == 0), group * (of.depth + 1) + depth
    first = sizes == sizes.max(axis=1, keepdims=True)
    alone = shown & (first.sum(axis=1) == 1) & ((sizes > 0).sum(axis=1) > 1)
    yield "group largest", alone, group * of.ks.shape[1] + np.argmax(first, axis=1)
