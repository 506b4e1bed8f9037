"""Masks of low bits, the number of elements that they change, and the effective bits that follow.

The operands of a sweep are standard-normal, as in the publication ("Some Matrix Multiplication Engines Are Not As Accurate As
We Thought", PyTorch blog), or full-width: their partial sums need all bits of f32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.quantised import nearest_patterns
from accprobe.isa.formats import Bits, Format
from accprobe.records.sweeps import EffectiveBits, OperandSet
from accprobe.sweep.configurations import Dtype

Totals = NDArray[Any]
"""An array of f32: sums of partial sums."""

FRACTION_BITS = 23
"""Fraction bits of f32, the format of partial sums."""

CUTS = tuple(range(FRACTION_BITS + 1))
"""The numbers of masked low bits."""


Sample = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns of the elements to keep bits of."""


class Measured(NamedTuple):
    """The results of a run. By mask: the number of elements that it changes, |C - exact| / |exact|, and the bits of the sampled
    elements, [masks, rows, columns]. On a GPU also: TFLOP/s without a mask, registers and spills per thread.
    """

    changed: list[int]
    errors: list[float]
    sampled: NDArray[np.uint32]
    tflops: float | None = None
    registers: int | None = None
    spills: int | None = None


def mask(cut: int) -> int:
    """Return the mask that clears low bits of a partial sum, as a signed 32-bit integer."""
    return -(1 << cut)


def totals(partials: Iterable[Totals]) -> list[Totals]:
    """Return the sum of the blocks as the kernel computes it, with each mask."""
    found: list[Totals] = []
    for partial in partials:
        found = found or [np.zeros_like(partial) for _ in CUTS]
        for total, cut in zip(found, CUTS, strict=True):
            total += (partial.view(np.int32) & np.int32(mask(cut))).view(partial.dtype)
    return found


def changed(of_cuts: Sequence[Totals]) -> list[int]:
    """Return by mask the number of elements that differ from the result without a mask."""
    whole = of_cuts[0].view(np.uint32)
    return [int((each.view(np.uint32) != whole).sum()) for each in of_cuts]


def fraction_bits(run: Measured, control: Sequence[int]) -> EffectiveBits:
    """Return the fraction bits of the partial sums; a lower bound if the operands cannot show more.

    control: by mask, the changed elements of the exact sums of the operands, of those that the run samples. The value is
    exact if the largest mask that changes no result changes the control. If every mask changes the results, it is exact if the
    mask of one bit changes at least half of the elements of the control. If sums need more bits than f32 has, half of them
    end in a 1.
    """
    cut = max(cut for cut in CUTS if not any(run.changed[: cut + 1]))  # the most low bits that can be masked without any change
    seen = control[cut] > 0 if cut else 2 * control[1] >= run.sampled[0].size
    return EffectiveBits(value=FRACTION_BITS - cut, bound="exact" if seen else "at_least")


SETS: tuple[OperandSet, ...] = ("normal", "full-width")


class Operands(NamedTuple):
    """Bit patterns: a [M, K], b [N, K]; the product is a · bᵀ."""

    a: Bits
    b: Bits


def draw_matrices(kind: OperandSet, dtype: Dtype, m: int, n: int, k: int, block_k: int, seed: int) -> Operands:
    """Draw operands of one kind; a row does not depend on the number of rows. Only full-width operands depend on block_k."""
    if kind == "full-width":
        return _full_width(dtype.format, m, n, k, block_k, seed)
    drawn = (np.random.default_rng([seed, i]).standard_normal((lines, k), np.float32) for i, lines in enumerate((m, n)))
    return Operands(*(nearest_patterns(dtype.format, each) for each in drawn))


UNIT = -12
"""Exponent of the unit, so that every operand of `_full_width` is a normal number of every type."""


def _full_width(fmt: Format, m: int, n: int, k: int, block_k: int, seed: int) -> Operands:
    """Draw operands with sums 24 bits wide: 1.5 · 2^23 units, one unit, and random even numbers of units below 2^22.

    Every product and partial sum, in any order, is a whole number of units below 2^24, so it is exact in f32. Only a unit that
    keeps fewer bits loses some. Row i has its products in block i modulo the number of blocks. So each element has one nonzero
    partial sum, which is added to the accumulator exactly.
    """
    rng_a, rng_b, rng_shared = (np.random.default_rng([seed, i]) for i in range(3))
    width = min(fmt.mantissa_bits + 1, 4)
    blocks = k // block_k
    places = rng_shared.permutation(block_k)
    sizes = np.full(block_k, 2 * width + 1)
    falling = np.arange(FRACTION_BITS - 3, 2 * width, -1)[: block_k - 2]
    sizes[2 : 2 + len(falling)] = falling
    exponents = np.empty(block_k, np.int64)
    exponents[places] = sizes - 2 * width + UNIT
    a = _digits(rng_a, width, (m, block_k)) * 2.0 ** (exponents // 2)
    b = np.abs(_digits(rng_b, width, (n, blocks, block_k))) * 2.0 ** (exponents - exponents // 2)
    for place, significand, exponent in ((places[0], 1.5, FRACTION_BITS + UNIT), (places[1], 1.0, UNIT)):
        a[:, place] = significand * 2.0 ** (exponent // 2)
        b[:, :, place] = 2.0 ** (exponent - exponent // 2)
    spread = np.zeros((m, blocks, block_k), np.float32)
    spread[np.arange(m), np.arange(m) % blocks] = a
    return Operands(nearest_patterns(fmt, spread.reshape(m, k)), nearest_patterns(fmt, b.astype(np.float32).reshape(n, k)))


def _digits(rng: np.random.Generator, width: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw random integers of exactly that many bits, of both signs."""
    drawn = rng.integers(0, 1 << width, shape, np.int8)
    top = 1 << (width - 1)
    return np.where(drawn & top, -1, 1).astype(np.float32) * (drawn & (top - 1) | top)
