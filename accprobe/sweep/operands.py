"""Operands of a sweep: standard-normal ones, as published; ones made so that every partial sum needs all bits of f32; and
integers whose exact sums lie around both ends of 32 bits.

A partial sum of a block of integers cannot overflow: 131,072 products of -128 · -128 are 2^31, and the largest block-K is far
from that. So the sums go on from block to block, once in the matrix unit's own accumulator, once in the register of each thread
to which an ordinary addition adds the blocks' sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import rounded_words
from accprobe.isa.formats import Bits, Format
from accprobe.report.sweeps import OperandSet, Overflow, OverflowRule
from accprobe.sweep.configurations import Dtype

FLOAT_SETS: tuple[OperandSet, ...] = ("normal", "full-width")
INTEGER_SETS: tuple[OperandSet, ...] = ("uniform",)
SETS: tuple[OperandSet, ...] = (*FLOAT_SETS, *INTEGER_SETS)


class Operands(NamedTuple):
    """Bit patterns: a [M, K], b [N, K]; the product is a · bᵀ."""

    a: Bits
    b: Bits


def sets(dtype: Dtype) -> tuple[OperandSet, ...]:
    """The operand sets of a type."""
    return INTEGER_SETS if dtype.is_integer else FLOAT_SETS


def draw_matrices(kind: OperandSet, dtype: Dtype, m: int, n: int, k: int, block_k: int, seed: int) -> Operands:
    """Operands of one kind; rows do not depend on how many there are. Only full-width ones depend on block_k."""
    rng_a, rng_b, rng_shared = (np.random.default_rng([seed, i]) for i in range(3))
    fmt = dtype.format
    if kind == "uniform":
        return Operands(*(rng.integers(0, 256, (rows, k), np.uint8) for rng, rows in ((rng_a, m), (rng_b, n))))
    if kind == "normal":
        return Operands(*(_patterns(fmt, rng.standard_normal((r, k), np.float32)) for rng, r in ((rng_a, m), (rng_b, n))))
    return _full_width(fmt, m, n, k, block_k, rng_a, rng_b, rng_shared)


def _patterns(fmt: Format, values: NDArray[np.float32]) -> Bits:
    """To the nearest value of the format."""
    assert fmt.ml_dtype is not None
    return rounded_words(fmt, values.astype(fmt.ml_dtype).view(fmt.dtype), "RNE")


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
    """Sums that are 24 bits wide: 1.5 · 2^23 units, one unit, and random even numbers of units below 2^22 together.

    Every product, and every partial sum of them in any order, is a whole number of units below 2^24: exact in f32, so that
    only a unit that keeps fewer bits loses any. Row i has its products in block i modulo the number of blocks, so that each
    element has one partial sum that is not zero, and adding it to the accumulator is exact too.
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
    """Random integers of exactly that many bits, of both signs."""
    drawn = rng.integers(0, 1 << width, shape, np.int8)
    top = 1 << (width - 1)
    return np.where(drawn & top, -1, 1).astype(np.float32) * (drawn & (top - 1) | top)


OVERFLOW_K = 135_168
"""Products of a sum that overflows: 132 · 1024, enough for 2^31 with products of 127 · -128 too."""

_END = 1 << 31
_LOW, _HIGH = np.int8(-128), np.int8(127)


def wanted_sums(m: int) -> NDArray[np.int64]:
    """The exact sum of each of m rows: half of them around 2^31, half around -2^31, in steps of one."""
    near = np.arange(m // 2) - m // 4
    return np.concatenate([_END + near, -_END - near])


def overflowing_matrices(m: int, n: int) -> Operands:
    """Return A and B with those sums, the same in every column; products of a row have one sign, the smallest come last."""
    sums = wanted_sums(m)
    a = np.zeros((m, OVERFLOW_K), np.int8)
    b = np.full((n, OVERFLOW_K), _LOW)
    b[:, -1] = 1
    for row, total in zip(a, sums, strict=True):
        sign, factor = (-1, _LOW) if total > 0 else (1, _HIGH)
        count, rest = divmod(abs(int(total)), abs(int(factor)) * 128)
        row[:count] = factor
        row[-2] = sign * (rest // 128)
        row[-1] = -sign * (rest % 128)
    return Operands(a.view(np.uint8), b.view(np.uint8))


def overflow_of(result: NDArray[np.int32]) -> Overflow:
    """Return where the sums of `overflowing_matrices` end: [M, N] as the device has them."""
    sums = np.broadcast_to(wanted_sums(len(result))[:, None], result.shape)
    right = sums[result == sums]
    return Overflow(largest=int(right.max(initial=0)), smallest=int(right.min(initial=0)), rule=_rule(result, sums))


def _rule(result: NDArray[np.int32], sums: NDArray[np.int64]) -> OverflowRule:
    if (result == ((sums + _END) % (2 * _END) - _END)).all():
        return "wrap"
    return "saturate" if (result == np.clip(sums, -_END, _END - 1)).all() else "neither"
