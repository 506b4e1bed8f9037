"""Restriction of a product's model to the k with nonzero operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accprobe.model.product import NO_K, Chain, Nested, Node, ProductModel

_Ints = NDArray[np.int64]


def restricted(model: ProductModel, used: _Ints) -> tuple[ProductModel, _Ints]:
    """Return the model with only the fused sums that have one of the k in `used`, and all k of those sums, in the new order.

    A sum whose products are all zero changes nothing but the sign of a zero.
    """
    ks: list[int] = []
    wanted = np.zeros(model.k + 1, bool)
    wanted[used] = True
    tree = _node(model.tree, model.step.products, wanted, ks)
    if tree is None:
        first = next(model.chains())
        wanted[first.ks()[first.ks() != NO_K][0]] = True
        tree = _node(model.tree, model.step.products, wanted, ks)
    assert tree is not None
    return replace(model, k=len(ks), tree=tree), np.array(ks, np.int64)


def _node(node: Node, width: int, wanted: NDArray[np.bool_], ks: list[int]) -> Node | None:
    if isinstance(node, Chain):
        return _chain(node, width, wanted, ks)
    parts = [_node(part, width, wanted, ks) for part in node.parts]
    left = [i for i, part in enumerate(parts) if part is not None]
    if not left:
        return None
    order = node.order
    if not isinstance(order, str) or order == "tree":
        order = _without(node.nested, {old: new for new, old in enumerate(left)}) or 0
    return replace(node, parts=tuple(part for part in parts if part is not None), order=order)


def _chain(chain: Chain, width: int, wanted: NDArray[np.bool_], ks: list[int]) -> Chain | None:
    sums = chain.ks().reshape(-1, width)
    taken = sums[wanted[sums].any(axis=1)]
    if not len(taken):
        return None
    start = len(ks)
    ks += [int(k) for k in taken.reshape(-1) if k != NO_K]
    beyond = taken.size
    places = np.cumsum(taken.reshape(-1) != NO_K) - 1
    pattern = np.where(taken.reshape(-1) == NO_K, beyond, places)
    return Chain(start, len(ks), tuple(pattern.tolist()), period=beyond + 1)


def _without(nested: Nested, numbers: dict[int, int]) -> Nested | None:
    """Return the order of the remaining parts, by their new numbers."""
    if isinstance(nested, int):
        return numbers.get(nested)
    left = tuple(found for part in nested if (found := _without(part, numbers)) is not None)
    return None if not left else left[0] if len(left) == 1 else left
