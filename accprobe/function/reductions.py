"""Reductions of a special function unit: from an operand to the argument of a table, and from the table's value to a float.

A reduction splits each input word into the number of a table, the argument of that table, a sign and an exponent. The result is
the table's value times 2^exponent, truncated to 24 bits, with that sign. Results below the smallest normal number become zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from accprobe.function.quadratic import Int64s, in_parts, module_of
from accprobe.function.reference import values_of_words
from accprobe.isa.formats import FORMATS

FRACTION, BIAS = 23, 127
HIDDEN, MASK, SIGN, INFINITY = 1 << 23, (1 << 23) - 1, 1 << 31, 255 << 23
# Shifts of integers beyond this lose everything that matters.
WIDEST_SHIFT = 40
# A number in fixed point from which on 2^x overflows or is zero, and a number of turns is whole.
LARGEST_FIXED = 2.0**62


class Split(NamedTuple):
    """Reduced input words: table numbers, arguments, signs (0 or 1) and exponents, arrays [n] or one number for all.

    whole: what the result needs besides the table's value.
    """

    table: Any
    argument: Any
    sign: Any
    exponent: Any
    whole: Any = 0


class Reduction(ABC):
    """tables: how many there are. argument_bits: of each table.

    nested: a smaller unit of a table's values allows every function that larger units do.
    """

    name: ClassVar[str]
    nested: ClassVar[bool] = True

    @property
    def tables(self) -> int:
        return 1

    @property
    def argument_bits(self) -> tuple[int, ...]:
        return (FRACTION,) * self.tables

    @abstractmethod
    def split(self, words: Any) -> Split:
        """Return the reduced words."""

    def join(self, split: Split, values: Any, unit: Any) -> Any:
        """Return the result words of table values in units of 2^unit."""
        return assemble(split.sign, values, split.exponent + unit)

    def bounds(self, split: Split, results: Any, unit: int) -> tuple[Any, Any]:
        """Return the lowest and the highest table values that give these results."""
        return value_bounds(results, split.exponent + unit)

    @abstractmethod
    def cover(self, table: int) -> Iterator[Int64s]:
        """Yield input words, in order of their arguments, that together give a table every argument."""


def octave(exponent: int) -> Int64s:
    """Return the words of all numbers from 2^exponent to twice that."""
    return np.arange(1 << FRACTION, dtype=np.int64) | (exponent + BIAS) << FRACTION


def shifted(values: Any, left: Any) -> Any:
    """Return integers shifted left, or right where `left` is negative."""
    xp = module_of(values)
    return values << xp.clip(left, 0, WIDEST_SHIFT) >> xp.clip(-left, 0, 63)


def _values(words: Any) -> Any:
    return values_of_words(words.astype(np.uint32), FORMATS["f32"])


def assemble(sign: Any, values: Any, exponent: Any) -> Any:
    """Return words of ±values · 2^exponent, truncated to 24 bits; too small ones become zero, too large ones infinite.

    values: below 2^53, so that a float64 has their leading bits.
    """
    xp = module_of(values)
    words = (values.astype(np.float64).view(np.int64) >> 52 - FRACTION) + (exponent + (BIAS - 1023) << FRACTION)
    words = xp.where((words < HIDDEN) | (values <= 0), 0, xp.minimum(words, INFINITY))
    return words | xp.asarray(sign).astype(np.int64) << 31


def value_bounds(results: Any, exponent: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest v >= 0 for which v · 2^exponent, truncated to 24 bits, is the size of a result.

    v: an integer. exponent: at least -126, so that only v = 0 gives a zero result.
    """
    biased = results >> FRACTION & 255
    significand = results & MASK | HIDDEN
    left = biased - BIAS - FRACTION - exponent
    low = module_of(results).where(left >= 0, shifted(significand, left), -(-significand >> (-left).clip(0, 63)))
    high = module_of(results).where(left >= 0, shifted(significand + 1, left) - 1, shifted(significand, left))
    zero = biased == 0
    return low * ~zero, high * ~zero


@dataclass(frozen=True)
class Power(Reduction):
    """x = 2^e · 1.m: m is the argument of table e mod period, and the result has the exponent direction · (e div period).

    period: 1 or 2; bits of e are the remainder and the quotient. Reciprocals have period 1 and direction -1, square roots 2 and
    1, their reciprocals 2 and -1.
    """

    period: int
    direction: int
    name: ClassVar[str] = "power"

    @property
    def tables(self) -> int:
        return self.period

    def split(self, words: Any) -> Split:
        exponent = (words >> FRACTION & 255) - BIAS
        rest = exponent & self.period - 1
        return Split(rest, words & MASK, words >> 31, self.direction * (exponent >> self.period - 1))

    def cover(self, table: int) -> Iterator[Int64s]:
        yield octave(table)


@dataclass(frozen=True)
class Exponential(Reduction):
    """x in fixed point, truncated to 23 fraction bits: the fraction is the argument, the integer part the exponent.

    A negative x is the one's complement of its size, unless its fraction is zero: then it is the two's complement.
    """

    name: ClassVar[str] = "exp2"

    def split(self, words: Any) -> Split:
        xp = module_of(words)
        fixed = xp.fmin(xp.abs(_values(words)) * 2.0**FRACTION, LARGEST_FIXED).astype(np.int64)
        negative = words >> 31
        fixed = (fixed ^ -negative) + (negative & (fixed & MASK == 0))
        return Split(0, fixed & MASK, 0, fixed >> FRACTION)

    def cover(self, table: int) -> Iterator[Int64s]:
        yield octave(0)


