"""Operands of the error reports: random kinds or the user's matrices, their quantisation, and how a kernel applies the scales.

Values are drawn as float32 and then rounded to bit patterns. B is [N, K], as in `accprobe.evaluate.product`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.evaluate.product import ScaleWords, Singles
from accprobe.evaluate.quantised import SHARINGS, Quantised, nearest_patterns, quantised_operand
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel, ScaleOf, Scales

# One of so many products of cancelling operands is not cancelled.
KEPT_BACK = 16

# K is divided by this to get the number of k with outliers, at least one.
CHANNELS = 256

# Factors of outliers.
LARGEST_OUTLIER, SMALLEST_OUTLIER = 1e4, 1e2


class DrawnPair(NamedTuple):
    """a [M, K], b [N, K]: float32 values or bit patterns."""

    a: NDArray[Any]
    b: NDArray[Any]


@dataclass(frozen=True, eq=False)
class OwnData:
    """Matrices of the user: a [M, K], b [N, K], finite; if a is None, it is drawn from a normal distribution.

    Rows are drawn at random. Raises AccprobeError for other matrices.
    """

    name: str
    a: Singles | None
    b: Singles

    def __post_init__(self) -> None:
        for values in (self.a, self.b):
            if values is not None and not values.size:
                raise AccprobeError(f"{self.name} is empty: give matrices with rows and columns")
            if values is not None and not np.isfinite(values).all():
                raise AccprobeError(f"{self.name} has NaN or infinite numbers; expected finite ones")
        if self.a is not None and self.a.shape[1] != self.b.shape[1]:
            raise AccprobeError(
                f"{self.name}: a has K = {self.a.shape[1]} and b has K = {self.b.shape[1]}; expected [M, K] and [K, N]"
            )

    def __str__(self) -> str:
        return self.name

    @property
    def k(self) -> int:
        return int(self.b.shape[1])

    def check_k(self, k: int) -> None:
        """Raise AccprobeError if the matrices have another K."""
        if k != self.k:
            raise AccprobeError(f"{self.name} has K = {self.k}, and the product K = {k}; give K = {self.k}")


# A name in DATA_KINDS, or matrices of the user.
Data = str | OwnData


def draw_patterns(data: Data, of_a: Format, of_b: Format, m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw a [M, K] and b [N, K], rounded to nearest and saturated to these formats. Raises as `draw_values`."""
    a, b = draw_values(data, m, n, k, rng)
    return DrawnPair(nearest_patterns(of_a, a), nearest_patterns(of_b, b))


