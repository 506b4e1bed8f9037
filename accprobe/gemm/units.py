"""Choose operands of which one absorbs the others: a large number, and units that are lost beside it (FPRev, Xie et al.,
ATC'25).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format

# Largest exponent of a product whose partial sum fits f16.
MAX_EXPONENT = 14

# Smallest exponent of a unit that f16 partial sums and results hold with a few bits to spare.
MIN_EXPONENT = -22

# Exponent limit on both sides of 0 if nothing is f16; doubled for f64.
UNIT_REACH = 30

# Units counted at once. An accumulator with 13 fraction bits holds twice as many.
MAX_UNITS = 1 << 13

# Maximum accumulator bits below which units are lost; f64 has 29 more.
_KEPT = 26


@dataclass(frozen=True)
class Units:
    """unit, large: exponents of the two factors of a unit and of a large product. most: units that are counted without
    rounding.
    """

    unit: tuple[int, int]
    large: tuple[int, int]
    most: int

    @property
    def separation_bits(self) -> int:
        """Return the bits between a unit and a large product."""
        return sum(self.large) - sum(self.unit)

    @property
    def modulus(self) -> int:
        """Return the modulus of unit counts, larger than any count.

        Truncating sums move one step toward zero if a unit is added to a large negative number. A step is a multiple of the
        modulus.
        """
        return 1 << max(1, self.separation_bits - _KEPT + 1)


def unit_candidates(spec: Spec) -> Iterator[Units]:
    """Yield units from the widest separation that the formats allow to the one that f16 partial sums need."""
    reach, kept = (2 * UNIT_REACH, _KEPT + 29) if spec.out.name == "f64" else (UNIT_REACH, _KEPT)
    a, b = spec.a, spec.b
    high, low = min(a.max_exponent + b.max_exponent, reach), max(lowest(a) + lowest(b), -reach)
    seen = set()
    for least in (low, max(low, MIN_EXPONENT)):
        for largest in (high, min(high, MAX_EXPONENT)):
            if (least, largest) not in seen and (spec.out.name != "f16" or least >= MIN_EXPONENT):
                seen.add((least, largest))
                most = min(MAX_UNITS, 1 << spec.out.mantissa_bits + 1, 1 << max(0, largest - least - kept))
                yield Units(factors(least, a, b), factors(largest, a, b), most)


def units_of_b(spec: Spec, a: int) -> Units:
    """Return units for an A whose elements are all 2^a: B alone separates the large product from the units."""
    low = max(spec.b.min_exponent, spec.out.min_exponent - spec.out.mantissa_bits - a, -UNIT_REACH - a)
    high = min(spec.b.max_exponent, UNIT_REACH - a)
    most = min(MAX_UNITS, 1 << spec.out.mantissa_bits + 1, 1 << max(0, high - low - _KEPT))
    return Units((a, low), (a, high), most)


def batch_sizes(most: int) -> Iterator[int]:
    """Yield the numbers of units to count at once: `most`, then the limits of f16 and bf16 partial sums."""
    yield most
    for name in ("f16", "bf16"):
        if (held := 1 << FORMATS[name].mantissa_bits + 1) < most:
            yield held


def lowest(fmt: Format) -> int:
    """Return the smallest exponent of a factor: of subnormals in 8-bit formats, otherwise of normal numbers."""
    return fmt.min_exponent - (fmt.mantissa_bits if fmt.storage_bits == 8 else 0)


def factors(exponent: int, a: Format, b: Format) -> tuple[int, int]:
    """Return the exponents of two factors of 2^exponent, as equal as the formats allow."""
    first = min(max(exponent // 2, lowest(a), exponent - b.max_exponent), a.max_exponent, exponent - lowest(b))
    return first, exponent - first


def power(fmt: Format, exponent: int, negative: bool = False) -> int:
    """Return the pattern of ±2^exponent."""
    return fmt.encode(negative, 1, exponent)


def units_in(d: Bits, spec: Spec, each: Units) -> NDArray[np.float64]:
    """Return the number of units in each element modulo `each.modulus`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(spec.out.values(d) * 2.0 ** -sum(each.unit) % each.modulus)
