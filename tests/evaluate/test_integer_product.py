"""Whole products without chains: integers in one matrix product, and sums whose parts are added in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_models import model_of, outcomes, words
from planted_plans import HOPPER, NAMED

from accprobe.evaluate.additions import integer_product, is_wrapped
from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.product import product
from accprobe.gemm.plans import integer_step
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, ProductModel, addition
from accprobe.model.tree import DotModel, IntegerArithmetic
from accprobe.operands.distributions import times_power

INT8 = replace(NAMED["int8"], m=5, n=7)
PLANS = {
    "one chain": INT8,
    "slices, a k twice": replace(INT8, slices=(256, 256), doubled_k=255),
    "dropped tail": replace(INT8, dropped_tail=40),
}


def operands(model: ProductModel, m: int, n: int) -> tuple[Bits, Bits]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << fmt.bits, (lines, model.k)) for fmt, lines in ((model.a, m), (model.b, n)))
    return a.astype(model.a.dtype), b.astype(model.b.dtype)


def chained(model: ProductModel, a: Bits, b: Bits) -> Bits:
    """One sum after the other."""
    return product(model, a, b, np.zeros((len(a), len(b)), model.result.dtype))


@pytest.mark.parametrize(("name", "formats"), list(zip(PLANS, ["s8 s8", "u8 s8", "s4 u4"], strict=True)))
def test_one_matrix_product_equals_chains(name: str, formats: str) -> None:
    first, second = (FORMATS[fmt] for fmt in formats.split())
    model = replace(model_of(PLANS[name]), a=first, b=second)
    a, b = operands(model, 5, 7)
    assert is_wrapped(model)
    np.testing.assert_array_equal(integer_product(model, a, b), chained(model, a, b))


def wide(step: DotModel, k: int) -> ProductModel:
    s8, s32 = FORMATS["s8"], FORMATS["s32"]
    return ProductModel(s8, s8, k, step, Chain(0, k, tuple(range(step.products))), s32)


def test_sums_beyond_32_bits_wrap() -> None:
    """-128 · -128 · 2^18 is 2^32, and one more times -128 · 127."""
    model = wide(integer_step(32), (1 << 18) + 32)
    a, b = np.full((1, model.k), 0x80, np.uint8), np.full((1, model.k), 0x80, np.uint8)
    a[:, -32:] = 0
    a[:, -1], b[:, -1] = 0x80, 0x7F
    assert integer_product(model, a, b).view(np.int32).item() == -128 * 127


def test_saturating_or_longer_sums_use_chains() -> None:
    saturating = integer_step(32).with_arithmetic(lambda x: IntegerArithmetic(x.result, "saturate"))
    model = wide(saturating, (1 << 17) + 32)
    a = np.full((1, model.k), 0x80, np.uint8)
    assert not is_wrapped(model)
    assert product(model, a, a).view(np.int32).item() == 0x7FFFFFFF
    assert not is_wrapped(replace(wide(integer_step(1), 64), a=FORMATS["s32"], b=FORMATS["s32"]))
    assert not is_wrapped(model_of(HOPPER))


FIVE = replace(HOPPER, m=8, n=9, k=160, slices=(32,) * 5, merge="unordered")
UNORDERED = {
    "f32": FIVE,
    "three": replace(FIVE, k=96, slices=(32,) * 3),
    "results bf16": replace(FIVE, out="bf16"),
    "partials bf16": replace(FIVE, partial_format="bf16"),
    "tensor scales": replace(FIVE, scales="tensor"),
    "row scales": replace(FIVE, scales="row", out="bf16"),
    "promoted": replace(FIVE, promote_every=16),
    "FMAs": replace(FIVE, products_per_sum=1, alignment_bits=None, sum_rounding="RNE"),
    "blocks": replace(FIVE, a="e4m3", b="e4m3", k=640, slices=(128,) * 5, promote_every=128, scales="128x128", out="bf16"),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_results_of_every_order_are_found_and_their_neighbours_are_not(name: str) -> None:
    model, a, b, scales, _ = words(UNORDERED[name], 1)
    every = outcomes(model, a, b, scales)
    rng = np.random.default_rng(0)
    drawn = np.take_along_axis(every, rng.integers(len(every), size=(1, *every.shape[1:])), axis=0)[0]
    for d in (drawn, every.min(axis=0), every.max(axis=0), drawn + 1, drawn - 1):
        expected = (every == d).any(axis=0)
        np.testing.assert_array_equal(given_by_some_order(model, a, b, d, scales), expected.reshape(-1))


def test_subnormal_sums_may_be_flushed() -> None:
    """Atomics of global memory flush them: terms and sums about f32's smallest normal number."""
    model, a, b, *_ = words(FIVE, 1)
    a, b = (times_power(model.a, x, -63) for x in (a, b))
    flushing = replace(model, tree=replace(model.tree, arithmetic=addition(subnormals="flushed")))
    for own, other in ((model, flushing), (flushing, model)):
        d = outcomes(own, a, b)[5]
        assert given_by_some_order(own, a, b, d).all()
        assert not given_by_some_order(other, a, b, d).all()
