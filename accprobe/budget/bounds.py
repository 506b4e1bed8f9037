"""Worst-case error bound of each element of a product, for its operands.

One fused sum of L products and the sum before them, aligned to the largest exponent e of its terms, has two errors:

- alignment: each term except the one with e loses less than 2^(e - F); truncation decreases positive terms and increases
  negative ones;
- rounding: less than 2^(e' - b) for a sum with the exponent e', half of it to nearest.

`tight` walks along K with the largest exponents of the products and the enclosure of the partial sum. `from_sum` uses only the
sum of |a·b| (`accprobe.budget.worst_error`). Both hold below the normal range. Both are infinite where a sum may overflow, an
operand is not finite, or accumulators wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.budget.enclosure import Enclosure, clipped_power, result_in, result_of, rounded, scaled, summed
from accprobe.budget.errors import by_k
from accprobe.budget.worst_error import product_error
from accprobe.evaluate.decoding import NOTHING, leading, values_of
from accprobe.evaluate.error_free import Floats, Integers
from accprobe.evaluate.product import ScaleWords, rounded_words
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import NO_K, Chain, Node, ProductModel, folded, of_chains
from accprobe.model.tree import Arithmetic, FloatArithmetic, FusedSum, ProductExponent

# Elements that are walked along K at once: few enough for their sums to stay in a core's cache.
WALKED = 1 << 14

MOST_COLUMNS = 1 << 8

# Covers the rounding errors of the bound itself, which is computed in float64.
SAFE = 1 + 2.0**-40

F32, F64 = FORMATS["f32"], FORMATS["f64"]


def tight(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Floats:
    """Return the bound of |computed - exact|, [M, N], for a [M, K] and b [N, K], bit patterns, times both scales."""
    a, b = (rounded_words(fmt, words, model.operand_rounding) for fmt, words in ((model.a, a), (model.b, b)))
    m, n = len(a), len(b)
    bound = np.full((m, n), np.inf)
    if not _is_bounded(model):
        return bound
    columns = min(n, MOST_COLUMNS)
    rows = max(1, WALKED // max(1, columns))
    with np.errstate(all="ignore"):
        for top in range(0, m, rows):
            for left in range(0, n, columns):
                y, x = slice(top, top + rows), slice(left, left + columns)
                bound[y, x] = _Walk(model, a[y], b[x], _part(scales, y, x)).bound()
    return bound


def from_sum(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Floats:
    """Return the bound from sums of |a·b|, subnormal operands counted as the smallest normal number; one matrix product."""
    a, b = (rounded_words(fmt, words, model.operand_rounding) for fmt, words in ((model.a, a), (model.b, b)))
    error = product_error(model)
    if error is None or not _is_bounded(model):
        return np.full((len(a), len(b)), np.inf)
    x, y = _raised(model.a, a), _raised(model.b, b)
    with np.errstate(all="ignore"):
        sums = largest = x @ y.T
        least = np.full(sums.shape, error.absolute)
        if scales is not None and model.scales is not None:
            of_a, of_b = (np.abs(words.astype(np.float64)) for words in (scales.a, scales.b.T))
            sums = (x * by_k(model, of_a)) @ (y * by_k(model, of_b)).T
            most, other = (np.maximum(of_x.max(axis=1), 1.0) for of_x in (of_a, of_b))
            least = least * np.multiply.outer(most, other)
            tiny = np.multiply.outer(of_a.min(axis=1), of_b.min(axis=1)) < 2.0**F32.min_exponent
            largest = np.where(tiny, np.inf, np.maximum(sums, largest))
        bound = (error.relative * sums + least) * SAFE
        return np.where(largest * (1 + error.relative) * SAFE + least <= error.most, bound, np.inf)


def _is_bounded(model: ProductModel) -> bool:
    """Return whether the model implies a bound: no wrapping, no alignment to zeros, subnormal operands kept.

    Every recorded and published model truncates aligned terms and rounds a sum once; others have no bound.
    """
    known = product_error(model) is not None and model.step.subnormal_operands == "kept"
    return known and all(_is_usual(node.arithmetic) for node in model.step.root.nodes())


def _is_usual(arithmetic: Arithmetic) -> bool:
    if not isinstance(arithmetic, FloatArithmetic) or arithmetic.first_bits is not None:
        return False
    return arithmetic.alignment_rounding == "truncate" and arithmetic.product_exponent != "normalised product"


def _raised(fmt: Format, words: Bits) -> Floats:
    sizes = np.abs(values_of(words, fmt, "kept"))
    return np.where(sizes == 0, 0.0, np.maximum(sizes, 2.0**fmt.min_exponent))


def _part(scales: ScaleWords | None, y: slice, x: slice) -> ScaleWords | None:
    if scales is None:
        return None
    a, b = scales
    return ScaleWords(a if len(a) == 1 else a[y], b if b.shape[-1] == 1 else b[:, x])


@dataclass(frozen=True)
class _Lines:
    """Rows of A, or columns of B, [K, lines]: values, exponents as encoded, and signs (0 for zeros)."""

    values: Floats
    exponents: NDArray[np.int16]
    signs: NDArray[np.float32]

    @classmethod
    def of(cls, fmt: Format, words: Bits) -> _Lines:
        values = np.ascontiguousarray(values_of(words, fmt, "kept").T)
        exponents = leading(values)
        exponents[(values != 0) & (exponents < fmt.min_exponent)] = fmt.min_exponent
        return cls(values, exponents, np.sign(values).astype(np.float32))

    def taken(self, ks: slice | Sequence[int] | NDArray[np.intp]) -> _Lines:
        """Return the lines at those k, zeros for NO_K."""
        if isinstance(ks, slice):
            return _Lines(self.values[ks], self.exponents[ks], self.signs[ks])
        some, absent = np.array(ks, np.intp), np.array(ks) == NO_K
        found = _Lines(self.values[some], self.exponents[some], self.signs[some])
        found.values[absent], found.exponents[absent], found.signs[absent] = 0.0, NOTHING, 0.0
        return found

    def norms(self) -> Floats:
        most = np.maximum(np.abs(self.values).max(axis=0), np.finfo(np.float64).tiny)
        return np.asarray(most * np.sqrt(((self.values / most) ** 2).sum(axis=0)))

    def grains(self) -> Integers:
        """Return the exponent of the last bit that is set in any value of a line."""
        significands = self.values.view(np.int64) & ((1 << F64.mantissa_bits) - 1) | 1 << F64.mantissa_bits
        last = leading(np.abs(self.values)) + (leading((significands & -significands).astype(np.float64)) - F64.mantissa_bits)
        return np.asarray(np.where(self.values == 0, F64.max_exponent, last.astype(np.int64)).min(axis=0))


def _largest(a: _Lines, b: _Lines, of: ProductExponent) -> Integers:
    """Return the largest exponent of the products, [M, N]."""
    own = (x.exponents if of == "unnormalised" else leading(x.values) for x in (a, b))
    found = np.full((a.values.shape[1], b.values.shape[1]), NOTHING, np.int16)
    for i, j in zip(*own, strict=True):
        np.maximum(found, np.add.outer(i, j), out=found)
    return found.astype(np.int64)


def _signs(a: _Lines, b: _Lines) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the number of positive and of negative products, [M, N]."""
    difference, there = a.signs.T @ b.signs, np.abs(a.signs).T @ np.abs(b.signs)
    return (there + difference) / 2, (there - difference) / 2


