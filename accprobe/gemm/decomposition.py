"""From the tree as it grew to chains and how they are merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from accprobe.gemm.pairs import Ints
from accprobe.gemm.tree_builder import NoTree, PartialTree
from accprobe.model.product import Chain, Nested

FusedGroups = tuple[tuple[int, ...], ...]
"""The k of each fused sum of a chain, in turn."""


@dataclass(frozen=True)
class Reduction:
    """Parts that are added two at a time, in the order that `nested` says."""

    parts: tuple[FusedGroups | Reduction, ...]
    nested: Nested

    def flat(self) -> Reduction:
        """All chains below as parts of their own."""
        parts: list[FusedGroups] = []

        def number(part: FusedGroups | Reduction) -> Nested:
            if not isinstance(part, Reduction):
                parts.append(part)
                return len(parts) - 1
            return renumbered(part.nested, [number(x) for x in part.parts])

        whole = number(self)
        by_start = sorted(range(len(parts)), key=lambda i: min(parts[i][0]))
        place = [by_start.index(i) for i in range(len(parts))]
        return Reduction(tuple(parts[i] for i in by_start), renumbered(whole, place))


def renumbered(nested: Nested, numbers: Sequence[Nested]) -> Nested:
    return numbers[nested] if isinstance(nested, int) else tuple(renumbered(x, numbers) for x in nested)


def decompose(grown: PartialTree) -> FusedGroups | Reduction:
    """The chain, or the merged parts, that a tree is. Raises NoTree where three results of sums meet in one."""
    grown = _from_its_start(grown)
    leaves = 0
    while leaves < len(grown.joins) and all(isinstance(x, int) for x in grown.joins[leaves]):
        leaves += 1
    chain: FusedGroups = _groups(grown.first, [tuple(x for x in join if isinstance(x, int)) for join in grown.joins[:leaves]])
    later: list[FusedGroups | Reduction] = []
    for join in grown.joins[leaves:]:
        if len(join) != 1:
            raise NoTree(f"{len(join)} results of sums are added to another in one sum, beside product {grown.first}")
        later.append(((join[0],),) if isinstance(join[0], int) else decompose(join[0]))
    if not later:
        return chain
    # Chunks of one slice come first: chains that are added to the first one; whatever is merged before is another slice.
    chunks = next((i for i, part in enumerate(later) if isinstance(part, Reduction)), len(later))
    parts: list[FusedGroups | Reduction] = [chain, *later[:chunks]]
    if later[chunks:]:
        first = _forward(parts) if chunks else chain
        parts = [first, *later[chunks:]]
    return _forward(parts)


def _from_its_start(grown: PartialTree) -> PartialTree:
    """The tree as it grows around what is added up first, where its first product joins what was there before: with others, or
    alone a chain, of which it is the next product.
    """
    while grown.joins:
        before = [x for x in grown.joins[0] if isinstance(x, PartialTree)]
        if len(before) != 1 or (len(grown.joins[0]) == 1 and not before[0].is_chain):
            break
        others = tuple(x for x in grown.joins[0] if isinstance(x, int))
        grown = PartialTree(before[0].first, (*before[0].joins, (grown.first, *others), *grown.joins[1:]))
    return grown


def _forward(parts: Sequence[FusedGroups | Reduction]) -> Reduction:
    nested: Nested = 0
    for i in range(1, len(parts)):
        nested = (nested, i)
    return Reduction(tuple(parts), nested)


def _groups(first: int, joins: Sequence[tuple[int, ...]]) -> FusedGroups:
    """The first sum adds the first product and what joins it; unless products come one at a time."""
    if all(len(join) == 1 for join in joins):
        return ((first,), *joins)
    return (tuple(sorted((first, *joins[0]))), *(tuple(sorted(join)) for join in joins[1:]))


def exchanged(tree: FusedGroups | Reduction) -> FusedGroups | Reduction:
    """With the second sum of each chain before the first, which no order tells: both begin with nothing."""
    if isinstance(tree, Reduction):
        return replace(tree, parts=tuple(map(exchanged, tree.parts)))
    return (*tree[1::-1], *tree[2:]) if all(len(group) == 1 for group in tree[:2]) else tree


def every_chain(part: FusedGroups | Reduction) -> Iterator[FusedGroups]:
    if isinstance(part, Reduction):
        for x in part.parts:
            yield from every_chain(x)
    else:
        yield part


def width(part: FusedGroups | Reduction) -> int:
    """Products of a fused sum: as many as the most common sum has, of those that are largest where there are few."""
    counts = Counter(len(group) for chain in every_chain(part) for group in chain)
    return max(counts, key=lambda size: (counts[size] * size, size))


@lru_cache(maxsize=256)
def as_chain(groups: FusedGroups, products: int) -> Chain:
    """The chain as its pattern. Raises NoTree where a sum has more products than `products`."""
    if any(len(group) > products for group in groups):
        raise NoTree(f"sums of {products} products, and one of {max(map(len, groups))}, starting with product {groups[0][0]}")
    start, stop = min(map(min, groups)), max(map(max, groups)) + 1
    for sums in (1, 2, 3, 4, 6, 8, 16, 32):
        for whole in (groups[0], groups[1] if len(groups) > 1 else groups[0]):
            found = _repeating(groups, products, sums, start, stop, whole)
            if found is not None:
                return found
    beyond = stop - start
    pattern = [k - start for group in groups for k in (*group, *[start + beyond] * (products - len(group)))]
    return Chain(start, stop, tuple(pattern), period=beyond + 1)


def _repeating(groups: FusedGroups, products: int, sums: int, start: int, stop: int, second: tuple[int, ...]) -> Chain | None:
    """The chain that repeats after so many sums, if it is these groups; where the first is short, told by the second."""
    shift = 0
    model = groups
    if second is not groups[0]:
        model = groups[1:]
    head = model[:sums]
    if any(len(group) < products for group in head):
        return None
    flat = [k for group in head for k in group]
    period = model[sums][0] - model[0][0] if len(model) > sums else max(flat) - min(flat) + 1
    if period <= 0:
        return None
    if second is not groups[0]:
        shift = min(flat) - period * 1 - start if sums == 1 else 0
    base = start + shift
    pattern = tuple(k - (min(flat) if second is not groups[0] else base) for k in flat)
    chain = Chain(start, stop, pattern, 0 if period == len(pattern) else period, shift)
    return chain if groups_of(chain, products) == groups else None


def groups_of(chain: Chain, products: int) -> FusedGroups:
    """The k of each sum of a chain, in turn."""
    ks = chain.ks().reshape(-1, products).tolist()
    return tuple(found for group in ks if (found := tuple(sorted(k for k in group if k >= 0))))


def with_doubled(tree: FusedGroups | Reduction, doubled: Ints) -> FusedGroups | Reduction:
    """The tree with those k at the end of one chain and at the beginning of the next. Raises NoTree where that is elsewhere."""
    for k in map(int, doubled):
        ends = any(k - 1 in chain[-1] for chain in every_chain(tree))
        begins = any(k + 1 in chain[0] for chain in every_chain(tree))
        if not ends and not begins:
            raise NoTree(f"product {k} is counted twice, and not where one chain ends and another begins")
    products = width(tree)
    runs = [int(k) for k in doubled]
    return _added(tree, runs, products)


def _added(part: FusedGroups | Reduction, doubled: list[int], products: int) -> FusedGroups | Reduction:
    if isinstance(part, Reduction):
        return Reduction(tuple(_added(x, doubled, products) for x in part.parts), part.nested)
    groups = list(part)
    for k in doubled:
        if k - 1 in groups[-1]:
            groups[-1:] = [(*groups[-1], k)] if len(groups[-1]) < products else [groups[-1], (k,)]
    for k in reversed(doubled):
        if k + 1 in groups[0]:
            groups[:1] = [(k, *groups[0])] if len(groups[0]) < products else [(k,), groups[0]]
    return tuple(groups)
