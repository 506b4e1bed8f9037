"""Exact sums and the rounding of results, against `fractions.Fraction`."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnitudes import magnitudes
from reference import _round, log2_floor, to_integer

from accprobe.evaluate import limbs
from accprobe.evaluate.rounding import encode, encode_wide, with_sticky_bit
from accprobe.isa.formats import FORMATS
from accprobe.model.tree import FloatArithmetic

ROUNDINGS = ("RZ", "RNE", "RU", "RD")
WIDEST = 53
"""Significant bits of the widest result."""


class Number(NamedTuple):
    """(-1)^negative * a * b * 2^exponent; b is None where the term is no product."""

    negative: bool
    a: int
    b: int | None
    exponent: int

    @property
    def value(self) -> Fraction:
        magnitude = self.a * (1 if self.b is None else self.b) * Fraction(2) ** self.exponent
        return -magnitude if self.negative else magnitude


def total(rows: list[list[Number]]) -> list[tuple[bool, int, int]]:
    """The sum of each row; all rows have the same number of terms, products in the same places."""
    sums = limbs.Sum(len(rows))
    for column in zip(*rows, strict=True):
        negative = np.array([n.negative for n in column])
        a, exponent = (np.array(x, np.int64) for x in zip(*((n.a, n.exponent) for n in column), strict=True))
        if column[0].b is None:
            sums.add(negative, a, exponent)
        else:
            sums.add_product(negative, a, np.array([n.b for n in column], np.int64), exponent)
    negative, magnitude, exponent = sums.total()
    return list(zip(negative.tolist(), magnitude.tolist(), exponent.tolist(), strict=True))


def rounded(value: Fraction, mode: str, bits: int) -> Fraction:
    if value == 0:
        return value
    quantum = Fraction(2) ** (log2_floor(value) - bits + 1)
    return to_integer(value / quantum, mode) * quantum


def assert_rounds_equally(rows: list[list[Number]]) -> None:
    """A sum may lose bits only below what any rounding can show."""
    for row, (negative, magnitude, exponent) in zip(rows, total(rows), strict=True):
        exact = sum((n.value for n in row), Fraction(0))
        kept = magnitude * Fraction(2) ** exponent * (-1 if negative else 1)
        assert 0 <= magnitude < 2**60
        for bits in (WIDEST, 24, 5):
            assert [rounded(kept, mode, bits) for mode in ROUNDINGS] == [rounded(exact, mode, bits) for mode in ROUNDINGS], row


def numbers(low: int, high: int) -> st.SearchStrategy[Number]:
    return st.builds(Number, st.booleans(), magnitudes(62), st.none(), st.integers(low, high))


def products(low: int, high: int) -> st.SearchStrategy[Number]:
    return st.builds(Number, st.booleans(), magnitudes(53), magnitudes(53), st.integers(low, high))


@st.composite
def tables(draw: st.DrawFn, low: int, high: int, most: int) -> list[list[Number]]:
    kinds = draw(st.lists(st.sampled_from((numbers(low, high), products(low, high))), min_size=1, max_size=most))
    return draw(st.lists(st.tuples(*kinds).map(list), min_size=1, max_size=4))


@settings(max_examples=100, deadline=None)
@given(tables(-300, 300, 6) | tables(-20, 20, 6))
def test_sums_of_any_terms(rows: list[list[Number]]) -> None:
    assert_rounds_equally(rows)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(products(-2300, 2000), numbers(-1100, 1000)).map(list), min_size=1, max_size=4))
@example([[Number(False, 1, 1, 2000), Number(True, 1, None, -1100)]])
@example([[Number(True, 1, 1, -2300), Number(False, 1, None, 900)], [Number(False, 1, 1, 0), Number(False, 1, None, 0)]])
@example([[Number(False, 0, 5, 2000), Number(True, 3, None, -1100)]])
@example([[Number(False, 1, 1, 116), Number(True, 1, None, 0)], [Number(False, 1, 1, 176), Number(True, 1, None, 0)]])
def test_two_terms_far_apart(rows: list[list[Number]]) -> None:
    assert_rounds_equally(rows)


@settings(max_examples=100, deadline=None)
@given(st.lists(products(-400, 400), min_size=1, max_size=3), numbers(-600, 600))
def test_cancelling_terms_leave_the_rest(terms: list[Number], rest: Number) -> None:
    opposite = [n._replace(negative=not n.negative) for n in terms]
    ((negative, magnitude, exponent),) = total([[*terms, rest, *opposite]])
    if rest.a < 2**59:
        assert magnitude * Fraction(2) ** exponent == abs(rest.value)
    assert_rounds_equally([[*terms, rest, *opposite]])
    assert negative == (rest.negative and rest.a > 0)


def test_no_terms() -> None:
    negative, magnitude, exponent = limbs.Sum(3).total()
    assert negative.tolist() == [False] * 3
    assert magnitude.tolist() == exponent.tolist() == [0] * 3


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
    )


def encoded(negative: bool, magnitude: int, exponent: int, arithmetic: FloatArithmetic) -> int:
    """Encode with `encode_wide`, and check `encode` where it applies."""
    args = np.array([negative]), np.array([magnitude], np.int64), np.array([exponent], np.int64)
    with np.errstate(all="ignore"):
        found = int(encode_wide(*args, arithmetic)[0])
        if arithmetic.result.name != "f64":
            less = max(0, magnitude.bit_length() - 53)
            total = float(magnitude >> less | (magnitude & ((1 << less) - 1) != 0))
            narrow = encode(np.array([-total if negative else total]), args[2] + less, arithmetic)
            assert narrow[0] == found
    return found


def assert_encodes(negative: bool, magnitude: int, exponent: int, arithmetic: FloatArithmetic) -> None:
    value = magnitude * Fraction(2) ** exponent
    expected = _round(-value if negative else value, arithmetic)
    got = encoded(negative, magnitude, exponent, arithmetic)
    assert got == expected, f"{magnitude:#x} * 2^{exponent} {arithmetic}: {got:#x}, expected {expected:#x}"


@settings(max_examples=200, deadline=None)
@given(
    arithmetics(), st.booleans(), magnitudes(61).filter(bool), st.sampled_from(("low", "middle", "high")), st.integers(-70, 8)
)
def test_rounding_of_anything(arithmetic: FloatArithmetic, negative: bool, magnitude: int, place: str, offset: int) -> None:
    """Around the smallest results, around 1, and around the largest."""
    fmt = arithmetic.result
    edge = {"low": fmt.min_exponent, "middle": 0, "high": fmt.max_exponent}[place]
    assert_encodes(negative, magnitude, edge + offset, arithmetic)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("result", "bits"), [("f32", 23), ("f32", 13), ("f16", 10), ("f16", 8), ("bf16", 7), ("f64", 52)])
@pytest.mark.parametrize("negative", [False, True])
def test_ties_and_their_neighbours(result: str, bits: int, rounding: str, negative: bool) -> None:
    fmt = FORMATS[result]
    arithmetic = FloatArithmetic(fmt, bits, rounding, None)
    for fraction in (0, 1, 2, 3, (1 << bits) - 2, (1 << bits) - 1):
        for below in range(8):
            significand = ((1 << bits | fraction) << 3) + below
            for exponent in (0, fmt.max_exponent, *(fmt.min_exponent - less for less in (0, 1, bits, bits + 1, 900))):
                assert_encodes(negative, significand, exponent - bits - 3, arithmetic)


def test_zero_has_no_sign_of_its_own() -> None:
    assert encoded(False, 0, 5, FloatArithmetic(FORMATS["f32"], 23, "RU", None)) == 0


@settings(deadline=None)
@given(st.integers(1 << 59, (1 << 60) - 1) | st.just(0))
def test_a_sticky_bit(magnitude: int) -> None:
    (got,) = with_sticky_bit(np.array([magnitude], np.int64))
    assert int(got) >> 1 == magnitude >> 8
    assert int(got) & 1 == (magnitude & 255 != 0)
