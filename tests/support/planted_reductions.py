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


def drawn(seed: int) -> Planted:
    """Draw a reduction of 24 to 160 elements."""
    rng = np.random.default_rng([seed, 19])
    kind = rng.choice(["f32", "f64", "bf16", "f16"], p=[0.55, 0.1, 0.2, 0.15]).item()
    others = {"f32": ["f32", "f32", "f32", "f64", "bf16", "f16"], "f64": ["f64"], "bf16": ["f32", "f32", "bf16"]}
    partial = rng.choice(others.get(kind, ["f32", "f32", "f16"])).item()
    faults: tuple[Fault, ...] = (
        "dropped tail",
        "doubled element",
        "atomics",
        "another row",
        "mean of terms",
        "mean of the sum",
    )
    fault = faults[rng.integers(len(faults))] if rng.random() < 0.3 else ""
    k = 1 << int(rng.integers(5, 8)) if fault.startswith("mean") else int(rng.integers(24, 161))
    if fault != "atomics" and fault != "another row" and rng.random() < 0.08:
        compensated = COMPENSATED[rng.integers(2)]
        name, order = compensated.__name__, compensated
    else:
        name, order = _drawn_order(rng, k, int(rng.integers(1, 4)))
    slots = int(rng.integers(3, 9))
    return Planted(order, name, int(rng.integers(4, 17)), k, kind, partial, fault, slots)


def _drawn_order(rng: np.random.Generator, k: int, depth: int) -> tuple[str, Sum]:
    """Draw an order of k elements: simple ones, or lanes and blocks of them."""
    simple = (sequential, backwards, pairwise, butterfly)
    chosen = simple[rng.integers(len(simple))]
    if depth == 1 or k < 4:
        return chosen.__name__, chosen
    how = rng.integers(5)
    if how == 0:
        size = int(rng.integers(3, 9))
        return f"cascade of {size}", cascade(size)
    if how < 3:
        count = int(rng.choice([2, 3, 4, 8, 16, 32]))
        name, last = _drawn_order(rng, count, depth - 1)
        return f"{count} lanes ({name})", lanes(count, last)
    size = int(rng.choice([4, 8, 16, 32, int(rng.integers(3, 48))]))
    (inside, inner), (outside, outer) = (_drawn_order(rng, n, depth - 1) for n in (size, -(-k // size)))
    return f"blocks of {size} ({inside}; {outside})", blocks(size, inner, outer)