def _in_any_order(parts: list[Enclosure], arithmetic: FloatArithmetic) -> Enclosure:
    """Add the parts in any order: no partial sum exceeds the sum of all sizes."""
    to, whole = result_of(arithmetic), summed(parts)
    size = sum((np.maximum(part.high, -part.low) for part in parts), np.zeros_like(whole.exact))
    for _ in parts[1:]:
        anywhere = Enclosure(np.zeros_like(size), size, size, np.zeros_like(size), whole.grain, whole.bits, whole.lowest)
        once = rounded(anywhere, to)
        lost = np.maximum(once.below, once.above) - size
        whole, size = whole._replace(below=whole.below + lost, above=whole.above + lost), size + lost
    grain = np.maximum(whole.grain, 2.0 ** (to.lowest - to.bits))
    return whole._replace(bits=to.bits, lowest=to.lowest, grain=grain)


class _Walk:
    """The walk along K of a few rows of A and of B."""

    def __init__(self, model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> None:
        self._model, self._scales = model, scales
        self._a, self._b = _Lines.of(model.a, a), _Lines.of(model.b, b)
        self._slack = np.multiply.outer(self._a.norms(), self._b.norms()) * ((model.k + 16) * 2.0**-51)
        grains = np.add.outer(self._a.grains(), self._b.grains())
        self._grain = np.where(grains < F64.min_exponent, 0.0, clipped_power(grains))

    def bound(self) -> Floats:
        found = self._result(self._node(self._model.tree))
        bound = np.maximum(found.below, found.above) * SAFE
        return np.where(np.isfinite(bound), bound, np.inf)

    def _node(self, node: Node) -> Enclosure:
        if self._scales is not None and self._model.scales_inside and (chains := of_chains(node)):
            return self._scaled_inside(chains)
        if isinstance(node, Chain):
            return self._chain(node)
        parts = [self._node(part) for part in node.parts]
        if node.kept is not None:
            parts = [rounded(part, result_in(node.kept)) for part in parts]
        assert isinstance(node.arithmetic, FloatArithmetic)
        if node.order == "unordered":
            return _in_any_order(parts, node.arithmetic)
        result = result_of(node.arithmetic)
        return folded(node.nested, parts, lambda x, y: rounded(summed([x, y]), result))

    def _scaled_inside(self, chains: Sequence[Chain]) -> Enclosure:
        assert self._scales is not None
        total = None
        for chain in chains:
            block = self._model.block_of[chain]
            last = self._scaled(
                self._chain(chain), self._scales.a[:, block, None], self._scales.b[None, block], total is not None
            )
            total = last if total is None else rounded(summed([total, last]), result_in(F32))
        assert total is not None
        return total

    def _scaled(self, x: Enclosure, a: NDArray[np.float32], b: NDArray[np.float32], is_added: bool = False) -> Enclosure:
        """Multiply by both scales, rounding each product to float32 unless it is added by a fused multiply-add."""
        scales = self._model.scales
        assert scales is not None
        x, wide = rounded(x, result_in(F32)), (a.astype(np.float64), b.astype(np.float64))
        if scales.how == "product of scales":
            x = scaled(x, wide[0] * wide[1], (a * b).astype(np.float64))
        else:
            first, last = wide if scales.how == "a then b" else wide[::-1]
            x = scaled(rounded(scaled(x, first, first), result_in(F32)), last, last)
        return x if scales.fused and is_added else rounded(x, result_in(F32))

    def _result(self, x: Enclosure) -> Enclosure:
        scales = self._model.scales
        if scales is not None and not scales.inside and self._scales is not None:
            x = self._scaled(x, self._scales.a, self._scales.b)
        return rounded(x, result_in(self._model.result, self._model.result_rounding))

    def _chain(self, chain: Chain) -> Enclosure:
        ks, width = chain.ks(), self._model.step.products
        a, b = self._a.taken(ks), self._b.taken(ks)
        before = None
        for first in range(0, len(ks), width):
            of_sum = slice(first, first + width)
            before = self._sum(self._model.step.root, a.taken(of_sum), b.taken(of_sum), before)
        assert before is not None
        return before

    def _sum(self, node: FusedSum, a: _Lines, b: _Lines, before: Enclosure | None) -> Enclosure:
        """Return the enclosure of one fused sum."""
        arithmetic = node.arithmetic
        assert isinstance(arithmetic, FloatArithmetic)
        others = [self._sum(child, a, b, before) for child in node.children]
        if node.has_addend and before is not None:
            others.append(self._read(before))
        a, b = a.taken(node.products), b.taken(node.products)
        products = [self._products(a, b, arithmetic)] if node.products else []
        to, truncated = result_of(arithmetic), None
        total = summed([*others, *products])._replace(slack=self._slack, grain=self._grain)
        if arithmetic.alignment_bits is not None:
            total, truncated = self._truncated(total, others, a, b, arithmetic)
        return rounded(total, to, truncated)

    def _read(self, before: Enclosure) -> Enclosure:
        if self._model.step.subnormal_addend == "kept":
            return before
        flushed = 2.0**self._model.instruction.c.min_exponent
        return before._replace(below=before.below + flushed, above=before.above + flushed)

    def _products(self, a: _Lines, b: _Lines, arithmetic: FloatArithmetic) -> Enclosure:
        exact = a.values.T @ b.values
        lost = np.zeros_like(exact)
        if arithmetic.product_bits is not None:
            part = 2.0 ** -(arithmetic.product_bits + (arithmetic.product_rounding in ("RNE", "RNA")))
            least = 2.0 ** (arithmetic.result.min_exponent - arithmetic.product_bits)
            lost = (np.abs(a.values).T @ np.abs(b.values)) * part + len(a.values) * least
        return Enclosure(exact, lost, lost, self._slack, self._grain, self._product_bits(arithmetic), NOTHING)

    def _truncated(
        self, total: Enclosure, others: list[Enclosure], a: _Lines, b: _Lines, arithmetic: FloatArithmetic
    ) -> tuple[Enclosure, tuple[Floats, Floats]]:
        """Return the sum of the aligned terms, and separately what the truncation of the last term can lose below and above."""
        bits = arithmetic.alignment_bits
        assert bits is not None
        exponent, (positive, negative) = _largest(a, b, arithmetic.product_exponent), _signs(a, b)
        there = positive + negative
        for term in others:
            exponent = np.maximum(exponent, term.exponents())
            low, high = term.low < 0, term.high > 0
            positive, negative, there = positive + high, negative + low, there + (low | high)
        whole = max((term.bits for term in others), default=0) <= bits and self._product_bits(arithmetic) <= bits
        losing, floor = np.maximum(there - whole, 0), arithmetic.min_exponent
        if floor is not None:
            losing = there - (whole & (exponent > floor) & (there > 1))
            exponent = np.maximum(exponent, floor)
        unit = clipped_power(exponent - bits)
        lost = np.maximum(unit - self._grain, 0.0)
        below, above = np.minimum(positive, losing), np.minimum(negative, losing)
        last = np.minimum(below, 1) * lost, np.minimum(above, 1) * lost
        truncated = total.below + (below * lost - last[0]), total.above + (above * lost - last[1])
        return total._replace(below=truncated[0], above=truncated[1]), last

    def _product_bits(self, arithmetic: FloatArithmetic) -> int:
        bits = self._model.a.mantissa_bits + self._model.b.mantissa_bits
        return bits if arithmetic.product_bits is None else min(bits, arithmetic.product_bits + 1)
