"""Fused multiply-adds of f64 in numpy, for the evaluator that shares no code with `accprobe.evaluate`.

Where neither overflow nor underflow is near: Boldo & Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
using rounding to odd" (IEEE TC 2008), on operands scaled to about 1. Results below the smallest normal number: by fractions.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from planted_sums import odd_sum

Doubles = NDArray[np.float64]

SPLITTER = float((1 << 27) + 1)
FAR_APART = 200
"""A larger difference of the exponents of product and addend has no effect."""

SMALLEST_NORMAL = 2.0**-1022


def fused(a: Doubles, b: Doubles, c: Doubles) -> tuple[Doubles, NDArray[np.bool_]]:
    """Return a * b + c, rounded once to nearest even, [n], and a mask of exact sums of zero."""
    plain = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)) | (a == 0) | (b == 0) | (c == 0)
    result = np.where(c == 0, a * b, a * b + c)
    zero_product = (a == 0) | (b == 0)
    result = np.where(zero_product, a * b + c, result)
    result = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, result)
    zero = zero_product & (c == 0) & np.isfinite(a) & np.isfinite(b)
    rows = np.flatnonzero(~plain)
    if len(rows):
        result[rows], cancelled = _scaled(a[rows], b[rows], c[rows])
        zero[rows] = cancelled
    return result, zero


def _scaled(a: Doubles, b: Doubles, c: Doubles) -> tuple[Doubles, NDArray[np.bool_]]:
    (ma, ea), (mb, eb), (mc, ec) = (np.frexp(x) for x in (a, b, c))
    exponent = ea.astype(np.int64) + eb
    high, low = _product(ma, mb)
    addend = np.ldexp(mc, np.clip(ec - exponent, -FAR_APART, FAR_APART))
    t, rest = _sum(addend, low)
    v, small = _sum(high, t)
    total = v + odd_sum(rest, small)
    result = np.ldexp(total, np.clip(exponent, -5000, 5000))
    far = ec - exponent > FAR_APART
    result = np.where(far, c, result)
    for i in np.flatnonzero((np.abs(result) <= SMALLEST_NORMAL) & (total != 0)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        result[i] = exact.numerator / exact.denominator if exact else 0.0
        if result[i] == 0 and exact < 0:
            result[i] = -0.0
    return result, (total == 0) & ~far


def _product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    high = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return high, a2 * b2 - (((high - a1 * b1) - a2 * b1) - a1 * b2)


def _halves(x: Doubles) -> tuple[Doubles, Doubles]:
    far = SPLITTER * x
    top = far - (far - x)
    return top, x - top


def _sum(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)
