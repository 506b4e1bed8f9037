"""Decompose a measured summation tree into chains of fused sums and the sums of these chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from accprobe.callables.operands import Ints
from accprobe.infer.tree_builder import NoTree, PartialTree
from accprobe.model.product import (
    Chain,
    FusedSums,
    Merged,
    Nested,
    Node,
    Order,
    addition,
    chain_of_sums,
    chains_of,
    folded,
    nested,
    same_order,
)

# Numbers of fused sums after which the k of a chain may repeat.
PERIODS = (1, 2, 3, 4, 6, 8, 16, 32)
# Orders of additions that have a name, the first of several equal ones.
ORDERS: tuple[Order, ...] = ("forward", "backward", "tree")


def forward(parts: Sequence[Node]) -> Merged:
    return Merged(tuple(parts), "forward", addition())


def reordered(parts: Sequence[Node], order: Nested, by_start: Sequence[int] | None = None) -> Merged:
    """Return the parts added in an order, by its name if it has one. by_start: the numbers of the parts along K."""
    along = range(len(parts)) if by_start is None else by_start
    places = sorted(range(len(parts)), key=along.__getitem__)
    moved = renumbered(order, places)
    return Merged(tuple(parts[i] for i in along), named_order(moved, len(parts)), addition())


def renumbered(order: Nested, numbers: Sequence[Nested]) -> Nested:
    """Return the order with other numbers, or other orders, in place of the parts."""
    return folded(order, numbers, lambda x, y: (x, y))


def named_order(order: Nested, parts: int) -> Order | Nested:
    """Return the name of an order of additions, if it has one."""
    return next((name for name in ORDERS if same_order(nested(name, parts), order)), order)


def order_name(tree: Merged) -> str:
    """Return the name of an order, including "butterfly", or the order as text."""
    return tree.order if isinstance(tree.order, str) else _level_name(tree.order, len(tree.parts)) or str(tree.order)


class GroupLevel(NamedTuple):
    """Groups of this size, of parts or of groups of the level before, at this distance, each added in an order with a name."""

    size: int
    distance: int
    order: str


def levels(order: Nested, parts: int) -> tuple[GroupLevel, ...]:
    """Return how an order adds equal groups, then groups of groups, such as lanes, threads and warps. Empty if it does not."""
    if name := _level_name(order, parts):
        return (GroupLevel(parts, 1, name),)
    marks = [(1 << i, i) for i in range(parts)]  # a subtree is known by the sum of the bits of its parts
    divisors = (divisor for divisor in range(2, parts) if not parts % divisor)
    for size, distance in ((divisor, distance) for divisor in divisors for distance in (1, parts // divisor)):
        starts = range(0, parts, size) if distance == 1 else range(distance)
        groups = [[marks[start + distance * i] for i in range(size)] for start in starts]
        found = _contracted(order, marks, groups)
        if found and (name := _level_name(found[0], size)) and (later := levels(found[1], len(groups))):
            return (GroupLevel(size, distance, name), *later)
    return ()


def _contracted(
    order: Nested, marks: Sequence[tuple[int, int]], groups: Sequence[Sequence[tuple[int, int]]]
) -> tuple[Nested, Nested] | None:
    """Return the order in each group, by position, and the order of the groups, by number.

    None if a group is not a subtree or two are added in different orders.
    """
    numbers = {sum(mark for mark, _ in group): number for number, group in enumerate(groups)}
    position = {part: i for group in groups for i, (_, part) in enumerate(group)}
    inside: dict[int, Nested] = {}

    def add(x: tuple[int, Nested], y: tuple[int, Nested]) -> tuple[int, Nested]:
        mark, both = x[0] + y[0], (x[1], y[1])
        if mark not in numbers:
            return mark, both
        inside[mark] = both
        return mark, numbers[mark]

    parts: list[tuple[int, Nested]] = [(mark, position[part]) for mark, part in marks]
    _, found = folded(order, parts, add)
    if len(inside) < len(groups):
        return None
    first, *others = inside.values()
    return (first, found) if all(same_order(first, other) for other in others) else None


def _level_name(order: Nested, parts: int) -> str:
    if isinstance(name := named_order(order, parts), str):
        return name
    return "butterfly" if parts & (parts - 1) == 0 and same_order(nested("butterfly", parts), order) else ""


@lru_cache(maxsize=1024)
def flat(tree: Merged) -> Merged:
    """Return the sum with every chain as a part of its own, in the order of their first k."""
    chains = list(chains_of(tree))
    numbers = iter(range(len(chains)))

    def order(node: Node) -> Nested:
        if isinstance(node, Chain):
            return next(numbers)
        return renumbered(node.nested, [order(part) for part in node.parts])

    return reordered(chains, order(tree), sorted(range(len(chains)), key=lambda i: int(chains[i].taken[0])))


def products_per_sum(partials: Iterable[PartialTree]) -> int:
    """Return the most common size of fused sums, weighted by the products that it covers."""
    counts = Counter(len(each) for partial in partials for chain in _chains(partial) for each in chain)
    return max(counts, key=lambda size: (counts[size] * size, size))


def decompose(partial: PartialTree, products: int) -> Node:
    """Return the chain or sum that a tree is. Raises NoTree if one sum adds three partial sums, or too many products."""
    sums, others = _first_chain(partial)
    later = [decompose(each, products) for each in others]
    # Chunks of one slice come first: chains that are added to the first one; whatever is merged before is another slice.
    chunks = next((i for i, part in enumerate(later) if isinstance(part, Merged)), len(later))
    parts = [chain_of(sums, products), *later[:chunks]]
    first = forward(parts) if chunks else parts[0]
    return forward([first, *later[chunks:]]) if later[chunks:] else first


def _first_chain(partial: PartialTree) -> tuple[FusedSums, list[PartialTree]]:
    """Return the sums of the chain that a tree begins with, and the trees with sums that are added to it in turn.

    The first sum includes the first product, unless all sums add one product each. Raises NoTree.
    """
    joins = [tuple(x for x in join if isinstance(x, int)) for join in partial.joins]
    length = next((i for i, join in enumerate(joins) if len(join) < len(partial.joins[i])), len(joins))
    if wide := next((join for join in partial.joins[length:] if len(join) != 1), ()):
        raise NoTree(f"one sum adds {len(wide)} partial sums to another, at product {partial.first}")
    others = [x if isinstance(x, PartialTree) else PartialTree(x, ()) for (x,) in partial.joins[length:]]
    sums = joins[:length]
    if all(len(each) == 1 for each in sums):
        return ((partial.first,), *sums), others
    return tuple(tuple(sorted(each)) for each in ((partial.first, *sums[0]), *sums[1:])), others


def _chains(partial: PartialTree) -> Iterator[FusedSums]:
    sums, others = _first_chain(partial)
    yield sums
    for each in others:
        yield from _chains(each)


def chain_of(sums: FusedSums, products: int) -> Chain:
    """Return the chain as a periodic pattern. Raises NoTree if a sum has more than `products` products."""
    if any(len(each) > products for each in sums):
        raise NoTree(f"fused sums of {products} products, and one of {max(map(len, sums))}, from product {sums[0][0]} on")
    start, stop = min(map(min, sums)), max(map(max, sums)) + 1
    for skipped, count in (*((0, count) for count in PERIODS), (1, 1)):  # an incomplete first sum is the end of a pattern
        head, later = sums[skipped : skipped + count], sums[skipped + count :]
        ks = [k for each in head for k in each]
        if not head or len(ks) < products * len(head):
            continue
        period = later[0][0] - ks[0] if later else max(ks) - min(ks) + 1
        shift = min(ks) - period - start if skipped else 0
        pattern = tuple(k - (min(ks) if skipped else start) for k in ks)
        if period > 0:
            chain = Chain(start, stop, pattern, 0 if period == len(pattern) else period, shift)
            if chain.sums(products) == sums:
                return chain
    return chain_of_sums(sums, products)


def map_chains(tree: Node, products: int, change: Callable[[FusedSums], FusedSums]) -> Node:
    if isinstance(tree, Merged):
        return replace(tree, parts=tuple(map_chains(part, products, change) for part in tree.parts))
    return chain_of(change(tree.sums(products)), products)


def with_first_sums_swapped(tree: Node, products: int) -> Node:
    """Return the tree with the first two sums of chains swapped if each has one product: no query orders these two."""

    def swapped(sums: FusedSums) -> FusedSums:
        return (*sums[1::-1], *sums[2:]) if all(len(each) == 1 for each in sums[:2]) else sums

    return map_chains(tree, products, swapped)


def with_repeated_products(tree: Node, products: int, doubled: Ints) -> Node:
    """Return the tree with products counted twice at the end of one chain and the start of the next.

    Raises NoTree if they lie elsewhere.
    """
    twice = doubled.tolist()
    ends = [(chain.sums(products)[0], chain.sums(products)[-1]) for chain in chains_of(tree)]
    for k in twice:
        if not any(k - 1 in last or k + 1 in first for first, last in ends):
            raise NoTree(f"product {k} is counted twice, but not at the border of two chains")

    def extended(sums: FusedSums) -> FusedSums:
        groups = list(sums)
        for k in twice:
            if k - 1 in groups[-1]:
                groups[-1:] = [(*groups[-1], k)] if len(groups[-1]) < products else [groups[-1], (k,)]
        for k in reversed(twice):
            if k + 1 in groups[0]:
                groups[:1] = [(k, *groups[0])] if len(groups[0]) < products else [(k,), groups[0]]
        return tuple(groups)

    return map_chains(tree, products, extended)
