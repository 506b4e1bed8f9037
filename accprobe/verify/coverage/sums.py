"""The terms of one fused sum of many dot products, aligned as the model says, and their sum before rounding.

Events of products that are scaled at once: of their sum before it is scaled, and as a term beside others. Events before scaling
count only if all other terms are zero and the result is normal: it then has all bits of the group's sum.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import ABSENT, NOTHING, exponents_of, values_of
from accprobe.evaluate.error_free import Floats, Integers, Truths, power_of_two
from accprobe.evaluate.reference import Chunk
from accprobe.evaluate.rounding import bit_length, to_integer
from accprobe.evaluate.terms import CachedTerms, Other
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals
from accprobe.operands.request import Request
from accprobe.verify.coverage.events import SIGNS, CodeArrays, EventFamily, events_of, signed
from accprobe.verify.coverage.ranges import TermRole

Alignments = NDArray[np.int16]


class Terms(NamedTuple):
    """Terms of one role in a sum, [m, n].

    values: float64; products of f64 do not fit into float64, so their values have the right sign, infinity or NaN only.
    exponents: in the alignment; leads: of the leading bits; both are NOTHING for zeros.
    """

    values: Floats
    exponents: Alignments
    leads: Alignments


class Truncation(NamedTuple):
    """Effect of the alignment on terms, [m, n]: which lose bits, or all of them, and which have the last kept bit set."""

    lost: Truths
    odd: Truths
    gone: Truths


class Sums:
    """One fused sum of n dot products.

    total: before rounding; if nothing was truncated, its last bit may be sticky. finite: whether all terms are finite; the
    other fields are meaningless for other sums. some: whether a term is not zero. largest: the largest exponent of a term;
    aligned_to: the exponent to which terms are aligned; lead: exponent of the leading bit of the largest magnitude.
    truncations: by role, if terms are aligned.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, request: Request) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic, self._bits = node.arithmetic, node.arithmetic.alignment_bits
        chunk = Chunk(inst, request)
        others = chunk.others(node, model)
        self.total = chunk.before_rounding(node, others, model)
        special = self.total.specials.rows
        self.finite = np.ones(len(request), bool)
        self.finite[special] = False
        self.terms: dict[TermRole, Terms] = {}
        if node.products and inst.a.name == "f64":
            self.terms["product"] = _exact_products(chunk.terms, node.products, model.subnormal_operands)
        elif node.products:
            self.terms["product"] = self._products(chunk, node.products, model.subnormal_operands)
        if node.has_addend:
            self.terms["C"] = self._others(chunk.terms, others[:1])
        if node.children:
            self.terms["inner sum"] = self._others(chunk.terms, others[node.has_addend :])
        every = self.terms.values()
        for terms in every:
            terms.exponents[:, special] = terms.leads[:, special] = NOTHING
        self.largest = np.maximum.reduce([terms.exponents.max(axis=0) for terms in every])
        self.lead = np.maximum.reduce([terms.leads.max(axis=0) for terms in every])
        self.some = self.largest > ABSENT
        self.aligned_to = self.largest if self._bits is None else self.total.exponent + self._bits
        aligned = {} if self._bits is None else self.terms
        self.truncations = {role: self._truncation(terms) for role, terms in aligned.items()}

    def nonzero(self, role: TermRole) -> Truths:
        """Return which terms of that role are not zero, [m, n]."""
        return np.asarray(self.terms[role].exponents > ABSENT)

    def _products(self, chunk: Chunk, ks: tuple[int, ...], subnormals: Subnormals) -> Terms:
        """Return products times their block scales, or sums of products that are scaled at once."""
        kept, size = chunk.terms, self.arithmetic.scaled_products
        values, _ = kept.products(ks, subnormals, size)
        if size is not None:
            negative = np.signbit(kept.products(ks, subnormals)[0]).reshape(-1, size, len(kept)).all(axis=1)
            values = np.where((values == 0) & negative, -0.0, values)
        leads = _leads(values)
        if self._bits is None:
            return Terms(values, leads, leads)
        exponents = chunk.product_exponents(ks, subnormals, self.arithmetic, False)
        return Terms(values, np.maximum(exponents, np.int16(NOTHING)), leads)

    def _others(self, kept: CachedTerms, others: list[Other]) -> Terms:
        decoded = [kept.decoded(other) for other in others]
        values = np.stack([term.values for term in decoded])
        leads = _leads(values)
        exponents = leads if self._bits is None else np.stack([term.exponents for term in decoded])
        return Terms(values, exponents, leads)

    def _truncation(self, terms: Terms) -> Truncation:
        aligned = np.where(self.finite, terms.values * power_of_two(-self.total.exponent), 0.0)
        whole = to_integer(self.arithmetic.alignment_rounding, aligned.copy())
        return Truncation(whole != aligned, whole.astype(np.int64) & 1 == 1, (whole == 0) & (aligned != 0))


def _exact_products(kept: CachedTerms, ks: tuple[int, ...], subnormals: Subnormals) -> Terms:
    """Return products of f64, which do not fit into float64."""
    products = [kept.exact_product(k, subnormals) for k in ks]
    high, low, lowest, stand_in = (
        np.stack([getattr(x, name) for x in products]) for name in ("high", "low", "lowest", "stand_in")
    )
    a, b = kept.operands(ks)
    values = np.copysign(stand_in, np.where((a ^ b) >> a.dtype.type(63), -1.0, 1.0))
    below_power = (np.frexp(np.abs(high))[0] == 0.5) & (np.signbit(low) != np.signbit(high)) & (low != 0)
    leads = np.where(high == 0, NOTHING, _leads(high) - below_power + lowest).astype(np.int16)
    return Terms(values, leads, leads)


