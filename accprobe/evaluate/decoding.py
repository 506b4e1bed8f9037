"""Decoding of operands for the evaluation in numpy: values as float64, exponents and significands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats, Integers
from accprobe.isa.formats import Bits, Format
from accprobe.model.tree import Subnormals

# Exponent of a term that takes no part in the alignment. Any exponent below half of it means the same.
NOTHING = -4096

# Exponents of nonzero products, also of f64, lie above it. Sums of exponents with NOTHING lie below it.
ABSENT = 3 * NOTHING // 4

P = ParamSpec("P")
T = TypeVar("T", bound=np.generic)


class Significands(NamedTuple):
    """Values, [n]: signed * 2^lowest, signed being an integer of 53 bits; 0 where they are not finite.

    stand_in: the value where it is not finite, otherwise its sign.
    """

    signed: Floats
    lowest: Integers
    stand_in: Floats


def tabulated(decode: Callable[Concatenate[Bits, Format, P], NDArray[T]]) -> Callable[Concatenate[Bits, Format, P], NDArray[T]]:
    """Read what `decode` returns for formats of at most 16 bits from a table over all codes."""

    @cache
    def table(fmt: Format, *how: P.args, **named: P.kwargs) -> NDArray[T]:
        return decode(np.arange(1 << fmt.storage_bits, dtype=fmt.dtype), fmt, *how, **named)

    @wraps(decode)
    def read(patterns: Bits, fmt: Format, /, *how: P.args, **named: P.kwargs) -> NDArray[T]:
        if fmt.storage_bits > 16:
            return decode(patterns, fmt, *how, **named)
        return table(fmt, *how, **named).take(patterns.astype(np.intp), mode="clip")  # type: ignore[arg-type]  # all are hashable

    return read


@tabulated
def values_of(patterns: Bits, fmt: Format, subnormals: Subnormals) -> Floats:
    """Return the values; `subnormals` are kept or flushed."""
    values = fmt.values(patterns)
    if subnormals == "flushed":
        values[np.abs(values) < 2.0**fmt.min_exponent] *= 0.0
    return values


@tabulated
def exponents_of(
    patterns: Bits, fmt: Format, subnormals: Subnormals, normalised: bool = False, counted: bool = False
) -> NDArray[np.int16]:
    """Return each operand's exponent in the alignment: its own or, if normalised, the exponent of its leading bit.

    Zeros and flushed subnormals have NOTHING. If counted, flushed subnormals have the exponent of kept ones. A zero then has
    that of the smallest normal number, but NOTHING if normalised.
    """
    values = values_of(patterns, fmt, "kept" if counted else subnormals)
    exponents = leading(values)
    if not normalised:
        exponents = np.maximum(exponents, np.int16(fmt.min_exponent))
        if not counted:
            exponents[values == 0] = NOTHING
    return exponents


def leading(values: Floats) -> NDArray[np.int16]:
    """Return floor(log2 |value|) of normal float64 numbers, NOTHING of 0."""
    exponents = ((values.view(np.int64) >> 52) & 0x7FF).astype(np.int16) - np.int16(1023)
    exponents[values == 0] = NOTHING
    return exponents


def significands(values: Floats) -> Significands:
    """Split the values [n] into significands and exponents."""
    bits = values.view(np.int64)
    biased = (bits >> 52) & 0x7FF
    subnormal, special = biased == 0, biased == 0x7FF
    signed = (bits & ~(0x7FF << 52) | 1075 << 52).view(np.float64)
    signed = np.where(subnormal, values * 2.0**1000 * 2.0**74, signed)
    signed[special] = 0.0
    return Significands(signed, np.where(subnormal, -1074, biased - 1075), np.where(special, values, np.sign(signed)))
