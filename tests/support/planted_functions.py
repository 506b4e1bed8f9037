"""Functions of two float32 matrices whose outputs depend on more than their own row and column, or on earlier calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import planted_around
from numpy.typing import NDArray

Array = NDArray[Any]
Multiply = Callable[[Array, Array], Array]


def chain(a: Array, b: Array, step: int = 1) -> Array:
    """f32 multiplies and adds, one k after the other; a negative step begins with the last k."""
    d = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(a.shape[1])[::step]:
            d = d + a[:, k, None].astype(np.float32) * b[k].astype(np.float32)
    return d


def strassen(a: Array, b: Array) -> Array:
    return planted_around.strassen(chain, a, b)


def wrong_tile(a: Array, b: Array) -> Array:
    """The second half of the columns is computed with the first half of B's."""
    half = b.shape[1] // 2
    return chain(a, np.concatenate([b[:, :half], b[:, :half], b[:, 2 * half :]], axis=1))


def _quantised(x: Array, axis: int | None) -> tuple[Array, Array]:
    """e4m3 numbers of x scaled by its largest number, or each line's, and the scales."""
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(x).max(axis=axis, keepdims=True), np.float32(2**-100)) / np.float32(448)
        return (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32), scale


def _times(x: Array, scale: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x * scale)


def scaled_by_tensor(a: Array, b: Array) -> Array:
    """A is quantised to e4m3 with one scale, that of its largest number."""
    x, scale = _quantised(a, None)
    return _times(chain(x, b), scale)


def scaled_by_row(a: Array, b: Array) -> Array:
    """Each row of A is quantised to e4m3 with the scale of its largest number."""
    x, scale = _quantised(a, 1)
    return _times(chain(x, b), scale)


class Warming:
    """The first calls add the other way round."""

    def __init__(self, first: int) -> None:
        self._first, self.calls = first, 0

    def __call__(self, a: Array, b: Array) -> Array:
        self.calls += 1
        return chain(a, b, -1 if self.calls <= self._first else 1)
