"""Which known plan gives most of a result's bits.

Plans are tried on a few elements, those above all whose exact sums lie next to where D's rounding turns, so that a difference
far below D's last bit shows; what explains them is held against all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.product import rounded_words
from accprobe.gemm import known_plans
from accprobe.gemm.candidates import instructions_of
from accprobe.gemm.characterise import Tell
from accprobe.gemm.explanation import Candidate, ComparedRows, Explanation, Unexplained
from accprobe.gemm.known_plans import KnownPlan, Sizes, core, instruction_steps, other_steps
from accprobe.gemm.pairs import Ints
from accprobe.gemm.references import f32_references, f64_references, predicted
from accprobe.gemm.sampled import Sampled
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits
from accprobe.model.product import OPERAND_ROUNDINGS, ProductModel
from accprobe.model.tree import DotModel, Rounding

SAMPLE = 64
SAMPLE_PRODUCTS = 1 << 18
"""Elements that every plan is tried on, and of long sums fewer."""

LARGER_SAMPLE = 1 << 10
"""Elements that plans are held against which are the best on the sample."""

SURVIVORS, FINALISTS = 256, 4
"""Plans that are held against the larger sample, and against all."""

MOST_SHOWN = 8
"""Words without an explanation that are named."""

HARDLY_ANY = 1 << 10
"""One word of so many may be left without an explanation by a plan beside which no other arithmetic is tried."""


class Step(NamedTuple):
    """How operands are read, their words rounded how where these are wider than their format, and an arithmetic by name."""

    spec: Spec
    operand_rounding: Rounding
    name: str
    model: DotModel


class _Elements(NamedTuple):
    """Some elements: rows [E] and columns [E], and of each the row of A and of B [E, K]."""

    rows: Ints
    columns: Ints
    a: Bits
    b: Bits

    def predicted(self, model: ProductModel, got: Bits) -> Bits:
        return predicted(model, self.a[:, None], self.b[:, None], got[:, None, None])[:, 0, 0]


class _Best:
    """The plans that explain most of some elements so far."""

    def __init__(self, got: Bits) -> None:
        self.got = got
        self.wrong = len(got)
        self.found: list[Tried] = []

    def offer(self, found: Tried, d: Bits) -> None:
        wrong = int(np.count_nonzero(d != self.got))
        if wrong < self.wrong:
            self.wrong, self.found = wrong, []
        if wrong == self.wrong:
            self.found.append(found)


class Tried(NamedTuple):
    """A plan as it was found: its candidate is made where it is needed."""

    spec: Spec
    plan: KnownPlan | Candidate
    operand_rounding: Rounding = "RZ"

    def candidate(self) -> Candidate:
        plan, how = self.plan, self.operand_rounding
        if isinstance(plan, Candidate):
            return plan
        told = {**plan.told, "operand_rounding": how} if self.spec.rounds_operands else plan.told
        return Candidate(plan.name, told, replace(plan.model(self.spec), operand_rounding=how))


class PlanSearch:
    """a [M, K], b [N, K], results [M, N] with one NaN. specs: how operands may be read; sizes: of slices (the usual ones)."""

    def __init__(
        self,
        specs: Sequence[Spec],
        a: Bits,
        b: Bits,
        results: Sequence[Bits],
        at_most: int,
        tell: Tell,
        sizes: Sequence[Sizes] | None = None,
    ) -> None:
        self._specs, self._a, self._b, self._results, self._tell = specs, a, b, results, tell
        spec = specs[0]
        usual = [spec.k] if spec.a.is_integer else known_plans.sizes(spec.k)
        self._sizes = usual if sizes is None else sizes
        self._rows = _rows(results, max(1, at_most // (spec.n * spec.k)))
        places = _telling_first(spec, a[self._rows], b)
        count = max(SAMPLE // 4, min(SAMPLE, SAMPLE_PRODUCTS // spec.k))
        self._sample, self._larger = (self._elements(places[:n]) for n in (count, LARGER_SAMPLE))

    def _elements(self, places: Ints) -> _Elements:
        rows, columns = self._rows[places[:, 0]], places[:, 1]
        return _Elements(rows, columns, self._a[rows], self._b[columns])

    def explanations(self, recorded: Sequence[Candidate], others: bool = True) -> list[Explanation]:
        """recorded: plans that are tried first; others: whether rarer arithmetics are tried where no usual one explains all."""
        ways = [(spec, how) for spec in self._specs for how in (OPERAND_ROUNDINGS if spec.rounds_operands else ("RZ",))]
        every = [Step(*way, *step) for way in ways for step in instruction_steps(way[0])]
        chains = [Step(*way, *step) for way in ways for step in other_steps(way[0])]
        usual = [step for step in chains if step.model.root.arithmetic.result is step.spec.a]
        first = [*usual, *_one_of_each(every)]
        spec = self._specs[0]
        begun = [Tried(spec, each) for each in recorded]
        found = self._explained(begun, first, list(f64_references(spec)))
        if all(each.nearly for each in found):
            found = [replace(each, stopped=True) for each in found]
        elif others:
            rest = [step for step in chains if step not in usual]
            more = self._explained([], rest, list(f32_references(spec)))
            found = [min(two, key=lambda x: x.wrong / x.compared) for two in zip(found, more, strict=True)]
        told = [self._with_variants(each, d, every) for each, d in zip(found, self._results, strict=True)]
        return [replace(each, instructions=_others(each)) for each in told]

    def _explained(
        self, recorded: Sequence[Tried], steps: Sequence[Step], references: Sequence[tuple[Mapping[str, object], ProductModel]]
    ) -> list[Explanation]:
        """references: tried after the first of the steps, if there is one."""
        best = [_Best(d[self._sample.rows, self._sample.columns]) for d in self._results]
        named = [Tried(self._specs[0], Candidate(str(told["instruction"]), told, model)) for told, model in references]
        self._offer(best, recorded if steps else [*recorded, *named])
        for number, step in enumerate(steps):
            self._tell("plans", number / len(steps))
            sampled = Sampled(step.spec, *(rounded_words(step.spec.a, x, step.operand_rounding) for x in self._sample[2:]))
            for plan, d in sampled.of_step(step.name, step.model, self._sizes):
                for each in best:
                    each.offer(Tried(step.spec, plan, step.operand_rounding), d)
            if number == 0:
                self._offer(best, named)
            if not any(each.wrong for each in best):
                held = [self._held(each, d) for each, d in zip(best, self._results, strict=True)]
                if all(each.wrong * HARDLY_ANY <= each.compared for each in held):
                    return [replace(each, stopped=True) for each in held]
        return [self._held(each, d) for each, d in zip(best, self._results, strict=True)]

    def _offer(self, best: Sequence[_Best], tried: Sequence[Tried]) -> None:
        for found in tried:
            for each in best:
                each.offer(found, self._sample.predicted(found.candidate().model, each.got))

    def _held(self, best: _Best, d: Bits) -> Explanation:
        """The best of the sample against more elements, and the best of those against all."""
        count = len(self._sample.rows)
        if best.wrong == count:
            return Explanation(d.size, count, count, ())
        self._tell("words", 0)
        survivors: dict[ProductModel, Tried] = {}
        for found in best.found[:SURVIVORS]:
            survivors.setdefault(found.candidate().model, found)
        larger = _Best(d[self._larger.rows, self._larger.columns])
        for model, found in survivors.items():
            larger.offer(found, self._larger.predicted(model, larger.got))
        left = [x.candidate() for x in larger.found]
        explained = [self._against_all(candidate, d) for candidate in left[:FINALISTS]]
        least = min(explained, key=lambda x: x.wrong)
        alike = [x.plans[0] for x in explained if x.wrong == least.wrong]
        return replace(least, plans=tuple(alike), more=max(0, len(left) - FINALISTS) + max(0, len(best.found) - SURVIVORS))

    def _against_all(self, candidate: Candidate, d: Bits) -> Explanation:
        got = d[self._rows]
        expected = predicted(candidate.model, self._a[self._rows], self._b, got)
        differ = np.argwhere(got != expected)
        places = tuple(
            Unexplained(int(self._rows[y]), int(x), int(got[y, x]), int(expected[y, x])) for y, x in differ[:MOST_SHOWN]
        )
        held = ComparedRows(self._rows, expected)
        return Explanation(d.size, got.size, len(differ), (candidate,), places=places, held=held)

    def _with_variants(self, found: Explanation, d: Bits, steps: Sequence[Step]) -> Explanation:
        """Where words are left without an explanation, the plan with an arithmetic that differs where numbers are tiny."""
        if not found.wrong or not found.nearly:
            return found
        plan = found.plans[0]
        best = found
        for spec, how, name, step in steps:
            like = (core(step), spec.a, how) == (core(plan.model.step), plan.model.a, plan.model.operand_rounding)
            if like and step != plan.model.step:
                other = Candidate(name, {**plan.told, "instruction": name}, replace(plan.model, step=step))
                best = min(best, self._against_all(other, d), key=lambda x: x.wrong)
        return best


def _others(found: Explanation) -> tuple[str, ...]:
    """Instructions other than the one that is named whose arithmetic the first plan has."""
    if not found.plans:
        return ()
    told, model = found.plans[0].told, found.plans[0].model
    return tuple(name for name in instructions_of(model.a, model.b, model.step) if name != told.get("instruction"))


def _one_of_each(steps: Iterable[Step]) -> list[Step]:
    """One of those that nearly always agree."""
    found: dict[object, Step] = {}
    for step in steps:
        found.setdefault((step.spec.a, step.operand_rounding, *core(step.model)), step)
    return list(found.values())


def _rows(results: Sequence[Bits], most: int) -> Ints:
    """Rows that are compared: those first in which two results differ, then some all over."""
    m = len(results[0])
    if most >= m:
        return np.arange(m)
    differing = np.flatnonzero((results[0] != results[-1]).any(axis=1))[: -(-most // 2)]
    others = np.setdiff1d(np.arange(m), differing)
    some = others[np.linspace(0, len(others) - 1, most - len(differing)).astype(np.int64)]
    return np.sort(np.concatenate([differing, some]))


EXACT_OPERANDS = 1 << 24
"""Operands of which exact sums are computed."""


def _telling_first(spec: Spec, a: Bits, b: Bits) -> Ints:
    """Rows and columns [n, 2] of elements: in turn one whose exact sum lies next to a tie, one at random, one next to a number
    of D's format, one at random.
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
