"""Units: small products that a sum counts exactly, beside a large product that absorbs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import MAX_EXPONENT, MIN_EXPONENT, Ints, factors, layout_of, lowest, power
from accprobe.callables.spec import Spec
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks.contract import single_products
from accprobe.isa.formats import FORMATS, Bits

# Exponent limit on both sides of 0; doubled for f64. The limits of f16, MIN_EXPONENT and MAX_EXPONENT, are tried too.
UNIT_REACH = 30
# Maximum units counted at once. An accumulator with 13 fraction bits holds twice as many.
MAX_UNITS = 1 << 13
# Bits of the widest accumulator, which loses units that lie further below a large product. f64 has 29 more.
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

        Truncating sums move one step toward zero if a unit is added to a large negative number. If the sum has at most _KEPT
        bits, as all except f64 do, a step is a multiple of the modulus.
        """
        return 1 << max(1, sum(self.large) - sum(self.unit) - _KEPT + 1)


def _limits(spec: Spec) -> tuple[int, int]:
    """Return the exponent limit, and the bits of the widest accumulator."""
    return (2 * UNIT_REACH, _KEPT + 29) if spec.out.name == "f64" else (UNIT_REACH, _KEPT)


def unit_candidates(spec: Spec) -> Iterator[Units]:
    """Yield units from the widest separation that the formats allow to the one that f16 partial sums need."""
    a, b, (reach, kept) = spec.a, spec.b, _limits(spec)
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
    reach, kept = _limits(spec)
    low = max(spec.b.min_exponent, spec.out.min_exponent - spec.out.mantissa_bits - a, -reach - a)
    high = min(spec.b.max_exponent, reach - a)
    most = min(MAX_UNITS, 1 << spec.out.mantissa_bits + 1, 1 << max(0, high - low - kept))
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


# Random sets of units from all of K that check the count. From each run of units, a random number of them, below OMIT_BELOW,
# is left out: odd counts reveal formats with one bit less.
RANDOM_SETS, OMIT_BELOW = 32, 64


def measured_units(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> Units:
    """Return the visible units farthest from the large products if those cancel; else the units nearest to them."""
    spec, candidates = subject.spec, list(unit_candidates(subject.spec))
    for each in candidates[:-1]:
        words = power(spec.a, each.unit[0]), power(spec.b, each.unit[1])
        visible = single_products(subject, rows, columns, leaves, *words) == 2.0 ** sum(each.unit)
        if visible.all() and _cancels(subject, rows, columns, leaves, each):
            return _with_batch_size(subject, rows, columns, leaves, each)
    return _with_batch_size(subject, rows, columns, leaves, candidates[-1])


def _cancels(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    """Return whether one large number of each row cancels with one of each column, anywhere in K."""
    spec = subject.spec
    order = np.random.default_rng(len(leaves)).permutation(leaves)
    half = len(order) // 2
    if not half:
        return True
    i, j = np.resize(order[:half], len(rows)), np.resize(order[half:], len(columns))
    a, b = layout_of(spec).blank()
    a[rows, i], b[:, i] = (power(fmt, e) for fmt, e in zip((spec.a, spec.b), each.large, strict=True))
    a[:, j] = power(spec.a, each.large[0])
    b[columns, j] = power(spec.b, each.large[1], negative=True)
    d = subject.product(a, b)[np.ix_(rows, columns)]
    return bool(np.all(spec.out.values(d) == 0))


def _with_batch_size(subject: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> Units:
    """Return the units with the largest batch size that counts without error, for neighbouring k and across K; else with the
    smallest."""
    rng = np.random.default_rng(len(leaves))
    for most in batch_sizes(each.most):
        runs = [leaves[start : start + most] for start in range(0, len(leaves), most)]
        runs += [rng.permutation(leaves)[:most] for _ in range(RANDOM_SETS)]
        runs = [run[rng.permutation(len(run)) >= rng.integers(0, OMIT_BELOW)] for run in runs]
        if all(_counts(subject, rows, columns, runs[top : top + len(rows)], each) for top in range(0, len(runs), len(rows))):
            break
    return replace(each, most=most)


def _counts(subject: RecordedCallable, rows: Ints, columns: Ints, runs: list[Ints], each: Units) -> bool:
    spec = subject.spec
    a, b = layout_of(spec).blank()
    for row, run in zip(rows, runs, strict=False):
        a[row, run] = power(spec.a, each.unit[0])
    b[:, :] = power(spec.b, each.unit[1])
    d = subject.product(a, b)[np.ix_(rows[: len(runs)], columns)]
    sizes = np.array([len(run) for run in runs])
    return bool(np.all(units_in(d, spec, each) == sizes[:, None]))
