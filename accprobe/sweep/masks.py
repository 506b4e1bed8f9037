"""Masks, the elements that they change, and the effective bits that follow: the arithmetic of a sweep after the matrix unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.infer.findings import Bound

Totals = NDArray[Any]
"""Sums in f32, or of integers in s32."""

FRACTION_BITS = 23
"""Fraction bits of f32, the format of partial sums."""

CUTS = tuple(range(FRACTION_BITS + 1))
"""How many low bits are masked."""


def mask(cut: int) -> int:
    """Return the mask that clears low bits of a partial sum, as a signed 32-bit integer."""
    return -(1 << cut)


def totals(partials: Iterable[Totals], cuts: Sequence[int] = CUTS, rounded: bool = False) -> list[Totals]:
    """Add up the sums of blocks as the kernel does: one array for each mask. rounded: as in `probes/triton_dot.py`."""
    found: list[Totals] = []
    for partial in partials:
        bits = partial.view(np.int32)
        for i, cut in enumerate(cuts):
            kept = ((bits + np.int32(1 << cut >> 1) if rounded else bits) & np.int32(mask(cut))).view(partial.dtype)
            if i == len(found):
                found.append(np.zeros_like(partial))
            found[i] += kept
    return found


def changed(of_cuts: Sequence[Totals]) -> list[int]:
    """Count the elements that differ from the first, for each mask."""
    whole = of_cuts[0].view(np.uint32)
    return [int((each.view(np.uint32) != whole).sum()) for each in of_cuts]


def unnoticed(counts: Sequence[int]) -> int:
    """The most low bits that can be masked without any change."""
    return max(cut for cut in CUTS if not any(counts[: cut + 1]))


def effective_bits_of_counts(counts: Sequence[int], control: Sequence[int], elements: int) -> tuple[int, Bound]:
    """Fraction bits that the partial sums have, and whether the data could have shown more.

    control: what the masks change, of `elements`, where the partial sums are exact. Masks without an effect in the sweep show
    that those bits are absent only if the control does notice them. Where the sweep noticed every mask, all bits of f32
    are there; in how many sums the data only tells if it asks for the last one as often as it can: half of the sums that need
    more bits than f32 has end in a 1.
    """
    cut = unnoticed(counts)
    seen = control[cut] > 0 if cut else 2 * control[1] >= elements
    return FRACTION_BITS - cut, "exact" if seen else "at_least"
