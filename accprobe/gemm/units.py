"""Operands that swamp one another: a large number and units that are lost beside it (FPRev, Xie et al., ATC'25)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

FAR = 60
"""Bits between a large number and a unit, where formats have them."""

LEAST = -22
"""Exponent of a unit beside f16: partial sums and results of that format hold it, and a few more bits."""

LARGEST = 14
"""Exponent of a large number beside f16."""

MOST, HALF, NARROW = 1 << 13, 1 << 11, 1 << 8
"""Units counted at once: an accumulator of 13 fraction bits holds twice the most; f16 and bf16 the others."""


@dataclass(frozen=True)
class Units:
    """Exponents of the operands: a unit times a unit is 2^(a + b), a large one times a unit 2^far as much.

    large: exponents of the two operands whose product is large by itself. most: units that are counted without rounding,
    whatever format partial sums are kept in.
    """

    a: int
    b: int
    far: int
    large: tuple[int, int]
    most: int


def units(spec: Spec, narrow: bool = False) -> Units:
    """For these formats: as far apart as they allow, and where D and partial sums can count; narrow: those in bf16 too."""
    if min(fmt.exponent_bits for fmt in (spec.a, spec.b)) >= 8 and spec.out.name != "f16":
        return Units(0, 0, FAR, (FAR // 2, FAR // 2), NARROW if narrow else min(MOST, 1 << spec.out.mantissa_bits + 1))
    a, b = _lowest(spec.a), _lowest(spec.b)
    while a + b < LEAST:
        a, b = (a + 1, b) if a <= b else (a, b + 1)
    far = min(FAR, _highest(spec.a) - a, _highest(spec.b) - b)
    large = LARGEST // 2, LARGEST - LARGEST // 2
    most = 1 << spec.out.mantissa_bits + 1
    return Units(a, b, far, large, NARROW if narrow or spec.a.storage_bits == 8 else min(HALF, most))


def units_of_b(spec: Spec, a: int, narrow: bool = False) -> Units:
    """Where every element of A is 2^a: all that is between a large number and a unit lies in B."""
    usual = units(spec, narrow)
    if usual.far == FAR:
        return replace(usual, a=a, b=-a)
    b = max(spec.b.min_exponent, spec.out.min_exponent - spec.out.mantissa_bits - a)
    return replace(usual, a=a, b=b, far=min(FAR, spec.b.max_exponent - b))


def _highest(fmt: Format) -> int:
    return min(fmt.max_exponent, FAR // 2)


def _lowest(fmt: Format) -> int:
    """Of 8 bits the smallest subnormal: their normal numbers alone do not reach far."""
    return max(fmt.min_exponent - (fmt.mantissa_bits if fmt.storage_bits == 8 else 0), -FAR // 2)


def power(fmt: Format, exponent: int, negative: bool = False) -> int:
    """The pattern of 2^exponent."""
    return fmt.encode(negative, 1, exponent)


def counted(d: Bits, spec: Spec, each: Units) -> NDArray[np.float64]:
    """How many units the elements are."""
    with np.errstate(invalid="ignore"):
        return np.asarray(spec.out.values(d) * 2.0 ** -(each.a + each.b))
