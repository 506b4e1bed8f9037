"""Which known plan gives these very bits: operands and results that somebody kept, no callable to ask.

Plans are tried on a few elements, those above all whose exact sums lie next to where D's rounding turns, so that a difference
far below D's last bit shows; what explains them is held against all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.product import product, rounded_words
from accprobe.gemm.blackbox import one_nan
from accprobe.gemm.candidates import instructions_of
from accprobe.gemm.characterise import Tell
from accprobe.gemm.known_plans import KnownPlan, core, instruction_steps, other_steps, sizes
from accprobe.gemm.pairs import Ints
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

AT_MOST = 1 << 29
"""Products whose sums are computed to hold one plan against all elements."""

SURVIVORS, FINALISTS = 256, 4
"""Plans that are held against the larger sample, and against all."""

MOST_SHOWN = 8
"""Words without an explanation that are named."""

NEARLY = 0.9
"""A plan that explains so many of the words is the plan, and the rest is something else."""

HARDLY_ANY = 1 << 10
"""One word of so many may be left without an explanation by a plan beside which no other arithmetic is tried."""

TAIL_MODULO = (16, 32, 64, 128)
"""K modulo one of these is what a product that loses its tail loses."""


@dataclass(frozen=True)
class Candidate:
    """A plan that may explain a result. told: findings by name."""

    name: str
    told: Mapping[str, object]
    model: ProductModel


@dataclass(frozen=True)
class Unexplained:
    """An element and its patterns."""

    row: int
    column: int
    got: int
    expected: int


@dataclass(frozen=True)
class Explanation:
    """What gives one result. plans: the first, and others that give the same bits; more: how many there are beyond these which
    a sample did not tell apart. compared: words of `words` that were held against it; wrong: those that differ. instructions:
    others with the arithmetic of the first plan. stopped: whether the search ended with an arithmetic that explains the
    words, so that some others, which may too, were not tried.
    """

    words: int
    compared: int
    wrong: int
    plans: tuple[Candidate, ...]
    more: int = 0
    places: tuple[Unexplained, ...] = ()
    instructions: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def alike(self) -> int:
        """Other plans than the first that were not told from it."""
        return len(self.plans) - 1 + self.more

    @property
    def nearly(self) -> bool:
        """Whether the plan is the product's, whatever became of a few words."""
        return bool(self.plans) and self.wrong <= (1 - NEARLY) * self.compared


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

    def predicted(self, model: ProductModel) -> Bits:
        return product(model, self.a[:, None], self.b[:, None])[:, 0, 0]


class _Best:
    """The plans that explain most of some elements so far."""

    def __init__(self, got: Bits) -> None:
        self._got = got
        self.wrong = len(got)
        self.found: list[Tried] = []

    def offer(self, found: Tried, d: Bits) -> None:
        wrong = int(np.count_nonzero(d != self._got))
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


def explain(
    specs: Sequence[Spec],
    a: Bits,
    b: Bits,
    results: Sequence[Bits],
    recorded: Sequence[Candidate] = (),
    at_most: int = AT_MOST,
    tell: Tell = lambda name, part: None,
) -> list[Explanation]:
    """a [M, K], b [N, K], results [M, N]: one or two. specs: how operands are read, where there are several ways."""
    out = specs[0].out
    search = _Search(specs, a, b, [one_nan(d, out) for d in results], at_most, tell)
    found = search.explanations(recorded)
    return found if len(found) == 1 else _alike(found)


