"""Operands of a sweep: standard-normal ones, as in the publication, and full-width ones, whose partial sums need all bits of
f32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import rounded_words
from accprobe.isa.formats import Bits, Format
from accprobe.report.sweeps import OperandSet
from accprobe.sweep.configurations import Dtype

SETS: tuple[OperandSet, ...] = ("normal", "full-width")


class Operands(NamedTuple):
    """Bit patterns: a [M, K], b [N, K]; the product is a · bᵀ."""

    a: Bits
    b: Bits


def draw_matrices(kind: OperandSet, dtype: Dtype, m: int, n: int, k: int, block_k: int, seed: int) -> Operands:
    """Draw operands of one kind; a row does not depend on the number of rows. Only full-width operands depend on block_k."""
    rng_a, rng_b, rng_shared = (np.random.default_rng([seed, i]) for i in range(3))
    fmt = dtype.format
    if kind == "normal":
        return Operands(*(_patterns(fmt, rng.standard_normal((r, k), np.float32)) for rng, r in ((rng_a, m), (rng_b, n))))
    return _full_width(fmt, m, n, k, block_k, rng_a, rng_b, rng_shared)


def _patterns(fmt: Format, values: NDArray[np.float32]) -> Bits:
    """Round the values to the nearest of the format."""
    return rounded_words(fmt, fmt.patterns(values), "RNE")


TOP = 23
"""Fraction bits of f32: a full-width sum is an odd number of units between 2^TOP and 2^(TOP + 1)."""

UNIT = -12
"""Exponent of the unit, so that every operand below is a normal number of every type."""


def _full_width(
    fmt: Format,
    m: int,
    n: int,
    k: int,
    block_k: int,
    rng_a: np.random.Generator,
    rng_b: np.random.Generator,
    rng_shared: np.random.Generator,
) -> Operands:
    """Draw operands whose sums are 24 bits wide: 1.5 · 2^23 units, one unit, and random even numbers of units below 2^22.

    Every product and partial sum, in any order, is a whole number of units below 2^24, so it is exact in f32. Only a unit that
    keeps fewer bits loses some. Row i has its products in block i modulo the number of blocks. So each element has one nonzero
    partial sum, which is added to the accumulator exactly.
    """
    width = min(fmt.mantissa_bits + 1, 4)
    blocks = k // block_k
    places = rng_shared.permutation(block_k)
    sizes = np.full(block_k, 2 * width + 1)
    falling = np.arange(TOP - 3, 2 * width, -1)[: block_k - 2]
    sizes[2 : 2 + len(falling)] = falling
    exponents = np.empty(block_k, np.int64)
    exponents[places] = sizes - 2 * width + UNIT
    a = _digits(rng_a, width, (m, block_k)) * 2.0 ** (exponents // 2)
    b = np.abs(_digits(rng_b, width, (n, blocks, block_k))) * 2.0 ** (exponents - exponents // 2)
    for place, significand, exponent in ((places[0], 1.5, TOP + UNIT), (places[1], 1.0, UNIT)):
        a[:, place] = significand * 2.0 ** (exponent // 2)
        b[:, :, place] = 2.0 ** (exponent - exponent // 2)
    spread = np.zeros((m, blocks, block_k), np.float32)
    spread[np.arange(m), np.arange(m) % blocks] = a
    return Operands(_patterns(fmt, spread.reshape(m, k)), _patterns(fmt, b.astype(np.float32).reshape(n, k)))


def _digits(rng: np.random.Generator, width: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw random integers of exactly that many bits, of both signs."""
    drawn = rng.integers(0, 1 << width, shape, np.int8)
    top = 1 << (width - 1)
    return np.where(drawn & top, -1, 1).astype(np.float32) * (drawn & (top - 1) | top)
