"""How far a sum of some arithmetic may be off, at a stated rate of false alarms: a bound on the tail of emulated errors.

Let z be the error of a sum before D is rounded, as a share of the worst case of that very element (`accprobe.budget.bounds`), m
its mean over emulated elements. With

    v = max over t of 2 · ln(mean of exp(t · (z - m))) / t²

the moments of z - m are those of a sub-Gaussian variable of variance v, and Chernoff's bound gives

    P(|z - m| > x) <= 2 · exp(-x² / 2v),    so    x = sqrt(2v · ln(2 / rate))

(Boucheron, Lugosi and Massart, Concentration Inequalities, 2013, sections 2.2 and 2.3). v is a maximum over t, so that tails
heavier than a Gaussian's raise it. Elements of one row or column are not independent: v is increased by four standard errors of
a variance, sqrt(2 / n) each, of n rows and columns. Of rates below one over the number of elements this is a model: roundings
along K are assumed to go on as the emulated ones. The worst case, which nothing exceeds, caps it.
"""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from accprobe.budget.bounds import tight
from accprobe.budget.exact import Exact, exact_product
from accprobe.budget.mutants import Operation
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import SumWords, rounded_to
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.tree import Rounding

FALSE_ALARMS = 1e-9
"""Of correct elements, the share that a test rejects, at most."""

FEWEST = 1 << 8
"""Of fewer emulated elements the worst case stands."""

SAFETY = 4.0
"""Standard errors by which the variance is increased."""

MOMENT_STEPS = np.geomspace(0.05, 100, 60)
"""Values of t, times the standard deviation."""


class Tail(NamedTuple):
    """centre, variance: of errors as shares of their worst cases, the variance that of the sub-Gaussian bound; of so many
    emulated elements.
    """

    centre: float
    variance: float
    elements: int

    def at(self, rate: float) -> float:
        """The share of the worst case that errors exceed at this rate at most; 1 where too little is known of them."""
        if self.elements < FEWEST or not self.variance:
            return 1.0
        return min(1.0, abs(self.centre) + sqrt(2 * self.variance * log(2 / rate)))


def tail_of(shares: Floats, lines: int) -> Tail:
    """shares: errors over their worst cases, of elements of so many rows and columns."""
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
    """A product [M, N] as its arithmetic computes it. sums: before D is rounded; worst: how far these may be off."""

    asked: Operation
    exact: Exact
    sums: SumWords
    worst: Floats

    @classmethod
    def of(cls, asked: Operation) -> Emulated:
        wide, exact = without_last_rounding(asked), exact_product(asked.model, asked.a, asked.b, asked.scales)
        return cls(asked, exact, SumWords(wide.computed(), wide.model.result), worst_case(asked))

    @property
    def errors(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return self.sums.fmt.values(self.sums.patterns) - self.exact.sums

    @property
    def d(self) -> Floats:
        """The results."""
        return self.asked.values(rounded_to(self.sums, self.asked.model.result, self.asked.model.result_rounding))

    def tail(self) -> Tail:
        there = (self.worst > 0) & np.isfinite(self.worst)
        return tail_of(self.errors[there] / self.worst[there], sum(self.worst.shape))


def without_last_rounding(asked: Operation) -> Operation:
    """To a format that is narrower than f32."""
    f32, model = FORMATS["f32"], asked.model
    if model.result.mantissa_bits >= f32.mantissa_bits:
        return asked
    return asked._replace(model=replace(model, result=f32, result_rounding="RNE"))


def worst_case(asked: Operation) -> Floats:
    """How far sums [M, N] may be off before D is rounded."""
    return tight(without_last_rounding(asked).model, asked.a, asked.b, asked.scales)


class Allowed(NamedTuple):
    """The smallest and the largest result [M, N] that a test accepts: all that sums within `before` of the exact ones round to.

    before: at a rate of false alarms, or in the worst case where that is not more.
    """

    before: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, asked: Operation, exact: Exact, before: Floats) -> Allowed:
        low, high = (
            rounded_values(exact.sums + sign * (before + exact.off), asked.model.result, asked.model.result_rounding)
            for sign in (-1, 1)
        )
        return cls(before, low, high)


def rounded_values(values: Floats, fmt: Format, how: Rounding = "RNE") -> Floats:
    """float64 values in a format."""
    f64 = FORMATS["f64"]
    values = np.ascontiguousarray(values)
    return values if fmt is f64 else fmt.values(rounded_to(SumWords(values.view(np.uint64), f64), fmt, how))
