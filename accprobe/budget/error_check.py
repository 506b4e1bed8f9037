"""Check of a result against the error bound of its arithmetic, and the likely cause of a mismatch.

The bound at a stated rate of false alarms follows from the tail of emulated errors. It is Chernoff's bound with the
sub-Gaussian variance of the errors. Errors are shares of the worst case of each element (`worst_error.worst_case`). It is
extrapolated for rates below 1 / (number of elements). The section "Tolerances" in docs/accuracy.md derives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from accprobe.budget.errors import Exact, exact_product
from accprobe.budget.mutants import MUTATIONS, Operation, mistake_name
from accprobe.budget.worst_error import worst_case
from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats, Truths
from accprobe.evaluate.miscounts import fit_miscounts
from accprobe.evaluate.product import SumWords, rounded_to
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.tree import Rounding
from accprobe.report.words import percent

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
        f32, wide, given = FORMATS["f32"], operation.model, (operation.a, operation.b, operation.scales)
        if wide.result.mantissa_bits < f32.mantissa_bits:
            wide = replace(wide, result=f32, result_rounding="RNE")
        sums = SumWords(operation._replace(model=wide).computed(), wide.result)
        return cls(operation, exact_product(operation.model, *given), sums, worst_case(wide, *given))

    @property
    def errors(self) -> Floats:
        with np.errstate(invalid="ignore"):
            return self.sums.fmt.values(self.sums.patterns) - self.exact.sums

    @property
    def d(self) -> Floats:
        return self.operation.values(rounded_to(self.sums, self.operation.model.result, self.operation.model.result_rounding))


def tail_of(several: Sequence[Emulated]) -> Tail:
    """Return the tail of the errors of all elements that have a bound."""
    bounded = [(each, (each.worst > 0) & np.isfinite(each.worst)) for each in several]
    shares = np.concatenate([each.errors[there] / each.worst[there] for each, there in bounded])
    return tail_of_shares(shares, sum(sum(each.worst.shape) for each in several))


def rounded_values(values: Floats, fmt: Format, how: Rounding = "RNE") -> Floats:
    f64 = FORMATS["f64"]
    values = np.ascontiguousarray(values)
    return values if fmt is f64 else fmt.values(rounded_to(SumWords(values.view(np.uint64), f64), fmt, how))


# Rows, and columns, of a result in the search for a cause.
MOST_LINES = 64


@dataclass(frozen=True)
class Tolerance:
    """The smallest and the largest result [M, N] that a test accepts."""

    operation: Operation
    exact: Exact
    low: Floats
    high: Floats

    @classmethod
    def at_rate(cls, emulated: Emulated, rate: float) -> Tolerance:
        """Return the bound at this rate of false alarms, from the tail of the emulated errors.

        A result is accepted if a sum within that bound of the exact one rounds to it.
        """
        exact, model = emulated.exact, emulated.operation.model
        bound = tail_of([emulated]).at(rate) * emulated.worst
        with np.errstate(invalid="ignore"):
            sides = exact.sums - bound - exact.off, exact.sums + bound + exact.off
        low, high = (rounded_values(values, model.result, model.result_rounding) for values in sides)
        unbounded = np.isinf(bound)
        return cls(emulated.operation, exact, np.where(unbounded, -np.inf, low), np.where(unbounded, np.inf, high))

    @property
    def bound(self) -> Floats:
        with np.errstate(invalid="ignore"):
            bound = np.maximum(self.high - self.exact.sums, self.exact.sums - self.low)
        return np.where(np.isinf(self.low) | np.isinf(self.high), np.inf, bound)

    def beyond(self, got: Floats) -> Truths:
        """Mark elements that are NaN or not accepted."""
        return ~((got >= self.low) & (got <= self.high))


def largest_share(bound: Floats, sizes: Floats) -> float:
    return float(np.divide(bound, sizes, out=np.zeros_like(sizes), where=sizes > 0).max(initial=0.0))


@dataclass(frozen=True)
class Mismatch:
    """A result [M, N] with elements that exceed their bounds."""

    tolerance: Tolerance
    got: Floats
    beyond: Truths

    @property
    def worst(self) -> tuple[int, int]:
        """Return the element with the largest error over bound; NaN comes first."""
        with np.errstate(all="ignore"):
            times = np.abs(self.got - self.tolerance.exact.sums) / self.tolerance.bound
        times = np.where(self.beyond, np.where(np.isnan(times), np.inf, times), -1.0)
        row, column = np.unravel_index(np.argmax(times), times.shape)
        return int(row), int(column)

    def sentence(self, bounded: str) -> str:
        """Return how many elements exceed the bounds of `bounded`, the likeliest cause, and the worst element."""
        at, bound = self.worst, self.tolerance.bound
        got, exact = float(self.got[at]), float(self.tolerance.exact.sums[at])
        off = abs(got - exact)
        times = f", {off / bound[at]:.4g} times its bound of {bound[at]:.3g}" if bound[at] > 0 else ", but must be exact"
        error = f"off by {off:.3g}{times}" if np.isfinite(got) else "not finite"
        count = f"{int(self.beyond.sum()):,} of {self.beyond.size:,} elements exceed the bounds of {bounded}"
        cause = self.of_few().cause() or "no known mistake explains them"
        return f"{count}; {cause}; element [{at[0]}, {at[1]}] is {got:.9g}, the exact sum {exact:.9g}: {error}"

    def of_few(self) -> Mismatch:
        """Restrict a large result to the rows and columns with the most mismatches."""
        if max(self.got.shape) <= MOST_LINES:
            return self
        operation, tolerance = self.tolerance.operation, self.tolerance
        y, x = (np.sort(np.argsort(-self.beyond.sum(axis=axis), kind="stable")[:MOST_LINES]) for axis in (1, 0))
        here = np.ix_(y, x)
        exact = Exact(*(part[here] for part in tolerance.exact))
        some = Tolerance(operation.of_lines(y, x), exact, tolerance.low[here], tolerance.high[here])
        return Mismatch(some, self.got[here], self.beyond[here])

    def cause(self) -> str:
        """Return the miscounted k, and the mistake that gives most elements beyond bounds, or ""."""
        equal = {name: self.got == d for name, d in self._mutants()}
        best = max(equal, key=lambda name: (equal[name][self.beyond].mean(), equal[name].mean()))
        share = float(equal[best][self.beyond].mean())
        bits = f"{best}, which gives {'exactly these bits' if share == 1 else f'{percent(share)} of them bit for bit'}"
        found = list(filter(None, [self._miscounted(), bits if share > 0.5 else ""]))
        return f"likeliest: {': '.join(found)}" if found else ""

    def _mutants(self) -> Iterator[tuple[str, Floats]]:
        operation = self.tolerance.operation
        for name, mutation in MUTATIONS.items():
            if (d := mutation(operation)) is not None:
                yield mistake_name(name, operation.model), operation.values(d)
        if len(operation.a) == len(operation.b):
            yield "the result transposed", operation.values(operation.computed()).T

    def _miscounted(self) -> str:
        """Return which k are missing, repeated or mispaired, if that explains every element; "" if all k count alike."""
        operation, exact = self.tolerance.operation, self.tolerance.exact
        if operation.model.scales is not None or not np.isfinite(self.got).all():
            return ""
        a, b = (
            values_of(words, fmt, "kept") for words, fmt in ((operation.a, operation.model.a), (operation.b, operation.model.b))
        )
        found = fit_miscounts(self.got, a, b)
        if not found or (not found.is_mispaired and len(np.unique(found.counts)) == 1):
            return ""
        sums = (a * found.counts) @ b.T + a @ b[:, found.partner].T
        bound = self.tolerance.bound
        wide = np.maximum(bound, largest_share(bound, exact.sizes) * exact.sizes)
        explained = np.abs(self.got - sums) <= 2 * wide + exact.off
        return "; ".join(found.sentences()) if explained.all() else ""
