"""The tree of K, from sizes of parts: along the way from one product up to the root, what joins at each sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.pairs import Floats, Ints, is_whole

Sizes = Callable[[Ints, Ints, Ints], Floats]
"""`Pairs.sizes`."""

SAMPLED = 3
"""Parts of one shape of which the inside is asked; of the others it is taken to be the same, until the verification."""


class NoTree(AccprobeError):
    """The sizes are those of no tree: large products do not swamp units, or elements are not added up alike."""


@dataclass(frozen=True)
class Grown:
    """A part of the tree as it grows around its first product: what joins at each sum on the way up."""

    first: int
    joins: tuple[tuple[int | Grown, ...], ...]

    @property
    def is_chain(self) -> bool:
        return all(isinstance(x, int) for join in self.joins for x in join)

    def mapped(self, change: Callable[[int], int | Grown]) -> Grown:
        """The tree with other products, or parts, in the place of its products; the first becomes a part's beginning."""
        first = change(self.first)
        joins = tuple(tuple(change(x) if isinstance(x, int) else x.mapped(change) for x in join) for join in self.joins)
        return Grown(first, joins) if isinstance(first, int) else Grown(first.first, (*first.joins, *joins))

    def shifted(self, by: int) -> Grown:
        return self.mapped(lambda k: k + by)

    def ks(self) -> list[int]:
        found = [self.first]
        for join in self.joins:
            for x in join:
                found += [x] if isinstance(x, int) else x.ks()
        return found


