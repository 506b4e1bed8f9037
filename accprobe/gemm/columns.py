"""Which products are added first, where A cannot be asked: each column of B has a pair, and the units beside it."""

from __future__ import annotations

import numpy as np

from accprobe.gemm.blackbox import Asked
from accprobe.gemm.pairs import Floats, Ints
from accprobe.gemm.units import Units, counted, power
from accprobe.isa.formats import Bits


class ColumnPairs:
    """`Pairs`, and of one unit at once `Triples`, whose questions are columns: all rows of D have the same answers.

    A: every call's. most: units counted at once.
    """

    def __init__(self, asked: Asked, row: int, columns: Ints, a: Bits, each: Units, most: int) -> None:
        self._asked, self._row, self._columns = asked, row, columns
        self._a, self._units, self._most = a, each, most

    def sizes(self, i: Ints, j: Ints, leaves: Ints) -> Floats:
        """As `Pairs.sizes`."""
        found = np.full((len(i), len(j)), float(len(leaves)))
        y, x = np.nonzero(i[:, None] != j[None, :])
        windows = -(-len(leaves) // self._most)
        width = len(self._columns)
        for start in range(0, len(y) * windows, width):
            pair, window = np.divmod(np.arange(start, min(start + width, len(y) * windows)), windows)
            survivors = self._survivors(i[y[pair]], j[x[pair]], leaves, window)
            np.subtract.at(found, (y[pair], x[pair]), survivors)
        found[i[:, None] == j[None, :]] = 1
        return found

    def _survivors(self, i: Ints, j: Ints, leaves: Ints, window: Ints) -> Floats:
        """Units of a window that come out beside a pair, each in a column of its own."""
        spec, each = self._asked.spec, self._units
        b = np.zeros((spec.n, spec.k), spec.b.dtype)
        columns = self._columns[: len(i)]
        places = window[:, None] * self._most + np.arange(min(self._most, len(leaves)))
        there = places < len(leaves)
        b[np.broadcast_to(columns[:, None], places.shape)[there], leaves[places[there]]] = power(spec.b, each.b)
        b[columns, i] = power(spec.b, each.b + each.far)
        b[columns, j] = power(spec.b, each.b + each.far, negative=True)
        return counted(self._asked.product(self._a, b)[self._row, columns], spec, each)
