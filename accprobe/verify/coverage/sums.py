"""The terms of one fused sum of many dot products, aligned as the model says, and their sum before rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import ABSENT, NOTHING
from accprobe.evaluate.error_free import Floats, Truths, power_of_two
from accprobe.evaluate.reference import Chunk
from accprobe.evaluate.rounding import to_integer
from accprobe.evaluate.terms import CachedTerms, Other
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals
from accprobe.operands.request import Request
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