class _Search:
    def __init__(self, specs: Sequence[Spec], a: Bits, b: Bits, results: Sequence[Bits], at_most: int, tell: Tell) -> None:
        self._specs, self._a, self._b, self._results, self._tell = specs, a, b, results, tell
        spec = specs[0]
        self._rows = _rows(results, max(1, at_most // (spec.n * spec.k)))
        places = _telling_first(spec, a[self._rows], b)
        count = max(SAMPLE // 4, min(SAMPLE, SAMPLE_PRODUCTS // spec.k))
        self._sample, self._larger = (self._elements(places[:n]) for n in (count, LARGER_SAMPLE))

    def _elements(self, places: Ints) -> _Elements:
        rows, columns = self._rows[places[:, 0]], places[:, 1]
        return _Elements(rows, columns, self._a[rows], self._b[columns])

    def explanations(self, recorded: Sequence[Candidate]) -> list[Explanation]:
        ways = [(spec, how) for spec in self._specs for how in (OPERAND_ROUNDINGS if spec.rounds_operands else ("RZ",))]
        every = [Step(*way, *step) for way in ways for step in instruction_steps(way[0])]
        others = [Step(*way, *step) for way in ways for step in other_steps(way[0])]
        usual = [step for step in others if step.model.root.arithmetic.result is step.spec.a]
        first = [*usual, *_one_of_each(every)]
        whole = [self._specs[0].k]
        found = self._explained([Tried(self._specs[0], x) for x in recorded], [(step, whole) for step in first])
        if all(each.nearly for each in found):
            found = [replace(each, stopped=True) for each in found]
        else:
            cuts = _cuts(self._specs[0].k)
            more = [(step, cuts) for step in first] + [(step, [*whole, *cuts]) for step in others if step not in usual]
            found = [min(two, key=lambda x: x.wrong / x.compared) for two in zip(found, self._explained([], more), strict=True)]
        told = [self._with_variants(each, d, every) for each, d in zip(found, self._results, strict=True)]
        return [replace(each, instructions=_others(each)) for each in told]

    def _explained(self, recorded: Sequence[Tried], steps: Sequence[tuple[Step, Sequence[int]]]) -> list[Explanation]:
        sample = self._sample
        best = [_Best(d[sample.rows, sample.columns]) for d in self._results]
        for found in recorded:
            d = sample.predicted(found.candidate().model)
            for each in best:
                each.offer(found, d)
        for number, ((spec, how, name, step), counted) in enumerate(steps):
            self._tell("plans", number / len(steps))
            sampled = Sampled(spec, *(rounded_words(spec.a, lines, how) for lines in (sample.a, sample.b)))
            for last in counted:
                for plan, d in sampled.of_step(name, step, [spec.k] if spec.a.is_integer else sizes(spec.k), last):
                    for each in best:
                        each.offer(Tried(spec, plan, how), d)
            if not any(each.wrong for each in best):
                held = [self._held(each, d) for each, d in zip(best, self._results, strict=True)]
                if all(each.wrong * HARDLY_ANY <= each.compared for each in held):
                    return [replace(each, stopped=True) for each in held]
        return [self._held(each, d) for each, d in zip(best, self._results, strict=True)]

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
            larger.offer(found, self._larger.predicted(model))
        left = [x.candidate() for x in larger.found]
        explained = [self._against_all(candidate, d) for candidate in left[:FINALISTS]]
        least = min(explained, key=lambda x: x.wrong)
        alike = [x.plans[0] for x in explained if x.wrong == least.wrong]
        return replace(least, plans=tuple(alike), more=max(0, len(left) - FINALISTS) + max(0, len(best.found) - SURVIVORS))

    def _against_all(self, candidate: Candidate, d: Bits) -> Explanation:
        got, expected = d[self._rows], product(candidate.model, self._a[self._rows], self._b)
        differ = np.argwhere(got != expected)
        places = tuple(
            Unexplained(int(self._rows[y]), int(x), int(got[y, x]), int(expected[y, x])) for y, x in differ[:MOST_SHOWN]
        )
        return Explanation(d.size, got.size, len(differ), (candidate,), places=places)

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


def _cuts(k: int) -> list[int]:
    return sorted({k - k % cut for cut in TAIL_MODULO} - {0, k}, reverse=True)


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


def _alike(found: Sequence[Explanation]) -> list[Explanation]:
    """Of plans that give the same bits, those of two results first that differ in least."""
    x, y = found
    if not x.plans or not y.plans:
        return [x, y]
    first, second = min(((p, q) for p in x.plans for q in y.plans), key=lambda two: len(differences(*two)))
    return [replace(each, plans=_first(plan, each.plans)) for each, plan in ((x, first), (y, second))]


def _first(plan: Candidate, plans: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return (plan, *(other for other in plans if other is not plan))


def differences(x: Candidate, y: Candidate) -> dict[str, tuple[object, object]]:
    """Findings that both have, in which two plans differ."""
    if x.model == y.model:
        return {}
    return {name: (value, y.told[name]) for name, value in x.told.items() if value != y.told.get(name, value)}


def differing_plans(found: Sequence[Explanation]) -> dict[str, tuple[object, object]] | None:
    """Findings in which the plans of two results differ; None where there are not two, or one has no plan."""
    if len(found) != 2 or not all(each.nearly for each in found):
        return None
    return differences(found[0].plans[0], found[1].plans[0])