def draw_values(data: Data, m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw a [M, K] and b [N, K] before rounding. Raises UnknownName, and AccprobeError for another K than the user's."""
    if isinstance(data, OwnData):
        data.check_k(k)
        return DrawnPair(_normal(m, k, rng) if data.a is None else _rows(data.a, m, rng), _rows(data.b, n, rng))
    if data not in DATA_KINDS:
        raise UnknownName(f"unknown data '{data}'; {nearest(data, DATA_KINDS)}")
    return DATA_KINDS[data](m, n, k, rng)


def _rows(values: Singles, count: int, rng: np.random.Generator) -> Singles:
    """Draw rows of the matrix, without replacement if there are enough."""
    return values[rng.choice(len(values), count, replace=count > len(values))]


def _normal(rows: int, k: int, rng: np.random.Generator) -> Singles:
    return rng.standard_normal((rows, k), np.float32)


def _same_sign(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw same-sign numbers, uniform in [0, 1): sums grow with K, and truncation is biased."""
    return DrawnPair(rng.random((m, k), np.float32), rng.random((n, k), np.float32))


def _attention(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw P·V of attention along K keys: rows of exp(s - max s) of normal scores s, and normal values.

    Kernels divide by the row sum after the product, which changes no relative error. P itself, about 1/K, would underflow in
    8-bit formats.
    """
    scores = _normal(m, k, rng)
    return DrawnPair(np.exp(scores - scores.max(axis=1, keepdims=True)), _normal(n, k, rng))


def _cancelling(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw same-sign products over half of K that the other half cancels, except one in KEPT_BACK."""
    half = k // 2
    a, b = np.empty((m, k), np.float32), np.empty((n, k), np.float32)
    first = _same_sign(m, n, k - half, rng)
    order = rng.permutation(k - half)[:half]
    a[:, : k - half], b[:, : k - half] = first
    a[:, k - half :] = first.a[:, order] * np.where(np.arange(half) % KEPT_BACK, np.float32(-1), np.float32(1))
    b[:, k - half :] = first.b[:, order]
    return DrawnPair(a, b)


def _outliers(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw normal numbers; in A, K / CHANNELS of the k, at least one, are 10^2 to 10^4 times larger, the same in every row."""
    a, b = DrawnPair(_normal(m, k, rng), _normal(n, k, rng))
    larger = rng.choice(k, max(1, k // CHANNELS), replace=False)
    low, high = np.log10([SMALLEST_OUTLIER, LARGEST_OUTLIER])
    a[:, larger] *= (10 ** rng.uniform(low, high, len(larger))).astype(np.float32)
    return DrawnPair(a, b)


def _integers(m: int, n: int, k: int, rng: np.random.Generator) -> DrawnPair:
    """Draw integers from -7 to 7. Their sums are often exact until D is rounded."""
    return DrawnPair(*(rng.integers(-7, 8, (lines, k)).astype(np.float32) for lines in (m, n)))


# Functions of M, N, K and a random generator.
DATA_KINDS: dict[str, Callable[[int, int, int, np.random.Generator], DrawnPair]] = {
    "normal": lambda m, n, k, rng: DrawnPair(_normal(m, k, rng), _normal(n, k, rng)),
    "same-sign": _same_sign,
    "attention": _attention,
    "cancelling": _cancelling,
    "outliers": _outliers,
    "integers": _integers,
}

# Scales that a kernel can apply, after the sum or to each block where it promotes: their name in `SHARINGS` (defined in
# `accprobe.evaluate.quantised`), and in the model. There "1x128" means one scale for each row and block of K; the length of a
# block, 32 of mx32, is `Quantised.ks`.
_SCALES_OF_MODEL: dict[str, ScaleOf] = {
    "tensor": "tensor",
    "row": "row",
    "1x128": "1x128",
    "128x128": "128x128",
    "mx32": "1x128",
}


@dataclass(frozen=True)
class QuantisedPair:
    """Both operands. scale: how elements share scales, a name in `SHARINGS`."""

    scale: str
    a: Quantised
    b: Quantised

    @property
    def patterns(self) -> DrawnPair:
        return DrawnPair(self.a.codes, self.b.codes)

    def apply_scales(self, model: ProductModel) -> tuple[Scales, ScaleWords] | None:
        """Return how a kernel with the plan `model` applies the scales, and their values, or None if it cannot.

        It cannot if a block along K has no promotion at its end, or if the scales are not in `_SCALES_OF_MODEL`.
        Tensor and row scales are applied once after the sum; block scales where the plan promotes, by a multiply-add unless
        the plan says otherwise.
        """
        if self.scale not in _SCALES_OF_MODEL:
            return None
        a, b, scales = self.a.scales, self.b.scales, Scales(_SCALES_OF_MODEL[self.scale])
        if model.scales is not None and model.scales.of == self.scale:
            scales = model.scales
        elif scales.by_block:
            scales = replace(scales, fused=True)
        if not scales.by_block:
            return scales, ScaleWords(a, b.T.copy())
        chains = list(model.chains())
        if any(chain.start // self.a.ks != (chain.stop - 1) // self.a.ks for chain in chains):
            return None  # a chain adds products of two blocks before they are scaled
        of_chain = np.array([chain.start // self.a.ks for chain in chains])
        return scales, ScaleWords(a[:, of_chain], b[:, of_chain].T.copy())


def quantise(scale: str, fmt_a: Format, fmt_b: Format, values: DrawnPair) -> QuantisedPair:
    """Quantise both operands with the scales of that name."""
    of_a, of_b = SHARINGS[scale] or (None, None)
    return QuantisedPair(scale, quantised_operand(of_a, fmt_a, values.a), quantised_operand(of_b, fmt_b, values.b))
