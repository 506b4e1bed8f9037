"""Bit patterns of two factors whose products have wanted signs, exponents and significands."""

from __future__ import annotations

import numpy as np

from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import lowest
from accprobe.isa.formats import Bits, Format

DRAWN = 0
"""In the place of a significand: one drawn at random, of both factors where both are free."""

SUBNORMAL = 0.1
"""Share of the dot products X + y - X of which X is a product of a subnormal."""


def of_both(spec: Spec, signs: Ints, exponent: Ints, significands: Ints, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Patterns of A and B whose products these are, or where the formats have none, powers of two."""
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
    any_one = significands == DRAWN
    a = _encoded(spec.a, of_a, np.where(any_one, fraction_a, _fractions(spec.a, significands)))
    half = 1 << max(spec.b.mantissa_bits - 1, 0)
    b = _encoded(spec.b, of_b, np.where(any_one, fraction_b, np.where(significands == 12, half, 0)))
    a, b = (np.where(any_one, x | _low_bits(fmt, x.shape, rng), x) for fmt, x in ((spec.a, a), (spec.b, b)))
    return _signed(spec.a, a, signs), _signed(spec.b, b, np.abs(signs))


def of_b(spec: Spec, signs: Ints, exponent: Ints, significands: Ints, rng: np.random.Generator) -> Bits:
    """Patterns of B, where all of A is 2^a_exponent."""
    assert spec.a_exponent is not None
    of_b = np.clip(exponent - spec.a_exponent, lowest(spec.b), spec.b.max_exponent)
    drawn = rng.integers(0, 1 << spec.b.mantissa_bits, exponent.shape)
    b = _encoded(spec.b, of_b, np.where(significands == DRAWN, drawn, _fractions(spec.b, significands)))
    return _signed(spec.b, b, signs)


def _signed(fmt: Format, magnitudes: Ints, signs: Ints) -> Bits:
    """Patterns with these signs, zero where a sign is 0. The sign bit of f64 needs an unsigned word."""
    words = magnitudes.astype(fmt.dtype)
    return np.where(signs < 0, words | fmt.dtype.type(fmt.sign_bit), np.where(signs > 0, words, fmt.dtype.type(0)))


def _fractions(fmt: Format, significands: Ints) -> Ints:
    """Fraction bits of significands in eighths; of what the format has not, and of DRAWN, none."""
    shift, eighths = fmt.mantissa_bits - 3, significands - 8
    there = eighths << shift if shift >= 0 else np.where(eighths % (1 << -shift), 0, eighths >> -shift)
    return np.where(eighths < 0, 0, there)


def _low_bits(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> Ints:
    """Of words that are wider than their format."""
    return rng.integers(0, 1 << fmt.ignored_low_bits, shape) if fmt.ignored_low_bits else np.zeros(shape, np.int64)


def _encoded(fmt: Format, exponent: Ints, fraction: Ints) -> Ints:
    """Patterns of numbers of those exponents and fraction bits; of a subnormal the leading bit alone."""
    normal = ((exponent + fmt.bias) << fmt.mantissa_bits) | fraction
    last = fmt.min_exponent - fmt.mantissa_bits
    subnormal = np.int64(1) << np.maximum(exponent - last, 0)
    largest = fmt.largest >> fmt.ignored_low_bits
    return np.where(exponent >= fmt.min_exponent, np.minimum(normal, largest), subnormal) << fmt.ignored_low_bits
