"""The tree of K, from sizes of parts: along the way from one product up to the root, what joins at each sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.gemm.multiplicity import alone
from accprobe.gemm.pairs import ColumnPairs, Ints, ProductPairs, is_whole
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import Units, candidates, fewer, of_b, power, units_in
from accprobe.isa.formats import Bits

SAMPLED_PARTS = 3
"""Parts of one shape of which the inside is asked; of the others it is taken to be the same, until the verification."""


class NoTree(AccprobeError):
    """The sizes are those of no tree: large products do not swamp units, or elements are not added up alike."""


@dataclass(frozen=True)
class PartialTree:
    """A part of the tree as it grows around its first product: what joins at each sum on the way up."""

    first: int
    joins: tuple[tuple[int | PartialTree, ...], ...]

    @property
    def is_chain(self) -> bool:
        return all(isinstance(x, int) for join in self.joins for x in join)

    def mapped(self, change: Callable[[int], int | PartialTree]) -> PartialTree:
        """The tree with other products, or parts, in the place of its products; the first becomes a part's beginning."""
        first = change(self.first)
        joins = tuple(tuple(change(x) if isinstance(x, int) else x.mapped(change) for x in join) for join in self.joins)
        return PartialTree(first, joins) if isinstance(first, int) else PartialTree(first.first, (*first.joins, *joins))

    def shifted(self, by: int) -> PartialTree:
        return self.mapped(lambda k: k + by)

    def ks(self) -> list[int]:
        found = [self.first]
        for join in self.joins:
            for x in join:
                found += [x] if isinstance(x, int) else x.ks()
        return found


class TreeBuilder:
    """Asks what it needs to know of the tree. thorough: whether nothing is taken to be like what was asked before."""

    def __init__(self, pairs: ProductPairs | ColumnPairs, thorough: bool = False) -> None:
        self._pairs = pairs
        self._sampled = 1 << 30 if thorough else SAMPLED_PARTS
        self._known: dict[tuple[int, ...], list[tuple[int | PartialTree, ...]]] = {}

    def tree(self, ks: Ints) -> PartialTree:
        """Of some products. Raises NoTree."""
        first, sums = int(ks[0]), list(self._joins(ks, int(ks[0])))
        if len(ks) > 2 and (len(sums) == 1 or not _are_told(sums)):
            backward = list(self._joins(ks, int(ks[-1])))
            if len(backward) > 1 and _are_told(backward):  # the first product joins last of all, the last one first
                first, sums = int(ks[-1]), backward
        joins: list[tuple[int | PartialTree, ...]] = []
        for new, exact in sums:
            if new is None:
                raise NoTree("beside two large products that cancel, no whole number of the others comes out as a tree has it")
            joins.append((*map(int, new),) if exact else self._inside(new, first))
        return _from_its_beginning(PartialTree(first, tuple(joins)))

    def chains(self, leaves: Ints) -> list[PartialTree]:
        """What is added up in one accumulator each, whatever becomes of the sums."""
        found: list[PartialTree] = []
        left = leaves
        while len(left):
            chain = self._repeated(found, left) or self._chain(left)
            found.append(chain)
            left = np.setdiff1d(left, chain.ks())
        return found

    def _repeated(self, found: list[PartialTree], left: Ints) -> PartialTree | None:
        """The last chain once more, where the last few are alike and as many products are left."""
        alike = {chain.shifted(-chain.first) for chain in found[-self._sampled :]}
        if len(found) < self._sampled or len(alike) > 1:
            return None
        chain = next(iter(alike)).shifted(int(left[0]))
        return chain if np.isin(chain.ks(), left).all() else None

    def _chain(self, left: Ints) -> PartialTree:
        """The sums from the first product on to which products alone are added."""
        first = int(left[0])
        joins: list[tuple[int | PartialTree, ...]] = []
        for new, exact in self._joins(left, first):
            if new is None:
                break
            try:
                inside = (*map(int, new),) if exact else self._inside(new, first)
            except NoTree:  # of another slice, where these are added in any order
                break
            if not all(isinstance(x, int) for x in inside):
                break
            joins.append(inside)
        return PartialTree(first, tuple(joins))

    def _joins(self, ks: Ints, first: int) -> Iterator[tuple[Ints | None, bool]]:
        """What of some products joins one of them, that is first, at each sum, and whether that is an exact one; None where the
        sizes are of no tree.
        """
        if len(ks) == 1:
            return
        others = ks[ks != first]
        sizes, below = self._pairs.sizes(first, others, ks), 1
        if not is_whole(sizes, len(ks)):
            yield None, False
            return
        for size in np.unique(sizes):
            new = others[sizes == size]
            exact = _is_exact(size, below, len(new))
            if below + len(new) != size and not exact:
                yield None, False
                return
            yield new, exact
            below += len(new)

    def _inside(self, ks: Ints, below: int) -> tuple[int | PartialTree, ...]:
        """What the products that join in one sum are before: each for itself, or parts of their own.

        below: a product that was there before they join, beside which it shows whether they have joined one another.
        """
        if len(ks) == 1:
            return (int(ks[0]),)
        base = int(ks[0])
        known = self._known.setdefault(tuple((ks - base).tolist()), [])
        if len(known) >= self._sampled and all(x == known[0] for x in known):
            return tuple(x + base if isinstance(x, int) else x.shifted(base) for x in known[0])
        found: list[int | PartialTree] = []
        every = self._pairs.joined(ks, below) if len(ks) <= ALL_PAIRS else None
        left = ks
        while len(left):
            first = int(left[0])
            joined = self._pairs.joined_with(first, left, below) if every is None else every[ks == first][0, np.isin(ks, left)]
            found.append(first if joined.sum() <= 1 else self.tree(left[joined]))
            left = left[~joined]
        known.append(tuple(x - base if isinstance(x, int) else x.shifted(-base) for x in found))
        return tuple(found)


