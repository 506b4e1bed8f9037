"""Recognise operands that a callable quantises by a scale, and f32 operands that it rounds or multiplies in parts.

Sparse random operands are rounded in each way. One is recognised if its exact product is within the rounding of D, which the
others miss by far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.error_free import Floats
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Ints, numbers_of
from accprobe.gemm.spec import BLOCK
from accprobe.isa.formats import FORMATS, Format
from accprobe.operands.distributions import random_lines, times_power

# Number of nonzero k, so that the error of quantisation is large beside that of the sums.
NONZERO = 32
# Tolerance of sums, relative to the sum of absolute products: fp8 units keep 13 fraction bits.
OF_SUMS = 2.0**-11
# Exponents of lines, and of blocks of k in turn, on both sides of 0: numbers far below the largest lose bits.
OF_LINES, OF_BLOCKS = 5, 8
# Rows and columns of D that are compared.
COMPARED = 128
# Share of the results that must lie within the tolerance: a number may be rounded either way if its scale is.
ENOUGH = 0.99
FORMATS_TRIED = ("e4m3", "e5m2", "s8")
# Scales of a largest number and the format's largest: in f32, or the power of two from which on nothing overflows, or below it.
SCALES = {
    "amax/{}": lambda amax, most: amax / np.float32(most),
    "2^ceil(log2(amax/{}))": lambda amax, most: np.exp2(np.ceil(np.log2(amax / most))),
    "2^floor(log2(amax/{}))": lambda amax, most: np.exp2(np.floor(np.log2(amax / most))),
}
# What shares a scale; "": the operand is not quantised. A line is a row of A or a column of B.
PARTS = ("", "line", "tensor", f"{BLOCK} k")


class Quantisation(NamedTuple):
    """fmt, scale: of the quantised operands. of_a, of_b: what shares a scale, "" if the operand is not quantised."""

    fmt: Format
    scale: str
    of_a: str
    of_b: str

    def __str__(self) -> str:
        of_a, of_b = self.of_a.replace("line", "row"), self.of_b.replace("line", "column")
        scale = self.scale.format(_largest(self.fmt))
        if of_a and of_b:
            return f"A per {of_a} and B per {of_b} are quantised to {self.fmt}, scale {scale}"
        return f"{'A' if of_a else 'B'} is quantised to {self.fmt} per {of_a or of_b}, scale {scale}"

    def applied(self, values: Floats, of: str, blocks: Ints) -> Floats:
        """Return quantised lines [lines, k], multiplied by their scales again. blocks: where a block of k starts."""
        if not of:
            return values
        starts = blocks if of == PARTS[-1] else blocks[:1]
        amax = np.maximum.reduceat(np.abs(values).astype(np.float32), starts, axis=1)
        amax = np.full_like(amax, amax.max()) if of == "tensor" else amax
        amax = np.where(amax > 0, amax, np.float32(1)).repeat(np.diff(starts, append=values.shape[1]), axis=1)
        most = _largest(self.fmt)
        scale = SCALES[self.scale](amax, most)
        scaled = np.clip(values.astype(np.float32) / scale, -most, most)
        return np.asarray((np.rint(scaled) if self.fmt.is_integer else scaled.astype(self.fmt.ml_dtype)) * scale, np.float64)


def find_quantisation(subject: RecordedCallable, seed: int) -> str:
    """Return how A and B are quantised, "" if no way explains the results or none is needed."""
    spec, rng = subject.spec, np.random.default_rng((seed, 0x9A))
    if spec.a.is_integer or spec.scale is not None or spec.a_exponent is not None:
        return ""
    ks = np.sort(rng.permutation(spec.k)[:NONZERO])
    of_block = OF_BLOCKS * (1 - 2 * (ks // BLOCK % 2))
    words, values = [], []
    for fmt, lines, sign in ((spec.a, spec.m, 1), (spec.b, spec.n, -1)):
        exponents = rng.integers(-OF_LINES, OF_LINES + 1, (lines, 1)) + sign * of_block
        numbers = times_power(fmt, random_lines(fmt, (lines, len(ks)), "normal", rng), exponents)
        words.append(np.zeros((lines, spec.k), fmt.dtype))
        words[-1][:, ks] = numbers
        values.append(numbers_of(fmt, numbers))
    d = numbers_of(spec.out, subject.product(words[0], words[1], keep=False)[:COMPARED, :COMPARED])
    blocks = np.flatnonzero(np.diff(ks // BLOCK, prepend=-1))

    def explains(way: Quantisation) -> bool:
        a, b = (way.applied(x, of, blocks)[:COMPARED] for x, of in zip(values, (way.of_a, way.of_b), strict=True))
        exact = a @ b.T
        tolerance = OF_SUMS * (np.abs(a) @ np.abs(b).T) + np.abs(exact) * 2.0**-spec.out.mantissa_bits
        return bool((np.abs(d - exact) <= tolerance).mean() >= ENOUGH)

    ways = (Quantisation(FORMATS[name], *way) for name, *way in product(FORMATS_TRIED, SCALES, PARTS, PARTS))
    with np.errstate(all="ignore"):
        found = next(filter(explains, ways), None)
    return str(found) if found is not None and (found.of_a or found.of_b) else ""


def _largest(fmt: Format) -> int:
    return int(numbers_of(fmt, np.array([fmt.largest], fmt.dtype))[0])


# Fraction bits of parts of f32 numbers, and the pairs of parts that are multiplied, by their number.
PART_BITS = {"tf32": 10, "bf16": 7}
MULTIPLIED = {1: ((0, 0),), 3: ((0, 0), (0, 1), (1, 0)), 4: ((0, 0), (0, 1), (1, 0), (1, 1))}
# How a part is rounded to whole numbers of its last place.
ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "RZ": np.trunc,
    "RNE": np.rint,
    "RNA": lambda x: np.trunc(x + np.copysign(0.5, x)),
}
# Tolerance of single products in f32, rounded several times.
OF_PRODUCTS = 2.0**-21


def find_parts(subject: RecordedCallable, seed: int) -> str:
    """Return how f32 operands are rounded before they are multiplied, or split into two parts; "" if neither explains it."""
    spec, rng = subject.spec, np.random.default_rng((seed, 0x9B))
    if any(fmt.name != "f32" for fmt in (spec.a, spec.b, spec.out)) or spec.scale is not None or spec.a_exponent is not None:
        return ""
    a, b = (np.zeros((lines, spec.k), np.float32) for lines in (spec.m, spec.n))
    a[:, 0], b[:, 0] = (rng.standard_normal(lines, np.float32) for lines in (spec.m, spec.n))
    d = numbers_of(spec.out, subject.product(a.view(np.uint32), b.view(np.uint32), keep=False))

    def explains(parts: Sequence[tuple[Floats, Floats]]) -> bool:
        products = sum(np.outer(x, y) for x, y in parts)
        return bool((np.abs(d - products) <= OF_PRODUCTS * np.abs(d)).mean() >= ENOUGH)

    x, y = (lines[:, 0].astype(np.float64) for lines in (a, b))
    if explains([(x, y)]):
        return ""
    for (name, bits), (how, rounding), (count, pairs) in product(PART_BITS.items(), ROUNDINGS.items(), MULTIPLIED.items()):
        highs = [_rounded(each, bits, rounding) for each in (x, y)]
        of_x, of_y = ((high, _rounded(each - high, bits, rounding)) for each, high in zip((x, y), highs, strict=True))
        if explains([(of_x[i], of_y[j]) for i, j in pairs]):
            rounded = f"f32 operands are rounded to {name}, {how}{': give --dtype tf32' if name == 'tf32' else ''}"
            return rounded if count == 1 else f"each product of f32 operands is the sum of {count} products of {name} parts"
    return ""


def _rounded(x: Floats, bits: int, rounding: Callable[[Floats], Floats]) -> Floats:
    significand, exponent = np.frexp(x)
    return np.asarray(np.ldexp(rounding(significand * 2.0 ** (bits + 1)), exponent - bits - 1))
