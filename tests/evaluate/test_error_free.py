"""Sums and products with their errors, against `fractions.Fraction`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnitudes import magnitudes
from reference import log2_floor

from accprobe.evaluate.error_free import rounded_to_odd, top_bits, two_product, two_sum


def of(*values: float) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


def signed(negative: bool, magnitude: int) -> int:
    return -magnitude if negative else magnitude


integers = st.builds(signed, st.booleans(), magnitudes(53))


@settings(max_examples=100, deadline=None)
@given(integers, integers, st.integers(-120, 120))
def test_sums_and_products_are_error_free(x: int, y: int, apart: int) -> None:
    terms = of(float(x), float(y) * 2.0**apart)
    for parts, exact in (
        (two_sum(*terms), x + y * Fraction(2) ** apart),
        (two_product(*terms), x * y * Fraction(2) ** apart),
    ):
        high, low = (Fraction(float(part[0])) for part in parts)
        assert high + low == exact
        assert high == Fraction(float(exact))


@settings(max_examples=200, deadline=None)
@given(integers, integers, integers, st.integers(-250, 250))
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
    assert (1 << 59) - 128 <= magnitude < 1 << 60
    units = abs(exact) / Fraction(2) ** exponent
    assert magnitude >> 1 == units // 2
    assert magnitude & 1 or units == magnitude
    assert abs(log2_floor(abs(exact)) - exponent - 59) <= 1


@settings(max_examples=150, deadline=None)
@given(integers, integers, st.integers(-120, 120), st.integers(-250, 250))
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
