"""Build a summation tree from subtree sizes: follow one leaf up to the root and collect what is added at each sum.

The sizes are measured by `LeafPairs`: for an instruction in separate dot products (infer/experiments/order.py), for a matrix
product in the rows and columns of D (gemm/tree/pairs.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.error_free import Integers as Ints

# Subtrees of one shape that are probed; further ones are assumed equal until verification.
SAMPLED_PARTS = 3
# Maximum width of a fused sum. Wider ones mean that large products do not absorb units.
WIDEST = 64


class LeafPairs(Protocol):
    """Measurements of pairs of leaves, by the means of a subject."""

    def sizes(self, i: int, j: Ints, leaves: Ints) -> Floats:
        """Return the number of `leaves` in the smallest subtree with i and each j, [len(j)]; all other leaves are zero."""

    def joined_with(self, i: int, ks: Ints, before: int) -> NDArray[np.bool_]:
        """Return which of n leaves are added to i (one of them) before `before` is, [n]."""


class NoTree(AccprobeError):
    """The measured sizes fit no tree: large terms do not absorb units, or elements differ in their order of additions."""


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
    """Probes and builds the tree, with only SAMPLED_PARTS of the subtrees of one shape.

    both_ends: whether to start at the last leaf, too, if no order of sums shows from the first one. A long chain that runs from
    the last leaf to the first needs few queries then.
    """

    def __init__(self, pairs: LeafPairs, *, both_ends: bool = True) -> None:
        self._pairs, self._both_ends = pairs, both_ends
        self._known: dict[tuple[int, ...], list[tuple[int | PartialTree, ...]]] = {}

    def tree(self, ks: Ints) -> PartialTree:
        first, sums = int(ks[0]), list(self._joins(ks, int(ks[0])))
        if self._both_ends and len(ks) > 2 and (len(sums) == 1 or not _are_known(sums)):
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
            except NoTree:  # these belong to another slice, and are added in any order
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
        if not _is_whole(sizes, len(ks)):
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


def _are_known(sums: Sequence[tuple[Ints | None, bool]]) -> bool:
    return all(new is not None for new, _ in sums)


def _is_whole(sizes: Floats, leaves: int) -> bool:
    """Return whether all sizes are whole numbers from 1 to `leaves`."""
    return bool(np.all((sizes >= 1) & (sizes <= leaves) & (sizes == np.round(sizes))))
