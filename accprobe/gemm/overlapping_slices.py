"""Products that are counted twice: where slices overlap."""

from __future__ import annotations

from accprobe.gemm.decomposition import FusedGroups, Reduction, every_chain, width
from accprobe.gemm.pairs import Ints
from accprobe.gemm.tree_builder import NoTree


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
