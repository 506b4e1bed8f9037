"""Which products are added first, where A cannot be asked: each column of B has a pair, and the units beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.pairs import Ints
from accprobe.gemm.units import Units, power, units_in
from accprobe.isa.formats import Bits


class ColumnPairs:
    """`ProductPairs` whose questions are columns: all rows of D have the same answers. A: every call's."""

    def __init__(self, asked: RecordedCallable, row: int, columns: Ints, a: Bits, units: Units) -> None:
        self._asked, self._row, self._columns, self._a, self._units = asked, row, columns, a, units

    def sizes(self, i: int, j: Ints, leaves: Ints) -> Floats:
        """As `ProductPairs.sizes`."""
        most = self._units.most
        others = [j[j != i], leaves[leaves != i]]
        windows = [others[1][start : start + most] for start in range(0, len(others[1]), most)]
        which = np.repeat(np.arange(len(others[0])), len(windows))
        survivors = np.zeros(len(others[0]))
        found = self._left_over(np.full(len(which), i), others[0][which], windows * len(others[0]))
        np.add.at(survivors, which, found)
        sizes = np.full(len(j), 1.0)
        sizes[j != i] = len(leaves) - survivors
        return sizes

    def joined(self, ks: Ints, before: int) -> NDArray[np.bool_]:
        """As `ProductPairs.joined`."""
        found = np.eye(len(ks), dtype=bool)
        y, x = np.triu_indices(len(ks), 1)
        found[y, x] = found[x, y] = self._left_over(ks[y], ks[x], [np.array([before])] * len(y)) != 0
        return found

    def joined_with(self, i: int, ks: Ints, before: int) -> NDArray[np.bool_]:
        """As `ProductPairs.joined_with`."""
        others = ks[ks != i]
        found: NDArray[np.bool_] = ks == i
        found[ks != i] = self._left_over(np.full(len(others), i), others, [np.array([before])] * len(others)) != 0
        return found

    def _left_over(self, i: Ints, j: Ints, windows: Sequence[Ints]) -> Floats:
        """[questions]: units that come out of a window beside a pair, each in a column of its own; none at the pair."""
        spec, each, width = self._asked.spec, self._units, len(self._columns)
        found = np.empty(len(i))
        for start in range(0, len(i), width):
            some = slice(start, start + width)
            b = np.zeros((spec.n, spec.k), spec.b.dtype)
            columns = self._columns[: len(i[some])]
            lengths = [len(window) for window in windows[some]]
            b[np.repeat(columns, lengths), np.concatenate(windows[some])] = power(spec.b, each.unit[1])
            b[columns, i[some]] = power(spec.b, each.large[1])
            b[columns, j[some]] = power(spec.b, each.large[1], negative=True)
            found[some] = units_in(self._asked.product(self._a, b)[self._row, columns], spec, each)
        return found
