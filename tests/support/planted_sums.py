"""Numbers, sums and roundings of planted products: numpy and ml_dtypes, and no code of accprobe.

Every number is kept as a float64, and every step on it is exact or rounded to odd: a product of two operands has 48 bits at
most, and lies between 2^-298 and 2^256. Operands are neither infinities nor NaNs; a sum that is too large becomes an infinity,
and stays one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Exponents = NDArray[np.int16]
Rounding = Literal["RZ", "RNE"]
OperandRounding = Literal["RZ", "RNE", "RNA"]


@dataclass(frozen=True)
class Kind:
    """A format: type of its arrays, fraction bits, exponent of its smallest normal number."""

    dtype: np.dtype[np.generic]
    bits: int
    min_exponent: int


TYPES = {
    "e4m3": Kind(np.dtype(ml_dtypes.float8_e4m3fn), 3, -6),
    "e5m2": Kind(np.dtype(ml_dtypes.float8_e5m2), 2, -14),
    "bf16": Kind(np.dtype(ml_dtypes.bfloat16), 7, -126),
    "f16": Kind(np.dtype(np.float16), 10, -14),
    "tf32": Kind(np.dtype(np.float32), 10, -126),
    "f32": Kind(np.dtype(np.float32), 23, -126),
    "s8": Kind(np.dtype(np.int8), 7, 0),
    "s32": Kind(np.dtype(np.int32), 31, 0),
}
"""tf32 is passed as f32, whose 13 last bits are ignored or rounded off."""

NONE = -10000
"""Exponent of a zero: its sum with any other is below every exponent."""

LOWEST = -400
"""Below the exponent of every term that is not zero."""

WORD = 44
"""Fraction bits of one word of an exact sum: 2 bits before them and the carries of 64 terms are 52 in all."""

MOST_TERMS = 64


def values_of(array: Array, kind: str, rounding: OperandRounding = "RZ") -> Floats:
    if array.dtype != TYPES[kind].dtype:
        raise ValueError(f"an array of {kind} is one of {TYPES[kind].dtype}, not of {array.dtype}")
    if kind == "tf32":
        return _as_tf32(array.astype(np.float64), rounding)
    return array.astype(np.float64)


def _as_tf32(values: Floats, rounding: OperandRounding) -> Floats:
    if rounding != "RNA":
        return rounded_to(values, "tf32", rounding)
    unit = _power_of_two(np.maximum(_leading(values), TYPES["tf32"].min_exponent) - TYPES["tf32"].bits)
    return np.asarray(np.copysign(np.floor(np.abs(values) / unit + 0.5) * unit, values))


def exponents_of(values: Floats, kind: str) -> Exponents:
    """Return encoded exponents: a subnormal has the exponent of the smallest normal number, a zero has NONE."""
    return np.where(values == 0, NONE, np.maximum(_leading(values), TYPES[kind].min_exponent)).astype(np.int16)


def check_sum(products: int, alignment_bits: int | None) -> None:
    """Raise ValueError if float64 cannot hold the sum."""
    if not 1 <= products < MOST_TERMS:
        raise ValueError(f"{products} products per sum: only 1 to {MOST_TERMS - 1} are summed exactly")
    if alignment_bits is not None and alignment_bits + 2 + (products + 1).bit_length() > 53:
        raise ValueError(f"{alignment_bits} fraction bits of {products} products and a carry exceed a float64")


def fused_sum(products: Floats, exponents: Exponents, carry: Floats, alignment_bits: int | None) -> Floats:
    """Add products [p, …] to the running f32 sum [...], exactly; rounded to odd if that takes more than 53 bits.

    alignment_bits: terms are truncated so many bits below the largest exponent among them. None: they are not truncated.
    """
    if alignment_bits is None:
        total = _exact_sum(products, exponents, carry)
    else:
        total = _truncated_sum(products, exponents, carry, alignment_bits)
    return np.where(np.isinf(carry), carry, total)


def _truncated_sum(products: Floats, exponents: Exponents, carry: Floats, alignment_bits: int) -> Floats:
    largest = np.maximum(exponents.max(axis=0, initial=LOWEST), exponents_of(carry, "f32"))
    units = _power_of_two(alignment_bits - largest)
    # Whole numbers of alignment_bits + 2 bits: their sum has at most 53 (`check_sum`), so that its order is no matter.
    whole = products * units
    total = np.trunc(whole, out=whole).sum(axis=0) + np.trunc(carry * units)
    return np.asarray(total * _power_of_two(largest - alignment_bits))


def _exact_sum(products: Floats, exponents: Exponents, carry: Floats) -> Floats:
    if len(products) == 1:
        return odd_sum(products[0], carry)
    terms = np.concatenate([products, carry[None]])
    largest = np.maximum(exponents.max(axis=0, initial=LOWEST), exponents_of(carry, "f32"))
    unit = _power_of_two(largest - WORD)
    whole = np.trunc(terms / unit)
    rest = (terms / unit - whole) * 2.0**WORD
    below = np.trunc(rest)
    total = odd_sum(whole.sum(axis=0) * unit, below.sum(axis=0) * (unit * 2.0**-WORD))
    for place in zip(*np.nonzero((rest != below).any(axis=0) & np.isfinite(carry)), strict=True):
        total[place] = _odd_sum_of_many([float(term) for term in terms[:, *place]])
    return total


def _odd_sum_of_many(terms: list[float]) -> float:
    total = math.fsum(terms)
    return float(_to_odd(np.float64(total), np.float64(math.fsum([*terms, -total]))))


def odd_sum(x: Floats, y: Floats) -> Floats:
    """Return x + y rounded to odd, so that a second rounding to fewer bits gives the correct result.

    Knuth's two-sum gives what the sum in float64 lost, exactly (Boldo & Melquiond, IEEE TC 2008).
    """
    total = x + y
    back = total - x
    return _to_odd(total, (x - (total - back)) + (y - back))


def _to_odd(total: Floats | np.float64, lost: Floats | np.float64) -> Floats:
    """Return total, or if lost is not zero the neighbour toward total + lost whose last bit is set."""
    bits = np.asarray(total).view(np.int64)
    outward = np.where((lost > 0) == (total > 0), 1, -1)
    return np.asarray((bits + np.where((lost != 0) & (bits & 1 == 0), outward, 0)).view(np.float64))


def rounded(values: Floats, bits: int, min_exponent: int, rounding: Rounding) -> Floats:
    """Round to so many fraction bits below the leading one, or below min_exponent if that is larger."""
    unit = _power_of_two(np.maximum(_leading(values), min_exponent) - bits)
    return np.asarray((np.rint if rounding == "RNE" else np.trunc)(values / unit) * unit)


def rounded_to(values: Floats, kind: str, rounding: Rounding = "RNE") -> Floats:
    return rounded(values, TYPES[kind].bits, TYPES[kind].min_exponent, rounding)


def _leading(values: Floats) -> NDArray[np.int64]:
    """Return exponents of the leading bits; for 0 one below all others."""
    return ((values.view(np.int64) >> 52) & 0x7FF) - 1023


def _power_of_two(exponents: NDArray[np.int16] | NDArray[np.int64]) -> Floats:
    return ((exponents.astype(np.int64) + 1023) << 52).view(np.float64)
