"""Lay out probes in A and B, and choose and encode their operands.

A probe takes a row and a column of D, or a column only if A is fixed. Probes of the summation tree contain one large number and
units that are absorbed by it (FPRev, Xie et al., ATC'25).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format

Ints = NDArray[np.int64]

# A placeholder for a random significand of every free factor.
ANY_SIGNIFICAND = 0
# Share of the dot products X + y - X in which X has a subnormal factor.
SUBNORMAL = 0.1
# Share of ties among words that are wider than their format.
TIES = 0.25
# Limit of the exponents of products on both sides of 0, beside those of the formats.
PRODUCT_REACH = 60
# Largest exponent of a product whose partial sum fits f16.
MAX_EXPONENT = 14
# Smallest exponent of a unit that f16 partial sums and results hold with a few bits to spare.
MIN_EXPONENT = -22
# Limit of a product whose sum is rounded to 8 bits: results show few bits, so the products span all that f32 sums keep.
NARROW_REACH = 24
# Exponent limit on both sides of 0 if nothing is f16; doubled for f64.
UNIT_REACH = 30
# Units counted at once. An accumulator with 13 fraction bits holds twice as many.
MAX_UNITS = 1 << 13
# Maximum accumulator bits below which units are lost; f64 has 29 more.
_KEPT = 26


@dataclass(frozen=True)
class Units:
    """unit, large: exponents of the two factors of a unit and of a large product. most: units that sums count exactly."""

    unit: tuple[int, int]
    large: tuple[int, int]
    most: int

    @property
    def modulus(self) -> int:
        """Return the modulus of unit counts, larger than any count.

        Truncating sums move one step toward zero if a unit is added to a large negative number. A step is a multiple of the
        modulus.
        """
        return 1 << max(1, sum(self.large) - sum(self.unit) - _KEPT + 1)


def unit_candidates(spec: Spec) -> Iterator[Units]:
    """Yield units from the widest separation that the formats allow to the one that f16 partial sums need."""
    reach, kept = (2 * UNIT_REACH, _KEPT + 29) if spec.out.name == "f64" else (UNIT_REACH, _KEPT)
    a, b = spec.a, spec.b
    high, low = min(a.max_exponent + b.max_exponent, reach), max(lowest(a) + lowest(b), -reach)
    if spec.out.storage_bits == 8:
        low = max(low, lowest(spec.out))
    seen = set()
    for least in (low, max(low, MIN_EXPONENT)):
        for largest in (high, min(high, MAX_EXPONENT)):
            if (least, largest) not in seen and (spec.out.name != "f16" or least >= MIN_EXPONENT):
                seen.add((least, largest))
                most = min(MAX_UNITS, 1 << spec.out.mantissa_bits + 1, 1 << max(0, largest - least - kept))
                yield Units(factors(least, a, b), factors(largest, a, b), most)


def units_of_b(spec: Spec, a: int) -> Units:
    """Return units for an A whose elements are all 2^a: B alone separates the large product from the units."""
    low = max(spec.b.min_exponent, spec.out.min_exponent - spec.out.mantissa_bits - a, -UNIT_REACH - a)
    high = min(spec.b.max_exponent, UNIT_REACH - a)
    most = min(MAX_UNITS, 1 << spec.out.mantissa_bits + 1, 1 << max(0, high - low - _KEPT))
    return Units((a, low), (a, high), most)


def batch_sizes(most: int) -> Iterator[int]:
    """Yield the numbers of units to count at once: `most`, then the limits of f16 and bf16 partial sums."""
    yield most
    for name in ("f16", "bf16"):
        if (held := 1 << FORMATS[name].mantissa_bits + 1) < most:
            yield held


def lowest(fmt: Format) -> int:
    """Return the smallest exponent of a factor: of subnormals in 8-bit formats, otherwise of normal numbers."""
    return fmt.min_exponent - (fmt.mantissa_bits if fmt.storage_bits == 8 else 0)


def factors(exponent: int, a: Format, b: Format) -> tuple[int, int]:
    """Return the exponents of two factors of 2^exponent, as equal as the formats allow."""
    first = min(max(exponent // 2, lowest(a), exponent - b.max_exponent), a.max_exponent, exponent - lowest(b))
    return first, exponent - first


def power(fmt: Format, exponent: int, negative: bool = False) -> int:
    """Return the pattern of ±2^exponent."""
    return fmt.encode(negative, 1, exponent)


def units_in(d: Bits, spec: Spec, each: Units) -> NDArray[np.float64]:
    """Return the number of units in each element modulo `each.modulus`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(spec.out.values(d) * 2.0 ** -sum(each.unit) % each.modulus)


