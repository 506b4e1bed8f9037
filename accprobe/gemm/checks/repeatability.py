"""Repeat identical calls: find results that change, and first calls that differ from later ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable, WholeCall, one_nan
from accprobe.gemm.operands import first_operands
from accprobe.isa.formats import Bits

# Identical calls at the start of a run, including those that opened the callable.
FIRST = 6

# Calls without a new value after which repetition ends, and the maximum number of calls.
QUIET, MOST = 8, 64

# Elements whose values are counted if results change.
ELEMENTS_WATCHED = 1 << 10

# Calls that are repeated at the end if the plan does not explain everything.
REPEATED_AT_END = 512


@dataclass(frozen=True)
class FirstCalls:
    """Identical calls at the start of a run. call: operands and last result. calls: their number.

    other: first calls that differ from all later ones, in so many `elements`. changed: elements that keep changing; values: the
    largest number of values of one element.
    """

    call: WholeCall
    calls: int
    other: int = 0
    elements: int = 0
    changed: int = 0
    values: int = 1


@dataclass
class _Results:
    """Results of identical calls. unchanged: how many of the last are equal; quiet: calls since an element had a new value."""

    first: Bits
    last: Bits
    changed: NDArray[np.bool_]
    calls: int = 1
    unchanged: int = 1
    quiet: int = 0
    values: list[Bits] = field(default_factory=list)

    def add(self, d: Bits) -> None:
        differ = d != self.last
        self.calls, self.unchanged, self.last = self.calls + 1, 1 if differ.any() else self.unchanged + 1, d
        self.changed |= differ
        sample = _sample(d)
        is_new = ~np.logical_or.reduce([sample == known for known in self.values])
        self.quiet = 0 if is_new.any() else self.quiet + 1
        if is_new.any():
            self.values.append(sample)

    @property
    def is_enough(self) -> bool:
        over = not self.changed.any() or max(self.unchanged, self.quiet) >= QUIET or self.calls >= MOST
        return self.calls >= FIRST and over

    @property
    def most_values(self) -> int:
        ordered = np.sort(np.stack(self.values), axis=0)
        return int(1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0).max())


def _sample(d: Bits) -> Bits:
    """Return evenly spaced elements, flat."""
    return d.reshape(-1)[:: -(-d.size // ELEMENTS_WATCHED)]


def repeat_first(subject: RecordedCallable, before: Sequence[Bits] = ()) -> FirstCalls:
    """Repeat `first_operands` until results settle or no new values appear. before: results of earlier such calls."""
    a, b = first_operands(subject.spec)
    first, *others = [one_nan(d, subject.spec.out) for d in before] or [subject.product(a, b, keep=False)]
    results = _Results(first, first, np.zeros(first.shape, bool), values=[_sample(first)])
    for d in others:
        results.add(d)
    while not results.is_enough:
        results.add(subject.product(a, b, keep=False))
    call = WholeCall(a, b, results.last, None)
    if not results.changed.any():
        subject.keep(call)
        return FirstCalls(call, results.calls)
    if results.unchanged < QUIET:
        return FirstCalls(call, results.calls, changed=int(results.changed.sum()), values=results.most_values)
    subject.keep(call)
    return FirstCalls(call, results.calls, results.calls - results.unchanged, int(results.changed.sum()))


def compare_at_end(subject: RecordedCallable, first: FirstCalls) -> FirstCalls:
    """Repeat the first call after all others, as settled results may have changed since."""
    if first.changed or not (differ := subject.repeat(first.call)).any():
        return first
    last = subject.product(first.call.a, first.call.b, keep=False)
    if ((last != first.call.d) == differ).all():
        return replace(first, other=first.calls, elements=int(differ.sum()))
    return replace(first, changed=int(differ.sum()), values=2)


def count_changed(subject: RecordedCallable, disputed: Sequence[WholeCall]) -> int:
    """Count the elements that differ in repeated calls: fresh calls that contradict the plan, and a sample of the rest."""
    calls = [*disputed, *subject.whole[:: -(-len(subject.whole) // REPEATED_AT_END) or 1]]
    return sum(int(np.count_nonzero(subject.repeat(call))) for call in calls)
