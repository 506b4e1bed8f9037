"""Choose, encode and lay out the operands of A and B: probes at chosen k, and random operands of whole products.

A probed dot product has its operands in one row of A and one column of B, or, if A is fixed, in a column of B. Its result
is the element of D where they cross. Probes of the summation tree contain M, -M and units: a unit added to M is lost
(FPRev, Xie et al., ATC'25).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.spec import BLOCK, Spec
from accprobe.evaluate.product import ScaleWords, Singles
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.operands.distributions import DISTRIBUTIONS, LARGE, random_lines, times_power

Ints = NDArray[np.int64]

# A placeholder for a random significand of every free factor.
ANY_SIGNIFICAND = 0
# Share of the dot products in which X has a subnormal factor, of those with a power of two as X that may cancel.
SUBNORMAL = 0.1
# Share of ties among words that are wider than their format.
TIES = 0.25
# Limit of the exponents of products on both sides of 0, beside the limits of the formats.
PRODUCT_REACH = 60
# Largest exponent of a product with partial sums that fit f16.
MAX_EXPONENT = 14
# Smallest exponent of a unit that f16 partial sums and results hold with a few bits to spare.
MIN_EXPONENT = -22


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


class Layout:
    """Layout of products with both A and B as operands."""

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
        """Return factors for products of these signs (0: zero) and exponents, as far as the formats have these exponents.

        signs, exponents, significands: [n, TERMS] of `accprobe.gemm.dots`, with X as first term and -X, if any, as last.
        significands: of the factor of A in eighths, or ANY_SIGNIFICAND; with 12, the factor of B has 1.5 too. A significand for
        which the format lacks bits becomes 1.
        """
        spec = self.spec
        low_a, low_b = lowest(spec.a), lowest(spec.b)
        below = spec.a.min_exponent - rng.integers(1, spec.a.mantissa_bits + 1, (len(exponents), 1))
        # A subnormal factor needs an X that is a power of two. Term 4 is present only in dot products without -X.
        subnormal = (rng.random((len(exponents), 1)) < SUBNORMAL) & (significands[:, [0]] == 8) & (signs[:, [4]] == 0)
        # All exponents move by the same number, so that B can hold the other factor of X.
        shift = np.where(subnormal, below + np.minimum(exponents[:, [0]] - below, spec.b.max_exponent) - exponents[:, [0]], 0)
        exponents = np.maximum(exponents + shift, low_a + low_b)
        of_b = np.clip(exponents // 2, low_b, spec.b.max_exponent)
        of_a = np.clip(exponents - of_b, low_a, spec.a.max_exponent)
        is_end = np.isin(np.arange(exponents.shape[1]), (0, exponents.shape[1] - 1))  # X and -X
        of_a = np.where(subnormal & is_end, below, of_a)
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
        """Return the patterns of two powers of two with the product 2^exponent."""
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
    return low, min(highest, MAX_EXPONENT if half else PRODUCT_REACH, spec.out.max_exponent - 4)


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


# Distributions of rows of x: with a fixed A, the large ones are alike.
ROW_DISTRIBUTIONS = tuple(kind for kind in DISTRIBUTIONS if kind not in LARGE[1:])
# The distribution of operands that the user gives, and the function that draws A [M, K] and B [N, K] from them.
OWN = "own data"
DrawOwn = Callable[[np.random.Generator], tuple[Bits, Bits]]

# Fewest words of `random_windows`, unless the rows have fewer than a quarter of them.
_WINDOWS = 1 << 20
# Number of 256 pairs of cancelling products that cancel completely.
_CANCELLED = 230


def random_windows(spec: Spec, kind: str, rows: int, rng: np.random.Generator) -> tuple[Bits, NDArray[np.int64]]:
    """Return random words and distinct starts [rows]: each row of x is the K words from a start.

    Rows overlap, because drawing each element of a million rows takes minutes. A "cancelling" row repeats K / 2 words or
    fewer, with alternating signs.
    """
    n = max(min(_WINDOWS, 4 * rows * spec.k), spec.k + rows)
    words = random_lines(spec.b, (n,), kind, rng, _large_exponents(spec, kind)[1] if kind in LARGE else 0)
    if kind == "cancelling" and spec.k > 1:
        for number, start in enumerate(range(0, n, 2 * spec.k)):
            half = spec.k // 2 if number % 2 else int(rng.integers(-(-spec.k // 8), spec.k // 2 + 1))
            part = words[start : start + 2 * spec.k]
            place, turn = np.arange(len(part)) % half, np.arange(len(part)) // half % 2
            near = (rng.integers(0, 256, len(part)) < _CANCELLED) & (place < len(part))
            opposite = np.where(turn, part[place] ^ spec.b.dtype.type(spec.b.sign_bit), part[place])
            words[start : start + 2 * spec.k] = np.where(near, opposite, part)
    return words, rng.choice(n - spec.k + 1, rows, replace=False)


def draw_operands(
    spec: Spec, kind: str, rng: np.random.Generator, own: DrawOwn | None = None
) -> tuple[Bits, Bits, ScaleWords | None]:
    """Return A [M, K], B [N, K] and scales."""
    if kind == OWN and own is not None:
        a, b = own(rng)
        return layout_of(spec).a(a), b, random_scales(spec, rng)
    of_a, of_b = _large_exponents(spec, kind) if kind in LARGE else (0, 0)
    a = random_lines(spec.a, (spec.m, spec.k), kind, rng, of_a)
    b = random_lines(spec.b, (spec.n, spec.k), kind, rng, of_b)
    if kind == "cancelling" and spec.a.is_float:
        a, b = _cancelling(spec, a, b, rng)
    return layout_of(spec).a(a), b, random_scales(spec, rng)


def _large_exponents(spec: Spec, kind: str) -> tuple[int, int]:
    """Return exponents for A and B with which sums of K products stay in the range of D, and of f32 unless D is f64."""
    if spec.a.is_integer:
        return 0, 0
    sums = spec.out if spec.out.name == "f64" else min(spec.out, FORMATS["f32"], key=lambda fmt: fmt.max_exponent)
    most = sums.max_exponent - spec.k.bit_length() - (2 if spec.scale is None else 4)  # significands and scales are below 2
    if spec.a_exponent is not None:  # A may be 1 / K, but attention kernels divide sums of B by K only at the end
        return 0, min(most, spec.b.max_exponent)
    first = {"large": most // 2, "large A": spec.a.max_exponent, "large B": most - spec.b.max_exponent}[kind]
    of_a = min(max(first, spec.a.min_exponent), spec.a.max_exponent)
    of_b = min(max(most - of_a, spec.b.min_exponent), spec.b.max_exponent)
    return min(of_a, max(most - of_b, spec.a.min_exponent)), of_b


def _cancelling(spec: Spec, a: Bits, b: Bits, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Pair the products of the two halves of K, make _CANCELLED of 256 pairs cancel, and shuffle k."""
    half = spec.k // 2
    a[:, half : 2 * half] = a[:, :half]
    near = rng.integers(0, 256, (len(b), half), np.uint8) < _CANCELLED
    b[:, half : 2 * half] = np.where(near, b[:, :half] ^ spec.b.dtype.type(spec.b.sign_bit), b[:, half : 2 * half])
    places = rng.permutation(spec.k)
    return a.take(places, axis=1), b.take(places, axis=1)


