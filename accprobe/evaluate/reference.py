"""Reference evaluation of models in numpy; several models share their common steps on the same dot products.

A fused sum with finite alignment bits is computed in float64, where every step is exact. A step multiplies two operands of at
most 24 bits, multiplies by block scales or a power of two, rounds to an integer, or adds integers. Such a sum fits in 53 bits
(`tree.SUM_BITS`, checked when the model is made). The exact sum of two such terms, or of a product and an addend in f64, is
two or three float64 numbers (`error_free`). Other exact sums are Python integers.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate import rounding
from accprobe.evaluate.decoding import NOTHING, Significands, significands, values_of
from accprobe.evaluate.error_free import (
    Floats,
    Integers,
    Truths,
    exact_sum,
    integer_parts,
    power_of_two,
    rounded_to_odd,
    top_bits,
    whole,
)
from accprobe.evaluate.terms import CachedTerms, ExactProduct, Other, Others, remembered
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals
from accprobe.operands.request import Request

# Products evaluated at once: few enough for the arrays to stay in a core's cache.
CHUNK = 1 << 16

# Largest distance between the last bits of two terms; a larger one changes no result.
FAR = 250


class Evaluation:
    """Dot products on which many models are evaluated."""

    def __init__(self, inst: Instruction, request: Request) -> None:
        step = max(1, CHUNK // inst.k)
        self._parts = [slice(start, start + step) for start in range(0, len(request), step)]
        self._chunks = [Chunk(inst, request[part]) for part in self._parts]
        self._inst, self._n = inst, len(request)

    def is_of(self, inst: Instruction, request: Request) -> bool:
        """Return whether these are the same dot products."""
        of, formats = ((x.a, x.b, x.c, x.d, x.k, x.bit_op, x.scale, x.scale_block) for x in (self._inst, inst))
        return (
            of == formats
            and len(request) == self._n
            and all(chunk.terms.is_of(request[part]) for part, chunk in zip(self._parts, self._chunks, strict=True))
        )

    def of(self, model: DotModel) -> Bits:
        """Return the model's results, [N]."""
        d = np.empty(self._n, self._inst.d.dtype)
        with np.errstate(all="ignore"):
            for part, chunk in zip(self._parts, self._chunks, strict=True):
                d[part] = chunk.sum(model.root, model)
        return d


class SpecialRows(NamedTuple):
    """The rows with an infinity or a NaN, and their plain float64 sums."""

    rows: NDArray[np.intp]
    naive: Floats


class ExactSum(NamedTuple):
    """Sums before rounding, [n]: (-1)^negative * magnitude * 2^exponent (see `top_bits`)."""

    negative: Truths
    magnitude: Integers
    exponent: Integers
    specials: SpecialRows


