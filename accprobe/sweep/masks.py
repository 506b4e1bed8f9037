"""Masks, the elements that they change, and the effective bits that follow: the arithmetic of a sweep after the matrix unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.report.sweeps import EffectiveBits

Totals = NDArray[Any]
"""Sums in f32."""

FRACTION_BITS = 23
"""Fraction bits of f32, the format of partial sums."""

CUTS = tuple(range(FRACTION_BITS + 1))
"""How many low bits are masked."""


Sample = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns of the elements whose bits are kept."""


class Measured(NamedTuple):
    """The results of a run. For each mask: the elements that it changes, |C - exact| / |exact|, and the bits of the sampled
    elements, [masks, rows, columns]. Where a GPU ran it: TFLOP/s without a mask, registers and spills a thread.
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
    """Add up the sums of blocks as the kernel does: one array for each mask."""
    found: list[Totals] = []
    for partial in partials:
        found = found or [np.zeros_like(partial) for _ in CUTS]
        for total, cut in zip(found, CUTS, strict=True):
            total += (partial.view(np.int32) & np.int32(mask(cut))).view(partial.dtype)
    return found


def changed(of_cuts: Sequence[Totals]) -> list[int]:
    """Count the elements that differ from the first, for each mask."""
    whole = of_cuts[0].view(np.uint32)
    return [int((each.view(np.uint32) != whole).sum()) for each in of_cuts]


def unnoticed(counts: Sequence[int]) -> int:
    """The most low bits that can be masked without any change."""
    return max(cut for cut in CUTS if not any(counts[: cut + 1]))


def effective_bits_of_counts(counts: Sequence[int], control: Sequence[int], elements: int) -> EffectiveBits:
    """Return the fraction bits that the partial sums have, a lower bound where the data could not have shown more.

    control: what the masks change, of `elements`, where the partial sums are exact. Masks without an effect in the sweep show
    that those bits are absent only if the control does notice them. Where the sweep noticed every mask, all bits of f32
    are there; in how many sums the data only tells if it asks for the last one as often as it can: half of the sums that need
    more bits than f32 has end in a 1.
    """
    cut = unnoticed(counts)
    seen = control[cut] > 0 if cut else 2 * control[1] >= elements
    return EffectiveBits(value=FRACTION_BITS - cut, bound="exact" if seen else "at_least")
