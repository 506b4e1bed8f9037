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

LARGE_KINDS = ("large", "large A", "large B")
"""Dense and of any sign: both operands, A or B as large as their formats have them and D's range allows."""

KINDS = ("normal", "wide", "same sign", "cancelling", "sparse", *LARGE_KINDS, "uniform", "integers")
"""Of whole products; of a line alone "cancelling" is "normal". uniform: in [0, 1); integers: of few bits."""


def most_integer(fmt: Format) -> int:
    """The largest of "integers": the format has all up to it, and long sums of f16 have their products."""
    return min((2 << fmt.mantissa_bits) - 1, 15 if fmt.exponent_bits == 5 else 4095)


_ZEROS = 0.9
"""Share of them among sparse numbers."""

_LARGEST = 2.0**8
"""Of wide numbers: beyond it no sum is small."""

_TABLE = 1 << 16
"""Patterns of a table: of 16 bits there are no more."""


_POOL = 1 << 20
"""Numbers that are drawn for a large matrix: each line is a run of them from a random start, as that is faster."""


def random_lines(fmt: Format, shape: tuple[int, ...], kind: str, rng: np.random.Generator, exponent: int = 0) -> Bits:
    """Patterns of numbers of that kind times 2^exponent, at most the format's largest. Integer formats: the whole range, or as
    "same sign" and "uniform" say.
    """
    if fmt.is_integer:
        end = {"same sign": 1 << fmt.bits - 1, "uniform": 2}.get(kind, 1 << fmt.bits)
        whole: Bits = rng.integers(0, end, shape, fmt.dtype.type)
        return whole
    if fmt.storage_bits <= 16:
        table = _table(fmt, kind, exponent)
        if len(shape) == 2 and shape[0] * shape[1] > 4 * _POOL:
            pool = table[rng.integers(0, _TABLE, _POOL + shape[1], np.uint16)]
            return np.lib.stride_tricks.sliding_window_view(pool, shape[1])[rng.integers(0, _POOL, shape[0])]
        taken: Bits = table[rng.integers(0, _TABLE, shape, np.uint16)]
        return taken
    type_ = np.float64 if fmt.storage_bits == 64 else np.float32
    uniform = kind in _UNIFORM
    return _patterns(fmt, rng.random(shape, type_) if uniform else rng.standard_normal(shape, type_), kind, rng, exponent)


_UNIFORM = (*LARGE_KINDS, "uniform", "integers")
"""Kinds that are made of numbers in [0, 1), the others of normal ones."""


@cache
def _table(fmt: Format, kind: str, exponent: int = 0) -> Bits:
    """[_TABLE], of quantiles of the normal distribution, or of the uniform one."""
    if kind in _UNIFORM:
        values = (np.arange(_TABLE) / _TABLE).astype(np.float32)
    else:
        positive = [NormalDist().inv_cdf(0.5 + (i + 0.5) / _TABLE) for i in range(_TABLE // 2)]
        values = np.array([*positive, *(-x for x in positive)], np.float32)
    return _patterns(fmt, values, kind, np.random.default_rng(0), exponent)


def _patterns(fmt: Format, values: NDArray[np.floating], kind: str, rng: np.random.Generator, exponent: int) -> Bits:
    if kind in LARGE_KINDS:
        halves = 2 * values  # the whole number in them is the sign, and the rest a fraction
        values = np.where(halves < 1, -1 - halves, halves)
    elif kind == "integers":
        values = np.floor(values * (2 * most_integer(fmt) + 1)) - most_integer(fmt)
    elif kind == "same sign":
        values = np.abs(values)
    elif kind == "wide":
        reach = 8 if fmt.exponent_bits == 8 else 3
        exponents = rng.integers(-reach, reach + 1, values.shape, np.int32)
        values = np.clip(np.ldexp(values, exponents), -_LARGEST, _LARGEST)
    elif kind == "sparse":
        values = np.where(rng.random(values.shape, np.float32) < _ZEROS, np.float32(0), values)
    assert fmt.ml_dtype is not None
    if exponent:
        largest = fmt.values(np.array([fmt.largest], fmt.dtype))[0]
        with np.errstate(over="ignore"):
            values = np.clip(np.ldexp(values, exponent), -largest, largest)
    return values.astype(fmt.ml_dtype).view(fmt.dtype)


def times_power(fmt: Format, patterns: Bits, exponent: int) -> Bits:
    """The numbers times 2^exponent, where the format has them; what is too large is its largest, or infinite."""
    assert fmt.ml_dtype is not None
    with np.errstate(all="ignore"):
        return np.ldexp(fmt.values(patterns), exponent).astype(fmt.ml_dtype).view(fmt.dtype)
