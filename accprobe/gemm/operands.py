"""Random operands of whole products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import ScaleWords, Singles
from accprobe.gemm.layout import layout_of
from accprobe.gemm.spec import BLOCK, Spec
from accprobe.isa.formats import FORMATS, Bits
from accprobe.operands.distributions import DISTRIBUTIONS, LARGE, random_lines, times_power

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
    if spec.a_exponent is not None:  # attention kernels divide by K only at the end
        return 0, min(most, spec.b.max_exponent)
    first = {"large": most // 2, "large A": spec.a.max_exponent, "large B": most - spec.b.max_exponent}[kind]
    of_a = min(max(first, spec.a.min_exponent), spec.a.max_exponent)
    of_b = min(max(most - of_a, spec.b.min_exponent), spec.b.max_exponent)
    return min(of_a, max(most - of_b, spec.a.min_exponent)), of_b


def _cancelling(spec: Spec, a: Bits, b: Bits, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Make half of the products the negatives of the other half in most elements, at random k."""
    half = spec.k // 2
    a[:, half : 2 * half] = a[:, :half]
    near = rng.integers(0, 256, (len(b), half), np.uint8) < _CANCELLED
    b[:, half : 2 * half] = np.where(near, b[:, :half] ^ spec.b.dtype.type(spec.b.sign_bit), b[:, half : 2 * half])
    places = rng.permutation(spec.k)
    return a.take(places, axis=1), b.take(places, axis=1)


def first_operands(spec: Spec) -> tuple[Bits, Bits]:
    """Return A [M, K] and B [N, K] of the first calls, the same in every run.

    Every other line has a wider range than normal numbers, as 8-bit sums of normal numbers are exact in any order. Sums in f16
    and narrower formats do not overflow.
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
    """Return A [M, K] and B [N, K] whose elements are all 1, or the fixed A."""
    a, b = (1 if fmt.is_integer else fmt.encode(False, 1, 0) for fmt in (spec.a, spec.b))
    return layout_of(spec).a(np.full((spec.m, spec.k), a, spec.a.dtype)), np.full((spec.n, spec.k), b, spec.b.dtype)


def make_scales(spec: Spec, draw: Callable[[tuple[int, int]], Singles]) -> ScaleWords:
    return scale_words(spec, *map(draw, spec.scale_shapes))


def scale_words(spec: Spec, a: Singles, b: Singles) -> ScaleWords:
    """Return the scales of A and of B, [blocks, N], given in the shapes of `Spec.scale_shapes`."""
    return ScaleWords(a, np.repeat(b, BLOCK, axis=1)[:, : spec.n] if spec.scale == "128x128" else b)


def unit_scales(spec: Spec) -> ScaleWords:
    return make_scales(spec, lambda shape: np.ones(shape, np.float32))


def random_scales(spec: Spec, rng: np.random.Generator) -> ScaleWords | None:
    """Return scales that are not powers of two; None if the product has none."""
    return None if spec.scale is None else make_scales(spec, lambda shape: rng.uniform(0.5, 2.0, shape).astype(np.float32))
