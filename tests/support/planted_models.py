"""Models that the inference must find for planted products, and the results of a model in every order of its sum."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
from planted_plans import operands
from planted_products import Planted

from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, Merged, Nested, Node, ProductModel, Scales, addition, in_chunks, multiply_add
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product


def model_of(plan: Planted) -> ProductModel:
    """Return the model of a planted product, without faults outside the model of an element: regions, outputs, scales."""
    step, kept = step_of(plan), FORMATS[plan.partial_format]
    slices = _slices(plan, tuple(range(step.products)))
    tree = slices[0]
    if len(slices) > 1:
        serial = plan.merge == "serial"
        order = "forward" if serial else butterfly(len(slices)) if plan.merge == "butterfly" else plan.merge
        tree = Merged(
            tuple(slices), order, _addition(plan, kept.name if serial else "f32"), None if kept.name == "f32" else kept
        )
    scales = None if plan.scales is None else Scales(plan.scales)
    a, b, out = (FORMATS[name] for name in (plan.a, plan.b, plan.out))
    return ProductModel(a, b, plan.k, step, tree, out, plan.result_rounding, scales, plan.operand_rounding)


def words(plan: Planted, seed: int) -> tuple[ProductModel, Bits, Bits, ScaleWords | None, Bits]:
    """Return the model, A [M, K], B [N, K], the scales and the planted D."""
    model, (a, b, *scales) = model_of(plan), operands(plan, seed)
    d = np.ascontiguousarray(plan(a, b, *scales)).view(model.result.dtype)
    of_a, of_b = a.view(model.a.dtype), np.ascontiguousarray(b.T).view(model.b.dtype)
    return model, of_a, of_b, ScaleWords(*scales) if scales else None, d


def butterfly(parts: int) -> Nested:
    """Return the order that adds i and i + parts / 2, then the halves of the results."""
    level: list[Nested] = list(range(parts))
    while len(level) > 1:
        level = list(zip(level[: len(level) // 2], level[len(level) // 2 :], strict=True))
    return level[0]


def _downward(products: int, each: int) -> tuple[int, ...]:
    """Return the k of sums of `each` products, from the last sum to the first."""
    return tuple(k for first in range(products - each, -1, -each) for k in range(first, first + each))


def step_of(plan: Planted) -> DotModel:
    """Return the fused sum of a chain."""
    arithmetic: Arithmetic = FloatArithmetic(
        FORMATS["f32"], plan.result_bits, plan.sum_rounding, plan.alignment_bits, underflow_sign="positive"
    )
    if plan.out == "s32":
        arithmetic = IntegerArithmetic(FORMATS["s32"], "wrap")
    elif plan.products_per_sum == 1:
        return multiply_add()
    return DotModel(FusedSum((Addend(), *map(Product, range(plan.products_per_sum))), arithmetic))


def _interleaved(plan: Planted, width: int, start: int, stop: int) -> Node:
    """Return an interleaved slice: one block of `width` in each period."""
    run, period = tuple(range(width)), width * len(plan.slices)
    reach = period * (plan.promote_every // width) if plan.promote_every else stop
    chunks = tuple(Chain(low, min(low + reach, stop), run, period) for low in range(start, stop, reach))
    return chunks[0] if len(chunks) == 1 else Merged(chunks, "forward", _addition(plan, "f32"))


def _addition(plan: Planted, fmt: str) -> Arithmetic:
    return addition(FORMATS["s32" if plan.out == "s32" else fmt])


def _slices(plan: Planted, pattern: tuple[int, ...]) -> list[Node]:
    stop = plan.k - plan.dropped_tail
    sizes = plan.slices or (plan.k,)
    if plan.interleave is not None:
        return [_interleaved(plan, plan.interleave, s * plan.interleave, stop) for s in range(len(sizes))]
    borders = [sum(sizes[:s]) for s in range(len(sizes))]
    ranges = [
        range(low - (plan.doubled_k == low - 1), min(high, stop)) for low, high in pairwise([*borders, plan.k]) if low < stop
    ]
    if plan.descending:
        return [Chain(ks.start, ks.stop, _downward(len(ks), len(pattern)), len(ks) + 1) for ks in ranges]
    return [in_chunks(ks, plan.promote_every or len(ks), pattern, _addition(plan, "f32")) for ks in ranges]


def outcomes(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
    """Return the results [orders, M, N] of an unordered sum, one for each order but for a swap of the first two."""
    tree = model.tree
    assert isinstance(tree, Merged)
    found = []
    for first, *others in permutations(range(len(tree.parts))):
        order: Nested = first
        for other in others:
            order = (order, other)
        if not others or first < others[0]:
            found.append(product(replace(model, tree=replace(tree, order=order)), a, b, scales=scales))
    return np.stack(found)
