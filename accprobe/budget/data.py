"""Operands of the products that errors are told of: of several kinds, or the user's own.

Values come first, as a model has them before anything is quantised; bit patterns are made of them. B is [N, K]: each row of A
with each of B, as `accprobe.evaluate.product` takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.evaluate.product import Singles, rounded_words
from accprobe.isa.formats import FORMATS, Bits, Format

KEPT_BACK = 16
"""Of so many products of cancelling data, one is not taken away again."""

CHANNELS = 256
"""Of so many k, one is an outlier; at least one."""

LARGEST_OUTLIER, SMALLEST_OUTLIER = 1e4, 1e2
"""Times what they would be otherwise."""


class DrawnValues(NamedTuple):
    """float32 values: a [M, K], b [N, K]."""

    a: Singles
    b: Singles


class DrawnPatterns(NamedTuple):
    """Bit patterns: a [M, K], b [N, K]."""

    a: Bits
    b: Bits


@dataclass(frozen=True, eq=False)
class OwnData:
    """Matrices of the user's own: a [M, K], b [N, K], finite; where a is None, it is normal.

    Rows of each are drawn at random. Of a longer K the first k are taken; a shorter one begins anew.
    """

    name: str
    a: Singles | None
    b: Singles

    def __post_init__(self) -> None:
        for values in (self.a, self.b):
            if values is not None and not values.size:
                raise AccprobeError(f"{self.name} is empty: give matrices with rows and columns")
            if values is not None and not np.isfinite(values).all():
                raise AccprobeError(f"{self.name} has numbers that are NaN or infinite: errors are told of finite ones")
        if self.a is not None and self.a.shape[1] != self.b.shape[1]:
            raise AccprobeError(
                f"{self.name}: a has a K of {self.a.shape[1]} and b of {self.b.shape[1]}; a is [M, K] and b [K, N]"
            )

    @property
    def k(self) -> int:
        return int(self.b.shape[1])

    def taken(self, k: int) -> str:
        """What a product of that K has of the matrices; nothing where that is all."""
        if k == self.k:
            return ""
        which = f"the first {k} of its {self.k}" if k < self.k else f"its {self.k}, again and again until there are {k},"
        return f"{self.name}: {which} products are taken."


Data = str | OwnData
"""One of DATA_KINDS, or the user's own."""


def drawn_patterns(data: Data, of_a: Format, of_b: Format, m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPatterns:
    """a [M, K] and b [N, K] of these formats, to nearest, what is too large as the largest number. Raises UnknownName."""
    a, b = drawn_values(data, m, n, k, rng)
    return DrawnPatterns(nearest_patterns(of_a, a), nearest_patterns(of_b, b))


def drawn_values(data: Data, m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """The same before they are rounded to a format. Raises UnknownName."""
    if isinstance(data, OwnData):
        a = _normal(m, k, rng) if data.a is None else _rows(data.a, m, k, rng)
        return DrawnValues(a, _rows(data.b, n, k, rng))
    if data not in DATA_KINDS:
        raise UnknownName(f"unknown data '{data}'; {nearest(data, DATA_KINDS)}")
    return DATA_KINDS[data](m, n, k, rng)


def nearest_patterns(fmt: Format, values: NDArray[np.floating]) -> Bits:
    """float32 values rounded to nearest, ties to even; what is too large becomes the largest finite number of its sign."""
    assert fmt.ml_dtype is not None
    most = min(largest_value(fmt), largest_value(FORMATS["f32"]))
    clipped = np.ascontiguousarray(np.clip(values, -most, most))
    return rounded_words(fmt, clipped.astype(fmt.ml_dtype).view(fmt.dtype), "RNE")


@cache
def largest_value(fmt: Format) -> float:
    return float(fmt.values(np.array([fmt.largest], fmt.dtype))[0])


def _rows(values: Singles, count: int, k: int, rng: np.random.Generator) -> Singles:
    """Rows drawn from the matrix, each once as long as there are enough."""
    chosen = rng.choice(len(values), count, replace=count > len(values))
    found: Singles = np.take(values[chosen], np.arange(k), axis=1, mode="wrap")
    return found


def _normal(rows: int, k: int, rng: np.random.Generator) -> Singles:
    return rng.standard_normal((rows, k), np.float32)


def _normals(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """Of mean 0 and deviation 1: sums walk."""
    return DrawnValues(_normal(m, k, rng), _normal(n, k, rng))


def _positive(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """Uniform in [0, 1): sums grow with K, and what is cut from them is always of one sign."""
    return DrawnValues(rng.random((m, k), np.float32), rng.random((n, k), np.float32))


def _attention(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """P·V along K keys: rows of exp(s - max s) of normal scores s, as fused kernels hand it over, and normal values.

    Each row sums to 1 once it is divided by its sum, which kernels do after the product: no relative error knows of it. Of P
    itself, whose numbers are about 1/K, 8-bit formats would keep nothing.
    """
    scores = _normal(m, k, rng)
    return DrawnValues(np.exp(scores - scores.max(axis=1, keepdims=True)), _normal(n, k, rng))


def _cancelling(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """A sum of one sign grows over half of K, and the other half takes it away again but for 1 in KEPT_BACK."""
    half = k // 2
    a, b = np.empty((m, k), np.float32), np.empty((n, k), np.float32)
    first = _positive(m, n, k - half, rng)
    order = rng.permutation(k - half)[:half]
    a[:, : k - half], b[:, : k - half] = first
    a[:, k - half :] = first.a[:, order] * np.where(np.arange(half) % KEPT_BACK, np.float32(-1), np.float32(1))
    b[:, k - half :] = first.b[:, order]
    return DrawnValues(a, b)


def _outliers(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """Normal, but 1 k in CHANNELS of A is 10^2 to 10^4 times larger, the same ones in every row."""
    a, b = _normals(m, n, k, rng)
    larger = rng.choice(k, max(1, k // CHANNELS), replace=False)
    low, high = np.log10([SMALLEST_OUTLIER, LARGEST_OUTLIER])
    a[:, larger] *= (10 ** rng.uniform(low, high, len(larger))).astype(np.float32)
    return DrawnValues(a, b)


def _integers(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnValues:
    """Whole numbers from -7 to 7: of their sums often the last rounding alone loses anything, and bounds are as narrow."""
    return DrawnValues(*(rng.integers(-7, 8, (lines, k)).astype(np.float32) for lines in (m, n)))


DATA_KINDS: dict[str, Callable[[int, int, int, np.random.Generator], DrawnValues]] = {
    "normal": _normals,
    "positive": _positive,
    "attention": _attention,
    "cancelling": _cancelling,
    "outliers": _outliers,
    "integers": _integers,
}
"""M, N, K and random numbers -> values."""
