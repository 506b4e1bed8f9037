"""Units: small products that a sum counts exactly, beside a large product that absorbs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import MAX_EXPONENT, MIN_EXPONENT, factors, lowest
from accprobe.callables.spec import Spec
from accprobe.isa.formats import FORMATS, Bits

# Exponent limit on both sides of 0 if nothing is f16; doubled for f64.
UNIT_REACH = 30
# Units counted at once. An accumulator with 13 fraction bits holds twice as many.
MAX_UNITS = 1 << 13
# Maximum accumulator bits below which units are lost; f64 has 29 more.
_KEPT = 26


@dataclass(frozen=True)
class Units:
    """unit, large: exponents of the two factors of a unit and of a large product. most: units that sums count exactly."""

    unit: tuple[int, int]
    large: tuple[int, int]
    most: int

    @property
    def modulus(self) -> int:
        """Return the modulus of unit counts, larger than any count.

        Truncating sums move one step toward zero if a unit is added to a large negative number. A step is a multiple of the
        modulus.
        """
        return 1 << max(1, sum(self.large) - sum(self.unit) - _KEPT + 1)


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
    """Return units for an A with all elements 2^a: B alone separates the large product from the units."""
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


def units_in(d: Bits, spec: Spec, each: Units) -> NDArray[np.float64]:
    """Return the number of units in each element modulo `each.modulus`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(spec.out.values(d) * 2.0 ** -sum(each.unit) % each.modulus)
