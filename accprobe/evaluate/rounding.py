"""Rounding of an exact number times a power of two to the bit pattern of a fused sum's result."""

from __future__ import annotations

import numpy as np

from accprobe.evaluate.error_free import Floats, Integers, Truths
from accprobe.isa.formats import Bits
from accprobe.model.tree import AlignmentRounding, FloatArithmetic, Rounding


def bit_length(magnitude: Integers) -> Integers:
    """Return the bit length of each non-negative integer below 2^62; 0 for 0."""
    top = magnitude & ~(magnitude >> 1)  # The bit below the leading one is 0, so that float64 does not round up to 2^length.
    return np.asarray(np.maximum(top.astype(np.float64).view(np.int64) >> 52, 1022) - 1022)


def encode(negative: Truths, magnitude: Integers, exponent: Integers, arithmetic: FloatArithmetic) -> Bits:
    """Return bit patterns of (-1)^negative * magnitude * 2^exponent in the result's format; all arrays [n].

    magnitude < 2^61; where bits were already dropped from it, its last bit must be a sticky one and lie below the rounding
    position. A result below the normal range is rounded to a multiple of 2^(min_exponent - result_bits), as in a format with
    result_bits fraction bits and subnormals.
    """
    fmt, bits = arithmetic.result, arithmetic.result_bits
    length = bit_length(magnitude)
    tiny = _is_tiny(negative, magnitude, exponent, length, arithmetic)
    base = np.maximum(exponent + length - 1, fmt.min_exponent)
    kept = _shifted(arithmetic.result_rounding, negative, magnitude, base - bits - exponent)
    # An overflow is infinite whatever its fraction: in f64 a carry would reach the sign of int64.
    kept[(kept > 0) & (base > fmt.max_exponent)] = 1 << bits
    if arithmetic.subnormal_results == "flushed":
        kept[kept < 1 << bits if tiny is None else tiny] = 0
    biased = np.minimum(base, fmt.max_exponent + 1) - fmt.min_exponent
    patterns = ((biased << fmt.mantissa_bits) + (kept << (fmt.mantissa_bits - bits))) * (kept != 0)
    return _signed(patterns, negative, arithmetic)


def _is_tiny(
    negative: Truths, magnitude: Integers, exponent: Integers, length: Integers, arithmetic: FloatArithmetic
) -> Truths | None:
    """Mark sums smaller than the smallest normal result; None if `encode` detects that on the rounded result."""
    if arithmetic.tininess_detected == "after rounding":
        return None
    if arithmetic.tininess_detected == "after rounding to full precision":
        drop = np.maximum(length - 1 - arithmetic.result_bits, 0)
        length = bit_length(_shifted(arithmetic.result_rounding, negative, magnitude, drop)) + drop
    return np.asarray(exponent + length - 1 < arithmetic.result.min_exponent)


def _shifted(rounding: Rounding, negative: Truths, magnitude: Integers, drop: Integers) -> Integers:
    """Return the magnitudes divided by 2^drop, rounded to integers."""
    down = np.minimum(np.maximum(drop, 0), 62)
    kept = magnitude >> down
    if rounding != "RZ":
        rest = magnitude - (kept << down)
        half = np.int64(1) << np.minimum(np.maximum(drop - 1, 0), 62)
        match rounding:
            case "RU":
                kept += (rest > 0) & ~negative
            case "RD":
                kept += (rest > 0) & negative
            case "RNE":
                kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
            case "RNA":
                kept += rest >= half
    return kept << np.minimum(np.maximum(-drop, 0), 62)


def _signed(patterns: Integers, negative: Truths, arithmetic: FloatArithmetic) -> Bits:
    """Apply the overflow rule and the signs to magnitudes. A format without infinity saturates, as PTX's cvt.satfinite does."""
    fmt = arithmetic.result
    step = fmt.mantissa_bits - arithmetic.result_bits
    infinite = arithmetic.overflow == "infinity"
    most = fmt.infinity if infinite and fmt.infinity is not None else fmt.largest >> step << step
    patterns = np.minimum(patterns, most)
    if arithmetic.underflow_sign == "positive":
        negative = negative & (patterns != 0)
    signs = negative.astype(fmt.dtype) << fmt.dtype.type(fmt.bits - 1)
    return np.asarray(patterns.astype(fmt.dtype) | signs)


def to_integer(rule: AlignmentRounding, values: Floats) -> Floats:
    """Return the values rounded to integers; may overwrite `values`."""
    match rule:
        case "truncate":
            return np.trunc(values, out=values)
        case "ceiling":
            return np.ceil(values, out=values)
        case "floor":
            return np.floor(values, out=values)
        case "nearest":
            return np.rint(values, out=values)
        case "nearest away":
            whole = np.trunc(values)
            return np.asarray(whole + np.copysign(np.abs(values - whole) >= 0.5, values))
        case "away":
            return np.copysign(np.ceil(np.abs(values)), values)
        case "sticky":
            whole = np.trunc(values)
            jammed = (whole != values) & (np.fmod(whole, 2.0) == 0)
            whole[jammed] += np.copysign(1.0, values[jammed])
            return whole
