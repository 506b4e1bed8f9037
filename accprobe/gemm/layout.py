"""Lay out queries in A and B: each takes a row and a column, or a column only if A is fixed. Encode their operands."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm import units
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import lowest
from accprobe.isa.formats import Bits, Format


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
        spec = self.spec
        return (1, 1) if spec.a.is_integer else (units.power(spec.a, 0), units.power(spec.b, 0))

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
        return sum(map(units.lowest, both)), sum(fmt.max_exponent for fmt in both)

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        """Return factors for products of these signs (0: zero), exponents and significands (in eighths, or ANY_SIGNIFICAND)."""
        return _both_factors(self.spec, signs, exponents, significands, rng)

    def power(self, exponent: int) -> tuple[int, int]:
        """Return the patterns of two powers of two whose product is 2^exponent."""
        of_a, of_b = units.factors(exponent, self.spec.a, self.spec.b)
        return units.power(self.spec.a, of_a), units.power(self.spec.b, of_b)


class OnlyB(Layout):
    """Layout of products with a fixed A: every row repeats the same queries, each column holds one."""

    def __init__(self, spec: Spec, a_exponent: int) -> None:
        super().__init__(spec)
        self._exponent = a_exponent
        self._pattern = spec.a.dtype.type(units.power(spec.a, a_exponent))

    def a(self, words: Bits) -> Bits:
        return np.full_like(words, self._pattern)

    def one(self) -> tuple[int, int]:
        return int(self._pattern), units.power(self.spec.b, -self._exponent)

    def distinct_rows(self, rows: Ints) -> Ints:
        return rows[:1]

    def independent_pairs(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        return np.resize(rows, len(columns)), columns

    def exponents(self) -> tuple[int, int]:
        b = self.spec.b
        return self._exponent + units.lowest(b), self._exponent + b.max_exponent

    def patterns(self, signs: Ints, exponents: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
        b = _factors_of_b(self.spec, signs, exponents, significands, rng)
        return np.where(signs != 0, self._pattern, 0).astype(self.spec.a.dtype), b

    def power(self, exponent: int) -> tuple[int, int]:
        return int(self._pattern), units.power(self.spec.b, exponent - self._exponent)


def layout_of(spec: Spec) -> Layout:
    return Layout(spec) if spec.a_exponent is None else OnlyB(spec, spec.a_exponent)


# Placeholder for a random significand of every free factor.
ANY_SIGNIFICAND = 0

# Share of the dot products X + y - X in which X has a subnormal factor.
SUBNORMAL = 0.1


def _both_factors(spec: Spec, signs: Ints, exponent: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Return A and B patterns with these products, or powers of two if the formats do not have them."""
    low_a, low_b = lowest(spec.a), lowest(spec.b)
    below = spec.a.min_exponent - rng.integers(1, spec.a.mantissa_bits + 1, (len(exponent), 1))
    smaller = (rng.random((len(exponent), 1)) < SUBNORMAL) & (significands[:, [0]] == 8) & (signs[:, [4]] == 0)
    lifted = np.where(smaller, below + np.minimum(exponent[:, [0]] - below, spec.b.max_exponent) - exponent[:, [0]], 0)
    exponent = np.maximum(exponent + lifted, low_a + low_b)
    of_b = np.clip(exponent // 2, low_b, spec.b.max_exponent)
    of_a = np.clip(exponent - of_b, low_a, spec.a.max_exponent)
    of_a = np.where(smaller & (np.arange(exponent.shape[1]) % (exponent.shape[1] - 1) == 0), below, of_a)
    of_b = np.clip(exponent - of_a, low_b, spec.b.max_exponent)
    fraction_a = rng.integers(0, 1 << spec.a.mantissa_bits, exponent.shape) >> 1
    fraction_b = rng.integers(0, 1 << spec.b.mantissa_bits, exponent.shape) >> 1
    any_one = significands == ANY_SIGNIFICAND
    a = _encoded(spec.a, of_a, np.where(any_one, fraction_a, _fractions(spec.a, significands)))
    half = 1 << max(spec.b.mantissa_bits - 1, 0)
    b = _encoded(spec.b, of_b, np.where(any_one, fraction_b, np.where(significands == 12, half, 0)))
    a, b = (np.where(any_one, x | _low_bits(fmt, x.shape, rng), x) for fmt, x in ((spec.a, a), (spec.b, b)))
    return _signed(spec.a, a, signs), _signed(spec.b, b, np.abs(signs))


def _factors_of_b(spec: Spec, signs: Ints, exponent: Ints, significands: Ints, rng: np.random.Generator) -> Bits:
    """Return B patterns for an A whose elements are all 2^a_exponent."""
    assert spec.a_exponent is not None
    of_b = np.clip(exponent - spec.a_exponent, lowest(spec.b), spec.b.max_exponent)
    words = rng.integers(0, 1 << spec.b.mantissa_bits, exponent.shape)
    b = _encoded(spec.b, of_b, np.where(significands == ANY_SIGNIFICAND, words, _fractions(spec.b, significands)))
    return _signed(spec.b, b, signs)


def _signed(fmt: Format, magnitudes: Ints, signs: Ints) -> Bits:
    """Return patterns with these signs, zero for sign 0. The sign bit of f64 needs an unsigned word."""
    words = magnitudes.astype(fmt.dtype)
    return np.where(signs < 0, words | fmt.dtype.type(fmt.sign_bit), np.where(signs > 0, words, fmt.dtype.type(0)))


def _fractions(fmt: Format, significands: Ints) -> Ints:
    """Return the fraction bits of significands in eighths; zero for ANY_SIGNIFICAND or if the format lacks the bits."""
    shift, eighths = fmt.mantissa_bits - 3, significands - 8
    there = eighths << shift if shift >= 0 else np.where(eighths % (1 << -shift), 0, eighths >> -shift)
    return np.where(eighths < 0, 0, there)


def _low_bits(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> Ints:
    """Return random values for the bits of a word below its format."""
    return rng.integers(0, 1 << fmt.ignored_low_bits, shape) if fmt.ignored_low_bits else np.zeros(shape, np.int64)


def _encoded(fmt: Format, exponent: Ints, fraction: Ints) -> Ints:
    """Return the patterns of these exponents and fractions. A subnormal keeps only its leading bit."""
    normal = ((exponent + fmt.bias) << fmt.mantissa_bits) | fraction
    last = fmt.min_exponent - fmt.mantissa_bits
    subnormal = np.int64(1) << np.maximum(exponent - last, 0)
    largest = fmt.largest >> fmt.ignored_low_bits
    return np.where(exponent >= fmt.min_exponent, np.minimum(normal, largest), subnormal) << fmt.ignored_low_bits


WholeNumbers = NDArray[np.float64]


def shift_of(spec: Spec) -> int:
    """Return the exponent of the B element that represents 1."""
    return -(spec.a_exponent or 0)


def patterns(fmt: Format, numbers: WholeNumbers | Ints, shift: int = 0) -> Bits:
    whole = numbers.astype(np.int64)
    least, values = int(whole.min()), range(int(whole.min()), int(whole.max()) + 1)
    words = [v % (1 << fmt.bits) if fmt.is_integer else fmt.encode(v < 0, abs(v), shift) if v else 0 for v in values]
    return np.array(words, fmt.dtype)[whole - least]


def numbers_of(out: Format, d: Bits) -> WholeNumbers:
    """Return the numeric values of patterns."""
    return np.asarray(out.integers(d) if out.is_integer else out.values(d), np.float64)


def zeros(spec: Spec) -> tuple[Ints, Ints]:
    """Return zero A [M, K] and B [N, K]."""
    return np.zeros((spec.m, spec.k), np.int64), np.zeros((spec.n, spec.k), np.int64)


def result(subject: RecordedCallable, a: Ints, b: Ints) -> WholeNumbers:
    """Probe a product of whole numbers: D [M, N]. A fixed A ignores `a`."""
    spec = subject.spec
    words = layout_of(spec).a(patterns(spec.a, a)), patterns(spec.b, b, shift_of(spec))
    return numbers_of(spec.out, subject.product(*words, keep=False))
