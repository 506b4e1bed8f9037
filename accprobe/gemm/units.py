"""Operands that swamp one another: a large number and units that are lost beside it (FPRev, Xie et al., ATC'25)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format

LARGEST = 14
"""Exponent of a large product that a partial sum in f16 holds."""

LEAST = -22
"""Exponent of a unit that partial sums and results in f16 hold, and a few more bits."""

UNIT_REACH = 30
"""The same where neither is of f16: to both sides of 0, and twice as much of f64."""

MOST = 1 << 13
"""Units counted at once: an accumulator of 13 fraction bits holds twice as many."""

_KEPT = 26
"""Bits of an accumulator below which units are lost, at most; f64 has 29 more."""


@dataclass(frozen=True)
class Units:
    """unit, large: exponents of the two operands whose product is a unit, and a large number. most: units that are counted
    without rounding.
    """

    unit: tuple[int, int]
    large: tuple[int, int]
    most: int

    @property
    def far(self) -> int:
        """Bits between the two."""
        return sum(self.large) - sum(self.unit)

    @property
    def modulus(self) -> int:
        """What counts of units are told by, and more than are counted at once. Sums that are cut toward zero go one step nearer
        to it where a unit is added to a large negative number: a step is a multiple of this.
        """
        return 1 << max(1, self.far - _KEPT + 1)


def candidates(spec: Spec) -> Iterator[Units]:
    """As far apart as the operands' formats allow, then nearer, as partial sums and results in f16 need it."""
    reach, kept = (2 * UNIT_REACH, _KEPT + 29) if spec.out.name == "f64" else (UNIT_REACH, _KEPT)
    a, b = spec.a, spec.b
    high, low = min(a.max_exponent + b.max_exponent, reach), max(lowest(a) + lowest(b), -reach)
    seen = set()
    for least in (low, max(low, LEAST)):
        for largest in (high, min(high, LARGEST)):
            if (least, largest) not in seen and (spec.out.name != "f16" or least >= LEAST):
                seen.add((least, largest))
                most = min(MOST, 1 << spec.out.mantissa_bits + 1, 1 << max(0, largest - least - kept))
                yield Units(factors(least, a, b), factors(largest, a, b), most)


def of_b(spec: Spec, a: int) -> Units:
    """Where every element of A is 2^a: all that is between a large number and a unit lies in B."""
    low = max(spec.b.min_exponent, spec.out.min_exponent - spec.out.mantissa_bits - a, -UNIT_REACH - a)
    high = min(spec.b.max_exponent, UNIT_REACH - a)
    most = min(MOST, 1 << spec.out.mantissa_bits + 1, 1 << max(0, high - low - _KEPT))
    return Units((a, low), (a, high), most)


def fewer(most: int) -> Iterator[int]:
    """Units that may be counted at once: so many, then those that partial sums in f16 and in bf16 hold."""
    yield most
    for name in ("f16", "bf16"):
        if (held := 1 << FORMATS[name].mantissa_bits + 1) < most:
            yield held


def lowest(fmt: Format) -> int:
    """The exponent of a unit's factor. Of 8 bits the smallest subnormal: their normal numbers alone do not reach far."""
    return fmt.min_exponent - (fmt.mantissa_bits if fmt.storage_bits == 8 else 0)


def factors(exponent: int, a: Format, b: Format) -> tuple[int, int]:
    """Exponents of two factors whose product has this one, near its half as far as the formats have them."""
    first = min(max(exponent // 2, lowest(a), exponent - b.max_exponent), a.max_exponent, exponent - lowest(b))
    return first, exponent - first


def power(fmt: Format, exponent: int, negative: bool = False) -> int:
    """The pattern of 2^exponent."""
    return fmt.encode(negative, 1, exponent)


def units_in(d: Bits, spec: Spec, each: Units) -> NDArray[np.float64]:
    """How many units the elements are, modulo `each.modulus`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(spec.out.values(d) * 2.0 ** -sum(each.unit) % each.modulus)
