"""Whether a result lies where the arithmetic that is named can put it, and if not, why most likely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from accprobe.budget.bounds import from_sum
from accprobe.budget.exact import Exact, exact_product
from accprobe.budget.mutants import KEPT_IN_BF16, MUTATIONS, Operation, mistake_name
from accprobe.budget.tail import Allowed, Emulated, worst_case
from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats, Truths
from accprobe.evaluate.miscounts import fit_miscounts
from accprobe.model.product_error import worst_error

MOST_LINES = 64
"""Rows, and columns, of a result whose cause is looked for."""


@dataclass(frozen=True)
class Tolerance:
    """What a result may be off: bound [M, N], on both sides of exact sums. allowed: results that are accepted, where these do
    not lie alike on both sides.
    """

    asked: Operation
    exact: Exact
    bound: Floats
    allowed: Allowed | None = None

    @classmethod
    def of(cls, asked: Operation, any_order: bool = False) -> Tolerance:
        """In the worst case; any_order: of any order of K."""
        exact = exact_product(asked.model, asked.a, asked.b, asked.scales)
        if any_order:
            return cls(asked, exact, from_sum(asked.model, asked.a, asked.b, asked.scales))
        return cls._within(asked, exact, worst_case(asked))

    @classmethod
    def at_rate(cls, emulated: Emulated, rate: float | None) -> Tolerance:
        """Of no more false alarms than this, by the tail of the emulated errors; None: in the worst case."""
        share = 1.0 if rate is None else emulated.tail().at(rate)
        return cls._within(emulated.asked, emulated.exact, share * emulated.worst)

    @classmethod
    def _within(cls, asked: Operation, exact: Exact, before: Floats) -> Tolerance:
        with np.errstate(invalid="ignore"):
            allowed = Allowed.of(asked, exact, before)
            bound = np.maximum(allowed.high - exact.sums, exact.sums - allowed.low)
        return cls(asked, exact, np.where(np.isinf(before), np.inf, bound), allowed)

    def beyond(self, got: Floats) -> Truths:
        """Where it is no number, or off by more than its bound; the exact sum's own error is allowed for."""
        if self.allowed is not None:
            return ~((got >= self.allowed.low) & (got <= self.allowed.high))
        with np.errstate(invalid="ignore"):
            return ~(np.abs(got - self.exact.sums) <= self.bound + self.exact.off)

    @property
    def over_sum(self) -> float:
        """The largest bound relative to its sum of |a·b|."""
        sizes = self.exact.sizes
        return float(np.divide(self.bound, sizes, out=np.zeros_like(sizes), where=sizes > 0).max(initial=0.0))

    @property
    def over_any_sum(self) -> float | None:
        """The same of any operands; None where no bound follows."""
        return worst_error(self.asked.model)


