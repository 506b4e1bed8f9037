"""Rounding of an exact number times a power of two to the bit pattern of a fused sum's result."""

from __future__ import annotations

import numpy as np

from accprobe.evaluate.error_free import Floats, Integers, Truths, power_of_two
from accprobe.isa.formats import Bits
from accprobe.model.tree import FloatArithmetic, Rounding


def bit_length(magnitude: Integers) -> Integers:
    """Return the bit length of each non-negative integer below 2^62; 0 for 0."""
    length = (magnitude.astype(np.float64).view(np.int64) >> 52) - 1022
    length -= (magnitude >> np.maximum(length - 1, 0)) == 0
    return np.where(magnitude == 0, 0, length)


# Bits that `with_sticky_bit` removes.
STICKY = 7


def with_sticky_bit(magnitude: Integers) -> Floats:
    """Return integers of 60 bits, or 0, in 53 bits; the lower bits are or-ed into the last."""
    sticky = magnitude & ((1 << STICKY) - 1) != 0
    return np.asarray(magnitude >> STICKY | sticky, np.float64)


def encode(total: Floats, exponent: Integers, arithmetic: FloatArithmetic) -> Bits:
    """Return bit patterns of total * 2^exponent in any result format but f64; all arrays [n].

    total: of at most 53 bits; where bits were already dropped from it, its last bit must be a sticky one. A result below the
    normal range is rounded to a multiple of 2^(min_exponent - result_bits), as in a format with result_bits fraction bits and
    subnormals.
    """
    fmt, bits = arithmetic.result, arithmetic.result_bits
    top = _leading(total) + exponent
    tiny, huge = _is_tiny(total, exponent, arithmetic), _beyond_largest(total, exponent, arithmetic)
    if arithmetic.first_bits is not None:
        total = significands_rounded(arithmetic.first_rounding, arithmetic.first_bits, total)
        top = _leading(total) + exponent
    base = np.maximum(top, fmt.min_exponent)
    rounded = to_integer(arithmetic.result_rounding, total * power_of_two(exponent + bits - base))
    kept = np.abs(rounded).astype(np.int64)
    if arithmetic.subnormal_results == "flushed":
        kept[kept < 1 << bits if tiny is None else tiny] = 0
    patterns = ((base - fmt.min_exponent) << fmt.mantissa_bits) + (kept << (fmt.mantissa_bits - bits))
    if huge is not None:
        patterns[huge] = fmt.infinity or 0
    return _signed(patterns, total < 0, arithmetic)


def _leading(values: Floats) -> Integers:
    return ((values.view(np.int64) >> 52) & 0x7FF) - 1023


def significands_rounded(rounding: Rounding, bits: int, values: Floats) -> Floats:
    """Round the values to `bits` fraction bits after their leading ones."""
    leading = np.where(values == 0, 0, _leading(values))
    return to_integer(rounding, values * power_of_two(bits - leading)) * power_of_two(leading - bits)


def _is_tiny(total: Floats, exponent: Integers, arithmetic: FloatArithmetic) -> Truths | None:
    """Mark sums smaller than the smallest normal result, if tininess is not detected on the rounded result."""
    if arithmetic.tininess_detected == "after rounding":
        return None
    if arithmetic.tininess_detected == "after rounding to full precision":
        total = significands_rounded(arithmetic.result_rounding, arithmetic.result_bits, total)
    return np.asarray(_leading(total) + exponent < arithmetic.result.min_exponent)


def _beyond_largest(total: Floats, exponent: Integers, arithmetic: FloatArithmetic) -> Truths | None:
    """Mark sums larger than the largest result, if overflow is detected before rounding."""
    if arithmetic.overflow_detected == "after rounding":
        return None
    bits = arithmetic.result_bits
    scaled = np.abs(total) * power_of_two(exponent + bits - arithmetic.result.max_exponent)
    return np.asarray(scaled > (2 << bits) - 1)


def to_integer(rounding: Rounding, values: Floats) -> Floats:
    """Round the values to integers (in place)."""
    match rounding:
        case "RZ":
            return np.trunc(values, out=values)
        case "RU":
            return np.ceil(values, out=values)
        case "RD":
            return np.floor(values, out=values)
        case "RNE":
            return np.rint(values, out=values)
        case "RNA":
            whole = np.trunc(values)
            return np.asarray(whole + np.copysign(np.abs(values - whole) >= 0.5, values))


