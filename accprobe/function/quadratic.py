"""Tables of quadratics with a truncated squarer: how special function units compute, and the search for their coefficients.

A table splits its argument, an integer, into the number of a segment (leading bits) and x (the at most 17 bits below). Its
value is the integer c0 + c1·x + c2·square(x) of the segment; the squarer takes x shifted left to 17 bits.

Source of the form: envytools, nvhw/sfu.c, for a GPU of 2006 (G80). The coefficients here are inferred from results alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import sub
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Square = Literal["truncated", "exact"]

SQUARER_BITS = 17
# How far the square of a shifted x lies below x·x: the truncated square of 17 bits is about x²/2^19.
SQUARE_SHIFT = 19
# Arguments on which candidate coefficients are compared first; a candidate that fits them is compared on all.
FIRST_COMPARED = 512
# Values of c2 around the best one that are tried too.
C2_WINDOW = 24
# Words that numpy computes at once: their int64 arrays fit in a cache.
IN_CACHE = 1 << 16


def module_of(array: Any) -> Any:
    """Return numpy or cupy, whichever the array is of."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy
    return np


def in_parts(function: Callable[[Any], Any], array: Any) -> Any:
    """Return a function of a numpy array, computed in parts."""
    return np.concatenate([function(array[start : start + IN_CACHE]) for start in range(0, len(array), IN_CACHE)])


def square(x: Any, kind: Square) -> Any:
    """Return the squares of integers below 2^17 in units of 2^19. "truncated": partial products lose their bits below 2^18."""
    return module_of(x).asarray(squares(kind))[x]


@cache
def squares(kind: Square) -> Int64s:
    """Return `square` of all integers below 2^17."""
    x = np.arange(1 << SQUARER_BITS, dtype=np.int64)
    if kind == "exact":
        return x * x >> SQUARE_SHIFT
    total = np.zeros_like(x)
    for bit in range(SQUARER_BITS):
        total += (x >> bit & 1) * (x >> SQUARER_BITS + 1 - bit)
    return total >> 1


@cache
def all_squares() -> NDArray[np.int32]:
    """Return the truncated squares of all integers below 2^17, then the exact ones."""
    return np.concatenate([squares("truncated"), squares("exact")]).astype(np.int32)


@dataclass(frozen=True)
class Constraints:
    """Bounds that results give for one segment: low <= c0 + c1·x + c2·square(x) <= high, arrays [n] of int64."""

    x: Int64s
    square: Int64s
    low: Int64s
    high: Int64s

    def __getitem__(self, rows: Any) -> Constraints:
        return Constraints(self.x[rows], self.square[rows], self.low[rows], self.high[rows])

    def gap(self, c1: int, c2: int) -> tuple[int, int]:
        """Return the lowest and the highest c0 that these coefficients allow; the lowest is above if none is allowed."""
        rest = c1 * self.x + c2 * self.square
        return int((self.low - rest).max()), int((self.high - rest).min())

    def tightest(self, c1: int, c2: int, count: int) -> Int64s:
        """Return the numbers of the constraints that bound c0 most."""
        rest = c1 * self.x + c2 * self.square
        count = min(count, len(rest))
        low, high = self.low - rest, self.high - rest
        return np.unique(np.concatenate([np.argpartition(-low, count - 1)[:count], np.argpartition(high, count - 1)[:count]]))


def solve(constraints: Constraints) -> tuple[int, int, int] | None:
    """Return integers c0, c1 and c2 that meet all constraints; None if the search finds none.

    The excess, the lowest allowed c0 minus the highest, is convex in (c1, c2). So the search descends in c1 for each c2, and
    in c2. It works on a few constraints and adds those that bound c0 most for the candidate, until none is
    violated.
    """
    count = len(constraints.x)
    chosen = np.unique(np.linspace(0, count - 1, min(FIRST_COMPARED, count)).astype(np.int64))
    best: tuple[int, int] | None = None
    while True:
        some = constraints[chosen]
        best = _least_excess(some, best or _start(some))
        low, high = some.gap(*best)
        if low > high:
            return None
        low, high = constraints.gap(*best)
        if low <= high:
            return low, *best
        more = np.union1d(chosen, constraints.tightest(*best, 16))
        if len(more) == len(chosen):
            return None
        chosen = more


def _start(constraints: Constraints) -> tuple[int, int]:
    """Return coefficients of a least-squares fit."""
    middle = (constraints.low + constraints.high) / 2
    columns = np.stack([np.ones(len(middle)), constraints.x, constraints.square], axis=1).astype(np.float64)
    found = np.linalg.lstsq(columns, middle - middle[0], rcond=None)[0]
    return round(found[1]), round(found[2])


def _least_excess(constraints: Constraints, start: tuple[int, int]) -> tuple[int, int]:
    """Return the coefficients with the least excess, or the first without excess that the descent meets."""
    best_c1 = start[0]

    def best_for(c2: int) -> tuple[int, int]:
        nonlocal best_c1
        best_c1, excess = _descend(lambda c1: sub(*constraints.gap(c1, c2)), best_c1)
        return best_c1, excess

    c2, excess = _descend(lambda c2: best_for(c2)[1], start[1])
    if excess > 0:  # with integer c1 the least excess is convex in c2 only roughly: try neighbours
        c2 = min(range(c2 - C2_WINDOW, c2 + C2_WINDOW + 1), key=lambda c2: best_for(c2)[1])
    return best_for(c2)[0], c2


def _descend(excess: Any, start: int) -> tuple[int, int]:
    """Descend a convex function of an integer until it is 0 or less, or at its minimum. Return the place and the value.

    The step doubles after a success and falls to a quarter after a failure.
    """
    known: dict[int, int] = {}

    def at(place: int) -> int:
        if place not in known:
            known[place] = excess(place)
        return known[place]

    here, step = start, 1
    while at(here) > 0:
        side = min((here + step, here - step), key=at)
        if at(side) < at(here):
            here, step = side, 2 * step
        elif step > 1:
            step = max(1, step // 4)
        else:
            break
    return here, at(here)