@dataclass(frozen=True)
class Mismatch:
    """A result [M, N] of which some elements are beyond their bounds."""

    tolerance: Tolerance
    got: Floats
    beyond: Truths

    @property
    def worst(self) -> tuple[int, int]:
        """The element that is the most times its bound off, one that is no number before any other."""
        with np.errstate(all="ignore"):
            times = np.abs(self.got - self.tolerance.exact.sums) / (self.tolerance.bound + self.tolerance.exact.off)
        times = np.where(self.beyond, np.where(np.isnan(times), np.inf, times), -1.0)
        row, column = np.unravel_index(np.argmax(times), times.shape)
        return int(row), int(column)

    def sentence(self) -> str:
        """Which element, how far off, how many others, and the likeliest cause."""
        at, bound = self.worst, self.tolerance.bound
        got, exact = float(self.got[at]), float(self.tolerance.exact.sums[at])
        off = abs(got - exact)
        times = f", {off / bound[at]:.4g} times its bound of {bound[at]:.3g}" if bound[at] > 0 else ", where nothing is lost"
        told = f"element [{at[0]}, {at[1]}] is {got:.9g}, the exact sum {exact:.9g}"
        told += f": off by {off:.3g}{times}" if np.isfinite(got) else ": that is no finite number"
        count = f"{int(self.beyond.sum()):,} of {self.beyond.size:,} elements are beyond their bounds"
        return f"{told}; {count}; {self.of_few().cause() or 'no known mistake explains them'}"

    def of_few(self) -> Mismatch:
        """Of a large result some rows and columns, first of those that have elements beyond their bounds."""
        if max(self.got.shape) <= MOST_LINES:
            return self
        asked, tolerance = self.tolerance.asked, self.tolerance
        y, x = (np.sort(np.argsort(-self.beyond.sum(axis=axis), kind="stable")[:MOST_LINES]) for axis in (1, 0))
        here = np.ix_(y, x)
        exact = Exact(*(part[here] for part in tolerance.exact))
        some = Tolerance(asked.of_lines(y, x), exact, tolerance.bound[here])
        return Mismatch(some, self.got[here], self.beyond[here])

    def cause(self) -> str:
        """The mistake that gives these bits, or lies nearest to them; empty where none does."""
        miscounted = self._miscounted()
        best, share, everywhere = "", 0.0, 0.0
        mutants = list(self._mutants())
        for name, d in mutants:
            same = float(np.mean((self.got == d)[self.beyond])), float(np.mean(self.got == d))
            if same > (share, everywhere):
                best, (share, everywhere) = name, same
        bits = f"{best}, which gives {'these very bits' if share == 1 else f'{share:.0%} of them bit for bit'}"
        if miscounted or share > 0.5:
            return f"likeliest: {': '.join([*filter(None, [miscounted]), *([bits] if share > 0.5 else [])])}"
        near = [name for name, d in mutants if not Tolerance.beyond(self._around(d), self.got).any()]
        if near:
            return f"likeliest: {' or '.join(near)}, near which they all lie"
        return f"likeliest: {times}" if (times := self._times()) else ""

    def _mutants(self) -> Iterator[tuple[str, Floats]]:
        asked = self.tolerance.asked
        for name, mutation in (MUTATIONS | KEPT_IN_BF16).items():
            if (d := mutation(asked)) is not None:
                yield mistake_name(name, asked.model), asked.values(d)
        if len(asked.a) == len(asked.b):
            yield "the result transposed", asked.values(asked.computed()).T

    def _around(self, sums: Floats, times: float = 1.0) -> Tolerance:
        """The same bounds around other sums, and that of what was computed times so much."""
        exact = self.tolerance.exact
        return Tolerance(self.tolerance.asked, exact._replace(sums=sums), (1 + abs(times)) * self.tolerance.bound)

    def _times(self) -> str:
        """The constant that every element is multiplied by, by least squares."""
        asked, sums = self.tolerance.asked, self.tolerance.exact.sums
        computed = asked.values(asked.computed())
        if not np.isfinite(self.got).all() or not computed.any():
            return ""
        times = float((self.got * computed).sum() / np.square(computed).sum())
        return f"the result times {times:.4g}" if not self._around(times * sums, times).beyond(self.got).any() else ""

    def _miscounted(self) -> str:
        """Which k are missing, counted twice or mispaired, where that explains every element; none where all k alike are."""
        asked, exact = self.tolerance.asked, self.tolerance.exact
        if asked.model.scales is not None or not np.isfinite(self.got).all():
            return ""
        a, b = (values_of(words, fmt, "kept") for words, fmt in ((asked.a, asked.model.a), (asked.b, asked.model.b)))
        found = fit_miscounts(self.got, a, b)
        if not found or (not found.is_mispaired and len(np.unique(found.counts)) == 1):
            return ""
        sums = (a * found.counts) @ b.T + a @ b[:, found.partner].T
        around = self._around(sums)
        wide = np.maximum(around.bound, 2 * self.tolerance.over_sum * exact.sizes)
        return "" if replace(around, bound=wide).beyond(self.got).any() else "; ".join(found.sentences())
