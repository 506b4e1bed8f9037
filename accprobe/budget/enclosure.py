"""Enclosures of computed sums: lower and upper bounds around the exact sums, for many outputs at once.

The enclosures of fused sums add up to that of the whole product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accprobe.evaluate.decoding import leading
from accprobe.evaluate.error_free import Floats, Integers, power_of_two
from accprobe.isa.formats import Format
from accprobe.model.tree import FloatArithmetic, Rounding


class Enclosure(NamedTuple):
    """exact - below <= computed <= exact + above, all [M, N].

    exact: the float64 sum of the operands' products, with an error of at most `slack`. grain: a power of two that divides the
    computed sum. bits: its fraction bits at most; lowest: the exponent below which it is subnormal.
    """

    exact: Floats
    below: Floats
    above: Floats
    slack: Floats
    grain: Floats
    bits: int
    lowest: int

    @property
    def low(self) -> Floats:
        return self.exact - self.below - self.slack

    @property
    def high(self) -> Floats:
        return self.exact + self.above + self.slack

    def exponents(self) -> Integers:
        """Return the largest exponent that it can have as a term; NOTHING where it is zero."""
        size = np.maximum(self.high, -self.low)
        exponents = leading(size).astype(np.int64)
        return np.where(size == 0, exponents, np.maximum(exponents, self.lowest))


class Result(NamedTuple):
    """Rounding to a result: its fraction bits, and how.

    lowest: exponent of the smallest normal number; most: the largest number; flushed: whether subnormals become zero.
    """

    bits: int
    how: Rounding
    lowest: int
    most: float
    flushed: bool = False


def result_of(arithmetic: FloatArithmetic) -> Result:
    fmt, bits = arithmetic.result, arithmetic.result_bits
    return Result(
        bits, arithmetic.result_rounding, fmt.min_exponent, _most(fmt, bits), arithmetic.subnormal_results == "flushed"
    )


def result_in(fmt: Format, how: Rounding = "RNE") -> Result:
    """Return the rounding to a number of the format."""
    return Result(fmt.mantissa_bits, how, fmt.min_exponent, _most(fmt, fmt.mantissa_bits))


def _most(fmt: Format, bits: int) -> float:
    return (2.0 - 2.0**-bits) * 2.0**fmt.max_exponent


def clipped_power(exponents: Integers) -> Floats:
    """Return 2^exponent, clipped to the normal float64 powers."""
    return power_of_two(np.clip(exponents, -1022, 1023))


def summed(parts: list[Enclosure]) -> Enclosure:
    """Add enclosures without rounding."""
    first, *others = parts
    for x in others:
        first = Enclosure(
            first.exact + x.exact,
            first.below + x.below,
            first.above + x.above,
            first.slack + x.slack,
            np.minimum(first.grain, x.grain),
            np.finfo(np.float64).nmant + 1,
            min(first.lowest, x.lowest),
        )
    return first


def rounded(x: Enclosure, to: Result, truncated: tuple[Floats, Floats] | None = None) -> Enclosure:
    """Round once.

    truncated: what the truncation of the last term can lose below and above. It leaves a multiple of the sum's unit, so
    truncating the sum in the same direction loses no more than the larger of the two.
    """
    if to.how in ("RU", "RD"):  # no known model rounds so
        return x._replace(below=np.full_like(x.below, np.inf), above=np.full_like(x.above, np.inf))
    if truncated is not None:
        wide = x._replace(below=x.below + truncated[0], above=x.above + truncated[1])
    elif x.bits <= to.bits and x.lowest >= to.lowest and not to.flushed:
        return _overflowing(x, to)
    else:
        wide = x
    low, high = wide.low, wide.high
    quantum = clipped_power(np.maximum(leading(np.maximum(high, -low)).astype(np.int64), to.lowest) - to.bits)
    below = above = np.where(quantum > x.grain, quantum / 2, 0.0)
    if to.how == "RZ":
        loss = np.maximum(quantum - x.grain, 0.0)
        below, above = np.where(high > 0, loss, 0.0), np.where(low < 0, loss, 0.0)
    if truncated is not None and to.how == "RZ":
        below, above = np.maximum(below, truncated[0]), np.maximum(above, truncated[1])
    elif truncated is not None:
        below, above = below + truncated[0], above + truncated[1]
    if to.flushed:
        normal = 2.0**to.lowest
        below = np.where((high > 0) & (low < normal), normal, 0.0) + below
        above = np.where((low < 0) & (high > -normal), normal, 0.0) + above
    grain = np.maximum(x.grain, 2.0 ** (to.lowest - to.bits))
    found = Enclosure(x.exact, x.below + below, x.above + above, x.slack, grain, to.bits, to.lowest)
    return _overflowing(found, to, wide)


def _overflowing(x: Enclosure, to: Result, before: Enclosure | None = None) -> Enclosure:
    """Remove the bounds where the sum may overflow before it is rounded."""
    of = x if before is None else before
    fits = np.maximum(of.high, -of.low) <= to.most
    if fits.all():
        return x
    return x._replace(below=np.where(fits, x.below, np.inf), above=np.where(fits, x.above, np.inf))


def scaled(x: Enclosure, factor: Floats, used: Floats) -> Enclosure:
    """Multiply by `used`, and the exact sum by `factor`."""
    size, off = np.abs(used), np.abs(x.exact) * np.abs(used - factor) + x.slack * np.abs(used - factor)
    turned = used < 0
    below, above = (np.where(turned, y, z) * size + off for y, z in ((x.above, x.below), (x.below, x.above)))
    slack = 2 * x.slack * np.maximum(size, np.abs(factor))
    bits, none = np.finfo(np.float64).nmant + 1, np.zeros_like(x.grain)
    return Enclosure(x.exact * factor, below, above, slack, none, bits, np.finfo(np.float64).minexp)
