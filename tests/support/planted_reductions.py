"""Planted reductions: sums of the last dimension of x [rows, K] in numpy, named ones and ones drawn by seed.

They share no code with accprobe: each is a few lines of numpy, and every addition is rounded by numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import ml_dtypes
import numpy as np

Array = Any
Sum = Callable[[Array], Array]
Fault = Literal["", "dropped tail", "doubled element", "atomics", "another row", "mean of terms", "mean of the sum"]

TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def sequential(x: Array) -> Array:
    return reduce(np.add, x.T)


def backwards(x: Array) -> Array:
    return sequential(x[:, ::-1])


def pairwise(x: Array) -> Array:
    """Add halves of adjacent elements, recursively."""
    if x.shape[1] == 1:
        return x[:, 0]
    half = x.shape[1] // 2
    return pairwise(x[:, :half]) + pairwise(x[:, half:])


def butterfly(x: Array) -> Array:
    """Add element i and i + n/2, as shuffles between threads do; the middle one of an odd number waits."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = np.concatenate([x[:, :half] + x[:, -half:], x[:, half:-half]], axis=1)
    return x[:, 0]


def lanes(count: int, last: Sum) -> Sum:
    """Return a sum with an accumulator for every count-th element."""
    return lambda x: last(np.stack([sequential(x[:, lane::count]) for lane in range(min(count, x.shape[1]))], axis=1))


def blocks(size: int, inner: Sum, outer: Sum) -> Sum:
    """Return a sum of sums of blocks; the last block may be short."""
    return lambda x: outer(np.stack([inner(x[:, i : i + size]) for i in range(0, x.shape[1], size)], axis=1))


def cascade(size: int) -> Sum:
    """Return a sum whose accumulators are added to those of a second level, and these to a third, every `size` terms."""
    return blocks(size, sequential, blocks(size, sequential, sequential))


def unrolled(x: Array) -> Array:
    """Add as numpy does up to 128 elements: eight lanes, and their sums in pairs."""
    return lanes(8, pairwise)(x)


def kahan(x: Array) -> Array:
    total, lost = np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
    for column in x.T:
        y = column - lost
        new = total + y
        lost, total = (new - total) - y, new
    return total


def neumaier(x: Array) -> Array:
    total, lost = np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
    for column in x.T:
        new = total + column
        lost = lost + np.where(np.abs(total) >= np.abs(column), (total - new) + column, (column - new) + total)
        total = new
    return total + lost


COMPENSATED = (kahan, neumaier)


@dataclass(frozen=True)
class Planted:
    """A reduction of rows of K elements of a type; `partial` is the type of its sums.

    slots: how many parts atomics add, in a new order for each call.
    """

    order: Sum
    name: str
    rows: int = 16
    k: int = 64
    kind: str = "f32"
    partial: str = "f32"
    fault: Fault = ""
    slots: int = 8

    def __call__(self, x: Array) -> Array:
        """Return the sums of x [rows, K], in its type."""
        with np.errstate(all="ignore"):
            terms = x.astype(TYPES[self.partial])
            if self.fault == "mean of terms":
                terms = terms / terms.dtype.type(self.k)
            if self.fault == "atomics":
                parts = self.parts(terms)
                sums = sequential(parts[:, np.random.default_rng().permutation(parts.shape[1])])
            else:
                sums = self.added(terms)
            if self.fault == "another row":
                sums[-1:] = self.added(terms[-1:, ::-1])
            return (sums / sums.dtype.type(self.k) if self.fault == "mean of the sum" else sums).astype(x.dtype)

    def added(self, x: Array) -> Array:
        """Add elements of any type that numpy can add."""
        if self.fault == "dropped tail":
            x = x[:, :-1]
        if self.fault == "doubled element":
            x = np.concatenate([x, x[:, :1]], axis=1)
        return self.order(x)

    def parts(self, x: Array) -> Array:
        """Return the sums that atomics add, [rows, slots]."""
        return np.stack([self.order(part) for part in np.array_split(x, self.slots, axis=1)], axis=1)

    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", "rows", "k", "kind", "partial", "fault")}


ORDERS: dict[str, Sum] = {
    "sequential": sequential,
    "backwards": backwards,
    "pairwise": pairwise,
    "butterfly": butterfly,
    "unrolled": unrolled,
    "32 lanes, in pairs": lanes(32, pairwise),
    "blocks of 7": blocks(7, sequential, sequential),
    "butterfly of lanes": blocks(16, lanes(4, sequential), butterfly),
    "warps": blocks(32, butterfly, butterfly),
    "cascade of 4": cascade(4),
}
NAMED = [
    *(Planted(order, name) for name, order in ORDERS.items()),
    Planted(kahan, "Kahan", k=32),
    Planted(sequential, "f16 partial sums", partial="f16"),
    Planted(sequential, "bf16 partial sums", partial="bf16"),
    Planted(unrolled, "f16 elements", kind="f16"),
    Planted(lanes(4, pairwise), "f64", kind="f64", partial="f64"),
    Planted(sequential, "dropped tail", fault="dropped tail"),
    Planted(sequential, "doubled element", fault="doubled element"),
    Planted(sequential, "atomics", fault="atomics", slots=4),
    Planted(unrolled, "another row", fault="another row"),
    Planted(butterfly, "mean of terms", fault="mean of terms"),
    Planted(butterfly, "mean of the sum", fault="mean of the sum"),
]
