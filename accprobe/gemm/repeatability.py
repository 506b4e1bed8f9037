"""Identical repetition of calls: results that change, and first calls that give other bits than later ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable, WholeCall, one_nan
from accprobe.gemm.distributions import random_lines, times_power
from accprobe.gemm.layout import layout_of
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits

FIRST = 6
"""Identical calls at the beginning of a run, those with which the callable was opened among them."""

QUIET, MOST = 8, 64
"""Where results change: calls in a row that add nothing new, after which no more are made, and calls at most."""

ELEMENTS_WATCHED = 1 << 10
"""Elements whose values are counted where results change."""

REPEATED_AT_END = 512
"""Calls of a run that are repeated where the plan does not explain everything."""


@dataclass(frozen=True)
class FirstCalls:
    """Identical calls at the beginning of a run. call: their operands, with the last result. calls: how many.

    other: how many of the first give other bits than all later ones, in so many `elements`. changed: elements that change and
    do not settle; values: how many values an element has at most.
    """

    call: WholeCall
    calls: int
    other: int = 0
    elements: int = 0
    changed: int = 0
    values: int = 1


@dataclass
class _Results:
    """Results of identical calls. alike: how many of the last are the same; quiet: calls since an element had a new value."""

    first: Bits
    last: Bits
    changed: NDArray[np.bool_]
    calls: int = 1
    alike: int = 1
    quiet: int = 0
    values: list[Bits] = field(default_factory=list)

    def add(self, d: Bits) -> None:
        differ = d != self.last
        self.calls, self.alike, self.last = self.calls + 1, 1 if differ.any() else self.alike + 1, d
        self.changed |= differ
        sample = _sample(d)
        is_new = ~np.logical_or.reduce([sample == known for known in self.values])
        self.quiet = 0 if is_new.any() else self.quiet + 1
        if is_new.any():
            self.values.append(sample)

    @property
    def is_enough(self) -> bool:
        over = not self.changed.any() or max(self.alike, self.quiet) >= QUIET or self.calls >= MOST
        return self.calls >= FIRST and over

    @property
    def most_values(self) -> int:
        ordered = np.sort(np.stack(self.values), axis=0)
        return int(1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0).max())


def _sample(d: Bits) -> Bits:
    """Elements far from one another, flat."""
    return d.reshape(-1)[:: -(-d.size // ELEMENTS_WATCHED)]


def first_operands(spec: Spec) -> tuple[Bits, Bits]:
    """Return A [M, K] and B [N, K], the same in every run. Every other line has numbers of a wider range than normal ones,
    whose sums in 8 bits would be exact, and that of no order; sums in f16 do not overflow.
    """
    rng = np.random.default_rng(0xF1257)
    found = []
    for fmt, lines in ((spec.a, spec.m), (spec.b, spec.n)):
        words = random_lines(fmt, (lines, spec.k), "normal", rng)
        if fmt.is_float:
            wide = random_lines(fmt, words[::2].shape, "wide", rng)
            words[::2] = times_power(fmt, wide, -4) if spec.out.name == "f16" else wide
        found.append(words)
    return layout_of(spec).a(found[0]), found[1]


def repeat_first(asked: RecordedCallable, before: Sequence[Bits] = ()) -> FirstCalls:
    """Repeat `first_operands` until the results settle, or no new values come. before: results of earlier such calls."""
    a, b = first_operands(asked.spec)
    first, *others = [one_nan(d, asked.spec.out) for d in before] or [asked.product(a, b, keep=False)]
    results = _Results(first, first, np.zeros(first.shape, bool), values=[_sample(first)])
    for d in others:
        results.add(d)
    while not results.is_enough:
        results.add(asked.product(a, b, keep=False))
    call = WholeCall(a, b, results.last, None)
    if not results.changed.any():
        asked.keep(call)
        return FirstCalls(call, results.calls)
    if results.alike < QUIET:
        return FirstCalls(call, results.calls, changed=int(results.changed.sum()), values=results.most_values)
    asked.keep(call)
    return FirstCalls(call, results.calls, results.calls - results.alike, int(results.changed.sum()))


def compare_at_end(asked: RecordedCallable, first: FirstCalls) -> FirstCalls:
    """Repeat the first call after all others: results that settled may have changed since."""
    if first.changed or not (differ := asked.repeat(first.call)).any():
        return first
    last = asked.product(first.call.a, first.call.b, keep=False)
    if ((last != first.call.d) == differ).all():
        return replace(first, other=first.calls, elements=int(differ.sum()))
    return replace(first, changed=int(differ.sum()), values=2)


def count_changed(asked: RecordedCallable, disputed: Sequence[WholeCall]) -> int:
    """Repeat calls identically and count the elements that differ: fresh calls that contradict the plan, then others."""
    calls = [*disputed, *asked.whole[:: -(-len(asked.whole) // REPEATED_AT_END) or 1]]
    return sum(int(np.count_nonzero(asked.repeat(call))) for call in calls)
