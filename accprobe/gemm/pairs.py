"""Which products are added to one another first: the question of FPRev, of many pairs in one call.

One product is large, at i, another is large and negative, at j, and others are units. What of the units comes out is what joins
only after the two have cancelled: all but the smallest part of the tree that has both (Xie et al., FPRev, ATC'25, whose one
pair a call is one column here).

i is the same for all elements of a call, each column has its j, each row its window of units: both factors of a large product
are large, and both of a unit small. No unit stands where another column's j does, so k are told apart by digits of their
numbers: what is asked with j are the k that differ from it in one digit, and in none below. B has a column's units alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.units import Units, power, units_in
from accprobe.isa.formats import Bits

Ints = NDArray[np.int64]

BASES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Of the digits that k are told apart by: whatever takes the fewest calls."""


class ProductPairs:
    """Sizes of the smallest parts of the tree that have both of two products. rows, columns: those of D that are asked."""

    def __init__(self, asked: RecordedCallable, rows: Ints, columns: Ints, units: Units) -> None:
        self._asked, self._rows, self._columns, self._units = asked, rows, columns, units
        spec = asked.spec
        self._a, self._b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)

    def sizes(self, i: int, j: Ints, leaves: Ints) -> Floats:
        """[len(j)]: how many of `leaves`, among which i and j are, the smallest part has that has both; everything else is
        zero. 1 where the two are one. As measured: see `is_whole`.
        """
        others = leaves[leaves != i]
        wanted = np.isin(others, j)
        survivors = np.zeros(len(others))
        for question in self._questions(len(others)):
            at = question.js[wanted[question.js]]
            for left in range(0, len(at), len(self._columns)):
                js = at[left : left + len(self._columns)]
                for top in range(0, len(question.windows), len(self._rows)):
                    windows = question.windows[top : top + len(self._rows)]
                    alike = js % question.modulus, np.concatenate(windows) % question.modulus
                    found = self._left_over([i], others[js], [others[units] for units in windows], alike)
                    survivors[js] += found.sum(axis=0)
        sizes = np.full(len(j), 1.0)
        sizes[j != i] = len(leaves) - survivors[np.searchsorted(others, j[j != i])]
        return sizes

    def _questions(self, n: int) -> Iterator[_Question]:
        """Of n numbers, with the base that takes the fewest calls."""
        height, width, most = len(self._rows), len(self._columns), self._units.most
        base = min(BASES, key=lambda base: _calls(n, base, height, width, most))
        return _questions(n, base, width, most)

    def joined(self, ks: Ints, before: int) -> NDArray[np.bool_]:
        """[n, n]: which of n products are added to one another before `before` is added to either."""
        n = len(ks)
        found = np.eye(n, dtype=bool)
        for bit in range(max(1, n - 1).bit_length()):
            for i, j in _halves(n, bit):
                for top in range(0, len(i), len(self._rows)):
                    for left in range(0, len(j), len(self._columns)):
                        y, x = i[top : top + len(self._rows)], j[left : left + len(self._columns)]
                        there = self._left_over(ks[y], ks[x], [np.array([before])] * len(y)) != 0
                        differ = y[:, None] ^ x[None, :]
                        there &= (differ & -differ) == 1 << bit
                        found[np.ix_(y, x)] |= there
                        found[np.ix_(x, y)] |= there.T
        return found

    def joined_with(self, i: int, ks: Ints, before: int) -> NDArray[np.bool_]:
        """[n]: which of n products, one of them i, are added to i before `before` is."""
        there = [
            self._left_over([i], ks[left : left + len(self._columns)], [np.array([before])])[0] != 0
            for left in range(0, len(ks), len(self._columns))
        ]
        return np.asarray(np.concatenate(there) | (ks == i))

    def _left_over(
        self, i: Sequence[int] | Ints, j: Ints, windows: Sequence[Ints], alike: tuple[Ints, Ints] | None = None
    ) -> Floats:
        """[windows, len(j)]: units that come out of each window beside i, one of all rows or one each, and a column's j.

        alike: a number of each j, and of each unit of all windows; a column has the units with its j's number. None: all.
        """
        spec, each = self._asked.spec, self._units
        rows, columns = self._rows[: len(windows)], self._columns[: len(j)]
        units = np.concatenate(windows)
        of_column, of_unit = alike or (np.zeros(len(j), np.int64), np.zeros(len(units), np.int64))
        numbers, which = np.unique(of_column, return_inverse=True)
        there = np.isin(of_unit, numbers)
        of_a, of_b = np.zeros(spec.k, spec.a.dtype), np.zeros((len(numbers), spec.k), spec.b.dtype)
        of_a[j] = power(spec.a, each.large[0])
        of_b[np.searchsorted(numbers, of_unit[there]), units[there]] = power(spec.b, each.unit[1])
        of_b[:, i] = power(spec.b, each.large[1])
        a, b = self._a, self._b  # whose other lines are those of calls before
        a[rows] = of_a
        a[np.repeat(rows, [len(window) for window in windows]), units] = power(spec.a, each.unit[0])
        a[rows, i] = power(spec.a, each.large[0])
        b[columns] = of_b[which]
        b[columns, j] = power(spec.b, each.large[1], negative=True)
        return units_in(self._asked.product(a, b)[np.ix_(rows, columns)], spec, each)


