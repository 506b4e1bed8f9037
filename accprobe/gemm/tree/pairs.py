"""Determine which products are added first, with the method of FPRev for many pairs of products in one call.

The product at i is large, the one at j is its negative, and others are units. Units survive only if they are added after these
two cancel, outside the smallest subtree that contains i and j (Xie et al., FPRev, ATC'25). One call of FPRev is one column
here.

All elements of a call share i; each column has its own j, each row its own window of units. Large products have two large
factors, units two small ones. No unit may lie at the j of another column. A query therefore combines a j with each k that
differs from it in one digit and agrees in all lower digits. B holds only the units of its column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import Ints, layout_of, power
from accprobe.evaluate.error_free import Floats
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.tree.units import Units, measured_units, units_in, units_of_b
from accprobe.infer.tree_builder import TreeBuilder
from accprobe.isa.formats import Bits

# Windows of units for one pair beyond which the products are sorted instead.
MOST_WINDOWS = 3
# Candidate bases of the digits that queries share or differ in; the one with the fewest calls is used.
BASES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ProductPairs:
    """Sizes of the smallest subtrees that contain two products. rows, columns: the rows and columns of D to probe."""

    def __init__(self, subject: RecordedCallable, rows: Ints, columns: Ints, units: Units) -> None:
        self._subject, self._rows, self._columns, self._units = subject, rows, columns, units
        self._a, self._b = layout_of(subject.spec).blank()

    def sizes(self, i: int, j: Ints, leaves: Ints) -> Floats:
        """Return the number of `leaves` in the smallest subtree with i and each j, [len(j)]; all other products are zero.

        The size is 1 where j is i. The sizes are raw measurements; the tree builder checks them.
        """
        others = leaves[leaves != i]
        wanted = np.isin(others, j)
        survivors = np.zeros(len(others))
        height, width, most = len(self._rows), len(self._columns), self._units.most
        base = min(BASES, key=lambda base: _calls(len(others), base, height, width, most))
        for numbers, every, modulus in _pair_queries(len(others), base, width, most):
            at = numbers[wanted[numbers]]
            for left in range(0, len(at), width):
                js = at[left : left + width]
                for top in range(0, len(every), height):
                    windows = every[top : top + height]
                    classes = js % modulus, np.concatenate(windows) % modulus
                    found = self._surviving_units(i, others[js], [others[units] for units in windows], classes)
                    survivors[js] += found.sum(axis=0)
        sizes = np.full(len(j), 1.0)
        sizes[j != i] = len(leaves) - survivors[np.searchsorted(others, j[j != i])]
        return sizes

    def joined_with(self, i: int, ks: Ints, before: int) -> NDArray[np.bool_]:
        """Return which of n products are added to i (one of them) before `before` is, [n]."""
        others = ks[ks != i]
        found: NDArray[np.bool_] = ks == i
        found[ks != i] = self._survivors(i, others, np.array([before])) != 0
        return found

    def _survivors(self, i: int, j: Ints, window: Ints) -> Floats:
        """Return the units of one window that survive beside i and each j, [len(j)]."""
        width = len(self._columns)
        found = [self._surviving_units(i, j[left : left + width], [window])[0] for left in range(0, len(j), width)]
        return np.concatenate(found) if found else np.zeros(0)

    def _surviving_units(self, i: int, j: Ints, windows: Sequence[Ints], classes: tuple[Ints, Ints] | None = None) -> Floats:
        """Return the units that survive in each window, [windows, len(j)].

        classes: a class of each j, and of each unit of all windows; a column holds the units of the class of its j. None: all
        units.
        """
        spec, each = self._subject.spec, self._units
        rows, columns = self._rows[: len(windows)], self._columns[: len(j)]
        units = np.concatenate(windows)
        of_column, of_unit = classes or (np.zeros(len(j), np.int64), np.zeros(len(units), np.int64))
        numbers, which = np.unique(of_column, return_inverse=True)
        there = np.isin(of_unit, numbers)
        of_a, of_b = np.zeros(spec.k, spec.a.dtype), np.zeros((len(numbers), spec.k), spec.b.dtype)
        of_a[j] = power(spec.a, each.large[0])
        of_b[np.searchsorted(numbers, of_unit[there]), units[there]] = power(spec.b, each.unit[1])
        of_b[:, i] = power(spec.b, each.large[1])
        a, b = self._a, self._b  # other lines keep the operands of earlier calls
        a[rows] = of_a
        a[np.repeat(rows, [len(window) for window in windows]), units] = power(spec.a, each.unit[0])
        a[rows, i] = power(spec.a, each.large[0])
        b[columns] = of_b[which]
        b[columns, j] = power(spec.b, each.large[1], negative=True)
        return units_in(self._subject.product(a, b)[np.ix_(rows, columns)], spec, each)


def _pair_queries(n: int, base: int, width: int, most: int) -> Iterator[tuple[Ints, list[Ints], int]]:
    """Yield queries that combine every number with every other once: numbers that share a digit, windows of others, a modulus.

    A unit counts beside a number that it equals modulo the modulus.
    """
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
                    yield js, windows, low
        low *= base


def _turns(numbers: Ints, modulus: int) -> Ints:
    """Return how many numbers before each one are congruent to it modulo `modulus`."""
    order = np.argsort(numbers % modulus, kind="stable")
    classes = (numbers % modulus)[order]
    turns = np.empty(len(numbers), np.int64)
    turns[order] = np.arange(len(numbers)) - np.searchsorted(classes, classes)
    return turns


def _group(n: int, base: int, low: int, width: int) -> int:
    """Return how many residues modulo `low` fit into one query."""
    return max(1, min(width // -(-n // (low * base)), low))


def _calls(n: int, base: int, height: int, width: int, most: int) -> int:
    """Estimate the calls of `_pair_queries`."""
    calls, low = 0, 1
    while low < n:
        classes = -(-n // (low * base))
        windows, group = -(-(base - 1) * classes // most), _group(n, base, low, width)
        values = min(base, -(-n // low))
        calls += values * -(-low // group) * -(-group * classes // width) * -(-windows // height)
        low *= base
    return calls


class ColumnPairs(ProductPairs):
    """`ProductPairs` for a fixed A: each query takes one column, and all rows of D have the same results."""

    def sizes(self, i: int, j: Ints, leaves: Ints) -> Floats:
        others, units, most = j[j != i], leaves[leaves != i], self._units.most
        sizes = np.full(len(j), 1.0)
        if len(units) > most * MOST_WINDOWS and len(others) == len(units):
            sorted_sizes = self._sorted_sizes(i, others)
            if sorted_sizes is not None:
                sizes[j != i] = sorted_sizes
                return sizes
        windows = [units[start : start + most] for start in range(0, len(units), most)]
        found = self._of_columns(np.full(len(others) * len(windows), i), np.repeat(others, len(windows)), windows * len(others))
        sizes[j != i] = len(leaves) - found.reshape(len(others), -1).sum(axis=1)
        return sizes

    def _sorted_sizes(self, i: int, others: Ints) -> Floats | None:
        """Return the sizes for all others from comparisons of two of them: which is added to i first.

        They are sorted by pivots, where few units can be counted at once. None if a further comparison contradicts the order,
        as in fused sums and where the order changes from call to call.
        """
        rng, n = np.random.default_rng(len(others)), len(others)
        ranks, last = np.zeros(n, np.int64), np.full(n, -1)  # the size of lower groups, and a product of each group's last sum
        unsorted = np.arange(n)
        while len(unsorted):
            for _ in range(self._bits):
                _, which = np.unique(ranks[unsorted], return_inverse=True)
                order = rng.permutation(len(unsorted))
                _, first = np.unique(which[order], return_index=True)
                pivot = unsorted[order[first]][which]
                later = self._are_later(i, others, pivot, unsorted)
                ranks[unsorted] += np.where(later, np.bincount(which, ~later).astype(np.int64)[which], 0)
                last[unsorted] = np.where(later, last[unsorted], pivot)
            bounded = unsorted[last[unsorted] >= 0]
            _, which = np.unique(ranks[bounded], return_inverse=True)
            same = ~self._are_later(i, others, bounded, last[bounded])
            ranks[bounded] += np.where(same, np.bincount(which, ~same).astype(np.int64)[which], 0)
            last[bounded] = np.where(same, last[bounded], -1)
            unsorted = np.setdiff1d(unsorted, bounded[same])
        pivot = rng.permutation(n)[np.arange(n) // self._bits]
        if (self._are_later(i, others, pivot, np.arange(n)) != (ranks > ranks[pivot])).any():
            return None
        return np.asarray(1.0 + ranks + np.bincount(ranks, minlength=n)[ranks])

    @property
    def _bits(self) -> int:
        """Return how many units with the weights 1, 2, 4, … can be counted at once; bf16 holds the sums of eight."""
        return min(8, (self._units.most + 1).bit_length() - 1)

    def _are_later(self, i: int, others: Ints, j: Ints, k: Ints) -> NDArray[np.bool_]:
        """Return which of the others k are added to i after the other j is, [len(j)]; none is added after itself."""
        spec, each = self._subject.spec, self._units
        order = np.argsort(j, kind="stable")
        _, first, which = np.unique(j[order], return_index=True, return_inverse=True)
        bit = (np.arange(len(order)) - first[which]) % self._bits
        query = np.cumsum(bit == 0) - 1
        units = np.full((int(np.count_nonzero(bit == 0)), self._bits), i)  # units at i are replaced
        units[query, bit] = others[k[order]]
        minus = others[j[order]][bit == 0]
        words = np.array([power(spec.b, each.unit[1] + number) for number in range(self._bits)], spec.b.dtype)

        def fill(lines: Bits, some: slice) -> None:
            numbers = np.arange(len(lines))
            lines[numbers[:, None], units[some]] = words
            lines[numbers, i] = power(spec.b, each.large[1])
            lines[numbers, minus[some]] = power(spec.b, each.large[1], negative=True)

        d = self._subject.of_columns(self._a, self._rows[0], self._columns, len(units), fill)
        found = np.empty(len(order), bool)
        found[order] = units_in(d, spec, each).astype(np.int64)[query] >> bit & 1
        return found

    def _survivors(self, i: int, j: Ints, window: Ints) -> Floats:
        return self._of_columns(np.full(len(j), i), j, [window] * len(j))

    def _of_columns(self, i: Ints, j: Ints, windows: Sequence[Ints]) -> Floats:
        """Return the units that survive in a window beside each pair, [queries]. i and j hold no unit."""
        spec, each = self._subject.spec, self._units
        of_window: dict[int, Bits] = {}  # most queries share their window
        for window in windows:
            if id(window) not in of_window:
                of_window[id(window)] = np.zeros(spec.k, spec.b.dtype)
                of_window[id(window)][window] = power(spec.b, each.unit[1])

        def fill(lines: Bits, some: slice) -> None:
            numbers = np.arange(len(lines))
            for number, window in enumerate(windows[some]):
                lines[number] = of_window[id(window)]
            lines[numbers, i[some]] = power(spec.b, each.large[1])
            lines[numbers, j[some]] = power(spec.b, each.large[1], negative=True)

        return units_in(self._subject.of_columns(self._a, self._rows[0], self._columns, len(i), fill), spec, each)


def make_tree_builder(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> TreeBuilder:
    spec = subject.spec
    if spec.a_exponent is None:
        return TreeBuilder(ProductPairs(subject, rows, columns, measured_units(subject, rows, columns, leaves)))
    return TreeBuilder(ColumnPairs(subject, rows, columns, units_of_b(spec, spec.a_exponent)))
