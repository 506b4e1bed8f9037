"""Orders of additions that libraries use in fused kernels: candidates for a sum whose terms all have one sign.

Every order has lanes: accumulators that take blocks of adjacent elements in turn. Their sums are merged between the registers
of a thread, the threads of a warp and the warps of a block.

Sources, of torch 2.11: ATen/native/cuda/layer_norm_kernel.cu, SoftMax.cu, PersistentSoftmax.cuh and Reduce.cuh;
ATen/native/cpu/ReduceOpsKernel.cpp and ATen/cpu/vec/functional_base.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.model.product import Chain, Merged, Nested, Node, addition, folded, nested

WARP = 32
# Numbers of lanes and of adjacent elements that a lane takes.
LANES, WIDTHS = tuple(1 << i for i in range(13)), (1, 2, 4, 8)
# Accumulators of a thread of Reduce.cuh.
ACCUMULATORS = 4

Merge = Callable[[int], Nested | None]


def _forward(parts: list[Nested]) -> Nested:
    found = parts[0]
    for part in parts[1:]:
        found = (found, part)
    return found


def _halved(parts: list[Nested], least: int = 1) -> list[Nested]:
    """Add part i and i + n/2 until so many remain, as `shfl_down` and shared memory do."""
    while len(parts) > least:
        half = len(parts) // 2
        parts = [(parts[i], parts[i + half]) for i in range(half)]
    return parts


def _by_warps(lanes: int) -> Nested | None:
    """Halve each warp, then the warps."""
    if lanes <= WARP:
        return None
    return _halved([_halved(list(range(first, first + WARP)))[0] for first in range(0, lanes, WARP)])[0]


def _warps_in_turn(lanes: int) -> Nested | None:
    if lanes <= 2 * WARP:
        return None
    return _forward([_halved(list(range(first, first + WARP)))[0] for first in range(0, lanes, WARP)])


def _by_threads(lanes: int, adjacent: bool) -> Nested | None:
    """Add the accumulators of each thread in turn, halve the threads to a warp, and add neighbours (Reduce.cuh)."""
    threads = lanes // ACCUMULATORS
    if threads < 2:
        return None
    numbers = np.arange(lanes).reshape((threads, ACCUMULATORS) if adjacent else (ACCUMULATORS, threads))
    each: list[Nested] = [_forward(list(map(int, of))) for of in (numbers if adjacent else numbers.T)]
    parts = _halved(each, WARP)
    while len(parts) > 1:
        parts = [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
    return parts[0]


MERGES: dict[str, Merge] = {
    "in turn": lambda lanes: nested("forward", lanes),
    "by halves": lambda lanes: _halved(list(range(lanes)))[0] if lanes > 2 else None,
    "in pairs": lambda lanes: nested("tree", lanes) if lanes > 2 else None,
    "by warps": _by_warps,
    "warps in turn": _warps_in_turn,
    "4 adjacent lanes, then threads": lambda lanes: _by_threads(lanes, True),
    "4 distant lanes, then threads": lambda lanes: _by_threads(lanes, False),
}


@dataclass(frozen=True)
class LaneOrder:
    """lanes: accumulators. width: adjacent elements that each takes in turn. merge: a name of MERGES.

    singly: after the last whole turn of all lanes, each takes single elements.
    """

    lanes: int
    width: int
    merge: str
    singly: bool = False

    def __str__(self) -> str:
        rest = ", the rest singly" if self.singly else ""
        return f"{self.lanes} lanes of {self.width}{rest}, merged {self.merge}"

    def ks(self, k: int) -> list[NDArray[np.int64]]:
        """Return the elements of each lane."""
        whole = k - k % (self.lanes * self.width) if self.singly else k
        head = np.arange(whole) // self.width % self.lanes
        tail = np.arange(k - whole) % self.lanes
        lane = np.concatenate([head, tail])
        return np.split(np.argsort(lane, kind="stable"), np.cumsum(np.bincount(lane, minlength=self.lanes))[:-1])

    def tree(self, k: int) -> Node:
        chains: list[Node] = [self._chain(k, number, ks) for number, ks in enumerate(self.ks(k))]
        order = MERGES[self.merge](self.lanes)
        assert order is not None
        return chains[0] if len(chains) == 1 else Merged(tuple(chains), order, addition())

    def _chain(self, k: int, number: int, ks: NDArray[np.int64]) -> Chain:
        if self.singly:
            return Chain(0, k, tuple(map(int, ks)), k)
        return Chain(0, k, tuple(range(self.width)), self.lanes * self.width, number * self.width)


class LaneSums:
    """Sums of terms [rows, K] in float32 by any order. Each lane's are computed once."""

    def __init__(self, add: Callable[[Any, Any], Any], terms: NDArray[Any]) -> None:
        """add: adds a term to a float32 accumulator, rounded once."""
        self._add, self._terms = add, terms
        self._sums: dict[LaneOrder, NDArray[np.float32]] = {}
        self._lanes: dict[tuple[int, int, bool], list[NDArray[np.float32]]] = {}

    def of(self, order: LaneOrder) -> NDArray[np.float32]:
        """Return the sums, [rows]."""
        if order not in self._sums:
            self._sums[order] = self._merged(order)
        return self._sums[order]

    def _merged(self, order: LaneOrder) -> NDArray[np.float32]:
        key = order.lanes, order.width, order.singly
        if key not in self._lanes:
            self._lanes[key] = self._of_lanes(order)
        merge = MERGES[order.merge](order.lanes)
        assert merge is not None
        return folded(merge, self._lanes[key], np.add)

    def _of_lanes(self, order: LaneOrder) -> list[NDArray[np.float32]]:
        every = order.ks(self._terms.shape[1])
        places = np.full((order.lanes, max(map(len, every))), -1)
        for ks, place in zip(every, places, strict=True):
            place[: len(ks)] = ks
        total = np.zeros((len(self._terms), order.lanes), np.float32)
        for turn in places.T:
            if turn.min() >= 0:
                total = self._add(total, self._terms[:, turn])
            else:
                there = turn >= 0
                total[:, there] = self._add(total[:, there], self._terms[:, turn[there]])
        return list(total.T)


def lane_orders(k: int) -> Iterator[LaneOrder]:
    """Yield every order of lanes for K elements, the ones with few lanes first."""
    for lanes in LANES:
        for width in WIDTHS:
            if lanes * width > k or (lanes == 1 and width > 1):
                continue
            names = [name for name, merge in MERGES.items() if merge(lanes) is not None]
            for singly in (False, True) if width > 1 and k % (lanes * width) else (False,):
                yield from (LaneOrder(lanes, width, name, singly) for name in names)
