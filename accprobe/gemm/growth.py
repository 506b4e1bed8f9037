"""The tree of K, from sizes of parts: along the way from one product up to the root, what joins at each sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.pairs import Floats, Ints, is_whole

Sizes = Callable[[Ints, Ints], Floats]
"""`Pairs.sizes`."""

SAMPLED = 3
"""Parts of one shape of which the inside is asked; of the others it is taken to be the same, until the verification."""


class NoTree(AccprobeError):
    """The sizes are those of no tree: large products do not swamp units, or elements are not added up alike."""


@dataclass(frozen=True)
class Grown:
    """A part of the tree as it grows around its first product: what joins at each sum on the way up, products or other parts."""

    first: int
    joins: tuple[tuple[int | Grown, ...], ...]

    def shifted(self, by: int) -> Grown:
        moved = (tuple(x + by if isinstance(x, int) else x.shifted(by) for x in join) for join in self.joins)
        return Grown(self.first + by, tuple(moved))

    def ks(self) -> list[int]:
        found = [self.first]
        for join in self.joins:
            for x in join:
                found += [x] if isinstance(x, int) else x.ks()
        return found


class Growth:
    """Asks what it needs to know of the tree."""

    def __init__(self, sizes: Sizes, leaves: Ints) -> None:
        self._sizes, self._leaves = sizes, leaves
        self._known: dict[tuple[int, ...], list[tuple[int | Grown, ...]]] = {}

    def tree(self) -> Grown:
        """Raises NoTree."""
        return self._part(self._leaves)

    def _part(self, ks: Ints) -> Grown:
        first = int(ks[0])
        if len(ks) == 1:
            return Grown(first, ())
        sizes = self._asked(ks[:1], ks[1:])[0]
        joins: list[tuple[int | Grown, ...]] = []
        below = 1
        for size in np.unique(sizes):
            new = ks[1:][sizes == size]
            if below + len(new) != size:
                raise NoTree(f"{len(new)} products join product {first} in a sum of {int(size)}, after {below} others")
            joins.append(self._inside(new, int(size)))
            below = int(size)
        return Grown(first, tuple(joins))

    def _inside(self, ks: Ints, size: int) -> tuple[int | Grown, ...]:
        """What the products that join in one sum are before: each for itself, or parts of their own."""
        if len(ks) == 1:
            return (int(ks[0]),)
        key = tuple((ks - ks[0]).tolist())
        known = self._known.setdefault(key, [])
        if len(known) >= SAMPLED and all(x == known[0] for x in known):
            return tuple(x + int(ks[0]) if isinstance(x, int) else x.shifted(int(ks[0])) for x in known[0])
        found: list[int | Grown] = []
        left = ks
        while len(left):
            sizes = self._asked(left[:1], left)[0]
            inner = sizes < size
            found.append(int(left[0]) if inner.sum() == 1 else self._part(left[inner]))
            if inner.sum() == 1 and self._all_apart(left, size):
                found[-1:] = [int(k) for k in left]
                break
            left = left[~inner]
        base = int(ks[0])
        known.append(tuple(x - base if isinstance(x, int) else x.shifted(-base) for x in found))
        return tuple(found)

    def _all_apart(self, ks: Ints, size: int) -> bool:
        """Whether no two of them join before the sum of that size: asked of each pair of neighbours, and of the ends."""
        if len(ks) > 1 << 10:
            return False
        sizes = self._asked(ks, ks)
        np.fill_diagonal(sizes, size)
        return bool(np.all(sizes == size))

    def _asked(self, i: Ints, j: Ints) -> Floats:
        sizes = self._sizes(i, j)
        if not is_whole(sizes, len(self._leaves)):
            raise NoTree("of the products beside two large ones that cancel, the number that comes out is not whole")
        return sizes
