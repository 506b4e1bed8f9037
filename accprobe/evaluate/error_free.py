"""Error-free sums and products of float64 numbers: the error of each is a float64 number too. Exact sums of many terms.

None of the numbers may be so small that an error has no normal float64, nor so large that a sum has none. The factors of a
product are below 2^996. Sources: Dekker, "A floating-point technique for extending the available precision" (1971); Knuth, The
Art of Computer Programming 2, 4.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]

Whole = NDArray[np.object_]  # Python integers.

# Significant bits of an exact sum.
EXACT_BITS = 60

# Bits that `top_bits` returns below a float64's last bit. Coverage needs them for sums near half a unit below a power of two.
LOWER = 8


def two_sum(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the sum, rounded to nearest, and its rounding error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the product, rounded to nearest, and its rounding error."""
    total = x * y
    (x1, x0), (y1, y0) = _halves(x), _halves(y)
    return total, x0 * y0 - (((total - x1 * y1) - x0 * y1) - x1 * y0)


def _halves(x: Floats) -> tuple[Floats, Floats]:
    shifted = x * float((1 << 27) + 1)
    high = shifted - (shifted - x)
    return high, x - high


def rounded_to_odd(x: Floats, y: Floats) -> Floats:
    """Return x + y in 53 bits, the last bit 1 if inexact; it rounds to at most 51 bits as the exact sum does.

    After Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd" (2008).
    Infinities and NaNs are as in the plain sum.
    """
    total, inexact = truncated_sum(x, y)
    total.view(np.int64)[...] |= inexact
    return total


def truncated_sum(x: Floats, y: Floats) -> tuple[Floats, Truths]:
    """Return x + y rounded toward zero to 53 bits, and where it is inexact; a sum out of range is infinite."""
    total, error = two_sum(x, y)
    inexact = np.abs(error) > 0
    total.view(np.int64)[...] -= inexact & (np.signbit(error) != np.signbit(total))
    return total, inexact


def top_bits(x: Floats, y: Floats, z: Floats) -> tuple[Truths, Integers, Integers]:
    """Return x + y + z as (negative, magnitude < 2^61, exponent), |y| being at most half of x's last place.

    Bits below the magnitude's are or-ed into its last bit, which is far below the 53 bits that a float64 has.
    """
    high, low = two_sum(x, z)
    low, rest = two_sum(low, y)
    high, low = two_sum(high, low)
    low, rest = two_sum(low, rest)
    high, low = two_sum(high, low)
    low = np.where(np.signbit(high), -low, low)
    rest = np.where(np.signbit(high), -rest, rest)
    bits = high.view(np.int64)
    exponent = ((bits >> 52) & 0x7FF) - (1023 + 52 + LOWER)
    whole = (bits & ((1 << 52) - 1) | 1 << 52) << LOWER
    fine = low * power_of_two(-exponent)
    floor = np.floor(fine)
    exact = fine == floor
    magnitude = whole + floor.astype(np.int64) - (exact & (rest < 0))
    magnitude |= ~exact | (rest != 0)
    zero = high == 0
    return np.signbit(high) & ~zero, np.where(zero, 0, magnitude), np.where(zero, 0, exponent)


def integer_parts(x: Floats) -> tuple[Truths, Integers, Integers]:
    """Return finite numbers, none subnormal, as (negative, magnitude of 53 bits, exponent)."""
    bits = x.view(np.int64)
    magnitude = np.where(x == 0, 0, bits & ((1 << 52) - 1) | 1 << 52)
    return x < 0, magnitude, ((bits >> 52) & 0x7FF) - 1075


def plain_product(a: Floats, b: Floats) -> Floats:
    """Return a · bᵀ without BLAS. Its threads would wait for cores that other work uses."""
    found: Floats = np.einsum("mk,nk->mn", a, b)
    return found


def whole(x: Floats) -> Whole:
    """Return integers of at most 53 bits as Python integers."""
    return x.astype(np.int64).astype(object)


def exact_sum(terms: Sequence[tuple[Whole, Integers]]) -> tuple[Truths, Integers, Integers]:
    """Return the sums of integer * 2^exponent, each [n], as `top_bits` does; they have 60 bits unless they are zero."""
    lowest = np.minimum.reduce([exponent for _, exponent in terms])
    total = sum(integer << (exponent - lowest).astype(object) for integer, exponent in terms)
    negative = (total < 0).astype(bool)
    sizes = np.abs(total)
    drop = np.array([size.bit_length() - EXACT_BITS for size in sizes], np.int64)
    down, up = (np.maximum(bits, 0).astype(object) for bits in (drop, -drop))
    kept = sizes >> down
    inexact = (kept << down) != sizes
    return negative, (kept << up).astype(np.int64) | inexact.astype(bool), np.where(total == 0, 0, lowest + drop)


def power_of_two(exponent: Integers) -> Floats:
    """Return 2^exponent, for exponents of normal float64 numbers."""
    powers: Floats = ((exponent + 1023) << 52).view(np.float64)
    return powers
