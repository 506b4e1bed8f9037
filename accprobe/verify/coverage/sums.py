"""The terms of one fused sum of many dot products, aligned and cut as the model says, and their sum before rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate import limbs
from accprobe.evaluate.decoding import ABSENT, NOTHING, leading, significands, values_of
from accprobe.evaluate.error_free import Floats, Integers, Truths, power_of_two
from accprobe.evaluate.reference import Evaluation, round_terms
from accprobe.evaluate.terms import CachedTerms, ExactProduct
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum
from accprobe.operands.request import Request
from accprobe.verify.coverage.ranges import TermRole

Alignments = NDArray[np.int16]


class Terms(NamedTuple):
    """Terms of a sum of one role, [m, n].

    values: float64; of products of f64, which it does not hold, their signs, infinities and NaNs. exponents: in the alignment;
    leads: of their leading bits; both NOTHING of zeros. aligned_to: the exponents that count in the alignment, those of zeros
    too where the model says so. exact: the products of f64.
    """

    values: Floats
    exponents: Alignments
    leads: Alignments
    aligned_to: Alignments
    exact: tuple[ExactProduct, ...] = ()


class Total(NamedTuple):
    """Sums, [n]: (-1)^negative * magnitude * 2^exponent; where nothing was cut, the last bit may stand for lower ones."""

    negative: Truths
    magnitude: Integers
    exponent: Integers


class Cut(NamedTuple):
    """Effect of the alignment on terms, [m, n]: which lose bits, or all of them, and which have the last kept bit set."""

    lost: Truths
    odd: Truths
    gone: Truths


class Sums:
    """One fused sum of n dot products.

    some: where a term is not zero. largest: the largest exponent of a term; aligned_to: the exponent that terms are aligned to;
    lead: of the leading bit of the largest magnitude. finite: where all terms are; elsewhere nothing else means anything.
    cuts: of the terms of each role, where they are aligned.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, request: Request) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic, self._bits = node.arithmetic, node.arithmetic.alignment_bits
        self._inst, self._model, self._request = inst, model, request
        self.terms: dict[TermRole, Terms] = dict(self._read(node))
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
        """Return which terms of that role are not zero, [m, n]."""
        return np.asarray(self.terms[role].exponents > ABSENT)

    def _read(self, node: FusedSum) -> Iterator[tuple[TermRole, Terms]]:
        inst, request = self._inst, self._request
        if node.products:
            kept = CachedTerms(inst, request)
            yield "product", _exact_products(kept, node, self._model) if inst.a.name == "f64" else self._products(kept, node)
        if node.has_addend:
            yield "C", self._others([values_of(request.c, inst.c, self._model.subnormal_addend)], [inst.c])
        if children := node.children:
            formats = [child.arithmetic.result for child in children]
            results = [
                Evaluation(replace(inst, d=fmt), request).of(replace(self._model, root=child))
                for child, fmt in zip(children, formats, strict=True)
            ]
            values = [values_of(x, fmt, "kept") for x, fmt in zip(results, formats, strict=True)]
            yield "inner sum", self._others(values, formats)

    def _products(self, kept: CachedTerms, node: FusedSum) -> Terms:
        """Products times their block scales, or sums of those that are scaled at once."""
        x, subnormals, ks = self.arithmetic, self._model.subnormal_operands, node.products
        size = x.scaled_products
        whole, _ = kept.products(ks, subnormals)
        if size is not None:
            negative = np.signbit(whole).reshape(-1, size, len(kept)).all(axis=1)
            whole, _ = kept.groups(ks, subnormals, size)
            whole = np.where((whole == 0) & negative, -0.0, whole)
        leads = leading(whole)
        if self._bits is None or x.product_exponent == "normalised product":
            return Terms(whole, leads, leads, leads)

        def exponents(counted: bool) -> Alignments:
            found = kept.exponents(ks, subnormals, x.product_exponent == "normalised operands", counted, size)
            return np.maximum(found, np.int16(NOTHING))

        own = exponents(False)
        return Terms(whole, own, leads, exponents(True) if x.zero_terms == "aligned" else own)

    def _others(self, values: list[Floats], formats: list[Format]) -> Terms:
        whole = np.stack(values)
        if self._bits is None:
            split = significands(whole.ravel())
            exact = np.where(split.signed == 0, NOTHING, leading(split.signed) + split.lowest)
            leads = exact.astype(np.int16).reshape(whole.shape)
            return Terms(whole, leads, leads, leads)
        leads = leading(whole)
        lowest = np.array([fmt.min_exponent for fmt in formats], np.int16)[:, None]
        exponents = np.where(leads == NOTHING, leads, np.maximum(leads, lowest))
        return Terms(whole, exponents, leads, exponents)

    def _aligned(self, bits: int) -> Total:
        exponent = np.where(self.some, self.aligned_to, 0).astype(np.int64) - bits
        scale, total = power_of_two(-exponent), np.zeros(len(exponent), np.int64)
        for role, terms in self.terms.items():
            aligned = np.where(self.finite, terms.values * scale, 0.0)
            whole = round_terms(aligned.copy(), self.arithmetic)
            kept = whole.astype(np.int64)
            self.cuts[role] = Cut(whole != aligned, kept & 1 == 1, (whole == 0) & (aligned != 0))
            total += kept.sum(axis=0)
        return Total(total < 0, np.abs(total), exponent)

    def _exact(self) -> Total:
        total = limbs.Sum(len(self.finite))
        for terms in self.terms.values():
            for row, values in enumerate(terms.values):
                if terms.exact:
                    product = terms.exact[row]
                    a, b = (np.where(self.finite, np.abs(factor), 0.0).astype(np.int64) for factor in (product.a, product.b))
                    total.add_product(np.signbit(values), a, b, product.lowest)
                else:
                    split = significands(np.where(self.finite, values, 0.0))
                    total.add(split.signed < 0, np.abs(split.signed).astype(np.int64), split.lowest)
        return Total(*total.total())


def _exact_products(kept: CachedTerms, node: FusedSum, model: DotModel) -> Terms:
    """Products of f64."""
    exact = tuple(kept.exact_product(k, model.subnormal_operands) for k in node.products)
    high, low, lowest, stand_in = (
        np.stack([getattr(x, name) for x in exact]) for name in ("high", "low", "lowest", "stand_in")
    )
    a, b = kept.operands(node.products)
    values = np.copysign(stand_in, np.where((a ^ b) >> a.dtype.type(63), -1.0, 1.0))
    power_reached = (high.view(np.int64) & ((1 << 52) - 1) == 0) & (np.signbit(low) != np.signbit(high)) & (low != 0)
    leads = np.where(high == 0, NOTHING, leading(high) - power_reached + lowest).astype(np.int16)
    return Terms(values, leads, leads, leads, exact)
