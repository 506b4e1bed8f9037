"""Decoding, rounding and encoding of numbers in numpy, for the evaluator that shares no code with `accprobe.evaluate`."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from departures import Packing
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.model.tree import FloatArithmetic

Ints = NDArray[Any]
"""Integers of 64 bits, or Python's, which have as many as it takes."""

ZERO, SPECIAL = -25_000, 200_000
"""Exponents of zeros, and of infinities and NaNs: so far out that a sum of four exponents still identifies them."""

NOTHING, ANY_SPECIAL = -10_000, 100_000
"""Limits of exponents: below the first only zeros, above the second only infinities and NaNs."""

LONGEST = 62
"""The most bits that a rounding removes from integers of 64 bits: then a value of 63 bits is zero."""

_length_of = np.frompyfunc(int.bit_length, 1, 1)


class Parts(NamedTuple):
    """significand * 2^(exponent - mantissa bits); ZERO and SPECIAL see above; leading: of the highest bit that is set."""

    significand: Ints
    exponent: Ints
    leading: Ints


def apart(fmt: Format, patterns: Bits, flushed: bool = False, zeros_count: bool = False) -> Parts:
    """flushed: subnormals are zeros; zeros_count: a zero has the exponent of the smallest normal number."""
    if fmt.storage_bits > 16:
        return _apart(fmt, patterns, flushed, zeros_count)
    table = _table(fmt.name, fmt, flushed, zeros_count)
    return Parts(*(np.take(column, patterns) for column in table))


@cache
def _table(_: str, fmt: Format, flushed: bool, zeros_count: bool) -> Parts:
    every = _apart(fmt, np.arange(1 << fmt.storage_bits, dtype=np.int64), flushed, zeros_count)
    return Parts(*(column.astype(np.int32) for column in every))


def _apart(fmt: Format, patterns: NDArray[np.integer], flushed: bool, zeros_count: bool) -> Parts:
    m, top = fmt.mantissa_bits, (1 << fmt.exponent_bits) - 1
    whole = patterns.astype(np.int64) >> fmt.ignored_low_bits
    fraction, biased = whole & ((1 << m) - 1), (whole >> m) & top
    normal = (biased > 0) | (m == 0)
    significand = np.where(normal, fraction + (1 << m), 0 if flushed else fraction)
    smallest = 1 - fmt.bias
    exponent = np.where(normal, biased - fmt.bias, smallest)
    leading = exponent - m + bit_length(significand) - 1
    zero = significand == 0
    leading = np.where(zero, smallest if zeros_count else ZERO, leading)
    exponent = np.where(zero, smallest if zeros_count else ZERO, exponent)
    if fmt.specials != "none":
        special = biased == top
        if fmt.specials == "nan only":
            special &= fraction == (1 << m) - 1
        exponent, leading = np.where(special, SPECIAL, exponent), np.where(special, SPECIAL, leading)
        significand = np.where(special, 0, significand)
    negative = (whole >> (m + fmt.exponent_bits)) & (fmt.sign_bit > 0)
    return Parts(np.where(negative == 1, -significand, significand), exponent, leading)


def is_nan(fmt: Format, patterns: Bits) -> NDArray[np.bool_]:
    m, top = fmt.mantissa_bits, (1 << fmt.exponent_bits) - 1
    magnitude = (patterns.astype(np.int64) >> fmt.ignored_low_bits) & ((1 << (m + fmt.exponent_bits)) - 1)
    if fmt.specials == "ieee":
        return magnitude > top << m
    return (magnitude == (1 << (m + fmt.exponent_bits)) - 1) & (fmt.specials == "nan only")


def is_negative(fmt: Format, patterns: Bits) -> NDArray[np.bool_]:
    return patterns & patterns.dtype.type(fmt.sign_bit) != 0


def bit_length(magnitude: Ints) -> Ints:
    """Return the bit lengths of whole numbers, below 2^62 if they have 64 bits; 0 for 0."""
    if magnitude.dtype == object:
        return np.asarray(_length_of(magnitude))
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    return length - ((magnitude >> np.maximum(length - 1, 0)) == 0)


