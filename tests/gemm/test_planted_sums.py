"""The sums of planted products where they are easily got wrong, by operands made for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_plans import FMAS, HOPPER, NAMED
from planted_products import Planted
from planted_sums import TYPES, Array


def test_an_fma_is_rounded_once() -> None:
    """1 + 2^-23 + 2^-24 · (1 - 2^-44): float64 drops the last term and leaves a tie, which goes up."""
    nearly = np.float32(1 - 2.0**-22), np.float32((1 + 2.0**-22) * 2.0**-24)
    a = np.array([[1, nearly[0]]], np.float32)
    b = np.array([[1 + 2.0**-23], [nearly[1]]], np.float32)
    assert np.float64(1 + 2.0**-23) + np.float64(nearly[0]) * np.float64(nearly[1]) == 1 + 2.0**-23 + 2.0**-24
    assert replace(FMAS, k=2)(a, b) == np.float32(1 + 2.0**-23)


def test_the_exponent_of_a_product_is_not_normalised() -> None:
    """1.5 · 1.5 = 2.25 counts as 2^0: 2^-13 is the last bit kept, 2^-14 lies below."""
    plan = replace(NAMED["chain of 32"], result_bits=23)
    a = np.array([[1.5, 2.0**-7]]).astype(TYPES["e4m3"].dtype)
    b = np.array([[1.5, 1.5], [2.0**-6, 2.0**-7]]).astype(a.dtype)
    assert plan(a, b).tolist() == [[2.25 + 2.0**-13, 2.25]]
    assert replace(plan, result_bits=13)(a, b).tolist() == [[2.25, 2.25]]


def test_the_exponent_of_a_subnormal_operand_is_the_smallest_normal_one() -> None:
    """2^-9 · 1 counts as 2^-6: of 8 fraction bits 2^-14 is the last."""
    plan = replace(HOPPER, a="e4m3", b="e4m3", alignment_bits=8)
    a = np.array([[2.0**-9, 2.0**-9]]).astype(TYPES["e4m3"].dtype)
    b = np.array([[1, 1], [2.0**-5, 2.0**-6]]).astype(a.dtype)
    assert plan(a, b).tolist() == [[2.0**-9 + 2.0**-14, 2.0**-9]]


def product(plan: Planted, *pairs: tuple[float, float]) -> Array:
    """The one output of a row and a column."""
    a, b = zip(*pairs, strict=True)
    dtype = TYPES[plan.a].dtype
    return np.asarray(plan(np.array([a]).astype(dtype), np.array(b)[:, None].astype(dtype))[0, 0])


@pytest.mark.parametrize(("bits", "kept"), [(23, 2.0**-149), (13, 2.0**-139)])
@pytest.mark.parametrize("alignment_bits", [None, 25])
def test_results_below_the_normal_range_keep_fewer_bits(bits: int, kept: float, alignment_bits: int | None) -> None:
    plan = replace(HOPPER, result_bits=bits, alignment_bits=alignment_bits)
    root = 2.0**-70
    assert product(plan, (root, 1.5 * kept / root)) == kept
    assert product(plan, (root, 0.75 * kept / root)) == 0
    assert product(replace(plan, sum_rounding="RNE"), (root, 0.75 * kept / root)) == kept


@pytest.mark.parametrize("alignment_bits", [None, 25])
@pytest.mark.parametrize("products", [1, 2])
def test_what_is_too_large_becomes_an_infinity_and_stays_one(products: int, alignment_bits: int | None) -> None:
    plan = replace(HOPPER, products_per_sum=products, alignment_bits=alignment_bits)
    huge = 2.0**100
    assert product(plan, (-huge, huge), (1, 1), (huge, huge), (2.0**-60, 2.0**-60)) == -np.inf
    slices = replace(plan, k=4, slices=(2, 2))
    assert np.isnan(product(slices, (-huge, huge), (0, 0), (huge, huge), (0, 0)))


@pytest.mark.parametrize("alignment_bits", [None, 25])
def test_the_sign_of_zero(alignment_bits: int | None) -> None:
    """-2^-150 becomes -0; then -0 is added to it, by FMAs or in one sum of two."""
    plan = replace(HOPPER, products_per_sum=2, alignment_bits=alignment_bits)
    asked = (-(2.0**-75), 2.0**-75), (-0.0, 1), (-0.0, 1), (-0.0, 1)
    assert np.signbit(product(plan, *asked[:2]))
    assert not np.signbit(product(plan, *asked))
    assert np.signbit(product(replace(plan, products_per_sum=1, alignment_bits=None), *asked))
