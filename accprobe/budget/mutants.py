"""Typical mistakes of matrix product kernels, for mutation tests of a tolerance.

Each mistake changes the model, the operands or the result. The wrong results are evaluated on the operands of correct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from accprobe.evaluate.error_free import Floats, Integers
from accprobe.evaluate.product import ScaleWords, SumWords, product, rounded_to
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, Merged, ProductModel, addition
from accprobe.model.tree import Arithmetic, FloatArithmetic

# Rows and columns of the transposed tile.
TILE_SIDE = 16

# Fraction bits of a narrow accumulator; bits to remove from one that is already as narrow.
NARROW, NARROWER = 13, 3

BF16 = FORMATS["bf16"]

NARROWER_ACCUMULATOR = "a narrower accumulator"


class Operation(NamedTuple):
    """A product of a [M, K] and b [N, K], bit patterns. trials: products with the same B, stacked in A."""

    model: ProductModel
    a: Bits
    b: Bits
    scales: ScaleWords | None = None
    trials: int = 1

    def computed(self) -> Bits:
        return product(self.model, self.a, self.b, scales=self.scales)

    def computed_with(self, **changes: Any) -> Bits:
        """Return the results of the model with changed fields."""
        return self._replace(model=replace(self.model, **changes)).computed()

    def of_lines(self, y: Integers, x: Integers) -> Operation:
        """Return the operation restricted to rows y and columns x of the result."""
        scales = self.scales
        if scales is not None:
            a, b = scales
            scales = ScaleWords(a if len(a) == 1 else a[y], b if b.shape[1] == 1 else b[:, x])
        return Operation(self.model, self.a[y], self.b[x], scales)

    def values(self, d: Bits) -> Floats:
        return self.model.result.values(d)


# Returns the wrong results; None if the mistake does not apply to the product.
Mutation = Callable[[Operation], Bits | None]


def tail_dropped(operation: Operation) -> Bits | None:
    """Drop the last products, as many as a step of the chain adds."""
    width = operation.model.step.products
    a = operation.a.copy()
    a[:, (operation.model.k - 1) // width * width :] = 0
    return operation._replace(a=a).computed()


def k_doubled(operation: Operation) -> Bits | None:
    """Add the product in the middle to the result, which is rounded again."""
    model, k = operation.model, operation.model.k // 2
    a, b = model.a.values(operation.a[:, k]), model.b.values(operation.b[:, k])
    if operation.scales is not None and model.scales is not None:
        block = (
            next((i for chain, i in model.block_of.items() if chain.start <= k < chain.stop), 0) if model.scales_by_block else 0
        )
        a, b = a * operation.scales.a[:, block], b * operation.scales.b[block]
    more = operation.values(operation.computed()) + np.multiply.outer(a, b)
    return rounded_to(SumWords(more.view(np.uint64), FORMATS["f64"]), model.result, model.result_rounding)


def never_promoted(operation: Operation) -> Bits | None:
    model = operation.model
    first = next(model.chains())
    if isinstance(model.tree, Chain) or model.scales_by_block or first.period or first.shift:
        return None
    return operation.computed_with(tree=Chain(0, model.k, first.pattern))


def partials_in_bf16(operation: Operation) -> Bits | None:
    """Round each part of the sum to bf16; of one chain, its halves."""
    tree, model = operation.model.tree, operation.model
    if model.scales_by_block:
        return None
    if isinstance(tree, Merged):
        return None if tree.kept else operation.computed_with(tree=replace(tree, kept=BF16))
    half = model.k // 2 // len(tree.pattern) * len(tree.pattern)
    if not half or tree.period or tree.shift or model.step.root.arithmetic.result.bits > 32:
        return None
    halves = Chain(0, half, tree.pattern), Chain(half, model.k, tree.pattern)
    return operation.computed_with(tree=Merged(halves, "forward", addition(), BF16))


def block_scales_swapped(operation: Operation) -> Bits | None:
    """Swap the first two block scales of A."""
    if operation.scales is None or not operation.model.scales_by_block or operation.scales.a.shape[1] < 2:
        return None
    a = operation.scales.a.copy()
    a[:, [0, 1]] = a[:, [1, 0]]
    return operation._replace(scales=operation.scales._replace(a=a)).computed()


def tile_transposed(operation: Operation) -> Bits | None:
    """Transpose the first tile of each trial."""
    rows = len(operation.a) // operation.trials
    side = min(TILE_SIDE, rows, len(operation.b))
    d = operation.computed()
    tiles = d.reshape(operation.trials, rows, -1)[:, :side, :side]
    tiles[:] = tiles.swapaxes(1, 2).copy()
    return d if side > 1 else None


def result_truncated(operation: Operation) -> Bits | None:
    """Truncate the result instead of rounding it to nearest."""
    model = operation.model
    tree = model.tree
    of_sum = model.step.root.arithmetic if isinstance(tree, Chain) else tree.arithmetic
    bits = of_sum.result.mantissa_bits if model.scales is None else FORMATS["f32"].mantissa_bits
    if model.result_rounding == "RZ" or bits <= model.result.mantissa_bits:
        return None
    return operation.computed_with(result_rounding="RZ")


def narrowed(bits: int) -> int:
    """Return the fraction bits of a narrower accumulator."""
    return NARROW if bits > NARROW else bits - NARROWER


def narrower_accumulator(operation: Operation) -> Bits | None:
    def fewer(arithmetic: Arithmetic) -> Arithmetic:
        if not isinstance(arithmetic, FloatArithmetic):
            return arithmetic
        bits, aligned = arithmetic.result_bits, arithmetic.alignment_bits
        most = narrowed(bits)
        # The alignment loses at most 12 bits: 25 become 13, as many as a result of 23 bits keeps.
        return replace(
            arithmetic, result_bits=most, alignment_bits=aligned if aligned is None else min(aligned, max(most, aligned - 12))
        )

    if operation.model.step.root.arithmetic.result is FORMATS["f64"]:
        return None
    return operation.computed_with(step=operation.model.step.with_arithmetic(fewer))


MUTATIONS: dict[str, Mutation] = {
    "zeros": lambda operation: np.zeros((len(operation.a), len(operation.b)), operation.model.result.dtype),
    "the last products dropped": tail_dropped,
    "one k counted twice": k_doubled,
    "no promotion": never_promoted,
    "partial sums in bf16": partials_in_bf16,
    "block scales swapped": block_scales_swapped,
    "a tile transposed": tile_transposed,
    "the result truncated, not rounded": result_truncated,
    NARROWER_ACCUMULATOR: narrower_accumulator,
}


def mistake_name(name: str, model: ProductModel) -> str:
    """Return the name of a mistake; a narrower accumulator is named by its bits in this model."""
    arithmetic = model.step.root.arithmetic
    if name != NARROWER_ACCUMULATOR or not isinstance(arithmetic, FloatArithmetic):
        return name
    bits = arithmetic.result_bits
    return f"accumulator of {narrowed(bits)} bits, {bits - narrowed(bits)} fewer"
