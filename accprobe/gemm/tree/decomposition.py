"""Decompose a summation tree into chains of fused sums and the reduction of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from accprobe.gemm.layout import Ints
from accprobe.gemm.tree.tree_builder import NoTree, PartialTree
from accprobe.model.product import Chain, Nested, Order, nested

# Fused sums after which the k of a chain may repeat.
PERIODS = (1, 2, 3, 4, 6, 8, 16, 32)

# The k of each fused sum of a chain, in order.
FusedGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Reduction:
    """Partial sums and the order in which pairs of them are added (`nested`)."""

    parts: tuple[FusedGroups | Reduction, ...]
    nested: Nested

    def flat(self) -> Reduction:
        """Return the reduction with every chain as a part of its own."""
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


def decompose(partial: PartialTree) -> FusedGroups | Reduction:
    """Return the chain or reduction that a tree is. Raises NoTree if one sum adds three partial sums."""
    leaves = 0
    while leaves < len(partial.joins) and all(isinstance(x, int) for x in partial.joins[leaves]):
        leaves += 1
    chain: FusedGroups = _groups(
        partial.first, [tuple(x for x in join if isinstance(x, int)) for join in partial.joins[:leaves]]
    )
    later: list[FusedGroups | Reduction] = []
    for join in partial.joins[leaves:]:
        if len(join) != 1:
            raise NoTree(f"one sum adds {len(join)} partial sums to another, at product {partial.first}")
        later.append(((join[0],),) if isinstance(join[0], int) else decompose(join[0]))
    if not later:
        return chain
    # Chunks of one slice come first: chains that are added to the first one; whatever is merged before is another slice.
    chunks = next((i for i, part in enumerate(later) if isinstance(part, Reduction)), len(later))
    parts: list[FusedGroups | Reduction] = [chain, *later[:chunks]]
    if later[chunks:]:
        first = forward(parts) if chunks else chain
        parts = [first, *later[chunks:]]
    return forward(parts)


def forward(parts: Sequence[FusedGroups | Reduction]) -> Reduction:
    return Reduction(tuple(parts), nested("forward", len(parts)))


def _groups(first: int, joins: Sequence[tuple[int, ...]]) -> FusedGroups:
    """Return the k of each sum. The first sum includes the first product, unless all sums add one product each."""
    if all(len(join) == 1 for join in joins):
        return ((first,), *joins)
    return (tuple(sorted((first, *joins[0]))), *(tuple(sorted(join)) for join in joins[1:]))


def map_chains(tree: FusedGroups | Reduction, change: Callable[[FusedGroups], FusedGroups]) -> FusedGroups | Reduction:
    if isinstance(tree, Reduction):
        return replace(tree, parts=tuple(map_chains(part, change) for part in tree.parts))
    return change(tree)


def with_first_sums_swapped(tree: FusedGroups | Reduction) -> FusedGroups | Reduction:
    """Return the tree with the first two sums of each chain swapped: both start from zero, so no query orders them."""
    return map_chains(tree, lambda chain: (*chain[1::-1], *chain[2:]) if all(len(x) == 1 for x in chain[:2]) else chain)


def every_chain(part: FusedGroups | Reduction) -> Iterator[FusedGroups]:
    if isinstance(part, Reduction):
        for x in part.parts:
            yield from every_chain(x)
    else:
        yield part


def width(part: FusedGroups | Reduction) -> int:
    """Return the products per fused sum: the most common size, weighted by the products that it covers."""
    counts = Counter(len(group) for chain in every_chain(part) for group in chain)
    return max(counts, key=lambda size: (counts[size] * size, size))


@lru_cache(maxsize=256)
def as_chain(groups: FusedGroups, products: int) -> Chain:
    """Return the chain as a periodic pattern. Raises NoTree if a sum has more than `products` products."""
    if any(len(group) > products for group in groups):
        raise NoTree(f"fused sums of {products} products, and one of {max(map(len, groups))}, from product {groups[0][0]} on")
    start, stop = min(map(min, groups)), max(map(max, groups)) + 1
    for skipped, sums in (*((0, sums) for sums in PERIODS), (1, 1)):  # an incomplete first sum is the end of a pattern
        head, later = groups[skipped : skipped + sums], groups[skipped + sums :]
        flat = [k for group in head for k in group]
        if not head or len(flat) < products * len(head):
            continue
        period = later[0][0] - flat[0] if later else max(flat) - min(flat) + 1
        shift = min(flat) - period - start if skipped else 0
        pattern = tuple(k - (min(flat) if skipped else start) for k in flat)
        if period > 0:
            chain = Chain(start, stop, pattern, 0 if period == len(pattern) else period, shift)
            if groups_of(chain, products) == groups:
                return chain
    beyond = stop - start
    pattern = tuple(k - start for group in groups for k in (*group, *[start + beyond] * (products - len(group))))
    return Chain(start, stop, pattern, period=beyond + 1)


def groups_of(chain: Chain, products: int) -> FusedGroups:
    """Return the k of each sum of a chain, in order."""
    ks = chain.ks().reshape(-1, products).tolist()
    return tuple(found for group in ks if (found := tuple(sorted(k for k in group if k >= 0))))


def with_repeated_products(tree: FusedGroups | Reduction, doubled: Ints) -> FusedGroups | Reduction:
    """Return the tree with products counted twice at the end of one chain and the start of the next.

    Raises NoTree if they lie elsewhere.
    """
    twice, products = doubled.tolist(), width(tree)
    for k in twice:
        if not any(k - 1 in chain[-1] or k + 1 in chain[0] for chain in every_chain(tree)):
            raise NoTree(f"product {k} is counted twice, but not at the border of two chains")

    def extended(chain: FusedGroups) -> FusedGroups:
        groups = list(chain)
        for k in twice:
            if k - 1 in groups[-1]:
                groups[-1:] = [(*groups[-1], k)] if len(groups[-1]) < products else [groups[-1], (k,)]
        for k in reversed(twice):
            if k + 1 in groups[0]:
                groups[:1] = [(k, *groups[0])] if len(groups[0]) < products else [(k,), groups[0]]
        return tuple(groups)

    return map_chains(tree, extended)


def named_order(order: Nested, parts: int) -> Order | Nested:
    """Return the name of an order of additions, if it has one. The sum of two does not depend on which is first."""
    for name in ("forward", "backward", "tree"):
        if same_order(nested(name, parts), order):
            return name
    return order


def order_name(order: Nested, parts: int) -> str:
    """Return the name of an order, including "butterfly", or the order as text."""
    halves = butterfly(parts) if parts > 2 and not parts & (parts - 1) else None
    return "butterfly" if halves is not None and same_order(halves, order) else str(named_order(order, parts))


def butterfly(parts: int) -> Nested:
    """Return the order that adds the halves of 2^n parts, one by one, and then the halves of the sums."""
    level: list[Nested] = list(range(parts))
    while len(level) > 1:
        half = len(level) // 2
        level = [(level[i], level[half + i]) for i in range(half)]
    return level[0]


def same_order(x: Nested, y: Nested) -> bool:
    """Return whether two orders give the same bits."""
    if isinstance(x, int) or isinstance(y, int):
        return x == y
    if len(x) != len(y):
        return False
    return all(map(same_order, x, y)) or (len(x) == 2 and same_order(x[0], y[1]) and same_order(x[1], y[0]))
