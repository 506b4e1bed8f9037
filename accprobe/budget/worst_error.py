"""Error bound of a product from the sum of |a·b|: relative to it for all operands, or of each element for known ones.

Let S be the sum of |a·b| over the products below a node of the tree. Subnormal operands count as the smallest normal number.
The section "Bounds" in docs/accuracy.md derives the losses of one fused sum. Errors below the normal range or the alignment
floor are `least`, independent of S. S of a part is at most S of the whole. So the bounds of parts add up along a chain and up
the tree, in any order of K. They hold if no sum overflows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import ScaleWords, rounded_words
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import NO_K, Chain, Node, ProductModel, folded, merged_in
from accprobe.model.tree import Addend, Arithmetic, FloatArithmetic, FusedSum, Product, Rounding


class ErrorBound(NamedTuple):
    """|value| <= size · S + least and |value - exact| <= error · S + least; bits: fraction bits that the value has at most."""

    size: float
    error: float
    bits: int
    least: float = 0.0


# The bound of a sum without products.
NO_SUM = ErrorBound(0.0, 0.0, 0)


def worst_error(model: ProductModel) -> float | None:
    """Return a bound of |result - exact sum| relative to the sum of |a·b|; None if the model implies no bound.

    Ignores results below the normal range, subnormal operands and overflow.
    """
    bound = _bound(model)
    return None if bound is None else bound.error


# Covers the rounding errors of the bound itself, which is computed in float64.
SAFE = 1 + 2.0**-40


def worst_case(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Floats:
    """Return the bound of |result - exact sum|, [M, N], for a [M, K] and b [N, K], bit patterns, times both scales.

    It is infinite where a sum may overflow, an operand is not finite, or a product of two scales is subnormal, and everywhere
    if the model implies no bound or flushes subnormal operands.
    """
    bound_of_sum = _bound(model)
    if bound_of_sum is None or model.step.subnormal_operands != "kept":
        return np.full((len(a), len(b)), np.inf)
    result, most = bound_of_sum, min(map(_largest, _formats(model)))
    x, y = (_raised(fmt, rounded_words(fmt, words, model.operand_rounding)) for fmt, words in ((model.a, a), (model.b, b)))
    with np.errstate(all="ignore"):
        sums = largest = x @ y.T
        least = np.full(sums.shape, result.least)
        if scales is not None and model.scales is not None:
            of_a, of_b = (np.abs(words.astype(np.float64)) for words in (scales.a, scales.b.T))
            sums = (x * by_k(model, of_a)) @ (y * by_k(model, of_b)).T
            least = least * np.multiply.outer(*(np.maximum(of_x.max(axis=1), 1.0) for of_x in (of_a, of_b)))
            tiny = np.multiply.outer(of_a.min(axis=1), of_b.min(axis=1)) < 2.0 ** FORMATS["f32"].min_exponent
            largest = np.where(tiny, np.inf, np.maximum(sums, largest))
        bound = (result.error * sums + least) * SAFE
        return np.where(largest * (1 + result.error) * SAFE + least <= most, bound, np.inf)


def _raised(fmt: Format, words: Bits) -> Floats:
    """Return |values|, subnormal ones raised to the smallest normal number."""
    sizes = np.abs(values_of(words, fmt, "kept"))
    return np.where(sizes == 0, 0.0, np.maximum(sizes, 2.0**fmt.min_exponent))


def by_k(model: ProductModel, scales: Floats) -> Floats:
    """Expand scales [lines, blocks] to one for each k; scales of whole rows stay as they are."""
    if not model.scales_by_block:
        return scales
    found = np.ones((len(scales), model.k))
    for chain, block in model.block_of.items():
        found[:, chain.ks()[chain.ks() != NO_K]] = scales[:, [block]]
    return found


def _bound(model: ProductModel) -> ErrorBound | None:
    """Return the bound of a result; None if the model implies none."""
    sums = [node.arithmetic for node in model.step.root.nodes()]
    if not all(map(_is_bounded, sums)):
        return None
    bound = _Bounds(model).of(model.tree)
    if model.scales is not None and not model.scales.by_block:
        bound = _scaled(bound)
    return _rounded(bound, model.result.mantissa_bits, model.result_rounding, model.result)


def _formats(model: ProductModel) -> Iterator[tuple[Format, int]]:
    """Return every format of a sum with its kept fraction bits."""
    merged = list(merged_in(model.tree))
    arithmetics = [*(node.arithmetic for node in model.step.root.nodes()), *(node.arithmetic for node in merged)]
    yield from ((x.result, x.result_bits) for x in arithmetics if isinstance(x, FloatArithmetic))
    whole = [model.result, *(node.kept for node in merged if node.kept), *([FORMATS["f32"]] if model.scales else [])]
    yield from ((fmt, fmt.mantissa_bits) for fmt in whole)


def _largest(of: tuple[Format, int]) -> float:
    fmt, bits = of
    return (2.0 - 2.0**-bits) * 2.0**fmt.max_exponent


def _is_bounded(arithmetic: Arithmetic) -> bool:
    """Return whether the error of an addition is bounded by its terms; not if it aligns to zeros."""
    return isinstance(arithmetic, FloatArithmetic) and not arithmetic.aligns_to_zeros


class _Bounds:
    def __init__(self, model: ProductModel) -> None:
        self._model = model
        self._product_bits = model.a.mantissa_bits + model.b.mantissa_bits + 1
        self._of_chain = cache(self._steps)

    def of(self, node: Node) -> ErrorBound:
        if isinstance(node, Chain):
            sums = self._of_chain(-(-len(node.ks()) // self._model.step.products))
            return _scaled(sums) if self._model.scales_by_block else sums
        parts = [self.of(part) for part in node.parts]
        if node.kept is not None:
            fmt = node.kept
            parts = [_rounded(part, fmt.mantissa_bits, "RNE", fmt) for part in parts]
        return folded(node.nested, parts, lambda x, y: _added([x, y], node.arithmetic))

    def _steps(self, steps: int) -> ErrorBound:
        bound = NO_SUM
        for _ in range(steps):
            bound = self._sum(self._model.step.root, bound)
        return bound

    def _sum(self, node: FusedSum, before: ErrorBound) -> ErrorBound:
        terms = []
        for term in node.terms:
            if isinstance(term, FusedSum):
                terms.append(self._sum(term, before))
            elif isinstance(term, Addend):
                terms.append(self._read(before))
            elif isinstance(term, Product):
                terms.append(ErrorBound(1.0, 0.0, self._product_bits))
        return _added(terms, node.arithmetic)

    def _read(self, before: ErrorBound) -> ErrorBound:
        if self._model.step.subnormal_addend == "kept" or before is NO_SUM:
            return before
        return before._replace(least=before.least + 2.0**self._model.instruction.c.min_exponent)


def _added(terms: list[ErrorBound], arithmetic: Arithmetic) -> ErrorBound:
    """Return the bound after the terms are aligned, added and rounded to the result."""
    assert isinstance(arithmetic, FloatArithmetic)
    size, error = max(term.size for term in terms), max(term.error for term in terms)
    least = sum(term.least for term in terms)
    aligned = arithmetic.alignment_bits
    bits = max(term.bits for term in terms)
    if aligned is not None:
        there = sum(term.size > 0 for term in terms)
        losing = there - (bits <= aligned)
        lost = losing * 2.0**-aligned * size
        floor = arithmetic.result.min_exponent
        floor = floor if arithmetic.min_exponent is None else max(floor, arithmetic.min_exponent)
        least += there * 2.0**-aligned * (least + 2.0**floor)
        shrinks = arithmetic.alignment_rounding == "truncate"
        size, error = (size if shrinks else size + lost), error + lost
    summed = ErrorBound(size, error, bits if len(terms) == 1 else FORMATS["f64"].mantissa_bits + 1, least)
    found = _rounded(summed, arithmetic.result_bits, arithmetic.result_rounding, arithmetic.result)
    if arithmetic.subnormal_results == "flushed":
        return found._replace(least=found.least + 2.0**arithmetic.result.min_exponent)
    return found


def _rounded(bound: ErrorBound, bits: int, rounding: Rounding, fmt: Format) -> ErrorBound:
    """Return the bound after rounding to so many fraction bits in a format; exact if it has no more, except subnormals."""
    subnormal = 2.0 ** (fmt.min_exponent - bits)
    if bound.bits <= bits:
        return bound._replace(least=bound.least + subnormal)
    part = 2.0 ** -(bits + (rounding in ("RNE", "RNA")))  # the largest relative error of one rounding
    lost = bound.size * part
    least = bound.least * (1 + part) + subnormal
    return ErrorBound(bound.size if rounding == "RZ" else bound.size + lost, bound.error + lost, bits, least)


def _scaled(bound: ErrorBound, fmt: Format = FORMATS["f32"]) -> ErrorBound:
    """Return the bound after two scales, relative to the sum of |sa·a·sb·b|, with two roundings to f32."""
    factor = (1 + 2.0 ** -(fmt.mantissa_bits + 1)) ** 2
    least = bound.least * factor + 4 * 2.0 ** (fmt.min_exponent - fmt.mantissa_bits)
    return ErrorBound(bound.size * factor, bound.error + bound.size * (factor - 1), fmt.mantissa_bits, least)
