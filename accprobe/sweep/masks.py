"""Masks of low bits, the number of elements that they change, and the effective bits that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.report.sweeps import EffectiveBits

Totals = NDArray[Any]
"""An array of f32: sums of partial sums."""

FRACTION_BITS = 23
"""Fraction bits of f32, the format of partial sums."""

CUTS = tuple(range(FRACTION_BITS + 1))
"""The numbers of masked low bits."""


Sample = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns of the elements whose bits are kept."""


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


def unnoticed(counts: Sequence[int]) -> int:
    """Return the largest number of low bits that can be masked without any change."""
    return max(cut for cut in CUTS if not any(counts[: cut + 1]))


def effective_bits_of_counts(counts: Sequence[int], control: Sequence[int], elements: int) -> EffectiveBits:
    """Return the fraction bits of the partial sums; a lower bound if the operands cannot show more.

    counts, control: by mask, the changed elements of the results, and of the exact sums of the same operands. The value is
    exact if the largest mask that changes no result changes the control. If every mask changes the results, it is exact if the
    mask of one bit changes at least half of the `elements` of the control: of sums that need more bits than f32 has, half end
    in a 1.
    """
    cut = unnoticed(counts)
    seen = control[cut] > 0 if cut else 2 * control[1] >= elements
    return EffectiveBits(value=FRACTION_BITS - cut, bound="exact" if seen else "at_least")
