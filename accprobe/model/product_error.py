"""How far a product's result can be from the exact sum: a bound relative to the sum of |a·b|, for all operands.

Let S be the sum of |a·b| over the products below a node of the tree. Each node is given two numbers: its value v is at most
`size` · S, and v differs from the exact sum by at most `error` · S. One fused sum of t terms loses

- by aligning them: of each less than 2^-F of the largest term, which itself loses nothing where F has room for its bits;
- by rounding its result: at most 2^-b of it, or half of that to nearest.

S of a part is at most S of the whole, so the bounds of parts add up along a chain and up the tree. Results below the normal
range, subnormal operands and overflow are left aside: what they lose has no bound relative to S.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import Chain, Merged, Nested, Node, ProductModel
from accprobe.model.tree import Addend, Arithmetic, FloatArithmetic, FusedSum, Product, Rounding


class ErrorBound(NamedTuple):
    """|value| <= size · S and |value - exact| <= error · S; bits: fraction bits that the value has at most."""

    size: float
    error: float
    bits: int


NO_SUM = ErrorBound(0.0, 0.0, 0)
"""A sum of no products."""


def worst_error(model: ProductModel) -> float | None:
    """The largest |result - exact sum| relative to the sum of |a·b|, None where no such bound follows from the model."""
    if not all(_is_bounded(node.arithmetic) for node in model.step.root.nodes()) or model.step.addend_bits is not None:
        return None
    bound = _Bounds(model).node(model.tree)
    if model.scales is not None and not model.scales.inside:
        bound = _scaled(bound)
    return _rounded(bound, model.result.mantissa_bits, model.result_rounding).error


def _is_bounded(arithmetic: Arithmetic) -> bool:
    """Whether what an addition loses is bounded by its terms: a zero may be aligned to, accumulators may wrap."""
    if not isinstance(arithmetic, FloatArithmetic):
        return False
    return arithmetic.accumulator_bits is None and not arithmetic.aligns_to_zeros


class _Bounds:
    def __init__(self, model: ProductModel) -> None:
        self._model = model
        self._product_bits = model.a.mantissa_bits + model.b.mantissa_bits + 1
        self._of_chain = cache(self._steps)

    def node(self, node: Node) -> ErrorBound:
        if isinstance(node, Chain):
            bound = self._of_chain(-(-len(node.ks()) // self._model.step.products))
            return _scaled(bound) if self._model.scales is not None and self._model.scales.inside else bound
        parts = [self.node(part) for part in node.parts]
        if node.kept is not None:
            parts = [_rounded(part, node.kept.mantissa_bits, "RNE") for part in parts]
        return self._merged(node, node.nested, parts)

    def _merged(self, node: Merged, order: Nested, parts: list[ErrorBound]) -> ErrorBound:
        if isinstance(order, int):
            return parts[order]
        first, *others = (self._merged(node, inner, parts) for inner in order)
        for other in others:
            first = _added([first, other], node.arithmetic)
        return first

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
                terms.append(before)
            elif isinstance(term, Product):
                terms.append(self._product(node.arithmetic))
        return _added(terms, node.arithmetic)

    def _product(self, arithmetic: Arithmetic) -> ErrorBound:
        exact = ErrorBound(1.0, 0.0, self._product_bits)
        if isinstance(arithmetic, FloatArithmetic) and arithmetic.product_bits is not None:
            return _rounded(exact, arithmetic.product_bits, arithmetic.product_rounding)
        return exact


def _added(terms: list[ErrorBound], arithmetic: Arithmetic) -> ErrorBound:
    """The terms aligned, added, and rounded to the result."""
    assert isinstance(arithmetic, FloatArithmetic)
    size, error = max(term.size for term in terms), max(term.error for term in terms)
    cut = arithmetic.alignment_bits
    bits = max(term.bits for term in terms)
    if cut is not None:
        losing = sum(term.size > 0 for term in terms) - (bits <= cut)
        lost = losing * 2.0**-cut * size
        shrinks = arithmetic.alignment_rounding == "truncate"
        size, error = (size if shrinks else size + lost), error + lost
    summed = ErrorBound(size, error, FORMATS["f64"].mantissa_bits + 1)
    if arithmetic.first_bits is not None:
        summed = _rounded(summed, arithmetic.first_bits, arithmetic.first_rounding)
    return _rounded(summed, arithmetic.result_bits, arithmetic.result_rounding)


def _rounded(bound: ErrorBound, bits: int, rounding: Rounding) -> ErrorBound:
    """Rounded to so many fraction bits; what has no more is left as it is."""
    if bound.bits <= bits:
        return bound
    lost = bound.size * 2.0 ** -(bits + (rounding in ("RNE", "RNA")))
    return ErrorBound(bound.size if rounding == "RZ" else bound.size + lost, bound.error + lost, bits)


def _scaled(bound: ErrorBound, fmt: Format = FORMATS["f32"]) -> ErrorBound:
    """Times two scales, relative to the sum of |sa·a·sb·b|: two roundings to f32, one perhaps of sa·sb."""
    factor = (1 + 2.0 ** -(fmt.mantissa_bits + 1)) ** 2
    return ErrorBound(bound.size * factor, bound.error + bound.size * (factor - 1), fmt.mantissa_bits)