class Layout:
    """Layout of products whose A and B are both operands."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def blank(self) -> tuple[Bits, Bits]:
        """Return A [M, K] and B [N, K] with zero products."""
        spec = self.spec
        return self.a(np.zeros((spec.m, spec.k), spec.a.dtype)), np.zeros((spec.n, spec.k), spec.b.dtype)

    def a(self, words: Bits) -> Bits:
        """Return A, or rows of A, for these words."""
        return words

    def one(self) -> tuple[int, int]:
        """Return the patterns of two factors of 1."""
        return (1, 1) if self.spec.a.is_integer else self.power(0)

    def distinct_rows(self, rows: Ints) -> Ints:
        """Return the rows that can hold different queries."""
        return rows

    def independent_pairs(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        """Return a row and a column for each dot product of a call, such that none shares operands with another."""
        side = min(len(rows), len(columns))
        return rows[:side], columns[:side]

    def exponents(self) -> tuple[int, int]:
        """Return the lowest and the highest exponent of a product of two powers of two."""
        both = self.spec.a, self.spec.b
        return sum(map(lowest, both)), sum(fmt.max_exponent for fmt in both)

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        """Return factors for products of these signs (0: zero), exponents and significands (in eighths, or ANY_SIGNIFICAND).

        They are powers of two if the formats do not have the products.
        """
        spec = self.spec
        low_a, low_b = lowest(spec.a), lowest(spec.b)
        below = spec.a.min_exponent - rng.integers(1, spec.a.mantissa_bits + 1, (len(exponents), 1))
        smaller = (rng.random((len(exponents), 1)) < SUBNORMAL) & (significands[:, [0]] == 8) & (signs[:, [4]] == 0)
        lifted = np.where(smaller, below + np.minimum(exponents[:, [0]] - below, spec.b.max_exponent) - exponents[:, [0]], 0)
        exponents = np.maximum(exponents + lifted, low_a + low_b)
        of_b = np.clip(exponents // 2, low_b, spec.b.max_exponent)
        of_a = np.clip(exponents - of_b, low_a, spec.a.max_exponent)
        of_a = np.where(smaller & (np.arange(exponents.shape[1]) % (exponents.shape[1] - 1) == 0), below, of_a)
        of_b = np.clip(exponents - of_a, low_b, spec.b.max_exponent)
        fraction_a = rng.integers(0, 1 << spec.a.mantissa_bits, exponents.shape) >> 1
        fraction_b = rng.integers(0, 1 << spec.b.mantissa_bits, exponents.shape) >> 1
        any_one = significands == ANY_SIGNIFICAND
        a = _encoded(spec.a, signs, of_a, np.where(any_one, fraction_a, _fractions(spec.a, significands)))
        half = 1 << max(spec.b.mantissa_bits - 1, 0)
        b = _encoded(spec.b, np.abs(signs), of_b, np.where(any_one, fraction_b, np.where(significands == 12, half, 0)))
        any_one &= signs != 0
        a, b = (np.where(any_one, x | _low_bits(fmt, x.shape, rng), x) for fmt, x in ((spec.a, a), (spec.b, b)))
        return a, b

    def power(self, exponent: int) -> tuple[int, int]:
        """Return the patterns of two powers of two whose product is 2^exponent."""
        of_a, of_b = factors(exponent, self.spec.a, self.spec.b)
        return power(self.spec.a, of_a), power(self.spec.b, of_b)


class OnlyB(Layout):
    """Layout of products with a fixed A: every row repeats the same queries, each column holds one."""

    def __init__(self, spec: Spec, a_exponent: int) -> None:
        super().__init__(spec)
        self._exponent = a_exponent
        self._pattern = spec.a.dtype.type(power(spec.a, a_exponent))

    def a(self, words: Bits) -> Bits:
        return np.full_like(words, self._pattern)

    def distinct_rows(self, rows: Ints) -> Ints:
        return rows[:1]

    def independent_pairs(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        return np.resize(rows, len(columns)), columns

    def exponents(self) -> tuple[int, int]:
        b = self.spec.b
        return self._exponent + lowest(b), self._exponent + b.max_exponent

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        fmt = self.spec.b
        of_b = np.clip(exponents - self._exponent, lowest(fmt), fmt.max_exponent)
        words = rng.integers(0, 1 << fmt.mantissa_bits, exponents.shape)
        b = _encoded(fmt, signs, of_b, np.where(significands == ANY_SIGNIFICAND, words, _fractions(fmt, significands)))
        return np.where(signs != 0, self._pattern, 0).astype(self.spec.a.dtype), b

    def power(self, exponent: int) -> tuple[int, int]:
        return int(self._pattern), power(self.spec.b, exponent - self._exponent)


def layout_of(spec: Spec) -> Layout:
    return Layout(spec) if spec.a_exponent is None else OnlyB(spec, spec.a_exponent)


def product_exponents(spec: Spec) -> tuple[int, int]:
    """Return the lowest and the highest exponent of a probed product: its factors and D can hold it."""
    lowest, highest = layout_of(spec).exponents()
    f32 = FORMATS["f32"]
    low = max(lowest, spec.out.min_exponent - spec.out.mantissa_bits, f32.min_exponent + 24, -PRODUCT_REACH)
    half = "f16" in (spec.a.name, spec.b.name)  # partial sums may be f16
    of_result = NARROW_REACH if spec.out.storage_bits == 8 else spec.out.max_exponent - 4
    return low, min(highest, MAX_EXPONENT if half else PRODUCT_REACH, of_result)


def shows_subnormals(spec: Spec) -> bool:
    """Return whether f32 sums of the products may be subnormal and D shows them."""
    f32 = FORMATS["f32"]
    reach = layout_of(spec).exponents()[0] < f32.min_exponent - f32.mantissa_bits
    return spec.a_exponent is None and reach and spec.out.name in ("f32", "bf16")


def _fractions(fmt: Format, significands: Ints) -> Ints:
    """Return the fraction bits of significands in eighths; zero for ANY_SIGNIFICAND or if the format lacks the bits."""
    shift, eighths = fmt.mantissa_bits - 3, significands - 8
    there = eighths << shift if shift >= 0 else np.where(eighths % (1 << -shift), 0, eighths >> -shift)
    return np.where(eighths < 0, 0, there)


def _low_bits(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> Bits:
    """Return random values for the bits of a word below its format, a share of them ties."""
    if not fmt.ignored_low_bits:
        return np.zeros(shape, fmt.dtype)
    tie = 1 << (fmt.ignored_low_bits - 1)
    return np.where(rng.random(shape) < TIES, tie, rng.integers(0, 2 * tie, shape)).astype(fmt.dtype)


def _encoded(fmt: Format, signs: Ints, exponents: Ints, fractions: Ints) -> Bits:
    """Return the patterns of these signs (0: zero), exponents and fractions. A subnormal keeps only its leading bit."""
    fractions = np.where(exponents >= fmt.min_exponent, fractions, 0)
    values = np.ldexp(1 + fractions * 2.0**-fmt.mantissa_bits, np.maximum(exponents, fmt.min_exponent - fmt.mantissa_bits))
    return fmt.patterns(signs * np.minimum(values, fmt.largest_value))


def whole_operands(spec: Spec, a: NDArray[np.float64] | Ints, b: NDArray[np.float64] | Ints) -> tuple[Bits, Bits]:
    """Return rows of A and B for whole numbers. A fixed A ignores `a`, and B compensates its factor."""
    return layout_of(spec).a(spec.a.patterns(a)), spec.b.patterns(b * 2.0 ** -(spec.a_exponent or 0))


def whole_zeros(spec: Spec) -> tuple[Ints, Ints]:
    return np.zeros((spec.m, spec.k), np.int64), np.zeros((spec.n, spec.k), np.int64)


def whole_product(subject: RecordedCallable, a: Ints, b: Ints) -> NDArray[np.float64]:
    """Probe a product of whole numbers and return D [M, N]."""
    return subject.spec.out.values(subject.product(*whole_operands(subject.spec, a, b), keep=False))
