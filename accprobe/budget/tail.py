"""Error bound at a stated rate of false alarms, from the tail of emulated errors.

docs/accuracy.md, "Tolerances", derives it: Chernoff's bound with the sub-Gaussian variance of the errors as shares of the worst
case of each element (`worst_error.worst_case`). For rates below 1 / (number of elements) it is extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from accprobe.budget.errors import Exact, exact_product
from accprobe.budget.mutants import Operation
from accprobe.budget.worst_error import worst_case
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import SumWords, rounded_to
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.tree import Rounding

# Default rate of false alarms: the share of correct elements that a test may reject.
FALSE_ALARMS = 1e-9

# With fewer emulated elements the bound is the worst case.
FEWEST = 1 << 8

# Standard errors by which the variance is increased.
SAFETY = 4.0

# Values of t in units of 1 / standard deviation.
MOMENT_STEPS = np.geomspace(0.05, 100, 60)


class Tail(NamedTuple):
    """Mean and sub-Gaussian variance of errors as shares of their worst cases; elements: emulated ones."""

    centre: float
    variance: float
    elements: int

    def at(self, rate: float) -> float:
        """Return the bound, a share of the worst case, that at most a share `rate` of errors exceeds.

        It is 1 with too few elements, or if all errors are equal.
        """
        if self.elements < FEWEST or not self.variance:
            return 1.0
        return min(1.0, abs(self.centre) + sqrt(2 * self.variance * log(2 / rate)))


def tail_of_shares(shares: Floats, lines: int) -> Tail:
    """Return the tail of errors over their worst cases, of elements in so many rows and columns."""
    if not shares.size:
        return Tail(0.0, 0.0, 0)
    centre, spread = float(shares.mean()), float(shares.std())
    if not spread:
        return Tail(centre, 0.0, shares.size)
    scaled = (shares - centre) / spread
    largest = float(np.abs(scaled).max())
    variance = 1.0
    for t in (*MOMENT_STEPS, *-MOMENT_STEPS):
        moment = float(np.exp(t * scaled - abs(t) * largest).mean())
        if moment:
            variance = max(variance, 2 * (log(moment) + abs(t) * largest) / t**2)
    return Tail(centre, spread**2 * variance * (1 + SAFETY * sqrt(2 / lines)), shares.size)


class Emulated(NamedTuple):
    """An evaluated product [M, N]. sums: before D is rounded; worst: bound of their errors."""

    operation: Operation
    exact: Exact
    sums: SumWords
    worst: Floats

    @classmethod
    def of(cls, operation: Operation) -> Emulated:
        wide, given = without_last_rounding(operation), (operation.a, operation.b, operation.scales)
        sums = SumWords(wide.computed(), wide.model.result)
        return cls(operation, exact_product(operation.model, *given), sums, worst_case(wide.model, *given))

    @property
    def errors(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return self.sums.fmt.values(self.sums.patterns) - self.exact.sums

    @property
    def d(self) -> Floats:
        """Return the results."""
        return self.operation.values(rounded_to(self.sums, self.operation.model.result, self.operation.model.result_rounding))


def tail_of(several: Sequence[Emulated]) -> Tail:
    """Return the tail of the errors of all elements that have a bound."""
    bounded = [(each, (each.worst > 0) & np.isfinite(each.worst)) for each in several]
    shares = np.concatenate([each.errors[there] / each.worst[there] for each, there in bounded])
    return tail_of_shares(shares, sum(sum(each.worst.shape) for each in several))


def without_last_rounding(operation: Operation) -> Operation:
    """Return the operation with an f32 result instead of a narrower one."""
    f32, model = FORMATS["f32"], operation.model
    if model.result.mantissa_bits >= f32.mantissa_bits:
        return operation
    return operation._replace(model=replace(model, result=f32, result_rounding="RNE"))


def rounded_values(values: Floats, fmt: Format, how: Rounding = "RNE") -> Floats:
    """Round float64 values to a format."""
    f64 = FORMATS["f64"]
    values = np.ascontiguousarray(values)
    return values if fmt is f64 else fmt.values(rounded_to(SumWords(values.view(np.uint64), f64), fmt, how))
