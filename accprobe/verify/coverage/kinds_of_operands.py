"""Classes of operands, from zeros to NaNs: bit patterns of each, and the classes of bit patterns."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format

OPERAND_CLASSES = ("zero", "subnormal", "normal", "largest", "infinity", "NaN")


def codes_of(fmt: Format) -> dict[str, list[int]]:
    """Bit patterns of each class of operands, positive: none where the format has none."""
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
    """Patterns without their signs and ignored bits."""
    return patterns & fmt.dtype.type((fmt.sign_bit - 1) >> fmt.ignored_low_bits << fmt.ignored_low_bits)


def classes_of(fmt: Format, patterns: Bits) -> NDArray[np.uint8]:
    """Places in OPERAND_CLASSES."""
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
