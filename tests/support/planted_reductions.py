"""Planted reductions: sums of the last dimension of x [rows, K] in numpy, in every order that libraries use.

They share no code with accprobe: each is a few lines of numpy, and every addition is rounded by numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

Array = Any
Sum = Callable[[Array], Array]


def sequential(x: Array) -> Array:
    return reduce(np.add, x.T)


def backwards(x: Array) -> Array:
    return sequential(x[:, ::-1])


def lanes(count: int, last: Sum) -> Sum:
    """Return a sum with an accumulator for every count-th element."""
    return lambda x: last(np.stack([sequential(x[:, lane::count]) for lane in range(count)], axis=1))


def pairwise(x: Array) -> Array:
    """Add halves of adjacent elements, recursively."""
    if x.shape[1] == 1:
        return x[:, 0]
    half = x.shape[1] // 2
    return pairwise(x[:, :half]) + pairwise(x[:, half:])


def butterfly(x: Array) -> Array:
    """Add element i and i + n/2, as shuffles between threads do."""
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = x[:, :half] + x[:, half:]
    return x[:, 0]


def blocks(size: int, inner: Sum, outer: Sum) -> Sum:
    """Return a sum of sums of blocks; the last block may be short."""
    return lambda x: outer(np.stack([inner(x[:, i : i + size]) for i in range(0, x.shape[1], size)], axis=1))


def unrolled(x: Array) -> Array:
    """Add as numpy does up to 128 elements: eight lanes, and their sums in pairs."""
    return lanes(8, pairwise)(x)


def in_type(kind: Any, inner: Sum) -> Sum:
    """Return a sum with partial sums of another type."""
    return lambda x: inner(x.astype(kind)).astype(x.dtype)


def compensated(x: Array) -> Array:
    """Add as Kahan does."""
    total, lost = np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
    for column in x.T:
        y = column - lost
        new = total + y
        lost, total = (new - total) - y, new
    return total


def dropped(inner: Sum) -> Sum:
    return lambda x: inner(x[:, :-1])


def doubled(inner: Sum) -> Sum:
    return lambda x: inner(np.concatenate([x, x[:, :1]], axis=1))


PLANTS: dict[str, Sum] = {
    "sequential": sequential,
    "backwards": backwards,
    "pairwise": pairwise,
    "butterfly": butterfly,
    "unrolled": unrolled,
    **{
        f"{count} lanes, {name}": lanes(count, last)
        for count in (2, 4, 8, 16, 32)
        for name, last in (("in turn", sequential), ("in pairs", pairwise))
    },
    "blocks of 16": blocks(16, sequential, sequential),
    "blocks of 32, in pairs": blocks(32, sequential, pairwise),
    "blocks of 24": blocks(24, sequential, sequential),
    "blocks of 7": blocks(7, sequential, sequential),
    "blocks of lanes": blocks(32, lanes(4, pairwise), sequential),
    "pairwise of unrolled": blocks(32, unrolled, pairwise),
    "butterfly of lanes": blocks(16, lanes(4, sequential), butterfly),
    "warps": blocks(32, butterfly, butterfly),
    "f64 partial sums": in_type(np.float64, sequential),
    "f16 partial sums": in_type(np.float16, sequential),
    "bf16 partial sums": in_type(ml_dtypes.bfloat16, sequential),
    "f16 lanes": in_type(np.float16, lanes(4, sequential)),
    "compensated": compensated,
    "dropped tail": dropped(sequential),
    "doubled element": doubled(sequential),
}