@dataclass(frozen=True)
class Logarithm(Reduction):
    """x = 2^e · 1.m: the table's value of m, without its lowest bits, is added to e; a negative sum is made positive by one's
    complement. dropped: the number of lowest bits.
    """

    dropped: int = 2
    name: ClassVar[str] = "log2"
    nested: ClassVar[bool] = False  # the unit is the place of the dropped bits and of the one's complement

    def split(self, words: Any) -> Split:
        return Split(0, words & MASK, 0, 0, (words >> FRACTION & 255) - BIAS)

    def join(self, split: Split, values: Any, unit: Any) -> Any:
        unit = unit + self.dropped
        total = (split.whole << -unit) + (values >> self.dropped)
        return assemble(total < 0, total ^ total >> 63, unit)

    def bounds(self, split: Split, results: Any, unit: int) -> tuple[Any, Any]:
        unit = unit + self.dropped
        low, high = value_bounds(results, unit)
        negative = results >> 31 == 1
        whole, xp = split.whole << -unit, module_of(results)
        lowest, highest = xp.where(negative, ~high, low) - whole, xp.where(negative, ~low, high) - whole
        return lowest << self.dropped, (highest << self.dropped) + (1 << self.dropped) - 1

    def cover(self, table: int) -> Iterator[Int64s]:
        for exponent in (0, -1):
            yield octave(exponent)


@dataclass(frozen=True)
class Turns(Reduction):
    """x times 1/2π, rounded toward zero to f32, is a number of turns; its 25 fraction bits are two bits of the quarter and the
    argument. Odd quarters take the one's complement of the argument. quarters: 0 for a sine, 1 for a cosine.
    """

    quarters: int
    name: ClassVar[str] = "turns"
    # 1/2π in f32: the factor of the FMUL before the unit.
    FACTOR: ClassVar[float] = float.fromhex("0x1.45f306p-3")
    PHASE: ClassVar[int] = FRACTION + 2

    def phase(self, words: Any) -> Any:
        product = module_of(words).abs(_values(words)) * self.FACTOR  # exact
        turns = (product.view(np.int64) >> 52 - FRACTION << 52 - FRACTION).view(np.float64)
        return module_of(words).fmin(turns * 2.0**self.PHASE, LARGEST_FIXED).astype(np.int64)

    def split(self, words: Any) -> Split:
        xp, phase = module_of(words), self.phase(words)
        quarter = (phase >> FRACTION) + self.quarters
        position = phase & MASK
        is_sine = self.quarters == 0
        sign = quarter >> 1 & 1 ^ ((words >> 31) if is_sine else 0)
        return Split(0, xp.where(quarter & 1, MASK ^ position, position), sign, 0)

    def cover(self, table: int) -> Iterator[Int64s]:
        """Yield words of the first quarter, where numbers are denser than phases."""
        words = in_parts(self._words_of, np.arange(1 << FRACTION, dtype=np.int64))
        yield words[::-1] if self.quarters else words

    def _words_of(self, phases: Int64s) -> Int64s:
        nearest = (phases * (2 * np.pi / (1 << self.PHASE))).astype(np.float32)
        words: Int64s = nearest.view(np.uint32).astype(np.int64)
        for _ in range(2):  # the truncated product may lie below the phase
            words += self.phase(words) < phases
        found: Int64s = words[self.phase(words) == phases]
        return found


@dataclass(frozen=True)
class Octaves(Reduction):
    """Each octave of |x| has a table of its own, which ignores the lowest bits of x. The function is odd.

    first: the exponent of the lowest octave; lower ones return x. ignored: lowest bits without effect, by octave. above: the
    word of larger x.
    """

    first: int
    ignored: tuple[int, ...]
    above: int
    name: ClassVar[str] = "octaves"

    @property
    def tables(self) -> int:
        return len(self.ignored)

    @property
    def argument_bits(self) -> tuple[int, ...]:
        return tuple(FRACTION - ignored for ignored in self.ignored)

    def split(self, words: Any) -> Split:
        xp = module_of(words)
        table = (words >> FRACTION & 255) - BIAS - self.first
        ignored = xp.asarray(np.array(self.ignored))[table.clip(0, self.tables - 1)]
        return Split(table, (words & MASK) >> ignored, words >> 31, 0, words)

    def join(self, split: Split, values: Any, unit: Any) -> Any:
        xp, found = module_of(values), super().join(split, values, unit)
        found = xp.where(split.table >= self.tables, self.above | split.sign << 31, found)
        return xp.where(split.table < 0, split.whole, found)

    def cover(self, table: int) -> Iterator[Int64s]:
        yield octave(self.first + table)[:: 1 << self.ignored[table]]


REDUCTIONS: tuple[type[Reduction], ...] = (Power, Exponential, Logarithm, Turns, Octaves)
