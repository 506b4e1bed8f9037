"""Rounding: an exact integer times a power of two, to the bit pattern of a fused sum's result."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.formats import Bits
from accprobe.model import FloatArithmetic, Rounding

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]


def bit_length(magnitude: Integers) -> Integers:
    """Bits of each non-negative integer below 2^62; 0 for 0."""
    length = (magnitude.astype(np.float64).view(np.int64) >> 52) - 1022
    length -= (magnitude >> np.maximum(length - 1, 0)) == 0
    return np.where(magnitude == 0, 0, length)


def encode(negative: Truths, magnitude: Integers, exponent: Integers, arithmetic: FloatArithmetic) -> Bits:
    """Bit patterns of (-1)^negative * magnitude * 2^exponent, rounded as the arithmetic says; all arrays [n].

    magnitude < 2^61; where bits were already dropped from it, its last bit must be a sticky one and lie below the
    rounding position. A result below the normal range is rounded to a multiple of 2^(min_exponent - result_bits), as in a
    format with result_bits fraction bits and subnormals.
    """
    fmt, bits = arithmetic.result, arithmetic.result_bits
    top = exponent + bit_length(magnitude) - 1
    base = np.maximum(top, fmt.min_exponent)
    drop = base - bits - exponent
    kept = np.where(drop >= 0, magnitude >> np.clip(drop, 0, 62), magnitude << np.clip(-drop, 0, 62))
    rest = np.where(drop > 0, magnitude - (kept << np.clip(drop, 0, 62)), 0)
    rest = np.where(drop > 62, magnitude, rest)
    kept += _increment(arithmetic.result_rounding, negative, kept, rest, drop)
    kept = np.where(magnitude == 0, 0, kept)
    if arithmetic.subnormal_results == "flushed":
        kept[kept < 1 << bits] = 0
    step = fmt.mantissa_bits - bits
    patterns = ((base - fmt.min_exponent) << fmt.mantissa_bits) + (kept << step)
    patterns = np.where(kept == 0, 0, patterns)
    assert fmt.infinity is not None
    too_large = patterns >= fmt.infinity if fmt.name != "f64" else (base > fmt.max_exponent) | (patterns >= fmt.infinity)
    largest = fmt.largest >> step << step
    patterns = np.where(too_large, fmt.infinity if arithmetic.overflow == "infinity" else largest, patterns)
    if arithmetic.underflow_sign == "positive":
        negative = negative & (patterns != 0)
    unsigned = patterns.astype(fmt.dtype)
    return np.where(negative, unsigned | fmt.dtype.type(fmt.sign_bit), unsigned)


def _increment(rounding: Rounding, negative: Truths, kept: Integers, rest: Integers, drop: Integers) -> Truths:
    match rounding:
        case "RZ":
            return np.zeros(kept.shape, bool)
        case "RU":
            return (rest > 0) & ~negative
        case "RD":
            return (rest > 0) & negative
        case "RNE":
            half = np.left_shift(np.int64(1), np.clip(drop - 1, 0, 62))
            return np.asarray((drop > 0) & (drop <= 62) & ((rest > half) | ((rest == half) & (kept & 1 == 1))))
