"""Verification of results with an unknown order of partial sums.

Each part is evaluated once, by the caller's evaluator. The orders are then tried on these partial sums, usually in float32, and
only on elements that no order has explained so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import ScaleWords, SumWords, added, product, result_of, rounded_to, without_subnormals
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
    """Return whether some sequential order of the outermost sum's parts gives each of the elements d [..., M, N], flat.

    Zeros of either sign are equal. stop: the array ends after the first block of elements with an unexplained one.
    """
    parts, fmt = _partial_sums(model, a, b, scales, evaluate)
    words, of_each = d.reshape(-1), _scales_of_elements(model, scales, d.shape)
    found: list[NDArray[np.bool_]] = []
    start, size = 0, FIRST_BLOCK
    while start < len(words) and not (stop and found and not found[-1].all()):
        here = slice(start, start + size)
        found.append(_explained(model, fmt, _without_zeros(fmt, parts[:, here]), words[here], _taken(of_each, here)))
        start, size = start + size, min(4 * size, MOST_TOGETHER)
    return np.concatenate(found)


def _partial_sums(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None, evaluate: Evaluate) -> tuple[Bits, Format]:
    """Return the parts' sums as they enter the addition, [parts, elements], and their format."""
    tree, found = model.tree, []
    assert isinstance(tree, Merged)
    for part in tree.parts:
        of_part = model.instruction.d if isinstance(part, Chain) else part.arithmetic.result
        fmt = FORMATS["f32"] if model.scales_by_block else of_part
        inside = model.scales if model.scales_by_block else None
        alone = replace(model, tree=part, result=fmt, result_rounding="RNE", scales=inside)
        sums = evaluate(alone, a, b, _scales_of(model, part, scales) if inside else None)
        found.append((rounded_to(SumWords(sums, fmt), tree.kept) if tree.kept else sums).reshape(-1))
    fmt, sums = tree.kept or fmt, np.stack(found)
    flushed = isinstance(tree.arithmetic, FloatArithmetic) and tree.arithmetic.subnormal_results == "flushed"
    return without_subnormals(SumWords(sums, fmt)).patterns if flushed else sums, fmt  # a single part is flushed too


def _scales_of(model: ProductModel, part: Node, scales: ScaleWords | None) -> ScaleWords | None:
    """Return the scales of the part's blocks."""
    blocks = [model.block_of[chain] for chain in chains_of(part)]
    return None if scales is None else ScaleWords(scales.a[:, blocks], scales.b[blocks])


def _scales_of_elements(model: ProductModel, scales: ScaleWords | None, shape: Sequence[int]) -> ScaleWords | None:
    """Return both scales of each element, flat, if the total is scaled."""
    if scales is None or model.scales_by_block:
        return None
    return ScaleWords(*(np.broadcast_to(words, shape).reshape(-1) for words in scales))


def _taken(scales: ScaleWords | None, which: slice | NDArray[np.bool_]) -> ScaleWords | None:
    return scales and ScaleWords(scales.a[which], scales.b[which])


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
    return list(dict.fromkeys((every[0], every[-1], *(every[i] for i in drawn))))


def _explained(model: ProductModel, fmt: Format, parts: Bits, d: Bits, scales: ScaleWords | None) -> NDArray[np.bool_]:
    """Return whether some order of the parts' sums [parts, n] gives each of the results d [n]."""
    found, left = np.zeros(len(d), bool), np.arange(len(d))
    for order in _orders(len(parts)):
        there = _agree(model, [SumWords(parts[part], fmt) for part in order], d, scales)
        if there.any():
            found[left[there]] = True
            left, parts, d, scales = left[~there], parts[:, ~there], d[~there], _taken(scales, ~there)
        if not len(left):
            break
    return found


def _agree(model: ProductModel, parts: Sequence[SumWords], d: Bits, scales: ScaleWords | None) -> NDArray[np.bool_]:
    """Return where the parts, added in turn, give d; zeros of either sign are equal."""
    assert isinstance(model.tree, Merged)
    arithmetic = model.tree.arithmetic
    expected = result_of(model, reduce(lambda x, y: added(x, y, arithmetic), parts), scales)
    zeros = (expected | d) << expected.dtype.type(1) == 0
    return np.asarray((expected == d) | (zeros & model.result.is_float))