def _leads(values: Floats) -> Alignments:
    """Return the exponents of the leading bits, NOTHING of zeros."""
    return np.where(values == 0, NOTHING, np.frexp(values)[1] - 1).astype(np.int16)


class ScaledGroups:
    """The groups of a sum. ks: [groups, products of each]; products are integers in units of the smallest product.

    carry: bits by which the sum of a group can exceed its largest product. depth: bits of the largest product that can cancel.
    leads: number of possible exponents of a group's sum.
    """

    def __init__(self, inst: Instruction, node: FusedSum, size: int) -> None:
        self.inst, self.ks = inst, np.array(node.products).reshape(-1, size)
        self.lowest = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in (inst.a, inst.b))
        largest = int(inst.a.largest_value * inst.b.largest_value * 2.0**-self.lowest)
        self.carry, self.depth, self.leads = size.bit_length() - 1, largest.bit_length() - 1, (largest * size).bit_length()

    def products(self, request: Request) -> Integers:
        """Return the products without their scales, [groups, products, n]."""
        values = values_of(request.a, self.inst.a, "kept") * values_of(request.b, self.inst.b, "kept") * 2.0**-self.lowest
        return np.asarray(values.T[self.ks].astype(np.int64))

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


def group_families(inst: Instruction, node: FusedSum) -> dict[str, EventFamily]:
    """Return all events by family; none of a sum that scales each product for itself."""
    of = _groups(inst, node)
    if of is None:
        return {}
    names = [f"{ks[0]}-{ks[-1]} added" for ks in of.ks.tolist()]
    depths = [*(f"{depth} bits" for depth in range(1, of.depth + 1)), "to nothing"]
    leads = range(of.lowest, of.lowest + of.leads)
    return {
        "group carry": events_of(
            f"{name}, {sign}, carry {carry} bits" for name, carry, sign in product(names, range(of.carry + 1), SIGNS)
        ),
        "group lead": events_of(
            f"{name}, {sign}, 2^{lead} before its scales" for name, lead, sign in product(names, leads, SIGNS)
        ),
        "group cancelled": events_of(f"{name}, cancelled {depth}" for name, depth in product(names, depths)),
        "group largest": events_of(f"{k} the largest of those that are scaled with it" for k in of.ks.ravel()),
        "group truncated": events_of(signed(["a group truncated in part", "a group truncated away"])),
        "group idle": events_of(
            ["a group that cancels the largest term, others truncated", "a group of zeros with scales far above every term"]
        ),
    }


def group_codes(inst: Instruction, node: FusedSum, sums: Sums, request: Request) -> CodeArrays:
    of = _groups(inst, node)
    if of is None:
        return
    products = of.products(request)
    total, busy = products.sum(axis=1), (products != 0).any(axis=1)
    yield from _by_themselves(of, sums, products)
    bits = sums.arithmetic.alignment_bits
    if bits is None:
        return
    truncation, some = sums.truncations["product"], sums.finite & sums.some
    for code, which in enumerate((truncation.lost & ~truncation.gone, truncation.lost & truncation.gone)):
        yield "group truncated", which & some, 2 * code + (total < 0)
    lost = np.logical_or.reduce([truncation.lost.any(axis=0) for truncation in sums.truncations.values()])
    first = (busy & (total == 0) & (sums.terms["product"].exponents == sums.largest)).any(axis=0)
    yield "group idle", some & first & lost, 0
    yield "group idle", some & (~busy & (of.exponents(request) > sums.largest + bits)).any(axis=0), 1


def _by_themselves(of: ScaledGroups, sums: Sums, products: Integers) -> CodeArrays:
    fmt, sizes, total = sums.arithmetic.result, np.abs(products), products.sum(axis=1)
    busy, sign = (products != 0).any(axis=1), (total < 0).astype(np.int64)
    lead, top = bit_length(np.abs(total)) - 1, bit_length(sizes.max(axis=1)) - 1
    others = sum(sums.nonzero(role).sum(axis=0) for role in sums.terms if role != "product")
    by_itself = busy & sums.finite & (others == 0) & (busy.sum(axis=0) == 1)
    shown = by_itself & (sums.nonzero("product").sum(axis=0) == 1)
    shown &= (sums.lead >= fmt.min_exponent) & (sums.lead <= fmt.max_exponent)
    group = np.arange(len(of.ks))[:, None]
    carry, depth = np.clip(lead - top, 0, of.carry), np.where(total == 0, of.depth, top - lead - 1)
    yield "group carry", shown & (lead >= top), 2 * (group * (of.carry + 1) + carry) + sign
    yield "group lead", shown, 2 * (group * of.leads + lead) + sign
    yield "group cancelled", shown & (lead < top) | by_itself & (total == 0), group * (of.depth + 1) + depth
    first = sizes == sizes.max(axis=1, keepdims=True)
    alone = shown & (first.sum(axis=1) == 1) & ((sizes > 0).sum(axis=1) > 1)
    yield "group largest", alone, group * of.ks.shape[1] + np.argmax(first, axis=1)
