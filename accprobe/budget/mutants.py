"""Wrong products: what a test of one would have to notice, each computed exactly.

A mistake changes the model, the operands or the result; what a wrong kernel would give of the very operands is evaluated, bit
for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.error_free import Floats, Integers
from accprobe.evaluate.product import ScaleWords, SumWords, product, rounded_to
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, Merged, ProductModel, addition, in_chunks
from accprobe.model.tree import Arithmetic, FloatArithmetic

TILE_SIDE = 16
"""Rows and columns of the tile that is turned."""

NARROW, NARROWER = 13, 3
"""Fraction bits of a narrow accumulator; and of one that is narrow already, how many fewer."""

BF16 = FORMATS["bf16"]

NARROWER_ACCUMULATOR = "a narrower accumulator"


class Operation(NamedTuple):
    """A product: a [M, K], b [N, K], bit patterns. tests: of so many products with the same B, one below the other."""

    model: ProductModel
    a: Bits
    b: Bits
    scales: ScaleWords | None = None
    tests: int = 1

    def computed(self) -> Bits:
        return product(self.model, self.a, self.b, scales=self.scales)

    def of_lines(self, y: Integers, x: Integers) -> Operation:
        """Of those rows and columns of the result alone."""
        scales = self.scales
        if scales is not None:
            a, b = scales
            scales = ScaleWords(a if len(a) == 1 else a[y], b if b.shape[1] == 1 else b[:, x])
        return Operation(self.model, self.a[y], self.b[x], scales)

    def values(self, d: Bits) -> Floats:
        return self.model.result.values(d)


Mutation = Callable[[Operation], Bits | None]
"""What the mistake makes of a product; None where it is none."""


def zeros_returned(asked: Operation) -> Bits | None:
    return np.zeros((len(asked.a), len(asked.b)), asked.model.result.dtype)


def tail_dropped(asked: Operation) -> Bits | None:
    """The last fused sum's products."""
    width = asked.model.step.products
    a = asked.a.copy()
    a[:, (asked.model.k - 1) // width * width :] = 0
    return asked._replace(a=a).computed()


def k_doubled(asked: Operation) -> Bits | None:
    """The product in the middle, added to the result once more."""
    model, k = asked.model, asked.model.k // 2
    a, b = model.a.values(asked.a[:, k]), model.b.values(asked.b[:, k])
    if asked.scales is not None and model.scales is not None:
        block = (
            next((i for chain, i in model.block_of.items() if chain.start <= k < chain.stop), 0) if model.scales_inside else 0
        )
        a, b = a * asked.scales.a[:, block], b * asked.scales.b[block]
    more = asked.values(asked.computed()) + np.multiply.outer(a, b)
    return rounded_to(SumWords(more.view(np.uint64), FORMATS["f64"]), model.result, model.result_rounding)


def never_promoted(asked: Operation) -> Bits | None:
    model = asked.model
    first = next(model.chains())
    if isinstance(model.tree, Chain) or model.scales_inside or first.period or first.shift:
        return None
    return asked._replace(model=replace(model, tree=Chain(0, model.k, first.pattern))).computed()


def partials_in_bf16(asked: Operation) -> Bits | None:
    """Each part of the sum; of one chain, its halves."""
    tree, model = asked.model.tree, asked.model
    if model.scales_inside:
        return None
    if isinstance(tree, Merged):
        return None if tree.kept else asked._replace(model=replace(model, tree=replace(tree, kept=BF16))).computed()
    half = model.k // 2 // len(tree.pattern) * len(tree.pattern)
    if not half or tree.period or tree.shift or model.step.root.arithmetic.result.bits > 32:
        return None
    halves = Chain(0, half, tree.pattern), Chain(half, model.k, tree.pattern)
    return asked._replace(model=replace(model, tree=Merged(halves, "forward", addition(), BF16))).computed()


def kept_in_bf16(products: int, parts: bool, running: bool) -> Mutation:
    """Sums of so many products, each a chain: rounded to bf16 before they are added, or the sum of those so far, or both."""

    def mutation(asked: Operation) -> Bits | None:
        model = asked.model
        first = next(model.chains())
        fits = products < model.k and products % len(first.pattern) == 0 and model.step.root.arithmetic.result.bits <= 32
        if not fits or model.scales_inside or first.period or first.shift:
            return None
        chunks = in_chunks(range(model.k), products, first.pattern, addition(BF16) if running else addition())
        assert isinstance(chunks, Merged)
        begun = Merged(chunks.parts[:1], "forward", addition(), BF16)
        tree = replace(chunks, kept=BF16) if parts else replace(chunks, parts=(begun, *chunks.parts[1:]))
        return asked._replace(model=replace(model, tree=tree)).computed()

    return mutation


def block_scales_swapped(asked: Operation) -> Bits | None:
    """The first two of A."""
    if asked.scales is None or not asked.model.scales_inside or asked.scales.a.shape[1] < 2:
        return None
    a = asked.scales.a.copy()
    a[:, [0, 1]] = a[:, [1, 0]]
    return asked._replace(scales=asked.scales._replace(a=a)).computed()


def tile_transposed(asked: Operation) -> Bits | None:
    """The first of each test."""
    rows = len(asked.a) // asked.tests
    side = min(TILE_SIDE, rows, len(asked.b))
    d = asked.computed()
    tiles = d.reshape(asked.tests, rows, -1)[:, :side, :side]
    tiles[:] = tiles.swapaxes(1, 2).copy()
    return d if side > 1 else None


def result_cut(asked: Operation) -> Bits | None:
    """Rounded toward zero where it was to be rounded to nearest."""
    model = asked.model
    tree = model.tree
    of_sum = model.step.root.arithmetic if isinstance(tree, Chain) else tree.arithmetic
    bits = of_sum.result.mantissa_bits if model.scales is None else FORMATS["f32"].mantissa_bits
    if model.result_rounding == "RZ" or bits <= model.result.mantissa_bits:
        return None
    return asked._replace(model=replace(model, result_rounding="RZ")).computed()


def narrowed(bits: int) -> int:
    """13 fraction bits, or three fewer where there are no more."""
    return NARROW if bits > NARROW else bits - NARROWER


def narrower_accumulator(asked: Operation) -> Bits | None:

    def fewer(arithmetic: Arithmetic) -> Arithmetic:
        if not isinstance(arithmetic, FloatArithmetic):
            return arithmetic
        bits, cut = arithmetic.result_bits, arithmetic.alignment_bits
        most = narrowed(bits)
        return replace(arithmetic, result_bits=most, alignment_bits=cut if cut is None else min(cut, max(most, cut - 12)))

    if asked.model.step.root.arithmetic.result is FORMATS["f64"]:
        return None
    return asked._replace(model=replace(asked.model, step=asked.model.step.with_arithmetic(fewer))).computed()


MUTATIONS: dict[str, Mutation] = {
    "zeros": zeros_returned,
    "the last block of K dropped": tail_dropped,
    "one k counted twice": k_doubled,
    "no promotion": never_promoted,
    "partial sums in bf16": partials_in_bf16,
    "block scales swapped": block_scales_swapped,
    "a tile transposed": tile_transposed,
    "the result cut, not rounded": result_cut,
    NARROWER_ACCUMULATOR: narrower_accumulator,
}
"""By name."""


def mistake_name(name: str, model: ProductModel) -> str:
    """A mistake by its name, with the numbers that it has in this model."""
    arithmetic = model.step.root.arithmetic
    if name != NARROWER_ACCUMULATOR or not isinstance(arithmetic, FloatArithmetic):
        return name
    bits = arithmetic.result_bits
    return f"accumulator of {narrowed(bits)} bits, {bits - narrowed(bits)} fewer"


_CHUNKS = (64, 128, 256)

KEPT_IN_BF16: dict[str, Mutation] = {
    f"{what} bf16 every {products} products": kept_in_bf16(products, parts, running)
    for what, parts, running in (
        ("the running sum kept in", False, True),
        ("partial sums and the running sum kept in", True, True),
        ("partial sums kept in", True, False),
    )
    for products in _CHUNKS
}
"""By name: mistakes of kernels, and of loops over products, that are looked for where a result is wrong."""
