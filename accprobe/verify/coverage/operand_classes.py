"""Classes of operands and of block scales, from zeros to NaNs: bit patterns of each, and the classes of bit patterns."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format

OPERAND_CLASSES = ("zero", "subnormal", "normal", "largest", "infinity", "NaN")
SCALE_CLASSES = ("zero", "subnormal", "smallest normal", "normal", "largest", "NaN")


def codes_of(fmt: Format) -> dict[str, list[int]]:
    """Return positive bit patterns of each class of operands, none where the format has none."""
    low, m = fmt.ignored_low_bits, fmt.mantissa_bits
    one = 1 << low
    infinity = [] if fmt.infinity is None else [fmt.infinity]
    quiet = (
        [] if fmt.infinity is None else [fmt.infinity + one, fmt.infinity + (one << (m - 1)), fmt.infinity + (one << m) - one]
    )
    nans = [fmt.largest + one] if fmt.specials == "nan only" else quiet
    return {
        "zero": [0],
        "subnormal": [one, (one << m) - one],
        "normal": [one << m, fmt.bias << (m + low), fmt.largest - one],
        "largest": [fmt.largest],
        "infinity": infinity,
        "NaN": nans,
    }


def magnitudes(fmt: Format, patterns: Bits) -> Bits:
    """Return the patterns without their signs and ignored bits."""
    return patterns & fmt.dtype.type((fmt.sign_bit - 1) >> fmt.ignored_low_bits << fmt.ignored_low_bits)


def classes_of(fmt: Format, patterns: Bits) -> NDArray[np.uint8]:
    """Return positions in OPERAND_CLASSES."""
    if fmt.storage_bits <= 16:
        return _class_table(fmt)[patterns]
    return _classified(fmt, patterns)


@cache
def _class_table(fmt: Format) -> NDArray[np.uint8]:
    return _classified(fmt, np.arange(1 << fmt.storage_bits, dtype=fmt.dtype))


def _classified(fmt: Format, patterns: Bits) -> NDArray[np.uint8]:
    low = fmt.ignored_low_bits
    magnitude = magnitudes(fmt, patterns)
    normal = fmt.dtype.type(1 << (fmt.mantissa_bits + low))
    found: NDArray[np.uint8] = (magnitude != 0).astype(np.uint8)
    found += magnitude >= normal
    found += magnitude >= fmt.largest
    found += magnitude > fmt.largest
    found += magnitude > (fmt.largest if fmt.infinity is None else fmt.infinity)
    return found


def scale_codes(fmt: Format) -> dict[str, list[int]]:
    """Return bit patterns of scales of each class, none where the format has none."""
    smallest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0
    one = fmt.encode(False, 1, 0)
    return {
        "zero": [0] if fmt.mantissa_bits else [],
        "subnormal": [1, smallest - 1] if fmt.mantissa_bits else [],
        "smallest normal": [smallest],
        "normal": [one, one + 1, fmt.largest - 1],
        "largest": [fmt.largest],
        "NaN": [fmt.largest + 1],
    }


def classes_of_scales(fmt: Format, patterns: Bits) -> NDArray[np.int64]:
    """Return positions in SCALE_CLASSES."""
    code = (patterns & fmt.dtype.type((1 << fmt.bits) - 1)).astype(np.int64)
    smallest = 1 << fmt.mantissa_bits if fmt.mantissa_bits else 0
    return np.select([code > fmt.largest, code == fmt.largest, code > smallest, code == smallest, code > 0], [5, 4, 3, 2, 1], 0)
