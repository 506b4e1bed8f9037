"""Find the known plan that explains most elements of a result.

Plans are tried on a few elements: half are random, half have exact sums near ties or numbers of D's format, where differences
far below D's last bit show. Plans that explain them are compared with more elements, of a large result with a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from accprobe.gemm.characterise import Progress
from accprobe.gemm.explain.explanation import Candidate, Explanation
from accprobe.gemm.explain.known_plans import (
    KnownPlan,
    SampledPlans,
    f64_references,
    predicted,
    sizes,
    steps_to_try,
)
from accprobe.gemm.layout import Ints
from accprobe.gemm.plans import instructions_of
from accprobe.gemm.spec import Spec
from accprobe.gemm.verification import ElementMismatch
from accprobe.isa.formats import Bits
from accprobe.model.product import ProductModel

# Elements on which every plan is tried. Long sums have fewer, so that the sample has at most SAMPLE_PRODUCTS.
SAMPLE = 64
SAMPLE_PRODUCTS = 1 << 18
# Elements that are compared with the best plans of the sample.
LARGER_SAMPLE = 1 << 10
# Plans that are compared with the larger sample, and with all elements.
SURVIVORS, FINALISTS = 256, 4
# Unexplained elements that are listed.
MOST_SHOWN = 8
# The search ends at a plan that leaves at most one of so many elements unexplained.
HARDLY_ANY = 1 << 10
# Operands of which exact sums are computed.
EXACT_OPERANDS = 1 << 24


AnyPlan = KnownPlan | Candidate


class _Elements(NamedTuple):
    """Some elements: their rows [E] and columns [E], and their rows of A and of B [E, K]."""

    rows: Ints
    columns: Ints
    a: Bits
    b: Bits

    def predicted(self, model: ProductModel, got: Bits) -> Bits:
        return predicted(model, self.a[:, None], self.b[:, None], got[:, None, None])[:, 0, 0]


class _Best:
    """The plans with the fewest mismatches in some elements so far."""

    def __init__(self, got: Bits) -> None:
        self.got = got
        self.mismatches = len(got)
        self.found: list[AnyPlan] = []

    def offer(self, found: AnyPlan, d: Bits) -> None:
        mismatches = int(np.count_nonzero(d != self.got))
        if mismatches < self.mismatches:
            self.mismatches, self.found = mismatches, []
        if mismatches == self.mismatches:
            self.found.append(found)


class PlanSearch:
    """a [M, K], b [N, K], results [M, N], whose NaNs have one pattern. specs: how operands may be read."""

    def __init__(
        self,
        specs: Sequence[Spec],
        a: Bits,
        b: Bits,
        results: Sequence[Bits],
        at_most: int,
        progress: Progress,
    ) -> None:
        self._specs, self._a, self._b, self._results, self._progress = specs, a, b, results, progress
        spec = specs[0]
        self._sizes, self._steps = [spec.k] if spec.a.is_integer else sizes(spec.k), steps_to_try(specs)
        self._rows = _rows(results, max(1, at_most // (spec.n * spec.k)))
        places = _most_sensitive_first(spec, a[self._rows], b)
        count = max(SAMPLE // 4, min(SAMPLE, SAMPLE_PRODUCTS // spec.k))
        self._sample, self._larger = (self._elements(places[:n]) for n in (count, LARGER_SAMPLE))

    def _elements(self, places: Ints) -> _Elements:
        rows, columns = self._rows[places[:, 0]], places[:, 1]
        return _Elements(rows, columns, self._a[rows], self._b[columns])

    def explanations(self) -> list[Explanation]:
        """Explain each result by plans of one fused sum after another.

        An f64 reference is tried after the first fused sum. The search ends where hardly any element is unexplained, or before
        chains in other formats if nearly all are explained.
        """
        best = [_Best(d[self._sample.rows, self._sample.columns]) for d in self._results]
        found: list[Explanation] = []
        for number, step in enumerate(self._steps, 1):
            self._progress("plans", number / len(self._steps))
            for plan, d in SampledPlans(step, self._sample.a, self._sample.b).results(self._sizes):
                for each in best:
                    each.offer(plan, d)
            if number == 1:
                for reference in f64_references(self._specs[0]):
                    for each in best:
                        each.offer(reference, self._sample.predicted(reference.model, each.got))
            is_last = number == len(self._steps)
            may_end = is_last or self._steps[number].is_other_chain
            if may_end or not any(each.mismatches for each in best):
                found = [self._compared(each, d) for each, d in zip(best, self._results, strict=True)]
                if all(each.nearly if may_end else each.mismatches * HARDLY_ANY <= each.compared for each in found):
                    found = [replace(each, stopped=not is_last) for each in found]
                    break
        return [replace(each, instructions=_others(each)) for each in found]

    def _compared(self, best: _Best, d: Bits) -> Explanation:
        """Compare the best plans of the sample with more elements, and the best of those with all."""
        count = len(self._sample.rows)
        if best.mismatches == count:
            return Explanation(d.size, count, count, ())
        self._progress("words", 0)
        survivors: dict[ProductModel, Candidate] = {}
        for found in best.found[: SURVIVORS if 2 * best.mismatches < count else 1]:
            candidate = found if isinstance(found, Candidate) else Candidate(found.step.name, found.findings, found.model())
            survivors.setdefault(candidate.model, candidate)
        larger = _Best(d[self._larger.rows, self._larger.columns])
        for model, candidate in survivors.items():
            larger.offer(candidate, self._larger.predicted(model, larger.got))
        finalists = [x for x in larger.found if isinstance(x, Candidate)]
        explained = [self._compared_with_all(candidate, d) for candidate in finalists[:FINALISTS]]
        least = min(explained, key=lambda x: x.mismatches)
        alike = tuple(x.plans[0] for x in explained if x.mismatches == least.mismatches)
        return replace(least, plans=alike, more=max(0, len(finalists) - FINALISTS) + max(0, len(best.found) - SURVIVORS))

    def _compared_with_all(self, candidate: Candidate, d: Bits) -> Explanation:
        got = d[self._rows]
        expected = predicted(candidate.model, self._a[self._rows], self._b, got)
        differ = np.argwhere(got != expected)
        rows = self._rows
        places = tuple(
            ElementMismatch(int(rows[y]), int(x), int(got[y, x]), int(expected[y, x])) for y, x in differ[:MOST_SHOWN]
        )
        return Explanation(d.size, got.size, len(differ), (candidate,), places=places, rows=(rows, expected))


def _others(found: Explanation) -> tuple[str, ...]:
    """Return other instructions with the arithmetic of the first plan."""
    if not found.plans:
        return ()
    plan, model = found.plans[0], found.plans[0].model
    return tuple(name for name in instructions_of(model.a, model.b, model.step) if name != plan.findings.get("instruction"))


def _rows(results: Sequence[Bits], most: int) -> Ints:
    """Return the rows to compare: first those in which two results differ, then evenly spaced ones."""
    m = len(results[0])
    if most >= m:
        return np.arange(m)
    differing = np.flatnonzero((results[0] != results[-1]).any(axis=1))[: -(-most // 2)]
    others = np.setdiff1d(np.arange(m), differing)
    some = others[np.linspace(0, len(others) - 1, most - len(differing)).astype(np.int64)]
    return np.sort(np.concatenate([differing, some]))


def _most_sensitive_first(spec: Spec, a: Bits, b: Bits) -> Ints:
    """Return rows and columns [n, 2] of elements: in turn one whose exact sum is near a tie, a random one, one near a number of
    D's format, and a random one.
    """
    most = max(1, EXACT_OPERANDS // spec.k)
    rows, columns = (np.unique(np.linspace(0, len(x) - 1, min(len(x), most)).astype(np.int64)) for x in (a, b))
    rng = np.random.default_rng(0)
    size = len(rows) * len(columns)
    order = rng.permutation(size)
    if spec.out.is_float:
        with np.errstate(all="ignore"):
            exact = (spec.a.values(a[rows]) @ spec.b.values(b[columns]).T).reshape(-1)
            _, exponents = np.frexp(exact)
            last = np.maximum(exponents - 1, spec.out.min_exponent) - spec.out.mantissa_bits
            fraction = np.where(exact == 0, np.nan, np.ldexp(np.abs(exact), -last) % 1)
        ties, numbers = np.abs(fraction - 0.5), np.minimum(fraction, 1 - fraction)
        turns = np.stack([ties.argsort(), order, numbers.argsort(), rng.permutation(size)], axis=1).reshape(-1)
        order = np.fromiter(dict.fromkeys(turns[: 8 * LARGER_SAMPLE].tolist()), np.int64)
    return np.stack([rows[order // len(columns)], columns[order % len(columns)]], axis=1)
