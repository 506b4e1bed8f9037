"""Whole integer products equal chains of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_models import model_of
from planted_plans import HOPPER, NAMED

from accprobe.evaluate.additions import integer_product, is_wrapped
from accprobe.evaluate.product import product
from accprobe.gemm.plans import integer_step
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, ProductModel
from accprobe.model.tree import DotModel, IntegerArithmetic

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