class Growth:
    """Asks what it needs to know of the tree.

    pairs: of every product with every other; triples: of few products, one of each chain or sum. far: whether the large
    numbers of pairs swamp sums of units too, so that pairs alone tell the tree. thorough: whether nothing is taken to be like
    what was asked before.
    """

    def __init__(self, pairs: Sizes, triples: Sizes, far: bool, thorough: bool = False) -> None:
        self._pairs, self._triples, self._far = pairs, triples, far
        self._sampled = 1 << 30 if thorough else SAMPLED
        self._known: dict[tuple[int, ...], list[tuple[int | Grown, ...]]] = {}

    def tree(self, leaves: Ints) -> Grown:
        """Raises NoTree."""
        if self._far:
            try:
                return self._part(leaves, self._pairs)
            except NoTree:
                self._known.clear()
        by_first = {chain.first: chain for chain in self.chains(leaves)}
        self._known.clear()
        firsts = np.array(sorted(by_first), np.int64)
        return self._part(firsts, self._triples).mapped(lambda k: by_first[k])

    def chains(self, leaves: Ints) -> list[Grown]:
        """What is added up in one accumulator each, whatever becomes of the sums."""
        found: list[Grown] = []
        left = leaves
        while len(left):
            chain = self._repeated(found, left) or self._chain(left)
            found.append(chain)
            left = np.setdiff1d(left, chain.ks())
        return found

    def _repeated(self, found: list[Grown], left: Ints) -> Grown | None:
        """The last chain once more, where the last few are alike and as many products are left."""
        alike = {chain.shifted(-chain.first) for chain in found[-self._sampled :]}
        if len(found) < self._sampled or len(alike) > 1:
            return None
        chain = next(iter(alike)).shifted(int(left[0]))
        return chain if np.isin(chain.ks(), left).all() else None

    def _chain(self, left: Ints) -> Grown:
        """The sums from the first product on to which products alone are added."""
        first = int(left[0])
        joins: list[tuple[int | Grown, ...]] = []
        below = 1
        sizes = self._pairs(left[:1], left[1:], left)[0] if len(left) > 1 else np.zeros(0)
        exact = bool(np.count_nonzero(sizes == 2) > 1)
        for size in np.unique(sizes):
            new = left[1:][sizes == size]
            wanted = len(new) if exact and _is_exact(size, below, len(new)) else int(size) - below
            if not self._far and 0 < wanted < len(new):
                new = self._of_this_chain(first, new, wanted)
            if len(new) != wanted:
                break
            inside = (*map(int, new),) if exact else self._inside(new, first, self._pairs)
            if not all(isinstance(x, int) for x in inside):
                break
            joins.append(inside)
            below += len(new)
        if not self._far and joins:
            sums = [int(join[0]) for join in joins if isinstance(join[0], int)]
            beside = np.setdiff1d(left, [first, *(x for join in joins for x in join if isinstance(x, int))])
            near = beside[np.argsort(np.abs(beside - sums[-1]), kind="stable")]
            joins = joins[: self._extent(first, sums, [*map(int, near[:2]), *map(int, beside[-1:])])]
        return Grown(first, tuple(joins))

    def _of_this_chain(self, first: int, ks: Ints, wanted: int) -> Ints:
        """Those that join the chain, of some of which others join a sum elsewhere, where each is lost with the others.

        Parts that have the first product lie in one another: of the smallest, the fewest of any products are lost.
        """
        spread = np.linspace(0, len(ks) - 1, min(AT_ONCE, len(ks))).astype(np.int64)
        some = np.union1d(ks[: AT_ONCE // 2], ks[spread])
        sizes = self._triples(np.array([first]), ks, np.union1d(some, [first]))[0]
        return np.asarray(ks[sizes == sizes.min()] if sizes.min() <= 1 + wanted else ks[:0])

    def _extent(self, first: int, sums: list[int], outside: list[int]) -> int:
        """How many of the sums, of each a product, follow one another: what a pair leaves grows by one from each to the next.

        Few are asked at a time, then those between the last that does and the first that does not. outside: products that are
        in none of them, which would be lost with the last if that were not of this chain.
        """
        low, high = 0, len(sums)
        beyond = list(dict.fromkeys(outside))
        while low < high:
            some = np.unique(
                [*np.linspace(low, high - 1, min(AT_ONCE, high - low)).astype(np.int64), high - 1, max(low, high - 2)]
            )
            ks = np.array([first, *(sums[i] for i in some), *beyond], np.int64)
            sizes = self._triples(ks[:1], ks[1:], np.sort(ks))[0][: len(some)]
            apart = np.flatnonzero(sizes != np.arange(2, len(some) + 2))
            if not len(apart):
                return high
            bad = int(apart[0])
            if bad == 0 or some[bad] == some[bad - 1] + 1:
                return int(some[bad])
            low, high = int(some[bad - 1]) + 1, int(some[bad])
            beyond = list(dict.fromkeys([*outside, sums[some[bad]], sums[some[-1]]]))
        return high

    def _part(self, ks: Ints, ask: Sizes) -> Grown:
        first = int(ks[0])
        if len(ks) == 1:
            return Grown(first, ())
        sizes = ask(ks[:1], ks[1:], ks)[0]
        if not is_whole(sizes, len(ks)):
            raise NoTree("beside two large products that cancel, no whole number of the others comes out")
        joins: list[tuple[int | Grown, ...]] = []
        below = 1
        for size in np.unique(sizes):
            new = ks[1:][sizes == size]
            if below + len(new) == size:
                joins.append(self._inside(new, first, ask))
            elif _is_exact(size, below, len(new)):
                joins.append(tuple(map(int, new)))
            else:
                raise NoTree(f"{len(new)} products join product {first} in a sum of {int(size)}, after {below} others")
            below += len(new)
        return Grown(first, tuple(joins))

    def _inside(self, ks: Ints, below: int, ask: Sizes) -> tuple[int | Grown, ...]:
        """What the products that join in one sum are before: each for itself, or parts of their own.

        below: a product that was there before they join, beside which it shows whether they have joined one another.
        """
        if len(ks) == 1:
            return (int(ks[0]),)
        base = int(ks[0])
        known = self._known.setdefault(tuple((ks - base).tolist()), [])
        if len(known) >= self._sampled and all(x == known[0] for x in known):
            return tuple(x + base if isinstance(x, int) else x.shifted(base) for x in known[0])
        found: list[int | Grown] = []
        left = ks
        while len(left):
            together = np.union1d(left, [below])
            joined = ask(left[:1], left, together)[0] < len(together)
            if joined.sum() <= 1 and len(left) <= FEW:
                others = ask(left, left, together)
                np.fill_diagonal(others, len(together))
                if np.all(others == len(together)):
                    found += map(int, left)
                    break
            found.append(int(left[0]) if joined.sum() <= 1 else self._part(left[joined], ask))
            left = left[~joined] if joined.any() else left[1:]
        known.append(tuple(x - base if isinstance(x, int) else x.shifted(-base) for x in found))
        return tuple(found)


AT_ONCE = 48
"""Sums of a chain that are asked about at once."""

WIDEST = 64
"""Products of an exact sum: where more seem to be in one, large products do not swamp units."""

FEW = 256
"""Products of which every pair is asked at once."""


def _is_exact(size: float, below: int, new: int) -> bool:
    """Whether those that join are of an exact sum: what cancels there leaves all others of that sum."""
    return 1 < new <= WIDEST and size == below + 1
