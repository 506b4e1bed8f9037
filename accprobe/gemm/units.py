"""Operands that swamp one another: a large number and units that are lost beside it (FPRev, Xie et al., ATC'25)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format

FAR = 60
"""Bits between a large number and a unit, where formats have them."""

MOST = 1 << 13
"""Units counted at once: an accumulator of 13 fraction bits holds twice as many."""


@dataclass(frozen=True)
class Units:
    """Exponents of the operands: a unit times a unit is 2^(a + b), a large one times a unit 2^far as much.

    most: units that an element can count without rounding.
    """

    a: int
    b: int
    far: int
    most: int


def units(spec: Spec) -> Units:
    """For these formats: as far apart as they allow, and where D can count."""
    far = min(FAR, *(_top(fmt) - _lowest(fmt) for fmt in (spec.a, spec.b)))
    least = max(spec.out.min_exponent - spec.out.mantissa_bits, FORMATS["f32"].min_exponent)
    a = b = 0
    if far < FAR:
        a, b = _lowest(spec.a), _lowest(spec.b)
        while a + b < least + 2:
            a, b = (a + 1, b) if a <= b else (a, b + 1)
        far = min(_top(spec.a) - a, _top(spec.b) - b)
    return Units(a, b, far, min(MOST, 1 << (spec.out.mantissa_bits + 1)))


def _top(fmt: Format) -> int:
    return fmt.max_exponent if fmt.storage_bits < 16 else min(fmt.max_exponent, FAR)


def _lowest(fmt: Format) -> int:
    """Of 8 bits the smallest subnormal: their normal numbers alone do not reach far."""
    return fmt.min_exponent - fmt.mantissa_bits if fmt.storage_bits == 8 else max(fmt.min_exponent, -FAR)


def power(fmt: Format, exponent: int, negative: bool = False) -> int:
    """The pattern of 2^exponent."""
    return fmt.encode(negative, 1, exponent)


def counted(d: Bits, spec: Spec, each: Units) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How many units the elements are."""
    return np.asarray(spec.out.values(d) * 2.0 ** -(each.a + each.b))
