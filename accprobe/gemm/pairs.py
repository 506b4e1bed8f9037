"""Which products are added to one another first: the question of FPRev, of many pairs in one call.

A row has one large product, at i, a column a large negative one, at j, and everything else is a unit. What of the units comes
out is what joins only after the two have cancelled: all but the smallest part of the tree that has both (Xie et al., FPRev,
ATC'25, whose one pair a call is one element here).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import Asked
from accprobe.gemm.units import FAR, counted, power, units
from accprobe.isa.formats import Bits

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Pairs:
    """Sizes of the smallest parts of the tree that have both of two products. rows, columns: those of D that are asked.

    narrow: whether units are counted in so few at a time that a partial sum in bf16 holds their number.
    """

    def __init__(self, asked: Asked, rows: Ints, columns: Ints, narrow: bool = False) -> None:
        self._asked, self._rows, self._columns = asked, rows, columns
        self._units = units(asked.spec, narrow)

    def sizes(self, i: Ints, j: Ints, leaves: Ints) -> Floats:
        """[len(i), len(j)]: how many of `leaves`, among which i and j are, the smallest part has that has both; everything
        else is zero. 1 where the two are one. As measured: see `is_whole`.
        """
        found = np.empty((len(i), len(j)))
        height = len(self._rows)
        if len(i) == 1 and self._is_cheaper(len(leaves)):
            width = min(len(self._columns), self._units.most)
            for left in range(0, len(j), width):
                found[0, left : left + width] = self._of_one(int(i[0]), j[left : left + width], leaves)
            found[0, j == i[0]] = 1
            return found
        if len(leaves) > self._units.most:
            height = min(height, self._units.most // 2)
        for top in range(0, len(i), height):
            for left in range(0, len(j), len(self._columns)):
                y, x = slice(top, top + height), slice(left, left + len(self._columns))
                found[y, x] = self._together(i[y], j[x], leaves)
        found[i[:, None] == j[None, :]] = 1
        return found

    def _is_cheaper(self, leaves: int) -> bool:
        """Whether one large number takes fewer calls with a window of units in each row than with one in each call."""
        windows, width = -(-leaves // self._units.most), min(len(self._columns), self._units.most)
        in_rows = -(-leaves // width) * (-(-windows // len(self._rows)) + 1)
        return self._units.far == FAR and windows > 1 and in_rows < -(-leaves // len(self._columns)) * windows

    def _of_one(self, i: int, j: Ints, leaves: Ints) -> Floats:
        """As `sizes`, of one i: every row has a window of units, those at j in a call of their own."""
        others = np.setdiff1d(leaves, [*j, i])
        windows = [others[start : start + self._units.most] for start in range(0, len(others), self._units.most)]
        survivors = self._in_rows(i, j, [j[j != i]], others=False)
        for first in range(0, len(windows), len(self._rows)):
            survivors += self._in_rows(i, j, windows[first : first + len(self._rows)], others=True)
        return np.asarray(len(leaves) - survivors)

    def _in_rows(self, i: int, j: Ints, windows: list[Ints], others: bool) -> Floats:
        """Units that come out beside i and each j, of all windows. others: whether the windows have none of the j."""
        spec, each = self._asked.spec, self._units
        a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
        rows, columns = self._rows[: len(windows)], self._columns[: len(j)]
        for row, window in zip(rows, windows, strict=True):
            a[row, window] = power(spec.a, each.a)
            b[:, window] = power(spec.b, each.b)
        a[:, j] = power(spec.a, each.a)
        if others:
            b[:, j] = 0
        a[:, i], b[:, i] = power(spec.a, each.a + each.far), power(spec.b, each.b)
        b[columns, j] = power(spec.b, each.b + each.far, negative=True)
        d = self._asked.product(a, b)
        return np.asarray(counted(d[np.ix_(rows, columns)], spec, each).sum(axis=0))

    def _together(self, i: Ints, j: Ints, leaves: Ints) -> Floats:
        both = np.intersect1d(i, j)
        windows = list(self._windows(both, leaves))
        survivors = sum((self._survivors(i, j, window) for window in windows), np.zeros((len(i), len(j))))
        if len(windows) > 1 and len(both):
            survivors -= (len(windows) - 1) * self._survivors(i, j, both)
        return np.asarray(len(leaves) - survivors)

    def _windows(self, both: Ints, leaves: Ints) -> Iterator[Ints]:
        if len(leaves) <= self._units.most:
            yield leaves
            return
        others = np.setdiff1d(leaves, both)
        size = self._units.most - len(both)
        for start in range(0, len(others), size):
            yield np.union1d(others[start : start + size], both)

    def _survivors(self, i: Ints, j: Ints, window: Ints) -> Floats:
        spec, each = self._asked.spec, self._units
        counts = np.zeros(spec.k, bool)
        counts[window] = True
        a = _lines(spec.m, spec.k, spec.a.dtype, counts, power(spec.a, each.a))
        b = _lines(spec.n, spec.k, spec.b.dtype, counts, power(spec.b, each.b))
        # What is large in one line needs a unit in all lines of the other matrix, also where it is not counted.
        a[:, j] = power(spec.a, each.a)
        b[:, i] = power(spec.b, each.b)
        a[:, np.setdiff1d(i, window)] = 0
        b[:, np.setdiff1d(j, window)] = 0
        a[:, np.intersect1d(j, np.setdiff1d(i, window))] = power(spec.a, each.a)
        y, x = _spread(self._rows, len(i)), _spread(self._columns, len(j))
        a[self._rows, i[y]] = power(spec.a, each.a + each.far)
        b[self._columns, j[x]] = power(spec.b, each.b + each.far, negative=True)
        d = self._asked.product(a, b)
        return counted(d[np.ix_(self._rows[: len(i)], self._columns[: len(j)])], spec, each)


def _lines(lines: int, k: int, dtype: np.dtype[np.unsignedinteger], counts: NDArray[np.bool_], unit: int) -> Bits:
    return np.broadcast_to(np.where(counts, dtype.type(unit), dtype.type(0)), (lines, k)).copy()


def _spread(lines: Ints, count: int) -> Ints:
    """Which of `count` questions each line has: those beyond the last have the last."""
    return np.minimum(np.arange(len(lines)), count - 1)


def is_whole(sizes: Floats, leaves: int) -> bool:
    """Whether these are numbers of products at all."""
    return bool(np.all((sizes >= 1) & (sizes <= leaves) & (sizes == np.round(sizes))))


class Triples:
    """The same where large numbers and units in one line do not reach far enough: of a pair at i and j, and one unit at a time.

    i is one for all elements of a call, j a column's and the unit a row's, so that both factors can be large.
    """

    def __init__(self, asked: Asked, rows: Ints, columns: Ints) -> None:
        self._asked, self._rows, self._columns = asked, rows, columns
        self._units = units(asked.spec)

    def sizes(self, i: Ints, j: Ints, leaves: Ints) -> Floats:
        """As `Pairs.sizes`."""
        return np.stack([self._of_one(int(each), j, leaves) for each in i])

    def _of_one(self, i: int, j: Ints, leaves: Ints) -> Floats:
        found = np.full(len(j), len(leaves), np.float64)
        others = leaves[leaves != i]
        if not len(others):
            return found
        for bit in range(max(1, int(others.max()).bit_length())):
            for side in (0, 1):
                columns = np.flatnonzero((j >> bit & 1 == side) & (j != i))
                units_at = others[others >> bit & 1 != side]
                # Of two numbers the lowest bit in which they differ is where they are asked, once.
                for start in range(0, len(columns), len(self._columns)):
                    of_call = columns[start : start + len(self._columns)]
                    for top in range(0, len(units_at), len(self._rows)):
                        at = units_at[top : top + len(self._rows)]
                        differ = j[of_call][None, :] ^ at[:, None]
                        first = (differ & -differ) == 1 << bit
                        if first.any():
                            survives = self._survives(i, j[of_call], at)
                            found[of_call] -= np.where(first, survives, 0).sum(axis=0)
        found[j == i] = 1
        return found

    def _survives(self, i: int, j: Ints, at: Ints) -> Floats:
        """[len(at), len(j)]: 1 where the unit of the row comes out."""
        spec, each = self._asked.spec, self._units
        a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
        rows, columns = self._rows[: len(at)], self._columns[: len(j)]
        large_a, large_b = each.large
        a[:, i], b[:, i] = power(spec.a, large_a), power(spec.b, large_b)
        a[:, j] = power(spec.a, large_a)
        b[columns, j] = power(spec.b, large_b, negative=True)
        a[rows, at] = power(spec.a, each.a)
        b[:, at] = power(spec.b, each.b)
        return counted(self._asked.product(a, b)[np.ix_(rows, columns)], spec, each)
