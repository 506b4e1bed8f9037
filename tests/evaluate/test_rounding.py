"""Sums and products with their errors, exact sums, and the rounding of results, against `fractions.Fraction`."""

from __future__ import annotations

from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from departures import USUAL
from hypothesis import example, given, settings
from hypothesis import strategies as st
from outside_numbers import packed

from accprobe.evaluate.error_free import exact_sum, rounded_to_odd, top_bits, two_product, two_sum
from accprobe.evaluate.rounding import encode
from accprobe.isa.formats import FORMATS
from accprobe.model.tree import FloatArithmetic, Rounding, Tininess

ROUNDINGS = ("RZ", "RNE", "RU", "RD")
F32, F32_BITS = FORMATS["f32"], 23


def magnitudes(bits: int) -> st.SearchStrategy[int]:
    """Return numbers of at most so many bits: any, zero, and those around powers of two."""
    powers = st.builds(lambda e, d: max(0, min((1 << bits) - 1, (1 << e) + d)), st.integers(0, bits - 1), st.integers(-1, 1))
    return st.just(0) | st.integers(0, (1 << bits) - 1) | powers


integers, significands = (
    st.builds(lambda negative, a: -a if negative else a, st.booleans(), magnitudes(bits)) for bits in (106, 53)
)


def log2_floor(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if value >= Fraction(2) ** exponent else exponent - 1


def of(*values: float) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


@settings(max_examples=40, deadline=None)
@given(significands, significands, st.integers(-120, 120))
def test_sums_and_products_are_error_free(x: int, y: int, apart: int) -> None:
    terms = of(float(x), float(y) * 2.0**apart)
    for parts, exact in (
        (two_sum(*terms), x + y * Fraction(2) ** apart),
        (two_product(*terms), x * y * Fraction(2) ** apart),
    ):
        high, low = (Fraction(float(part[0])) for part in parts)
        assert high + low == exact
        assert high == Fraction(float(exact))


@settings(max_examples=80, deadline=None)
@given(significands, significands, significands, st.integers(-250, 250))
@example((1 << 53) - 1, (1 << 53) - 1, -((1 << 53) - 1), 53)
@example((1 << 52) + 1, (1 << 52) + 1, -1, 104)
@example((1 << 52) + 1, (1 << 52) + 1, -1, -60)
@example(3, 5, -15, 0)
@example(1 << 52, 1 << 52, -1, 40)
@example(0, 0, 0, 7)
def test_the_top_bits_of_a_product_and_an_addend(a: int, b: int, c: int, apart: int) -> None:
    exact = a * b + c * Fraction(2) ** apart
    high, low = two_product(*of(float(a), float(b)))
    negative, magnitude, exponent = (int(x[0]) for x in top_bits(high, low, np.array([float(c) * 2.0**apart])))
    if exact == 0:
        assert (negative, magnitude) == (0, 0)
        return
    assert negative == (exact < 0)
    assert (1 << 60) - 256 <= magnitude < 1 << 61
    units = abs(exact) / Fraction(2) ** exponent
    assert magnitude >> 1 == units // 2
    assert magnitude & 1 or units == magnitude
    assert abs(log2_floor(abs(exact)) - exponent - 60) <= 1


@settings(max_examples=60, deadline=None)
@given(significands, significands, st.integers(-120, 120), st.integers(-250, 250))
@example(-(1 << 52), 1, -54, 0)
@example((1 << 53) - 1, 1, 0, 0)
def test_a_sum_rounded_to_odd(x: int, y: int, apart: int, exponent: int) -> None:
    """It is the sum where that has 53 bits, and else the odd one of its neighbours."""
    terms = [x * Fraction(2) ** exponent, y * Fraction(2) ** (exponent + apart)]
    exact = sum(terms)
    got = rounded_to_odd(*of(*map(float, terms)))[0]
    if Fraction(float(exact)) == exact:
        assert Fraction(float(got)) == exact
    else:
        assert Fraction(float(np.nextafter(got, -np.inf))) < exact < Fraction(float(np.nextafter(got, np.inf)))
        assert got.view(np.int64) & 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(integers, st.integers(-2300, 2000)), min_size=1, max_size=6))