def _signed(patterns: Integers, negative: Truths, arithmetic: FloatArithmetic) -> Bits:
    """Apply the overflow rule and the signs to magnitudes."""
    fmt = arithmetic.result
    assert fmt.infinity is not None
    step = fmt.mantissa_bits - arithmetic.result_bits
    most = fmt.infinity if arithmetic.overflow == "infinity" else fmt.largest >> step << step
    patterns = np.minimum(patterns, most)
    if arithmetic.underflow_sign == "positive":
        negative = negative & (patterns != 0)
    signs = negative.astype(fmt.dtype) << fmt.dtype.type(fmt.bits - 1)
    return np.asarray(patterns.astype(fmt.dtype) | signs)


def encode_wide(negative: Truths, magnitude: Integers, exponent: Integers, arithmetic: FloatArithmetic) -> Bits:
    """As `encode`, to any format, of (-1)^negative * magnitude * 2^exponent.

    magnitude < 2^61; where bits were already dropped from it, its last bit must be a sticky one and lie below the rounding
    position.
    """
    fmt, bits = arithmetic.result, arithmetic.result_bits
    top = exponent + bit_length(magnitude) - 1
    tiny, exact = _is_tiny_integer(negative, magnitude, exponent, arithmetic), magnitude
    if arithmetic.first_bits is not None:
        drop = top - arithmetic.first_bits - exponent
        down = np.minimum(np.maximum(drop, 0), 62)
        kept, rest = magnitude >> down, magnitude & ((np.int64(1) << down) - 1)
        magnitude = (kept + _increment(arithmetic.first_rounding, negative, kept, rest, drop)) << down
        top = exponent + bit_length(magnitude) - 1
    base = np.maximum(top, fmt.min_exponent)
    drop = base - bits - exponent
    down, up = np.minimum(np.maximum(drop, 0), 62), np.minimum(np.maximum(-drop, 0), 62)
    kept = magnitude >> down << up
    rest = magnitude & ((np.int64(1) << down) - 1)
    kept += _increment(arithmetic.result_rounding, negative, kept, rest, drop)
    kept[magnitude == 0] = 0
    if arithmetic.subnormal_results == "flushed":
        kept[kept < 1 << bits if tiny is None else tiny] = 0
    patterns = ((base - fmt.min_exponent) << fmt.mantissa_bits) + (kept << (fmt.mantissa_bits - bits))
    patterns[base > fmt.max_exponent] = fmt.infinity or 0
    if arithmetic.overflow_detected == "before rounding":
        drop = np.minimum(np.maximum(fmt.max_exponent - bits - exponent, 0), 62)
        whole, rest = exact >> drop, exact & ((np.int64(1) << drop) - 1)
        largest = (2 << bits) - 1
        at_top = exponent + bit_length(exact) - 1 == fmt.max_exponent
        patterns[at_top & ((whole > largest) | ((whole == largest) & (rest > 0)))] = fmt.infinity or 0
    patterns[kept == 0] = 0
    return _signed(patterns, negative, arithmetic)


def _is_tiny_integer(negative: Truths, magnitude: Integers, exponent: Integers, arithmetic: FloatArithmetic) -> Truths | None:
    """As `_is_tiny`, of (-1)^negative * magnitude * 2^exponent."""
    if arithmetic.tininess_detected == "after rounding":
        return None
    length, bits = bit_length(magnitude), arithmetic.result_bits
    if arithmetic.tininess_detected == "after rounding to full precision":
        drop = length - 1 - bits
        down = np.minimum(np.maximum(drop, 0), 62)
        kept, rest = magnitude >> down, magnitude & ((np.int64(1) << down) - 1)
        kept += _increment(arithmetic.result_rounding, negative, kept, rest, drop)
        length = length + (kept >> np.minimum(length - down, 62) > 0)
    return np.asarray(exponent + length - 1 < arithmetic.result.min_exponent)


def _increment(rounding: Rounding, negative: Truths, kept: Integers, rest: Integers, drop: Integers) -> Truths:
    match rounding:
        case "RZ":
            return np.zeros(kept.shape, bool)
        case "RU":
            return (rest > 0) & ~negative
        case "RD":
            return (rest > 0) & negative
        case "RNE" | "RNA":
            half = np.int64(1) << np.minimum(np.maximum(drop - 1, 0), 62)
            up = (rest == half) & ((kept & 1 == 1) | (rounding == "RNA"))
            return np.asarray((drop > 0) & (drop <= 62) & ((rest > half) | up))