class Chunk:
    """One chunk of dot products, with cached sums of their terms."""

    def __init__(self, inst: Instruction, request: Request) -> None:
        self._inst, self.terms = inst, CachedTerms(inst, request)
        self.memory = self.terms.memory

    def sum(self, node: FusedSum, model: DotModel) -> Bits:
        """Return the node's results, [n]."""
        others, arithmetic = self.others(node, model), node.arithmetic
        if isinstance(arithmetic, FloatArithmetic):
            return self._float_sum(node.products, others, model.subnormal_operands, arithmetic)
        total, result = self.integer_total(node.products, others), arithmetic.result
        if arithmetic.overflow == "saturate":
            total = np.clip(total, -result.largest - 1, result.largest)
        return total.astype(result.dtype)

    def others(self, node: FusedSum, model: DotModel) -> Others:
        """Return C, then the results of inner sums: the first NaN in this order counts."""
        found = [self.terms.addend(model.subnormal_addend)] if node.has_addend else []
        for child in node.children:
            patterns = self.sum(child, model)
            found.append(Other(patterns, child.arithmetic.result, "kept", (child.arithmetic.result.name, patterns.tobytes())))
        return tuple(found)

    def integer_total(self, ks: tuple[int, ...], others: Others) -> Integers:
        """Return sums of integers before they are reduced to the bits of the result."""
        total = np.zeros(len(self.terms), np.int64)
        if ks:
            total += self.terms.integer_products(ks)
        for other in others:
            total += other.fmt.integers(other.patterns)
        return total

    @remembered
    def _float_sum(self, ks: tuple[int, ...], others: Others, subnormals: Subnormals, arithmetic: FloatArithmetic) -> Bits:
        exact = self.before_rounding(ks, others, subnormals, arithmetic)
        patterns = rounding.encode(exact.negative, exact.magnitude, exact.exponent, arithmetic)
        if arithmetic.zero_sign == "ieee":
            patterns[(exact.magnitude == 0) & self.terms.all_negative(ks, others)] = arithmetic.result.sign_bit
        return self._special(patterns, exact.specials, ks, others, arithmetic)

    def before_rounding(
        self, ks: tuple[int, ...], others: Others, subnormals: Subnormals, arithmetic: FloatArithmetic
    ) -> ExactSum:
        """Return the sum of the terms, aligned as the arithmetic says, before it is rounded."""
        if arithmetic.alignment_bits is None:
            return self._exact_sum(ks, others, subnormals, arithmetic.result.name == "f64")
        return self._aligned_sum(ks, others, subnormals, _alignment(arithmetic))

    @remembered
    def _aligned_sum(self, ks: tuple[int, ...], others: Others, subnormals: Subnormals, alignment: FloatArithmetic) -> ExactSum:
        decoded, size = [self.terms.decoded(other) for other in others], alignment.scaled_products
        terms, exponents = [term.values for term in decoded], [term.exponents for term in decoded]
        if ks:
            rule, counted = alignment.product_exponent, alignment.zero_terms == "aligned"
            terms.append(self.terms.products(ks, subnormals, size)[0])
            exponents.append(self.terms.largest_exponent(ks, subnormals, rule, counted, size))
        largest = reduce(np.maximum, exponents).astype(np.int64)
        if alignment.min_exponent is not None:
            largest = np.maximum(largest, alignment.min_exponent)
        specials = self._specials(ks, others, subnormals, size)
        largest[largest < NOTHING // 2] = 0
        largest[specials.rows] = 0
        assert alignment.alignment_bits is not None
        exponent = largest - alignment.alignment_bits
        scale, total = power_of_two(-exponent), np.zeros(len(self.terms))
        for term in terms:
            rounded = rounding.to_integer(alignment.alignment_rounding, term * scale)
            total += rounded.sum(axis=0) if rounded.ndim == 2 else rounded
        total[specials.rows] = 0.0
        return ExactSum(total < 0, np.abs(total).astype(np.int64), exponent, specials)

    @remembered
    def _specials(self, ks: tuple[int, ...], others: Others, subnormals: Subnormals, size: int | None) -> SpecialRows:
        sums = [self.terms.decoded(other).values for other in others]
        sums += [self.terms.products(ks, subnormals, size)[1]] if ks else []
        return specials_of(reduce(np.add, sums))

    @remembered
    def _exact_sum(self, ks: tuple[int, ...], others: Others, subnormals: Subnormals, wide: bool) -> ExactSum:
        """Return the exact sum: error-free float64 arithmetic for at most two terms, otherwise Python integers.

        Two terms of at most 32 bits are added with rounding to odd, in 53 bits. wide: the result is f64.
        """
        if not wide and "f64" not in (self._inst.a.name, *(other.fmt.name for other in others)) and len(ks) + len(others) <= 2:
            values = [self.terms.decoded(other).values for other in others]
            values += list(self.terms.products(ks, subnormals, None)[0]) if ks else []
            total = values[0] if len(values) == 1 else rounded_to_odd(*values)
            specials = specials_of(total)
            return ExactSum(*integer_parts(np.where(np.isfinite(total), total, 0.0)), specials)
        terms = [self.terms.exact_product(k, subnormals) for k in ks]
        addends = [significands(values_of(other.patterns, other.fmt, other.subnormals)) for other in others]
        stand_ins = [x.stand_in for x in terms] + [x.stand_in for x in addends]
        specials = specials_of(sum(stand_ins, np.zeros(len(self.terms))))
        if len(terms) == len(addends) == 1:
            return ExactSum(*_product_and_addend(terms[0], addends[0]), specials)
        every = [(whole(x.a) * whole(x.b), x.lowest) for x in terms] + [(whole(x.signed), x.lowest) for x in addends]
        return ExactSum(*exact_sum(every), specials)

    def _special(
        self, patterns: Bits, specials: SpecialRows, ks: tuple[int, ...], others: Others, arithmetic: FloatArithmetic
    ) -> Bits:
        """Insert infinities and NaNs; NaN operands may pass through."""
        patterns = with_specials(patterns, specials, arithmetic)
        rows = specials.rows[np.isnan(specials.naive)]
        if arithmetic.nan_payload != "dropped" and len(rows):
            a, b = self.terms.operands(ks)
            operands = {
                "a": [(x, self._inst.a) for x in a],
                "b": [(x, self._inst.b) for x in b],
                "c": [(other.patterns, other.fmt) for other in others],
            }
            in_turn = [(x[rows], fmt) for letter in arithmetic.nan_payload.split() for x, fmt in operands[letter]]
            patterns[rows] = _with_payloads(patterns[rows], in_turn, arithmetic.result)
        return patterns


@lru_cache(maxsize=1 << 12)
def _alignment(arithmetic: FloatArithmetic) -> FloatArithmetic:
    """Return one arithmetic for all that align terms alike, whatever they do with the sum."""
    kept = ("alignment_bits", "alignment_rounding", "min_exponent", "product_exponent", "zero_terms", "scaled_products")
    return FloatArithmetic(FORMATS["f32"], 0, "RZ", **{name: getattr(arithmetic, name) for name in kept})


def specials_of(naive: Floats) -> SpecialRows:
    rows = np.flatnonzero(~np.isfinite(naive))
    return SpecialRows(rows, naive[rows])


def with_specials(patterns: Bits, specials: SpecialRows, arithmetic: FloatArithmetic) -> Bits:
    """Insert infinities and NaNs from the plain float64 sum of the terms."""
    if len(specials.rows):
        fmt = arithmetic.result
        positive, sign = fmt.dtype.type(fmt.infinity or fmt.largest), fmt.dtype.type(fmt.sign_bit)
        infinity = np.where(specials.naive > 0, positive, positive | sign)
        patterns[specials.rows] = np.where(np.isnan(specials.naive), fmt.dtype.type(arithmetic.nan), infinity)
    return patterns


def _with_payloads(patterns: Bits, operands: list[tuple[Bits, Format]], fmt: Format) -> Bits:
    """Insert the first NaN operand of each row, made quiet; of a wider operand's payload only the upper bits are kept."""
    quiet = (fmt.infinity or 0) | 1 << (fmt.mantissa_bits - 1)
    for operand, of in reversed(operands):
        rows = np.flatnonzero(np.isnan(of.values(operand)))
        if not len(rows):
            continue
        wide = operand[rows].astype(np.uint64)
        payload = (wide & ((1 << of.mantissa_bits) - 1)) << max(0, fmt.mantissa_bits - of.mantissa_bits)
        payload >>= max(0, of.mantissa_bits - fmt.mantissa_bits)
        nan = payload | np.where(wide & of.sign_bit, np.uint64(fmt.sign_bit), np.uint64(0)) | quiet
        patterns[rows] = nan.astype(fmt.dtype)
    return patterns


def _product_and_addend(product: ExactProduct, addend: Significands) -> tuple[Truths, Integers, Integers]:
    base = np.where(product.high == 0, addend.lowest, product.lowest)
    distance = np.where(addend.signed == 0, 0, addend.lowest - base)
    base = np.where(distance > FAR, addend.lowest - FAR, base)
    scaled = addend.signed * power_of_two(np.minimum(np.maximum(distance, -FAR), FAR))
    negative, magnitude, exponent = top_bits(product.high, product.low, scaled)
    return negative, magnitude, exponent + base
