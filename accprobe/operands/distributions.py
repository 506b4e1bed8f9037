"""Random numbers of one format, by distribution.

Floating-point formats of at most 16 bits are drawn from a table of equally likely patterns. Converting millions of numbers for
each call would take longer than the product.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format

# A, B or both as large as their formats and the range of D allow, of either sign.
LARGE = ("large", "large A", "large B")
# uniform: in [0, 1). integers: whole numbers that the format holds exactly.
DISTRIBUTIONS = ("normal", "wide", "same sign", "cancelling", "sparse", *LARGE, "uniform", "integers")
# Distributions that are made from numbers in [0, 1); the others are made from normal ones.
_FROM_UNIFORM = (*LARGE, "uniform", "integers")
# Share of zeros among sparse numbers.
_ZEROS = 0.9
# Limit of wide numbers: beyond it no sum would be small.
_LARGEST_WIDE = 2.0**8
# Entries of a table of patterns: as many as 16 bits have patterns.
_TABLE = 1 << 16
# Numbers drawn for a large matrix. Each line is a run of them from a random start, which is faster than drawing every element.
_POOL = 1 << 20


def largest_integer(fmt: Format) -> int:
    """Return the limit of "integers": exact in the format, and at most 15 in f16, so that f16 holds long sums of products."""
    return min((2 << fmt.mantissa_bits) - 1, 15 if fmt.exponent_bits == 5 else 4095)


def random_lines(fmt: Format, shape: tuple[int, ...], kind: str, rng: np.random.Generator, exponent: int = 0) -> Bits:
    """Return patterns of random numbers times 2^exponent, at most the format's largest.

    Integer formats ignore the exponent, and use their whole range except in "same sign" and "uniform". A single line cannot
    cancel: "cancelling" is "normal" here.
    """
    if fmt.is_integer:
        end = {"same sign": 1 << fmt.bits - 1, "uniform": 2}.get(kind, 1 << fmt.bits)
        whole: Bits = rng.integers(0, end, shape, fmt.dtype.type)
        return whole
    if fmt.storage_bits <= 16:
        table = _table(fmt, kind, exponent)
        if len(shape) == 2 and shape[0] * shape[1] > 4 * _POOL:
            pool = table[rng.integers(0, _TABLE, _POOL + shape[1], np.uint16)]
            return np.lib.stride_tricks.sliding_window_view(pool, shape[1])[rng.integers(0, _POOL, shape[0])]
        taken: Bits = table[rng.integers(0, _TABLE, shape, np.uint16)]
        return taken
    type_ = np.float64 if fmt.storage_bits == 64 else np.float32
    uniform = kind in _FROM_UNIFORM
    return _patterns(fmt, rng.random(shape, type_) if uniform else rng.standard_normal(shape, type_), kind, rng, exponent)


@cache
def _table(fmt: Format, kind: str, exponent: int = 0) -> Bits:
    """Return the patterns [_TABLE] of evenly spaced quantiles of the distribution."""
    if kind in _FROM_UNIFORM:
        values = (np.arange(_TABLE) / _TABLE).astype(np.float32)
    else:
        positive = [NormalDist().inv_cdf(0.5 + (i + 0.5) / _TABLE) for i in range(_TABLE // 2)]
        values = np.array([*positive, *(-x for x in positive)], np.float32)
    return _patterns(fmt, values, kind, np.random.default_rng(0), exponent)


def _patterns(fmt: Format, values: NDArray[np.floating], kind: str, rng: np.random.Generator, exponent: int) -> Bits:
    """Turn uniform or normal numbers into numbers of the distribution, and encode them."""
    if kind in LARGE:
        halves = 2 * values  # the integer part becomes the sign, the fraction the significand
        values = np.where(halves < 1, -1 - halves, halves)
    elif kind == "integers":
        values = np.floor(values * (2 * largest_integer(fmt) + 1)) - largest_integer(fmt)
    elif kind == "same sign":
        values = np.abs(values)
    elif kind == "wide":
        reach = 8 if fmt.exponent_bits == 8 else 3
        exponents = rng.integers(-reach, reach + 1, values.shape, np.int32)
        values = np.clip(np.ldexp(values, exponents), -_LARGEST_WIDE, _LARGEST_WIDE)
    elif kind == "sparse":
        values = np.where(rng.random(values.shape, np.float32) < _ZEROS, np.float32(0), values)
    if exponent:
        with np.errstate(over="ignore"):
            values = np.clip(np.ldexp(values, exponent), -fmt.largest_value, fmt.largest_value)
    return fmt.patterns(values)


def times_power(fmt: Format, patterns: Bits, exponent: int | NDArray[np.int64]) -> Bits:
    """Return the numbers times 2^exponent, rounded to the format; too large ones become its largest number, infinity or NaN."""
    with np.errstate(all="ignore"):
        return fmt.patterns(np.ldexp(fmt.values(patterns), exponent))
