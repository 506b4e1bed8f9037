"""Describe how a product divides K: slices, promoted parts or lanes.

Structures with the same bits for all operands form a class. docs/products.md defines the class and its canonical member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from accprobe.gemm.checks.regions import ranges
from accprobe.gemm.plans import additions_of
from accprobe.gemm.tree.decomposition import flat, levels, order_name
from accprobe.gemm.tree.slices import KSlice, chunks, k_slice, sizes, slice_readings
from accprobe.model.product import Chain, FusedSums, Merged, Node, ProductModel, chains_of
from accprobe.report.words import BACKWARD, BLOCKS_BACKWARD, IN_DISORDER, SHARE, each_of, listed_sizes

# Equal parts added in increasing order of K count as promoted if they have ≤ PROMOTED products or are more than MOST_SLICES.
# Otherwise they count as slices.
PROMOTED, MOST_SLICES = 512, 8
# Possible numbers of interleaved accumulators.
LANE_COUNTS = range(2, 65)


@dataclass(frozen=True)
class Lanes:
    """Interleaved accumulators: each takes `block` k in turn."""

    count: int
    block: int

    def __str__(self) -> str:
        if self.block == 1:
            return f"{self.count} lanes (lane = k mod {self.count})"
        return f"{self.count} lanes of {self.block} k (lane = k // {self.block} mod {self.count})"


@dataclass(frozen=True)
class Structure:
    """Slices, the order in which their sums are added, and lanes if the chains interleave."""

    slices: tuple[KSlice, ...]
    order: str
    lanes: Lanes | None = None

    @property
    def split_k(self) -> int:
        return 1 if self.lanes else len(self.slices)

    @property
    def slice_sizes(self) -> str | None:
        return None if self.split_k == 1 else listed_sizes(sizes(self.slices))

    @property
    def promote_every(self) -> int | None:
        """Return the products of a promoted part, if a slice has several parts."""
        return max((chunk for each in self.slices if (chunk := each.chunk)), default=None)

    @property
    def reduction_order(self) -> str | None:
        return None if len(self.slices) == 1 else self.order

    def __str__(self) -> str:
        if self.lanes:
            return str(self.lanes)
        every = self.promote_every
        if self.split_k == 1:
            return f"promotion every {every}"
        return f"split-K {self.split_k}" + (f", each with promotion every {every}" if every else "")


@lru_cache(maxsize=16)
def members(model: ProductModel) -> tuple[Structure, ...]:
    """Return structures with the same bits for all operands, the canonical one first: promoted parts, slices, lanes.

    If only one exists, add slices of another number of whole parts where possible.
    """
    tree = model.tree
    if isinstance(tree, Chain):
        return (_structure_of(tree),)
    how, lanes, whole = additions_of(model), lanes_of(tree), chunks(tree)
    is_uniform = how.kept is None and not how.is_serial and model.is_ordered  # all partial sums are rounded alike
    slices, order = _structure_of(flat(tree)).slices, _order(model, flat(tree))
    each = sizes(whole) if is_uniform and whole and len(whole) > 1 else []
    can_promote = bool(each) and set(each[:-1]) == {each[0]} and each[-1] <= each[0]  # the last chunk may be smaller
    promoted = [Structure((KSlice(whole, chunked=True),), "forward")] if can_promote and whole else []
    in_lanes = [Structure(slices, order, lanes)] if lanes else []
    if lanes and lanes.block <= model.step.products:
        canonical = in_lanes
    elif whole and can_promote and (max(sizes(whole)) <= PROMOTED or len(whole) > MOST_SLICES):
        canonical = promoted
    else:
        canonical = [Structure(_structure_of(tree).slices, _order(model, tree))]
    alone = [Structure(slices, order)] if lanes or is_uniform else []
    found = _distinct([*canonical, *promoted, *alone, *in_lanes])
    if len(found) == 1 and is_uniform:
        found = _distinct([*found, *map(_structure_of, slice_readings(tree))])[:2]
    return tuple(found)


def _distinct(structures: Iterable[Structure]) -> list[Structure]:
    kinds: dict[tuple[object, ...], Structure] = {}
    for each in structures:
        kinds.setdefault((each.split_k, each.slice_sizes, each.promote_every, each.lanes), each)
    return list(kinds.values())


def lanes_of(tree: Merged) -> Lanes | None:
    """Return the lanes if the chains of a tree interleave along K."""
    chains = [np.sort(chain.taken) for chain in chains_of(tree)]
    count, every = len(chains), np.sort(np.concatenate(chains))
    if count not in LANE_COUNTS or len(np.unique(every)) < len(every):
        return None
    chains.sort(key=lambda ks: int(ks[0]))
    first = np.searchsorted(every, chains[0])
    block = int(np.argmax(np.append(np.diff(first), 2) != 1)) + 1
    if count * block >= len(every):
        return None
    alike = all((np.searchsorted(every, ks) // block % count == lane).all() for lane, ks in enumerate(chains))
    return Lanes(count, block) if alike else None


def _structure_of(tree: Node) -> Structure:
    if isinstance(tree, Chain):
        return Structure((k_slice(tree),), "forward")
    return Structure(tuple(k_slice(part) for part in tree.parts), order_name(tree))


def _order(model: ProductModel, tree: Merged) -> str:
    if not model.is_ordered:
        return "unordered"
    if additions_of(model).is_serial:
        return "serial"
    name = order_name(tree)
    return name if name in ORDER_WORDS else order_in_levels(tree) or name


def order_in_words(model: ProductModel) -> str:
    """Return "2 slices of 256, added in f32: chain of [acc 32]" of a class, "4 slices of 256: …" of one structure alone."""
    every, products = members(model), model.step.products
    structure = every[0]
    slices = structure.slices
    chains = [chain for each in slices for chain in each.chains]
    along = direction([chain.sums(products) for chain in chains])
    if isinstance(model.tree, Merged) and structure.order not in ORDER_WORDS and (order := order_in_levels(model.tree)):
        ks = sorted(chains, key=lambda chain: int(chain.taken[0]))
        return f"{_counted(ks, 'slices')}, added in {additions_of(model).running}, {order}: chain of [acc {products}], {along}"
    how = filter(None, (_side_by_side(slices), along.partition(", ")[2] if structure.lanes else along))
    chunk = ", ".join([f"chain of [acc {products}]", *how])
    promoted, added = structure.promote_every, _added(model, structure.order)
    if structure.lanes:
        return f"{structure.lanes}, {added}: {chunk}"
    if len(every) == 1:
        chunk = f"chunks of {promoted}, each a {chunk}" if promoted else chunk
        return chunk if len(slices) == 1 else f"{_counted(slices, 'slices')}: {chunk}"
    if not promoted:
        return f"{_counted(slices, 'slices')}, {added}: {chunk}"
    if len(slices) == 1:
        return f"{_counted(chains, 'slices')}, {added}: {chunk}"
    return f"{_counted(slices, 'groups')}, each of slices of {promoted}, {added}: {chunk}"


@lru_cache(maxsize=16)
def order_in_levels(tree: Merged) -> str:
    """Return "4 neighbours in turn, then 32 as a butterfly" of the sums of chains; "" if their order has no such levels."""
    every = flat(tree)
    found = levels(every.nested, len(every.parts))
    where = [" neighbours" if level.distance == 1 else f" at distance {level.distance}" for level in found[:-1]] + [""]
    how = (ORDER_WORDS[level.order] or " in turn" for level in found)
    return ", then ".join(f"{level.size}{place}{order}" for level, place, order in zip(found, where, how, strict=False))


def _counted(parts: Sequence[Chain | KSlice], what: str) -> str:
    return f"{len(parts)} {what} of {each_of(sizes(parts))}"


ORDER_WORDS = {
    "forward": "",
    "backward": " from the last",
    "tree": " as a tree",
    "butterfly": " as a butterfly",
    "serial": " and rounded each time",
    "unordered": " in any order",
}


def _added(model: ProductModel, order: str) -> str:
    how = additions_of(model)
    kept = f"rounded to {how.kept} and " if how.kept is not None and order != "serial" else ""
    return f"{kept}added in {how.running}{ORDER_WORDS.get(order, ' in another order')}"


def name_members(every: Sequence[Structure]) -> str:
    """Return the members of a class in words: "split-K 2 or promotion every 256"."""
    shown = [each for each in every if each is every[0] or not (each.promote_every and each.split_k > 1)]
    more = ["larger slices of several of them"] if len(shown) < len(every) else []
    has_lanes = any(each.lanes for each in every)
    named = [f"{each} of interleaved slices" if has_lanes and each.split_k > 1 else str(each) for each in shown]
    return " or ".join([*named, *more])


def shared_products(structure: Structure) -> str:
    """Name the products that two chains share."""
    ks, times = np.unique(np.concatenate([each.taken for each in structure.slices]), return_counts=True)
    both = ks[times > 1]
    return f"k = {ranges(both)} in two of them" if len(both) else ""


def _side_by_side(slices: Sequence[KSlice]) -> str:
    """Name the number of interleaved chains of a slice, "" if its chains are chunks."""
    counts = {1 if each.chunked else len(each.chains) for each in slices}
    if counts == {1}:
        return ""
    return f"in {'' if len(counts) == 1 else 'up to '}{max(counts)} chains"


# Terms of a sum with a listed order.
MOST_LISTED = 8


def direction(chains: Sequence[FusedSums]) -> str:
    """Return how each chain traverses K, in words; "" if its k are contiguous and in increasing order."""
    every = sorted({k for chain in chains for group in chain for k in group})
    place = {k: i for i, k in enumerate(every)}
    ways = ((_share(chain, place), _k_order(chain)) for chain in chains if len(chain) > 1)
    found = {", ".join(dict.fromkeys(filter(None, both))) for both in ways}
    if found == {IN_DISORDER} and len(chains) == 1 and len(chains[0]) == len(every) <= MOST_LISTED:
        return f"in the order k = {', '.join(str(k) for (k,) in chains[0])}"
    return found.pop() if len(found) == 1 else IN_DISORDER if found else ""


def _share(chain: FusedSums, place: Mapping[int, int]) -> str:
    """Return which k a chain has if others lie between them. place: position of each k among the k of all chains."""
    ks = sorted({k for group in chain for k in group})
    if len(ks) == place[ks[-1]] - place[ks[0]] + 1:
        return ""
    starts = [0, *(i for i, (before, after) in enumerate(pairwise(ks), 1) if after - before > 1)]
    *lengths, last = (after - before for before, after in pairwise([*starts, len(ks)]))
    steps = {ks[after] - ks[before] for before, after in pairwise(starts)}
    even = len(steps) == 1 and set(lengths) == {lengths[0]} and last <= lengths[0]
    return SHARE.format(lengths[0], steps.pop()) if even else IN_DISORDER


def _k_order(chain: FusedSums) -> str:
    if all(max(after) < min(before) for before, after in pairwise(chain)):
        return BACKWARD
    blocks: list[list[int]] = []
    before = -1
    for group in chain:
        if not blocks or min(group) < before:
            blocks.append([])
        blocks[-1] += group
        before = max(group)
    if len(blocks) == 1:
        return ""
    last, *others = map(len, blocks)
    even = set(others) == {max(last, *others)} and all(max(after) < min(before) for before, after in pairwise(blocks))
    return BLOCKS_BACKWARD.format(others[0]) if even else IN_DISORDER