@dataclass(frozen=True)
class _Question:
    """js: numbers that have a digit in common. windows: others that have another there, in parts of which those that are a j
    modulo `modulus` are counted at once: no digit below differs.
    """

    js: Ints
    windows: Sequence[Ints]
    modulus: int


def _questions(n: int, base: int, width: int, most: int) -> Iterator[_Question]:
    """Every number with every other, once."""
    every = np.arange(n)
    low = 1
    while low < n:
        digit, below = every // low % base, every % low
        group = _group(n, base, low, width)
        for value in range(min(base, -(-n // low))):
            for first in range(0, low, group):
                there = (below >= first) & (below < first + group)
                js, units = every[there & (digit == value)], every[there & (digit != value)]
                turn = _turns(units, low) // most
                windows = [units[turn == i] for i in range(turn.max(initial=-1) + 1)]
                if len(js) and windows:
                    yield _Question(js, windows, low)
        low *= base


def _turns(numbers: Ints, modulus: int) -> Ints:
    """How many of those before each are it modulo `modulus`."""
    order = np.argsort(numbers % modulus, kind="stable")
    classes = (numbers % modulus)[order]
    turns = np.empty(len(numbers), np.int64)
    turns[order] = np.arange(len(numbers)) - np.searchsorted(classes, classes)
    return turns


def _group(n: int, base: int, low: int, width: int) -> int:
    """Numbers modulo `low` that are asked together: as many as have their columns."""
    return max(1, min(width // -(-n // (low * base)), low))


def _calls(n: int, base: int, height: int, width: int, most: int) -> int:
    """That `_questions` need, about."""
    calls, low = 0, 1
    while low < n:
        alike = -(-n // (low * base))
        windows, group = -(-(base - 1) * alike // most), _group(n, base, low, width)
        values = min(base, -(-n // low))
        calls += values * -(-low // group) * -(-group * alike // width) * -(-windows // height)
        low *= base
    return calls


def _halves(n: int, bit: int) -> Iterator[tuple[Ints, Ints]]:
    """Numbers below n without a bit, and those with it."""
    every = np.arange(n)
    without, with_it = every[every >> bit & 1 == 0], every[every >> bit & 1 == 1]
    if len(without) and len(with_it):
        yield without, with_it


def is_whole(sizes: Floats, leaves: int) -> bool:
    """Whether these are numbers of products at all."""
    return bool(np.all((sizes >= 1) & (sizes <= leaves) & (sizes == np.round(sizes))))


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
