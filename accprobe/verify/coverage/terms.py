"""The terms of one fused sum of many dot products, aligned and cut as the model says, and what they come to before rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate import limbs
from accprobe.evaluate.decoding import ABSENT, NOTHING, Significands, exponents_of, leading, significands, values_of
from accprobe.evaluate.error_free import Floats, Integers, Truths, power_of_two, two_product
from accprobe.evaluate.reference import Evaluation
from accprobe.evaluate.terms import KeptTerms
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import AlignmentRounding, DotModel, FloatArithmetic, FusedSum
from accprobe.operands.request import Request
from accprobe.verify.coverage.spans import TermRole

Alignments = NDArray[np.int16]


class Terms(NamedTuple):
    """Terms of a sum of one role, [m, n].

    values: float64; of products of f64, which it does not hold, their signs, infinities and NaNs. exponents: in the alignment;
    leads: of their leading bits; both NOTHING of zeros. aligned_to: the exponents that count in the alignment, those of zeros
    too where the model says so. factors: those of products of f64.
    """

    role: TermRole
    values: Floats
    exponents: Alignments
    leads: Alignments
    aligned_to: Alignments
    factors: tuple[Significands, Significands] | None = None


class Total(NamedTuple):
    """Sums, [n]: (-1)^negative * magnitude * 2^exponent; where nothing was cut, the last bit may stand for lower ones."""

    negative: Truths
    magnitude: Integers
    exponent: Integers


class Cut(NamedTuple):
    """What the alignment makes of terms, [m, n]: which of them lose bits, or all, and whether their last kept bit is set."""

    lost: Truths
    odd: Truths
    gone: Truths


class Sums:
    """One fused sum of n dot products.

    some: whether a term is not zero. largest: the largest exponent of a term; aligned_to: what terms are aligned to; lead: of
    the leading bit of the largest magnitude. finite: those whose terms all are; of others nothing else means anything.
    cuts: of the terms of each role, where they are aligned.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, request: Request) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic, self._bits = node.arithmetic, node.arithmetic.alignment_bits
        self._inst, self._model = inst, model
        self.terms = {terms.role: terms for terms in self._read(node, request)}
        every = self.terms.values()
        self.finite = np.logical_and.reduce([np.isfinite(terms.values).all(axis=0) for terms in every])
        special = np.flatnonzero(~self.finite)
        for terms in every:
            for array in (terms.exponents, terms.leads, terms.aligned_to):
                array[:, special] = NOTHING
        self.largest = np.maximum.reduce([terms.exponents.max(axis=0) for terms in every])
        self.lead = np.maximum.reduce([terms.leads.max(axis=0) for terms in every])
        self.aligned_to = np.maximum.reduce([terms.aligned_to.max(axis=0) for terms in every])
        if self._bits is not None and self.arithmetic.min_exponent is not None:
            self.aligned_to = np.maximum(self.aligned_to, np.int16(self.arithmetic.min_exponent))
        self.some = self.largest > ABSENT
        self.cuts: dict[TermRole, Cut] = {}
        self.total = self._exact() if self._bits is None else self._aligned(self._bits)

    def nonzero(self, role: TermRole) -> Truths:
        """Which terms of that role are not zero, [m, n]."""
        return np.asarray(self.terms[role].exponents > ABSENT)

    def _read(self, node: FusedSum, request: Request) -> Iterator[Terms]:
        inst = self._inst
        if node.products:
            ks = list(node.products)
            if inst.scale is None:
                yield self._products(*(np.ascontiguousarray(x.T[ks]) for x in (request.a, request.b)))
            else:
                yield self._scaled_products(KeptTerms(inst, request), node.products)
        if node.has_addend:
            yield self._others("C", [values_of(request.c, inst.c, self._model.subnormal_addend)], [inst.c])
        if children := node.children:
            formats = [child.arithmetic.result for child in children]
            results = [
                Evaluation(replace(inst, d=fmt), request).of(replace(self._model, root=child))
                for child, fmt in zip(children, formats, strict=True)
            ]
            yield self._others("inner sum", [values_of(x, f, "kept") for x, f in zip(results, formats, strict=True)], formats)

    def _products(self, a: Bits, b: Bits) -> Terms:
        inst, x, subnormals = self._inst, self.arithmetic, self._model.subnormal_operands
        values = [values_of(y, fmt, subnormals) for y, fmt in ((a, inst.a), (b, inst.b))]
        if inst.a.name == "f64":
            return _wide_products(*values)
        whole = values[0] * values[1]
        leads = leading(whole)
        if self._bits is None or x.product_exponent == "normalised product":
            return Terms("product", whole, leads, leads, leads)

        def exponents(counted: bool) -> Alignments:
            normalised = x.product_exponent == "normalised operands"
            of_a, of_b = (exponents_of(y, f, subnormals, normalised, counted) for y, f in ((a, inst.a), (b, inst.b)))
            summed: Alignments = np.maximum(of_a + of_b, np.int16(NOTHING))
            return summed

        own = exponents(False)
        return Terms("product", whole, own, leads, exponents(True) if x.zero_terms == "aligned" else own)

    def _scaled_products(self, kept: KeptTerms, ks: tuple[int, ...]) -> Terms:
        """Products times their block scales, or sums of so many as are scaled at once."""
        x, subnormals = self.arithmetic, self._model.subnormal_operands
        size = x.scaled_products
        whole, _ = kept.products(ks, subnormals)
        if size is not None:
            negative = np.signbit(whole).reshape(-1, size, len(kept)).all(axis=1)
            whole, _ = kept.groups(ks, subnormals, size)
            whole = np.where((whole == 0) & negative, -0.0, whole)
        leads = leading(whole)
        if self._bits is None or x.product_exponent == "normalised product":
            return Terms("product", whole, leads, leads, leads)

        def exponents(counted: bool) -> Alignments:
            of = kept.exponents(ks, subnormals, x.product_exponent == "normalised operands", counted, size)
            return np.maximum(of, np.int16(NOTHING))

        own = exponents(False)
        return Terms("product", whole, own, leads, exponents(True) if x.zero_terms == "aligned" else own)

    def _others(self, role: TermRole, values: list[Floats], formats: list[Format]) -> Terms:
        whole = np.stack(values)
        if self._bits is None:
            of = significands(whole.ravel())
            exact = np.where(of.signed == 0, NOTHING, leading(of.signed) + of.lowest)
            leads = exact.astype(np.int16).reshape(whole.shape)
            return Terms(role, whole, leads, leads, leads)
        leads = leading(whole)
        lowest = np.array([fmt.min_exponent for fmt in formats], np.int16)[:, None]
        exponents = np.where(leads == NOTHING, leads, np.maximum(leads, lowest))
        return Terms(role, whole, exponents, leads, exponents)

    def _aligned(self, bits: int) -> Total:
        exponent = np.where(self.some, self.aligned_to, 0).astype(np.int64) - bits
        scale, total = power_of_two(-exponent), np.zeros(len(exponent), np.int64)
        for role, terms in self.terms.items():
            aligned = np.where(self.finite, terms.values * scale, 0.0)
            whole = _cut(aligned, self.arithmetic.alignment_rounding)
            kept = whole.astype(np.int64)
            self.cuts[role] = Cut(whole != aligned, kept & 1 == 1, (whole == 0) & (aligned != 0))
            total += kept.sum(axis=0)
        return Total(total < 0, np.abs(total), exponent)

    def _exact(self) -> Total:
        total = limbs.Sum(len(self.finite))
        for terms in self.terms.values():
            for row in range(len(terms.values)):
                if terms.factors is None:
                    of = significands(np.where(self.finite, terms.values[row], 0.0))
                    total.add(of.signed < 0, np.abs(of.signed).astype(np.int64), of.lowest)
                else:
                    a, b = (np.where(self.finite, np.abs(factor.signed[row]), 0.0).astype(np.int64) for factor in terms.factors)
                    total.add_product(np.signbit(terms.values[row]), a, b, sum(factor.lowest[row] for factor in terms.factors))
        return Total(*total.total())


def _wide_products(a: Floats, b: Floats) -> Terms:
    """Products of f64."""
    factors = significands(a), significands(b)
    signs = np.where(np.signbit(a) ^ np.signbit(b), -1.0, 1.0)
    values = np.copysign(factors[0].stand_in * factors[1].stand_in, signs)
    high, low = two_product(factors[0].signed, factors[1].signed)
    power_reached = (high.view(np.int64) & ((1 << 52) - 1) == 0) & (np.signbit(low) != np.signbit(high)) & (low != 0)
    leads = leading(high) - power_reached + factors[0].lowest + factors[1].lowest
    leads = np.where(high == 0, NOTHING, leads).astype(np.int16)
    return Terms("product", values, leads, leads, leads, factors)


def _cut(aligned: Floats, rounding: AlignmentRounding) -> Floats:
    """Terms in units of the last kept bit as integers."""
    if rounding == "sticky":
        whole = np.trunc(aligned)
        jammed = (whole != aligned) & (np.fmod(whole, 2.0) == 0)
        return np.where(jammed, whole + np.copysign(1.0, aligned), whole)
    cut: Floats = {"floor": np.floor, "nearest": np.rint}.get(rounding, np.trunc)(aligned)
    return cut
