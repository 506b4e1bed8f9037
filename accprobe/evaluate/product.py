"""Bit-exact evaluation of whole matrix products.

Sums that need no steps are computed at once (`additions`), other elements one tile at a time. Compiled code (`tiles`) computes
chains if it supports the model and saves time.
Otherwise numpy computes them, step by step for a whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate import rounding, tiles
from accprobe.evaluate.additions import addition_list, exact_products, integer_product, is_wrapped
from accprobe.evaluate.error_free import Floats, integer_parts, rounded_to_odd, truncated_sum
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.reference import specials_of, with_specials
from accprobe.evaluate.steps import LANES, CompiledStep, step_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import (
    NO_K,
    Chain,
    Merged,
    Nested,
    Node,
    ProductModel,
    Scales,
    addition,
    folded,
    multiply_add,
    of_chains,
)
from accprobe.model.tree import Arithmetic, FloatArithmetic, IntegerArithmetic, Rounding, ZeroSign
from accprobe.operands.request import Request

Singles = NDArray[np.float32]

# Elements computed at once.
TILE = 1 << 16

# Elements at once in chains of multiply-adds. Their arrays then fit in a core's cache.
SMALL_TILE = 1 << 14

# Elements at once in compiled code.
COMPILED_TILE = 1 << 18

# Cost model, seconds: per matrix product (compiled), per fused-sum step (numpy), and per term (compiled, numpy).
OF_A_PRODUCT, OF_A_SUM, OF_A_TERM = 1e-4, 3e-4, (1e-9, 1.5e-8)

# Rows of a compiled tile, unless all columns fit with more rows.
MOST_ROWS = 1 << 8

# Operands of single elements that are gathered at once.
GATHERED = 1 << 22


class SumWords(NamedTuple):
    """Patterns of sums, in any shape, and their format."""

    patterns: Bits
    fmt: Format

    def values(self) -> Floats:
        return self.fmt.values(self.patterns)


class ScaleWords(NamedTuple):
    """float32 scales. For tensor: a [1, 1], b [1, 1]. For row: a [M, 1], b [1, N]. For blocks: a [M, blocks], b [blocks, N];
    a scale of 128 x 128 elements of B is repeated for each column.
    """

    a: NDArray[np.float32]
    b: NDArray[np.float32]


def product(model: ProductModel, a: Bits, b: Bits, c: Bits | None = None, scales: ScaleWords | None = None) -> Bits:
    """Return D [..., M, N] of a [..., M, K], b [..., N, K] and c [..., M, N] or None, bit patterns.

    C has the format of the outermost sum, which starts from it if it is a chain or forward. Unordered sums are added forward.
    """
    if c is None and is_wrapped(model):
        return integer_product(model, a, b)
    if c is None and (found := _sums_of_exact(model, a, b)) is not None:
        return found
    many, (m, n) = a.shape[:-2], (a.shape[-2], b.shape[-2])
    d = np.empty((*many, m, n), model.result.dtype)
    step = _compiled_step(model, prod(many), m * n)
    tile = COMPILED_TILE if step else SMALL_TILE if is_multiply_add(model) else TILE
    columns = max(1, min(n, tile // max(1, prod(many)) // (min(m, MOST_ROWS) if step else 1)))
    rows = max(1, tile // max(1, prod(many) * columns))
    for top in range(0, m, rows):
        for left in range(0, n, columns):
            y, x = slice(top, top + rows), slice(left, left + columns)
            of_tile, start = _part(scales, y, x), None if c is None else c[..., y, x]
            sums = _Tile(model, step, a[..., y, :], b[..., x, :], of_tile).node(model.tree, start)
            d[..., y, x] = result_of(model, sums, of_tile)
    return d


def _sums_of_exact(model: ProductModel, a: Bits, b: Bits) -> Bits | None:
    """Return D if all rows of A are equal, every product is exact, and every sum is one float32 or float64 addition."""
    additions = addition_list(model)
    values = None if additions is None else exact_products(model, additions.fmt, a, b)
    if additions is None or values is None:
        return None
    starts = np.arange(values.size // model.k) * model.k
    words = additions.patterns(additions.sum_windows(values.reshape(-1), starts))
    row = result_of(model, SumWords(words, additions.fmt))
    return np.repeat(row.reshape(*b.shape[:-2], 1, b.shape[-2]), a.shape[-2], axis=-2)


class WindowSums:
    """D [n] of a row a [1, K] of equal elements with columns words[start : start + K] of B, for each start [n].

    The model is one of `addition_list`. gpu: see `AdditionList.sum_windows`. Raises AccprobeError if a product is not exact.
    """

    def __init__(self, model: ProductModel, a: Bits, words: Bits, gpu: str | None = None) -> None:
        additions = addition_list(model)
        assert additions is not None
        values = exact_products(model, additions.fmt, a[:, :1], words[None, :, None])
        if values is None:
            raise AccprobeError("a product with the factor of the sum is not exact")
        self._model, self._additions, self._values, self._gpu = model, additions, values.reshape(-1), gpu

    def __call__(self, starts: NDArray[np.int64]) -> Bits:
        sums = self._additions.patterns(self._additions.sum_windows(self._values, starts, self._gpu))
        return result_of(self._model, SumWords(sums, self._additions.fmt))


def is_multiply_add(model: ProductModel) -> bool:
    """Return whether each step is an ordinary float32 multiply-add, fused or not."""
    ordinary = model.step in (multiply_add(), multiply_add(fused=False))
    return ordinary and model.a.is_float and max(model.a.mantissa_bits, model.b.mantissa_bits) <= 23


def _compiled_step(model: ProductModel, products: int, elements: int) -> CompiledStep | None:
    """Return the compiled step if it is estimated to be faster than numpy for so many products of so many elements."""
    step = step_of(model.step, model.instruction)
    if step is None or elements == 1:
        return None  # numpy computes the single elements of many products at once
    terms = products * model.k
    compiled = products * (OF_A_PRODUCT + model.k * max(elements, LANES) * OF_A_TERM[0])
    in_numpy = model.k / model.step.products * OF_A_SUM + terms * elements * OF_A_TERM[1]
    return step if compiled < in_numpy and tiles.pays(in_numpy) else None


def _part(scales: ScaleWords | None, y: slice, x: slice) -> ScaleWords | None:
    if scales is None:
        return None
    a, b = scales
    return ScaleWords(a if len(a) == 1 else a[y], b if b.shape[-1] == 1 else b[:, x])


class _Tile:
    """Evaluate a tile: each row of A with each row of B."""

    def __init__(self, model: ProductModel, step: CompiledStep | None, a: Bits, b: Bits, scales: ScaleWords | None) -> None:
        self._model, self._step, self._inst, self._scales = model, step, model.instruction, scales
        self._a, self._b = (rounded_words(fmt, words, model.operand_rounding) for fmt, words in ((model.a, a), (model.b, b)))
        self._shape = (*a.shape[:-1], b.shape[-2])

    def node(self, node: Node, start: Bits | None) -> SumWords:
        """Return the sum of a part of the tree, starting from `start`."""
        if self._scales is not None and self._model.scales_by_block and (chains := of_chains(node)):
            return self._scaled_inside(chains, start)
        if isinstance(node, Chain):
            return self._chain(node, start)
        parts = [self.node(part, None) for part in node.parts]
        return merged(node, parts, node.nested, start)

    def _scaled_inside(self, chains: Sequence[Chain], start: Bits | None) -> SumWords:
        """Return the sum of the chains, one per block along K, each multiplied by its block's scales before it is added."""
        assert self._scales is not None
        assert self._model.scales is not None
        total = np.zeros(self._shape, np.float32) if start is None else start.view(np.float32)
        for chain in chains:
            sums, block = self._chain(chain, None), self._model.block_of[chain]
            values = sums.fmt.values(sums.patterns).astype(np.float32)
            a, b = self._scales.a[:, block, None], self._scales.b[None, block]
            total = scaled_sums(values, a, b, self._model.scales, total)
        return SumWords(total.view(np.uint32), FORMATS["f32"])

    def _chain(self, chain: Chain, start: Bits | None) -> SumWords:
        ks = _ks(chain, is_multiply_add(self._model))
        a, b = _taken(self._a, ks), _taken(self._b, ks)
        running = np.zeros(self._shape, self._inst.c.dtype) if start is None else start
        if self._step is None:
            return SumWords(self._in_turn(a[..., :, None, :], b[..., None, :, :], running), self._inst.d)
        sums, doubtful = tiles.sums(self._step, self._inst, a, b, running)
        elements, at_once = np.argwhere(doubtful), max(1, GATHERED // max(1, a.shape[-1]))
        for first in range(0, len(elements), at_once):
            *many, row, column = elements[first : first + at_once].T
            here = *many, row, column
            sums[here] = self._in_turn(a[*many, row], b[*many, column], running[here])
        return SumWords(sums, self._inst.d)

    def _in_turn(self, a: Bits, b: Bits, running: Bits) -> Bits:
        """Evaluate a chain in numpy: a, b [..., K] of each element, running [...]."""
        inst, width = self._inst, self._inst.k
        if is_multiply_add(self._model):
            return self._multiply_adds(a, b, running)
        sums = np.ascontiguousarray(running).reshape(-1)
        for first in range(0, a.shape[-1], width):
            of_sum = slice(first, first + width)
            block_a, block_b = (np.broadcast_to(x[..., of_sum], (*running.shape, width)).reshape(-1, width) for x in (a, b))
            sums = evaluate(self._model.step, inst, Request(block_a, block_b, sums))
        return sums.reshape(running.shape)

    def _multiply_adds(self, a: Bits, b: Bits, running: Bits) -> Bits:
        x, y = self._model.a.values(a), self._model.b.values(b)
        fused, sums = self._model.step == multiply_add(), running.view(np.float32)
        with np.errstate(all="ignore"):
            for k in range(a.shape[-1]):
                each = x[..., k] * y[..., k]
                sums = sum_as_f32(each if fused else each.astype(np.float32).astype(np.float64), sums)
        return np.where(np.isnan(sums), np.uint32(0x7FFFFFFF), sums.view(np.uint32))


def result_of(model: ProductModel, sums: SumWords, scales: ScaleWords | None = None) -> Bits:
    """Return the last sums, scaled unless each block was, in the format of D."""
    if scales is not None and model.scales is not None and not model.scales_by_block:
        values = sums.fmt.values(sums.patterns).astype(np.float32)
        sums = SumWords(scaled_sums(values, scales.a, scales.b, model.scales).view(np.uint32), FORMATS["f32"])
    return rounded_to(sums, model.result, model.result_rounding)


def merged(node: Merged, parts: Sequence[SumWords], order: Nested, start: Bits | None = None) -> SumWords:
    """Add the sums of a node's parts in that order."""
    if node.kept is not None:
        parts = [SumWords(rounded_to(part, node.kept), node.kept) for part in parts]
    if start is not None and node.order == "forward":
        total = SumWords(start, node.arithmetic.result)
        for part in parts:
            total = added(total, part, node.arithmetic)
        return total
    return folded(order, parts, lambda x, y: added(x, y, node.arithmetic))


def scaled_sums(values: Singles, a: Singles, b: Singles, scales: Scales, total: Singles | None = None) -> Singles:
    """Multiply the values by both scales and add the total, if any."""
    with np.errstate(all="ignore"):
        if scales.how != "product of scales":
            first, second = (a, b) if scales.how == "a then b" else (b, a)
            values, factor = values * first, second
        else:
            factor = a * b
        if total is None:
            return values * factor
        if scales.fused:
            return sum_as_f32(values.astype(np.float64) * factor, total)
        return total + values * factor


def _ks(chain: Chain, alone: bool) -> slice | NDArray[np.intp]:
    """Return the k of a chain, as a slice if they are contiguous. alone: each fused sum has one product."""
    in_turn = not chain.shift and not chain.period and chain.pattern == tuple(range(len(chain.pattern)))
    if in_turn and (chain.stop - chain.start) % len(chain.pattern) == 0:
        return slice(chain.start, chain.stop)
    ks = chain.ks()
    return ks[ks != NO_K] if alone else ks


def rounded_words(fmt: Format, words: Bits, how: Rounding) -> Bits:
    """Round words that are wider than their format (tf32), numpy's or cupy's.

    They stay with RZ: the consumer ignores the low bits. Infinities stay, NaNs stay NaNs; too large numbers become infinities.
    """
    if how == "RZ" or not fmt.ignored_low_bits:
        return words
    word, low = fmt.dtype.type, fmt.ignored_low_bits
    infinity = word(fmt.infinity or 0)
    half = word(1 << (low - 1))
    more = half if how == "RNA" else half - word(1) + (words >> word(low) & word(1))
    special = (words & infinity) == infinity
    nan = special & (words & word(fmt.sign_bit - 1) != infinity)
    kept = words + more * ~special & word(fmt.sign_bit | fmt.sign_bit - (1 << low))
    found: Bits = kept | nan * word(fmt.sign_bit - 1 & ~int(infinity) & -(1 << low))
    return found


def _taken(lines: Bits, ks: slice | NDArray[np.intp]) -> Bits:
    """Return the operands of a chain; zeros fill sums with fewer products."""
    if isinstance(ks, slice):
        return lines[..., ks]
    there = ks != NO_K
    if there.all():
        return lines[..., ks]
    taken = np.zeros((*lines.shape[:-1], len(ks)), lines.dtype)
    taken[..., there] = lines[..., ks[there]]
    return taken


def sum_as_f32(exact: Floats, addend: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return exact + addend, rounded once to float32.

    The float64 sum rounds as the exact one, except if it is inexact and halfway between two float32 numbers, or below float32's
    normal range.
    """
    wide = addend.astype(np.float64)
    total = exact + wide
    found = total.astype(np.float32)
    bits = total.view(np.int64)
    doubtful = ((bits & 0x1FFFFFFF) == 0x10000000) | (np.abs(total) < 2.0**-125)
    if doubtful.any():
        rows = np.nonzero(doubtful & np.isfinite(total))
        found[rows] = rounded_to_odd(exact[rows], wide[rows]).astype(np.float32)
    return found


def added(x: SumWords, y: SumWords, arithmetic: Arithmetic) -> SumWords:
    if isinstance(arithmetic, IntegerArithmetic):
        total = x.fmt.integers(x.patterns) + y.fmt.integers(y.patterns)
        return SumWords(total.astype(arithmetic.result.dtype), arithmetic.result)
    if arithmetic.subnormal_results == "flushed":
        kept = addition(arithmetic.result, arithmetic.result_rounding)
        return without_subnormals(added(without_subnormals(x), without_subnormals(y), kept), arithmetic.zero_sign)
    f64 = FORMATS["f64"]
    with np.errstate(all="ignore"):
        if arithmetic in (addition(), addition(f64)):
            total = _numbers(x, arithmetic.result) + _numbers(y, arithmetic.result)
            return SumWords(_with_one_nan(total, arithmetic), arithmetic.result)
        values = [s.values() for s in (x, y)]
        if arithmetic == addition(f64, "RZ"):
            return SumWords(_with_one_nan(truncated_sum(*values)[0], arithmetic), f64)
        exact = rounded_to_odd(values[0], values[1])
        return SumWords(_encoded(exact, arithmetic), arithmetic.result)


def _numbers(sums: SumWords, fmt: Format) -> NDArray[Any]:
    """Return the sums as numbers of float32 or float64."""
    kind: Any = fmt.ml_dtype
    return sums.patterns.view(kind) if sums.fmt is fmt else sums.values().astype(kind)


def without_subnormals(sums: SumWords, zero_sign: ZeroSign = "ieee") -> SumWords:
    """Return the sums with zeros of their sign, or +0, in place of zeros and subnormals."""
    fmt = sums.fmt
    sign = fmt.dtype.type(fmt.sign_bit)
    normal = (sums.patterns & ~sign) >= fmt.dtype.type(1 << fmt.mantissa_bits)
    return SumWords(np.where(normal, sums.patterns, sums.patterns & sign * (zero_sign == "ieee")), fmt)


def _with_one_nan(values: NDArray[np.floating], arithmetic: FloatArithmetic) -> Bits:
    """Return patterns of numbers that the result's format holds exactly."""
    found: Bits = np.where(np.isnan(values), arithmetic.result.dtype.type(arithmetic.nan), values.view(arithmetic.result.dtype))
    return found


def rounded_to(sums: SumWords, fmt: Format, how: Rounding = "RNE") -> Bits:
    if sums.fmt is fmt or fmt.is_integer:
        return sums.patterns
    arithmetic = addition(fmt, how)
    assert isinstance(arithmetic, FloatArithmetic)
    with np.errstate(all="ignore"):
        return _encoded(sums.fmt.values(sums.patterns), arithmetic)


def _encoded(values: Floats, arithmetic: FloatArithmetic) -> Bits:
    """Round float64 values to the result's format; their last bit may be sticky."""
    flat = np.ascontiguousarray(values).reshape(-1)
    specials = specials_of(flat)
    patterns = rounding.encode(*integer_parts(np.where(np.isfinite(flat), flat, 0.0)), arithmetic)
    patterns[(flat == 0) & np.signbit(flat)] = arithmetic.result.sign_bit
    return with_specials(patterns, specials, arithmetic).reshape(values.shape)
