"""Verification of results with an unknown order of partial sums.

Each part is evaluated once, on the fastest evaluator. The orders are then tried on these partial sums, usually in float32, and
only on elements that no order has explained so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import ScaleWords, SumWords, added, product, rounded_to, scaled_sums, without_subnormals
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Chain, Merged, Node, ProductModel, chains_of
from accprobe.model.tree import FloatArithmetic

Evaluate = Callable[[ProductModel, Bits, Bits, ScaleWords | None], Bits]

# Elements of the first block, and of the largest: each is four times the one before it.
FIRST_BLOCK, MOST_TOGETHER = 1 << 12, 1 << 16


def on_cpu(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
    return product(model, a, b, scales=scales)


def given_by_some_order(
    model: ProductModel,
    a: Bits,
    b: Bits,
    d: Bits,
    scales: ScaleWords | None = None,
    evaluate: Evaluate = on_cpu,
    stop: bool = False,
) -> NDArray[np.bool_]:
    """Return whether some order of the outermost sum's parts gives each of the elements d [..., M, N], flat.

    Zeros of either sign are equal. stop: stop after the first block of elements with an unexplained one.
    """
    parts, fmt = _partial_sums(model, a, b, scales, evaluate)
    words, factors = d.reshape(-1), _factors(model, scales, d.shape)
    found: list[NDArray[np.bool_]] = []
    start, size = 0, FIRST_BLOCK
    while start < len(words) and not (stop and found and not found[-1].all()):
        here = slice(start, start + size)
        of_block = _Block(model, fmt, _without_zeros(fmt, parts[:, here]), words[here], [x[here] for x in factors])
        found.append(of_block.explained())
        start, size = start + size, min(4 * size, MOST_TOGETHER)
    return np.concatenate(found)


def _partial_sums(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None, evaluate: Evaluate) -> tuple[Bits, Format]:
    """Return the parts' sums as they enter the addition, [parts, elements], and their format."""
    tree, found = model.tree, []
    assert isinstance(tree, Merged)
    for part in tree.parts:
        fmt = FORMATS["f32"] if model.scales_by_block else _format_of(model, part)
        inside = model.scales if model.scales_by_block else None
        alone = replace(model, tree=part, result=fmt, result_rounding="RNE", scales=inside)
        sums = evaluate(alone, a, b, _scales_of(model, part, scales) if inside else None)
        found.append((rounded_to(SumWords(sums, fmt), tree.kept) if tree.kept else sums).reshape(-1))
    return np.stack(found), tree.kept or fmt


def _format_of(model: ProductModel, part: Node) -> Format:
    return model.instruction.d if isinstance(part, Chain) else part.arithmetic.result


def _scales_of(model: ProductModel, part: Node, scales: ScaleWords | None) -> ScaleWords | None:
    """Return the scales of the part's blocks."""
    blocks = [model.block_of[chain] for chain in chains_of(part)]
    return None if scales is None else ScaleWords(scales.a[:, blocks], scales.b[blocks])


def _factors(model: ProductModel, scales: ScaleWords | None, shape: Sequence[int]) -> list[NDArray[np.float32]]:
    """Return both scales of each element, if the total is scaled."""
    if scales is None or model.scales is None or model.scales_by_block:
        return []
    return [np.broadcast_to(words, shape).reshape(-1) for words in scales]


def _without_zeros(fmt: Format, parts: Bits) -> Bits:
    """Return each element's nonzero parts, padded with zeros; the identity of a part does not matter."""
    is_zero = fmt.values(parts) == 0
    most = max(1, int((~is_zero).sum(axis=0).max()))
    if most == len(parts):
        return parts
    return np.take_along_axis(parts, np.argsort(is_zero, axis=0, kind="stable")[:most], axis=0)


@cache
def _orders(parts: int) -> list[tuple[int, ...]]:
    """Return every sequential order, one of each two that only swap the first two parts: upward, downward, then in random
    order.
    """
    every = [order for order in permutations(range(parts)) if order[:2] == tuple(sorted(order[:2]))]
    drawn = np.random.default_rng(parts).permutation(len(every))
    return [every[0], every[-1], *(every[i] for i in drawn if 0 < i < len(every) - 1)]


class _Block:
    """Some elements: their parts' sums [parts, n], results and scales, each [n]."""

    def __init__(self, model: ProductModel, fmt: Format, parts: Bits, d: Bits, factors: Sequence[NDArray[np.float32]]) -> None:
        self._model, self._fmt, self._parts, self._d, self._factors = model, fmt, parts, d, list(factors)
        assert isinstance(model.tree, Merged)
        assert isinstance(model.tree.arithmetic, FloatArithmetic)
        self._arithmetic = model.tree.arithmetic
        if self._arithmetic.subnormal_results == "flushed":  # here, for a part that is added to zeros alone, too
            self._parts = without_subnormals(SumWords(parts, fmt)).patterns

    def explained(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self._d), bool)
        left = np.arange(len(found))
        for order in _orders(len(self._parts)):
            there = self._agree(order)
            if there.any():
                found[left[there]] = True
                left, self._parts, self._d = left[~there], self._parts[:, ~there], self._d[~there]
                self._factors = [x[~there] for x in self._factors]
            if not len(left):
                break
        return found

    def _agree(self, order: Sequence[int]) -> NDArray[np.bool_]:
        model, parts = self._model, (SumWords(self._parts[part], self._fmt) for part in order)
        total = reduce(lambda x, y: added(x, y, self._arithmetic), parts)
        if self._factors and model.scales is not None:
            values, (of_a, of_b) = total.fmt.values(total.patterns).astype(np.float32), self._factors
            total = SumWords(scaled_sums(values, of_a, of_b, model.scales).view(np.uint32), FORMATS["f32"])
        expected = rounded_to(total, model.result, model.result_rounding)
        zeros = (expected | self._d) << expected.dtype.type(1) == 0
        return np.asarray((expected == self._d) | (zeros & model.result.is_float))
