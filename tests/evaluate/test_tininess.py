"""Flushed results against exact fractions, in both encoders."""

from fractions import Fraction

import numpy as np
import pytest

from accprobe.evaluate import rounding
from accprobe.isa.formats import FORMATS
from accprobe.model.tree import FloatArithmetic, Rounding, Tininess

F32 = FORMATS["f32"]
BITS = 23


def rounded(value: Fraction, last: Fraction, rule: Rounding) -> Fraction:
    """A positive value to a multiple of `last`."""
    units = value / last
    return last * {"RNE": round(units), "RZ": units.__floor__(), "RU": units.__ceil__()}[rule]


def is_tiny(value: Fraction, rule: Rounding, detected: Tininess) -> bool:
    smallest = Fraction(2) ** F32.min_exponent
    if detected == "before rounding":
        return value < smallest
    if detected == "after rounding":
        return rounded(value, smallest / 2**BITS, rule) < smallest
    top = value.numerator.bit_length() - value.denominator.bit_length()
    top -= value < Fraction(2) ** top
    return rounded(value, Fraction(2) ** (top - BITS), rule) < smallest


@pytest.mark.parametrize("rule", ["RNE", "RZ", "RU"])
@pytest.mark.parametrize("detected", ["after rounding", "before rounding", "after rounding to full precision"])
def test_flushed_results_match_exact_fractions(rule: Rounding, detected: Tininess) -> None:
    arithmetic = FloatArithmetic(F32, BITS, rule, None, subnormal_results="flushed", tininess_detected=detected)
    lowest = F32.min_exponent - BITS - 6
    about = (1 << (BITS + 6)) + np.arange(-200, 200)
    magnitudes = np.concatenate([about, about // 2, np.arange(1, 5)])
    exponents = np.full(len(magnitudes), lowest)
    flushed = [is_tiny(int(m) * Fraction(2) ** lowest, rule, detected) for m in magnitudes]
    assert True in flushed
    assert False in flushed
    narrow = rounding.encode(magnitudes.astype(np.float64), exponents, arithmetic)
    wide = rounding.encode_wide(np.zeros(len(magnitudes), bool), magnitudes, exponents, arithmetic)
    assert [d == 0 for d in narrow.tolist()] == flushed
    np.testing.assert_array_equal(wide, narrow)
