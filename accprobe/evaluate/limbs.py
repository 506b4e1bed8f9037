"""Exact sums of floating-point numbers of any exponents, as integers in limbs of 32 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Integers, Truths
from accprobe.evaluate.rounding import bit_length

LIMB = 32
HALF = 27
# If one of two terms lies more than this many bits below the other's last bit, only its sign matters, and that it is not zero.
GAP = 60


class Sum:
    """n sums of the same number of terms, each term (-1)^negative * magnitude * 2^exponent."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._terms: list[tuple[Truths, list[tuple[Integers, int]], Integers]] = []

    def add(self, negative: Truths, magnitude: Integers, exponent: NDArray[np.integer]) -> None:
        """Add a term; magnitude < 2^62."""
        self._terms.append((negative, [(magnitude, 0)], exponent.astype(np.int64)))

    def add_product(self, negative: Truths, a: Integers, b: Integers, exponent: NDArray[np.integer]) -> None:
        """Add a * b * 2^exponent; a, b < 2^53."""
        (a1, a0), (b1, b0) = ((x >> HALF, x & ((1 << HALF) - 1)) for x in (a, b))
        pieces = [(a0 * b0, 0), (a0 * b1, HALF), (a1 * b0, HALF), (a1 * b1, 2 * HALF)]
        self._terms.append((negative, [p for p in pieces if p[0].any()], exponent.astype(np.int64)))

    def total(self) -> tuple[Truths, Integers, Integers]:
        """Return the sums as (negative, magnitude < 2^60, exponent); bits below the magnitude's are or-ed into its last bit."""
        if len(self._terms) == 2:
            self._close_gap()
        pieces = [(neg, mag, low + shift) for neg, parts, low in self._terms for mag, shift in parts]
        if not pieces:
            zero = np.zeros(self._n, np.int64)
            return zero.astype(bool), zero, zero
        far = np.int64(1) << 40
        base = np.minimum.reduce([np.where(mag == 0, far, exp) for _, mag, exp in pieces])
        base = np.where(base == far, 0, base)
        offsets = [np.where(mag == 0, 0, exp - base) for _, mag, exp in pieces]
        size = int(max(offset.max(initial=0) for offset in offsets)) // LIMB + 5
        limbs = np.zeros((size, self._n), np.int64)
        for (neg, mag, _), offset in zip(pieces, offsets, strict=True):
            _add(limbs, np.where(neg, -1, 1), mag, offset)
        negative = _carried(limbs.copy())[-1] < 0
        limbs = _carried(np.where(negative, -limbs, limbs))
        magnitude, exponent = _top(limbs)
        return negative, magnitude, exponent + base

    def _close_gap(self) -> None:
        (_, _, low0), (_, _, low1) = self._terms
        tops = [self._top_exponent(parts, low) for _, parts, low in self._terms]
        width = 2 * HALF + 62
        first_larger = tops[0] >= tops[1]
        both = (tops[0] > -(1 << 40)) & (tops[1] > -(1 << 40))
        floor = np.where(first_larger, low0, low1) - GAP - width
        raised = [
            np.where(both & ~first_larger, np.maximum(low0, floor), low0),
            np.where(both & first_larger, np.maximum(low1, floor), low1),
        ]
        self._terms = [(neg, parts, low) for (neg, parts, _), low in zip(self._terms, raised, strict=True)]

    def _top_exponent(self, parts: list[tuple[Integers, int]], low: Integers) -> Integers:
        nothing = np.full(self._n, -(1 << 41), np.int64)
        tops = (np.where(mag == 0, nothing, low + shift + bit_length(mag)) for mag, shift in parts)
        return np.asarray(np.maximum.reduce([nothing, *tops]))


def _add(limbs: Integers, sign: Integers, magnitude: Integers, offset: Integers) -> None:
    column = np.arange(limbs.shape[1])
    for part, start in ((magnitude & 0x7FFFFFFF, offset), (magnitude >> 31, offset + 31)):
        row, shifted = start // LIMB, part << (start % LIMB)
        limbs[row, column] += sign * (shifted & 0xFFFFFFFF)
        limbs[row + 1, column] += sign * (shifted >> LIMB)


def _carried(limbs: Integers) -> Integers:
    """Carry limbs into 0 .. 2^32 - 1; the last one keeps the sign (in place)."""
    for i in range(len(limbs) - 1):
        limbs[i + 1] += limbs[i] >> LIMB
        limbs[i] &= 0xFFFFFFFF
    return limbs


def _top(limbs: Integers) -> tuple[Integers, Integers]:
    """Return the highest 60 bits of non-negative limbs with a sticky last bit, and the exponent of that bit."""
    padded = np.concatenate([np.zeros((2, limbs.shape[1]), np.int64), limbs])
    column = np.arange(limbs.shape[1])
    high = np.zeros(limbs.shape[1], np.int64)
    for i in range(len(limbs)):
        high = np.where(limbs[i] != 0, i, high)
    below = np.logical_or.accumulate(padded != 0, axis=0)
    top, middle, low = padded[high + 2, column], padded[high + 1, column], padded[high, column]
    lower = np.where(high > 0, below[np.maximum(high - 1, 0), column], False)
    follow = middle << HALF | low >> 5
    room = 60 - bit_length(top)
    cut = 59 - room
    magnitude = top << room | follow >> cut
    sticky = (follow & ((np.int64(1) << cut) - 1) != 0) | (low & 31 != 0) | lower
    return np.where(top == 0, 0, magnitude | sticky), high * LIMB - room
