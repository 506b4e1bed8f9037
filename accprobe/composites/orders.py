"""Orders in which fused kernels of GPUs take the terms of a row: candidates for sums, and for means and M2 (`partial`).

An order has lanes: accumulators that take blocks of adjacent elements in turn. Their results are merged between the registers
of a thread, the threads of a warp and the warps of a block.

Sources, of torch 2.11: ATen/native/cuda/layer_norm_kernel.cu, SoftMax.cu, PersistentSoftmax.cuh and Reduce.cuh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from accprobe.model.product import Chain, Merged, Nested, Node, addition, nested

WARP = 32
# Numbers of lanes and of adjacent elements that a lane takes.
LANES, WIDTHS = tuple(1 << i for i in range(12)), (1, 2, 4, 8)
# Most lanes that update a mean and M2.
MOST_OF_MOMENTS = 1024

Merge = Callable[[int], Nested | None]


def _by_threads(lanes: int, accumulators: int, adjacent: bool, row: int) -> Nested | None:
    """Merge the accumulators of each thread in turn, each row of threads by halves (0: all), then the rows (Reduce.cuh)."""
    threads = lanes // accumulators
    if threads < 2 or (row and threads <= row):
        return None
    numbers = np.arange(lanes).reshape((threads, accumulators) if adjacent else (accumulators, threads))
    each: list[Nested] = [nested("forward", of.tolist()) for of in (numbers if adjacent else numbers.T)]
    return nested("butterfly", _rows(each, row or threads))


def _rows(parts: list[Nested], row: int) -> list[Nested]:
    return [nested("butterfly", parts[first : first + row]) for first in range(0, len(parts), row)]


MERGES: dict[str, Merge] = {
    "in turn": lambda lanes: nested("forward", lanes),
    "by halves": lambda lanes: nested("butterfly", lanes) if lanes > 2 else None,
    "in pairs": lambda lanes: nested("tree", lanes) if lanes > 2 else None,
    "by warps": partial(_by_threads, accumulators=1, adjacent=True, row=WARP),
    "warps in turn": lambda lanes: nested("forward", _rows(list(range(lanes)), WARP)) if lanes > 2 * WARP else None,
    **{
        f"{count} {where} lanes, then {f'rows of {row} threads' if row else 'threads by halves'}": partial(
            _by_threads, accumulators=count, adjacent=where == "adjacent", row=row
        )
        for count in (4, 2)
        for where in ("adjacent", "distant")
        for row in (0, 32, 64, 128, 256)
    },
}


@dataclass(frozen=True)
class LaneOrder:
    """lanes: accumulators. width: adjacent elements that a lane takes before the next lane. merge: a name of MERGES.

    singly: after the last whole turn of all lanes, each takes single elements.
    """

    lanes: int
    width: int
    merge: str
    singly: bool = False

    def __str__(self) -> str:
        if self.lanes == 1:
            return "one lane"
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
        chains = _chains(replace(self, merge=""), k)
        order = MERGES[self.merge](self.lanes)
        assert order is not None
        return chains[0] if len(chains) == 1 else Merged(chains, order, addition())


@lru_cache(8)
def _chains(order: LaneOrder, k: int) -> tuple[Chain, ...]:
    """Return the chains of an order without its merge."""
    if order.singly:
        return tuple(Chain(0, k, tuple(map(int, ks)), k) for ks in order.ks(k))
    pattern = tuple(range(order.width))
    return tuple(Chain(0, k, pattern, order.lanes * order.width, lane * order.width) for lane in range(order.lanes))


def lane_orders(k: int) -> Iterator[LaneOrder]:
    """Yield every order of lanes for K elements, few lanes first. Threads with several lanes take single elements."""
    for lanes in LANES:
        names = [name for name, merge in MERGES.items() if merge(lanes) is not None]
        for width in WIDTHS:
            if lanes * width > k or (lanes == 1 and width > 1):
                continue
            some = names if width == 1 else [name for name in names if "threads" not in name]
            for singly in (False, True) if width > 1 and k % (lanes * width) else (False,):
                yield from (LaneOrder(lanes, width, name, singly) for name in some)


def moment_orders(k: int) -> Iterator[LaneOrder]:
    """Yield orders of kernels that update a mean and M2: one lane, or WARP to MOST_OF_MOMENTS lanes, not merged in turn."""
    for order in lane_orders(k):
        if order.lanes == 1 or (WARP <= order.lanes <= MOST_OF_MOMENTS and order.merge != "in turn"):
            yield order
