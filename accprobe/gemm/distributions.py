"""Random numbers of operands, by kind.

Those of 16 bits and fewer are taken out of a table of equally likely patterns: a call has millions, and to convert so many
would take longer than the product.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format

KINDS = ("normal", "wide", "one sign", "cancelling", "sparse")
"""Of whole products; of a line alone "cancelling" is "normal"."""

_ZEROS = 0.9
"""Share of them among sparse numbers."""

_LARGEST = 2.0**8
"""Of wide numbers: beyond it no sum is small."""

_TABLE = 1 << 16
"""Patterns of a table: of 16 bits there are no more."""


def random_lines(fmt: Format, shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Bits:
    """Patterns of numbers of that kind; integers of the whole range."""
    if fmt.is_integer:
        whole: Bits = rng.integers(0, 1 << fmt.bits, shape, fmt.dtype.type)
        return whole
    if fmt.storage_bits <= 16:
        taken: Bits = _table(fmt, kind)[rng.integers(0, _TABLE, shape, np.uint16)]
        return taken
    return _patterns(fmt, rng.standard_normal(shape, np.float64 if fmt.storage_bits == 64 else np.float32), kind, rng)


@cache
def _table(fmt: Format, kind: str) -> Bits:
    """[_TABLE], of quantiles of the normal distribution."""
    positive = [NormalDist().inv_cdf(0.5 + (i + 0.5) / _TABLE) for i in range(_TABLE // 2)]
    values = np.array([*positive, *(-x for x in positive)], np.float32)
    return _patterns(fmt, values, kind, np.random.default_rng(0))


def _patterns(fmt: Format, values: NDArray[np.floating], kind: str, rng: np.random.Generator) -> Bits:
    if kind == "one sign":
        values = np.abs(values)
    elif kind == "wide":
        reach = 8 if fmt.exponent_bits == 8 else 3
        exponents = rng.integers(-reach, reach + 1, values.shape, np.int32)
        values = np.clip(np.ldexp(values, exponents), -_LARGEST, _LARGEST)
    elif kind == "sparse":
        values = np.where(rng.random(values.shape, np.float32) < _ZEROS, np.float32(0), values)
    assert fmt.ml_dtype is not None
    return values.astype(fmt.ml_dtype).view(fmt.dtype)


def times_power(fmt: Format, patterns: Bits, exponent: int) -> Bits:
    """The numbers times 2^exponent, where the format has them; what is too large is its largest, or infinite."""
    assert fmt.ml_dtype is not None
    with np.errstate(all="ignore"):
        return np.ldexp(fmt.values(patterns), exponent).astype(fmt.ml_dtype).view(fmt.dtype)