def growth(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, thorough: bool = False) -> TreeBuilder:
    """Of some products, asked in some rows and columns of D."""
    spec = asked.spec
    if spec.a_exponent is None:
        return TreeBuilder(ProductPairs(asked, rows, columns, measured_units(asked, rows, columns, leaves)), thorough)
    a, _ = layout_of(spec).blank()
    return TreeBuilder(ColumnPairs(asked, int(rows[0]), columns, a, of_b(spec, spec.a_exponent)), thorough)


def _from_its_beginning(grown: PartialTree) -> PartialTree:
    """A product that joins nothing but a chain is that chain's next one."""
    if grown.joins and len(grown.joins[0]) == 1:
        (part,) = grown.joins[0]
        if isinstance(part, PartialTree) and part.is_chain:
            return PartialTree(part.first, (*part.joins, (grown.first,), *grown.joins[1:]))
    return grown


def _are_told(sums: Sequence[tuple[Ints | None, bool]]) -> bool:
    return all(new is not None for new, _ in sums)


WIDEST = 64
"""Products of an exact sum: where more seem to be in one, large products do not swamp units."""

ALL_PAIRS = 256
"""Products of which every pair is asked at once."""


def _is_exact(size: float, below: int, new: int) -> bool:
    """Whether those that join are of an exact sum: what cancels there leaves all others of that sum."""
    return 1 < new <= WIDEST and size == below + 1


SOME, FEWER = 32, 64
"""Draws of units all over K that are counted, and how many fewer each may have than are counted at once: formats that keep a
bit less are told by odd numbers.
"""


def measured_units(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> Units:
    """The farthest apart of which a unit comes out alone at each k and large numbers cancel, whatever the two are, and as many
    units as are counted without rounding. The nearest where none does.
    """
    several = list(candidates(asked.spec))
    for each in several[:-1]:
        if _comes_out(asked, rows, columns, leaves, each) and _cancels(asked, rows, columns, leaves, each):
            return _counting(asked, rows, columns, leaves, each)
    return _counting(asked, rows, columns, leaves, several[-1])


def _comes_out(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    words = (power(fmt, e) for fmt, e in zip((asked.spec.a, asked.spec.b), each.unit, strict=True))
    return bool(np.all(alone(asked, rows, columns, leaves, *words) == 2.0 ** sum(each.unit)))


def _cancels(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    """A large number of each row with one of each column, all over K."""
    spec = asked.spec
    order = np.random.default_rng(len(leaves)).permutation(leaves)
    half = len(order) // 2
    if not half:
        return True
    i, j = np.resize(order[:half], len(rows)), np.resize(order[half:], len(columns))
    a, b = _zeros(spec)
    a[rows, i], b[:, i] = (power(fmt, e) for fmt, e in zip((spec.a, spec.b), each.large, strict=True))
    a[:, j] = power(spec.a, each.large[0])
    b[columns, j] = power(spec.b, each.large[1], negative=True)
    d = asked.product(a, b)[np.ix_(rows, columns)]
    return bool(np.all(spec.out.values(d) == 0))


def _counting(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> Units:
    """With as few units at once as are counted rightly: of neighbours, and all over K."""
    rng = np.random.default_rng(len(leaves))
    for most in fewer(each.most):
        runs = [leaves[start : start + most] for start in range(0, len(leaves), most)]
        runs += [rng.permutation(leaves)[:most] for _ in range(SOME)]
        runs = [run[rng.permutation(len(run)) >= rng.integers(0, FEWER)] for run in runs]
        if all(_counts(asked, rows, columns, runs[top : top + len(rows)], each) for top in range(0, len(runs), len(rows))):
            break
    return replace(each, most=most)


def _counts(asked: RecordedCallable, rows: Ints, columns: Ints, runs: list[Ints], each: Units) -> bool:
    spec = asked.spec
    a, b = _zeros(spec)
    for row, run in zip(rows, runs, strict=False):
        a[row, run] = power(spec.a, each.unit[0])
    b[:, :] = power(spec.b, each.unit[1])
    d = asked.product(a, b)[np.ix_(rows[: len(runs)], columns)]
    sizes = np.array([len(run) for run in runs])
    return bool(np.all(units_in(d, spec, each) == sizes[:, None]))


def _zeros(spec: Spec) -> tuple[Bits, Bits]:
    return np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