def cut(value: Ints, by: Ints, word: str) -> Ints:
    """Return value / 2^by as a whole number. by: not negative. word: a rounding of models, or another one."""
    by = by.astype(object) if value.dtype == object else np.minimum(by, LONGEST)
    unit = np.ones((), value.dtype) << by
    if word in ("truncate", "RZ"):
        return (value + (value < 0) * (unit - 1)) >> by
    below = value >> by
    if word in ("floor", "RD"):
        return below
    rest = value - (below << by)
    half = unit >> 1
    inexact = rest > 0
    if word in ("nearest", "RNE"):
        return below + ((rest > half) | (inexact & (rest == half) & (below & 1 == 1)))
    if word in ("up", "ceiling", "RU"):
        return below + inexact
    if word == "away":
        return below + (inexact & (value > 0))
    if word in ("ties away", "nearest away", "RNA"):
        return below + ((rest > half) | (inexact & (rest == half) & (value > 0)))
    if word == "ties up":
        return below + (inexact & (rest >= half))
    if word == "ties to zero":
        return below + ((rest > half) | (inexact & (rest == half) & (value < 0)))
    if word == "ties to odd":
        return below + ((rest > half) | (inexact & (rest == half) & (below & 1 == 0)))
    if word == "sticky":
        toward_zero = below + (inexact & (value < 0))
        return np.where(inexact & (toward_zero & 1 == 0), toward_zero + np.where(value > 0, 1, -1), toward_zero)
    assert word == "stochastic", word
    mixed = (value.astype(np.uint64) + by.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    threshold = (mixed ^ (mixed >> np.uint64(29))).astype(np.int64) & (unit - 1)
    return below + (rest > threshold)


def packed(total: Ints, scale: Ints, rules: FloatArithmetic, odd: Packing) -> Ints:
    """Return bit patterns of total * 2^scale; only zeros of underflow have a sign."""
    fmt, bits, exact = rules.result, rules.result_bits, total
    m, smallest = fmt.mantissa_bits, 1 - fmt.bias
    word = odd.rounding or rules.result_rounding
    if odd.first_bits is not None:
        drop = np.maximum(np.maximum(_exponent(total, scale), smallest) - bits - odd.first_bits - scale, 0)
        total = cut(total, drop, "nearest") << np.minimum(drop, LONGEST)  # Sums of 64 bits alone are rounded so.
    exponent = _exponent(total, scale)
    kept = np.maximum(exponent, smallest)
    drop = kept - bits - scale
    rounded = np.abs(cut(total, np.maximum(drop, 0), word) << np.maximum(-drop, 0))
    if odd.blind:
        rounded &= np.where(kept % odd.blind[0] == odd.blind[1], ~np.int64(1), ~np.int64(0))
    pattern = ((kept + fmt.bias - 1) << m) + (rounded << (m - bits))
    infinity = ((1 << fmt.exponent_bits) - 1) << m
    largest = infinity - (1 << (m - bits))
    over, tiny = pattern >= infinity, pattern < 1 << m
    if odd.overflow == "before":
        over |= _beyond_largest(np.abs(exact), scale, rules)
    elif odd.overflow == "exponent":
        pattern = np.where(over & (exponent + fmt.bias < (1 << fmt.exponent_bits) - 1), largest, pattern)
        over = exponent + fmt.bias >= (1 << fmt.exponent_bits) - 1
    pattern = np.where(over, infinity if rules.overflow == "infinity" else largest, pattern)
    if odd.flushed_below is not None:
        limit = (1 + odd.flushed_below) << m if odd.flushed_below >= 0 else 1 << max(m + odd.flushed_below, 0)
        pattern = np.where(pattern < limit, 0, pattern)
    if odd.subnormal_before or rules.tininess_detected == "before rounding":
        tiny = _exponent(exact, scale) < smallest
    elif rules.tininess_detected == "after rounding to full precision":
        tiny = _exponent(shortened(total, bits, word), scale) < smallest
    if rules.subnormal_results == "flushed" or odd.subnormal_before:
        pattern = np.where(tiny, 0, pattern)
    signed = np.where(total < 0, pattern | fmt.sign_bit, pattern)
    if rules.underflow_sign == "positive":
        signed = np.where(pattern == 0, 0, signed)
    return np.where(total == 0, 0, signed)


def shortened(value: Ints, bits: int, word: str) -> Ints:
    """Return values rounded to so many bits after the leading one."""
    drop = np.maximum(bit_length(np.abs(value)) - 1 - bits, 0)
    return cut(value, drop, word) << drop


def _beyond_largest(magnitude: Ints, scale: Ints, rules: FloatArithmetic) -> NDArray[np.bool_]:
    fmt, bits = rules.result, rules.result_bits
    top = (1 << fmt.exponent_bits) - 2 - fmt.bias
    exponent = _exponent(magnitude, scale)
    drop = np.maximum(exponent - bits - scale, 0)
    most = cut(magnitude, drop, "RU") << np.maximum(bits + scale - exponent, 0)
    return (exponent > top) | ((exponent == top) & (most > (2 << bits) - 1))


def _exponent(total: Ints, scale: Ints) -> Ints:
    return bit_length(np.abs(total)) - 1 + scale
