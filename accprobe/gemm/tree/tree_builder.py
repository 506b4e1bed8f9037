"""Build the summation tree of K from subtree sizes: follow one product up to the root and collect what is added at each sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.callables.operands import Ints, layout_of, power
from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks.contract import single_products
from accprobe.gemm.tree.pairs import ColumnPairs, ProductPairs, is_whole
from accprobe.gemm.tree.units import Units, batch_sizes, unit_candidates, units_in, units_of_b

# Subtrees of one shape that are probed; further ones are assumed equal until verification.
SAMPLED_PARTS = 3


class NoTree(AccprobeError):
    """The measured sizes fit no tree: large products do not absorb units, or elements differ in their order of additions."""


@dataclass(frozen=True)
class PartialTree:
    """A subtree seen from its first product. joins: the products and subtrees added at each sum on the way up."""

    first: int
    joins: tuple[tuple[int | PartialTree, ...], ...]

    @property
    def is_chain(self) -> bool:
        return all(isinstance(x, int) for join in self.joins for x in join)

    def shifted(self, by: int) -> PartialTree:
        joins = tuple(tuple(x + by if isinstance(x, int) else x.shifted(by) for x in join) for join in self.joins)
        return PartialTree(self.first + by, joins)

    def from_its_start(self) -> PartialTree:
        """Return the tree as seen from the chain that is added up first, if its first product joins an earlier partial sum."""
        if not self.joins:
            return self
        before = [x for x in self.joins[0] if isinstance(x, PartialTree)]
        if len(before) != 1 or (len(self.joins[0]) == 1 and not before[0].is_chain):
            return self
        others = tuple(x for x in self.joins[0] if isinstance(x, int))
        return PartialTree(before[0].first, (*before[0].joins, (self.first, *others), *self.joins[1:]))

    def ks(self) -> list[int]:
        found = [self.first]
        for join in self.joins:
            for x in join:
                found += [x] if isinstance(x, int) else x.ks()
        return found


class TreeBuilder:
    """Probes and builds the tree, with only SAMPLED_PARTS of the subtrees of one shape."""

    def __init__(self, pairs: ProductPairs) -> None:
        self._pairs = pairs
        self._known: dict[tuple[int, ...], list[tuple[int | PartialTree, ...]]] = {}

    def tree(self, ks: Ints) -> PartialTree:
        first, sums = int(ks[0]), list(self._joins(ks, int(ks[0])))
        if len(ks) > 2 and (len(sums) == 1 or not _are_known(sums)):
            backward = list(self._joins(ks, int(ks[-1])))
            if len(backward) > 1 and _are_known(backward):  # the chain runs from the last k to the first
                first, sums = int(ks[-1]), backward
        joins: list[tuple[int | PartialTree, ...]] = []
        for new, exact in sums:
            if new is None:
                raise NoTree("the number of products that survive beside two cancelling large products fits no summation tree")
            joins.append((*map(int, new),) if exact else self._inside(new, first))
        return PartialTree(first, tuple(joins)).from_its_start()

    def chains(self, leaves: Ints) -> list[PartialTree]:
        """Return the products that share an accumulator, without the order in which the accumulators are added."""
        found: list[PartialTree] = []
        left = leaves
        while len(left):
            chain = self._repeated(found, left) or self._chain(left)
            found.append(chain)
            left = np.setdiff1d(left, chain.ks())
        return found

    def _repeated(self, found: list[PartialTree], left: Ints) -> PartialTree | None:
        """Return the last chain, shifted, if the last few are equal and the products that remain include it."""
        shapes = {chain.shifted(-chain.first) for chain in found[-SAMPLED_PARTS:]}
        if len(found) < SAMPLED_PARTS or len(shapes) > 1:
            return None
        chain = next(iter(shapes)).shifted(int(left[0]))
        return chain if np.isin(chain.ks(), left).all() else None

    def _chain(self, left: Ints) -> PartialTree:
        """Return the chain that starts at the first remaining product; it ends where a subtree is added."""
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
        """Yield the products added to `first` at each sum, and whether that sum is fused; None if the sizes fit no tree."""
        if len(ks) == 1:
            return
        others = ks[ks != first]
        sizes, below = self._pairs.sizes(first, others, ks), 1
        if not is_whole(sizes, len(ks)):
            yield None, False
            return
        for size in np.unique(sizes):
            new = others[sizes == size]
            exact = 1 < len(new) <= WIDEST and size == below + 1  # one fused sum: if two terms cancel, all others survive
            if below + len(new) != size and not exact:
                yield None, False
                return
            yield new, exact
            below += len(new)

    def _inside(self, ks: Ints, below: int) -> tuple[int | PartialTree, ...]:
        """Return the products and subtrees that one sum adds.

        below: a product added earlier, used to detect which of the others are added to one another first.
        """
        if len(ks) == 1:
            return (int(ks[0]),)
        base = int(ks[0])
        known = self._known.setdefault(tuple((ks - base).tolist()), [])
        if len(known) >= SAMPLED_PARTS and all(x == known[0] for x in known):
            return tuple(x + base if isinstance(x, int) else x.shifted(base) for x in known[0])
        found: list[int | PartialTree] = []
        left = ks
        while len(left):
            joined = self._pairs.joined_with(int(left[0]), left, below)
            found.append(int(left[0]) if joined.sum() <= 1 else self.tree(left[joined]))
            left = left[~joined]
        known.append(tuple(x - base if isinstance(x, int) else x.shifted(-base) for x in found))
        return tuple(found)


def make_tree_builder(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> TreeBuilder:
    spec = subject.spec
    if spec.a_exponent is None:
        return TreeBuilder(ProductPairs(subject, rows, columns, measured_units(subject, rows, columns, leaves)))
    return TreeBuilder(ColumnPairs(subject, rows, columns, units_of_b(spec, spec.a_exponent)))


def _are_known(sums: Sequence[tuple[Ints | None, bool]]) -> bool:
    return all(new is not None for new, _ in sums)


# Maximum width of a fused sum. Wider ones mean that large products do not absorb units.
WIDEST = 64

# Random windows of units over all of K that check the count, and the reciprocal share of units left out. Odd counts reveal
# formats with one bit less.
RANDOM_WINDOWS, OMIT_AT_MOST = 32, 64


def measured_units(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> Units:
    """Return the units farthest from the large products that are visible, cancel and count exactly; else the nearest."""
    spec, candidates = subject.spec, list(unit_candidates(subject.spec))
    for each in candidates[:-1]:
        words = power(spec.a, each.unit[0]), power(spec.b, each.unit[1])
        visible = single_products(subject, rows, columns, leaves, *words) == 2.0 ** sum(each.unit)
        if visible.all() and _cancels(subject, rows, columns, leaves, each):
            return _with_batch_size(subject, rows, columns, leaves, each)
    return _with_batch_size(subject, rows, columns, leaves, candidates[-1])


def _cancels(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    """Return whether one large number of each row cancels with one of each column, anywhere in K."""
    spec = subject.spec
    order = np.random.default_rng(len(leaves)).permutation(leaves)
    half = len(order) // 2
    if not half:
        return True
    i, j = np.resize(order[:half], len(rows)), np.resize(order[half:], len(columns))
    a, b = layout_of(spec).blank()
    a[rows, i], b[:, i] = (power(fmt, e) for fmt, e in zip((spec.a, spec.b), each.large, strict=True))
    a[:, j] = power(spec.a, each.large[0])
    b[columns, j] = power(spec.b, each.large[1], negative=True)
    d = subject.product(a, b)[np.ix_(rows, columns)]
    return bool(np.all(spec.out.values(d) == 0))


def _with_batch_size(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> Units:
    """Return the units with the largest batch size that counts without error, for neighbouring k and across K."""
    rng = np.random.default_rng(len(leaves))
    for most in batch_sizes(each.most):
        runs = [leaves[start : start + most] for start in range(0, len(leaves), most)]
        runs += [rng.permutation(leaves)[:most] for _ in range(RANDOM_WINDOWS)]
        runs = [run[rng.permutation(len(run)) >= rng.integers(0, OMIT_AT_MOST)] for run in runs]
        if all(_counts(subject, rows, columns, runs[top : top + len(rows)], each) for top in range(0, len(runs), len(rows))):
            break
    return replace(each, most=most)


def _counts(subject: RecordedCallable, rows: Ints, columns: Ints, runs: list[Ints], each: Units) -> bool:
    spec = subject.spec
    a, b = layout_of(spec).blank()
    for row, run in zip(rows, runs, strict=False):
        a[row, run] = power(spec.a, each.unit[0])
    b[:, :] = power(spec.b, each.unit[1])
    d = subject.product(a, b)[np.ix_(rows[: len(runs)], columns)]
    sizes = np.array([len(run) for run in runs])
    return bool(np.all(units_in(d, spec, each) == sizes[:, None]))