@example([(1, 2000), (-1, -1100)])
@example([(0, 2000), (-3, -1100)])
@example([(1, 116), (-1, 0)])
@example([(5, 7), (-5, 7)])
def test_sums_of_any_terms(terms: list[tuple[int, int]]) -> None:
    """The first 60 bits are exact, and the last stands for all below it."""
    exact = sum(a * Fraction(2) ** exponent for a, exponent in terms)
    columns = [(np.array([a], object), np.array([exponent])) for a, exponent in terms]
    negative, magnitude, exponent = (int(x[0]) for x in exact_sum(columns))
    if exact == 0:
        assert (negative, magnitude) == (0, 0)
        return
    assert negative == (exact < 0)
    assert exponent == log2_floor(abs(exact)) - 59
    units = abs(exact) / Fraction(2) ** exponent
    assert magnitude >> 1 == units // 2
    assert magnitude & 1 or units == magnitude


@st.composite
def arithmetics(draw: st.DrawFn) -> FloatArithmetic:
    fmt = FORMATS[draw(st.sampled_from(("f16", "bf16", "f32", "f64")))]
    return FloatArithmetic(
        fmt,
        draw(st.integers(2, fmt.mantissa_bits)),
        draw(st.sampled_from(ROUNDINGS)),
        None,
        underflow_sign=draw(st.sampled_from(("kept", "positive"))),
        overflow=draw(st.sampled_from(("infinity", "largest"))),
        subnormal_results=draw(st.sampled_from(("kept", "flushed"))),
        tininess_detected=draw(st.sampled_from(get_args(Tininess))),
    )


def assert_encodes(negative: bool, magnitude: int, exponent: int, arithmetic: FloatArithmetic) -> None:
    (expected,) = packed(np.array([-magnitude if negative else magnitude], object), np.array([exponent]), arithmetic, USUAL)
    got = int(encode(np.array([negative]), np.array([magnitude]), np.array([exponent]), arithmetic)[0])
    assert got == expected, f"{magnitude:#x} * 2^{exponent} {arithmetic}: {got:#x}, expected {expected:#x}"


@settings(max_examples=80, deadline=None)
@given(
    arithmetics(), st.booleans(), magnitudes(61).filter(bool), st.sampled_from(("low", "middle", "high")), st.integers(-70, 8)
)
def test_rounding_of_anything(arithmetic: FloatArithmetic, negative: bool, magnitude: int, place: str, offset: int) -> None:
    """Around the smallest results, around 1, and around the largest."""
    fmt = arithmetic.result
    edge = {"low": fmt.min_exponent, "middle": 0, "high": fmt.max_exponent}[place]
    assert_encodes(negative, magnitude, edge + offset, arithmetic)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("result", "bits"), [("f32", 23), ("f32", 13), ("f16", 10), ("f64", 52)])
@pytest.mark.parametrize("negative", [False, True])
def test_ties_and_their_neighbours(result: str, bits: int, rounding: str, negative: bool) -> None:
    fmt = FORMATS[result]
    arithmetic = FloatArithmetic(fmt, bits, rounding, None)
    for fraction in (0, 1, 2, 3, (1 << bits) - 2, (1 << bits) - 1):
        for below in range(8):
            significand = ((1 << bits | fraction) << 3) + below
            large = (fmt.max_exponent, fmt.max_exponent + 1, 2 * fmt.max_exponent)
            small = (fmt.min_exponent - less for less in (0, 1, bits, bits + 1, 900))
            for exponent in (0, *large, *small):
                assert_encodes(negative, significand, exponent - bits - 3, arithmetic)


def test_zero_has_no_sign_of_its_own() -> None:
    for exponent in (5, 500):
        assert_encodes(False, 0, exponent, FloatArithmetic(FORMATS["f32"], 23, "RU", None))


@pytest.mark.parametrize("rule", ROUNDINGS)
@pytest.mark.parametrize("detected", get_args(Tininess))
def test_flushed_results_around_the_smallest_normal_number(rule: Rounding, detected: Tininess) -> None:
    arithmetic = FloatArithmetic(F32, F32_BITS, rule, None, subnormal_results="flushed", tininess_detected=detected)
    about = (1 << (F32_BITS + 6)) + np.arange(-200, 200)
    magnitudes = np.concatenate([about, about // 2, np.arange(1, 5)])
    exponents = np.full(len(magnitudes), F32.min_exponent - F32_BITS - 6)
    expected = packed(magnitudes.astype(object), exponents, arithmetic, USUAL)
    np.testing.assert_array_equal(encode(np.zeros(len(magnitudes), bool), magnitudes, exponents, arithmetic), expected)