def first_operands(spec: Spec) -> tuple[Bits, Bits]:
    """Return A [M, K] and B [N, K] of the first calls, the same in every run.

    Every other line of floats has a wider range than a normal distribution, because sums of normally distributed 8-bit numbers
    are exact in any order. Sums in f16 and narrower formats do not overflow.
    """
    rng = np.random.default_rng(0xF1257)
    found = []
    for fmt, lines in ((spec.a, spec.m), (spec.b, spec.n)):
        words = random_lines(fmt, (lines, spec.k), "normal", rng)
        if fmt.is_float:
            wide = random_lines(fmt, words[::2].shape, "wide", rng)
            words[::2] = times_power(fmt, wide, -4) if spec.out.exponent_bits <= 5 else wide
        found.append(words)
    return layout_of(spec).a(found[0]), found[1]


def ones(spec: Spec) -> tuple[Bits, Bits]:
    """Return A [M, K] and B [N, K] of ones, or the fixed A."""
    a, b = (1 if fmt.is_integer else fmt.encode(False, 1, 0) for fmt in (spec.a, spec.b))
    return layout_of(spec).a(np.full((spec.m, spec.k), a, spec.a.dtype)), np.full((spec.n, spec.k), b, spec.b.dtype)


def make_scales(spec: Spec, draw: Callable[[tuple[int, int]], Singles]) -> ScaleWords:
    return scale_words(spec, *map(draw, spec.scale_shapes))


def scale_words(spec: Spec, a: Singles, b: Singles) -> ScaleWords:
    """Return scales given in the shapes of `Spec.scale_shapes`; those of B, if "128x128", are repeated to [blocks, N]."""
    return ScaleWords(a, np.repeat(b, BLOCK, axis=1)[:, : spec.n] if spec.scale == "128x128" else b)


def unit_scales(spec: Spec) -> ScaleWords:
    return make_scales(spec, lambda shape: np.ones(shape, np.float32))


def random_scales(spec: Spec, rng: np.random.Generator) -> ScaleWords | None:
    """Return scales that are not powers of two; None if the product has none."""
    return None if spec.scale is None else make_scales(spec, lambda shape: rng.uniform(0.5, 2.0, shape).astype(np.float32))
