"""Find the steps and the order of a composite, and verify them on fresh rows.

Rows with one or two terms decide the steps, because their sum is the same in every order. Random rows then decide the order.
The candidates are the orders of `orders`, and where none explains a sum, the order of torch:sum at the same shape. A mean and
M2 depend on the order in every row, so random rows decide their method, order and steps together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accprobe.callables.opening import ProductRequest, open_callable
from accprobe.composites.adapter import CompositeAdapter
from accprobe.composites.candidates import (
    CompositeCandidate,
    Nearest,
    ProbedRows,
    in_words_of,
)
from accprobe.composites.functions import ENOUGH_IN_16_BITS, SINGLE, combinations
from accprobe.composites.orders import lane_orders, moment_orders
from accprobe.composites.partial import Arrays, RowSums, Schedule, Welford
from accprobe.composites.steps import (
    ROWS_FINISHES,
    SHARP_EPS,
    Arguments,
    Composite,
    RowChange,
    RowValues,
    Steps,
    rules_of,
)
from accprobe.composites.verification import reduction_of_rows, verify_rows
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import UNFINISHED, Progress, characterise
from accprobe.gemm.checks.regions import Region, repeat_first
from accprobe.gemm.findings import ProductOutcome, RegionOutcome
from accprobe.gemm.plans import AlternativePlan
from accprobe.gemm.verification import PlanVerification
from accprobe.isa.formats import Bits
from accprobe.model.product import Node, ProductModel
from accprobe.operands.distributions import random_lines
from accprobe.records.products import CompositeRecord
from accprobe.report.words import so_many

# Rows with one or two terms, and random rows, that decide between candidates.
ISOLATED_ROWS, RANDOM_ROWS = 256, 192
# Rows, and results of each, with which every candidate is tried first; results of 16 bits show less.
FIRST_ROWS, FIRST_RESULTS, FIRST_NARROW = 8, 32, 512
# Candidates from which on a few more rows come first.
_MANY = 64
# Times that several candidates are compared with more random rows.
MORE_ROUNDS = 4
# Surviving orders that are named.
_MOST_NAMED = 4


def characterise_composite(
    adapter: CompositeAdapter, elements: int, seed: int, progress: Progress = lambda name, part: None
) -> ProductOutcome:
    """Infer the steps and the order of a composite and verify them on this number of fresh results."""
    spec = adapter.spec
    subject = RecordedCallable(adapter, calls=len(adapter.before))
    first = repeat_first(subject, adapter.before)
    region = Region(np.arange(1), np.arange(spec.n), spec.n)
    found = RegionOutcome(region)
    outcome = ProductOutcome(spec, (region,), first, None, [found], seed=seed, stopped=UNFINISHED)
    search = _Search(adapter, outcome, np.random.default_rng((seed, 0xC0)))
    progress("steps around the sum", 0)
    kept = search.steps()
    progress("accumulation order", 0)
    candidates = search.orders(kept) if kept else []
    while candidates:
        progress("fresh results", 0)
        search.verify(candidates, elements)
        candidates = search.after_contradiction(candidates)
    outcome.stopped = found.reason if found.plan is None else outcome.stopped.replace(UNFINISHED, "")
    outcome.calls = subject.calls + adapter.calls
    return outcome


@dataclass
class _Search:
    adapter: CompositeAdapter
    outcome: ProductOutcome
    rng: np.random.Generator
    combinations: int = 0
    contradicted_steps: int = 0
    tried: int = 0
    nearest: Nearest | None = None
    contradicting: ProbedRows | None = None

    @property
    def composite(self) -> Composite:
        return self.adapter.composite

    def _drawn(self, change: RowChange | None) -> tuple[Bits, Any]:
        """Return random rows and targets; rows of few elements have the largest as target."""
        spec, rng = self.adapter.spec, self.rng
        words = random_lines(spec.b, (spec.n, spec.k), "normal", rng)
        if change is not None:
            x = change(spec.b.values(words).astype(np.float32), rng)
            assert spec.b.ml_dtype is not None
            words = x.astype(spec.b.ml_dtype).view(spec.b.dtype)
        if not self.composite.takes_target:
            return words, None
        return words, rng.integers(0, spec.k, spec.n) if change is None else x.argmax(axis=1)

    def _sample(self, rows: int, change: RowChange | None = None, eps: float | None = None) -> ProbedRows:
        """Probe at least so many random rows, with the callable's own eps unless one is given."""
        spec = self.adapter.spec
        drawn = [self._drawn(change) for _ in range(max(2, -(-rows // spec.n)))]
        words, targets = zip(*drawn, strict=True)
        eps = self.adapter.given.eps if eps is None else eps
        got = np.concatenate([self.adapter.results(each, Arguments(eps, given)) for each, given in drawn])
        x = spec.b.values(np.concatenate(words)).astype(np.float32)
        return ProbedRows(x, None if targets[0] is None else np.concatenate(targets), got, eps)

    def _results(self, steps: Steps, parts: Arrays, given: RowValues, sample: ProbedRows) -> Bits:
        return replace(steps, eps=sample.eps).results(parts, given, self.adapter.spec.out)

    def steps(self) -> list[Steps]:
        """Return the steps that explain rows of one or two terms; all steps where there are no such rows."""
        composite, found = self.composite, self.outcome.found[0]
        every = [
            Steps(composite, name, compute, finish, self.adapter.given.eps)
            for name, compute in combinations(composite.functions)
            for finish in composite.finishes
        ]
        if composite.isolated is None:
            return every
        sample = self._sample(ISOLATED_ROWS, composite.isolated)
        given = every[0].inputs(sample.x, sample.targets)
        values = given.terms.astype(np.float64)  # their sum does not depend on the order
        sums = np.sum(values * values if composite.terms == "squares" else values, axis=1).astype(np.float32)
        wrong = [int(np.count_nonzero(self._results(steps, (sums,), given, sample) != sample.got)) for steps in every]
        kept = [steps for steps, count in zip(every, wrong, strict=True) if not count]
        self.contradicted_steps = found.alternatives = len(every) - len(kept)
        if not kept:
            nearest = int(np.argmin(wrong))
            found.reason = (
                f"the steps around the sum are not explained: with one or two terms, {wrong[nearest]:,} of {sample.got.size:,}"
                f" results differ from the nearest of {so_many(len(every), 'way')}, {every[nearest]}"
            )
        return kept

    def orders(self, kept: list[Steps]) -> list[CompositeCandidate]:
        """Return the candidates that explain random rows, and more of them if several do."""
        composite, k, found = self.composite, self.adapter.spec.k, self.outcome.found[0]
        sample = self._sample(RANDOM_ROWS, composite.sharpened, SHARP_EPS if composite.sharpened else None)
        known = moment_orders(k) if composite.terms == "moments" else lane_orders(k)
        orders = [(str(order), Schedule(order.tree(k))) for order in known]
        candidates = self._explaining(self._tried(kept, orders, sample), sample)
        if not candidates and composite.terms != "moments" and (tree := self._tree_of_sum()) is not None:
            orders.append(("the order of torch:sum", Schedule(tree)))
            candidates = self._explaining(self._tried(kept, orders[-1:], sample), sample)
        for _ in range(MORE_ROUNDS if len(candidates) > 1 else 0):
            candidates = self._explaining(candidates, self._sample(RANDOM_ROWS))
        found.alternatives = self.tried = self.contradicted_steps + self.combinations
        if not candidates:
            what = "mean and M2 are" if composite.terms == "moments" else "order of the sum is"
            steps = "" if composite.isolated is None else f"; {kept[0]} explains rows of one or two terms"
            found.reason = (
                f"the {what} not explained: none of {len(orders):,} orders gives the results{steps}; of {self.combinations:,}"
                f" combinations {self.nearest}"
            )
        return candidates

    def after_contradiction(self, candidates: list[CompositeCandidate]) -> list[CompositeCandidate]:
        """Return the other candidates that explain the rows which contradict the first one, if fresh rows do."""
        if self.contradicting is None:
            return []
        others = self._explaining(candidates[1:], self.contradicting)
        self.contradicting = None
        if others:
            self.outcome.verification, self.outcome.found[0].reason = PlanVerification(), ""
        return others

    def _see(self, nearest: str, wrong: int, results: int) -> None:
        """Keep the combination with the fewest wrong results, of the most results."""
        if self.nearest is None or (results, -wrong) > (self.nearest.results, -self.nearest.wrong):
            self.nearest = Nearest(nearest, wrong, results)

    def _tried(self, kept: list[Steps], orders: list[tuple[str, Schedule]], sample: ProbedRows) -> list[CompositeCandidate]:
        """Return the candidates that explain a few results of a few rows."""
        found: list[CompositeCandidate] = []
        sample = sample.first(FIRST_ROWS)
        got = sample.got[:, : FIRST_RESULTS if self.adapter.spec.out is SINGLE else FIRST_NARROW]
        given = kept[0].inputs(sample.x, sample.targets)
        sums, given = RowSums(given.terms.T.copy()), given.first(got.shape[1]).repeated(len(orders))
        for rule, step, how in rules_of(self.composite, self.adapter.spec.b):
            results = [sums.result(rule, schedule) for _, schedule in orders]
            parts = tuple(map(np.concatenate, zip(*results, strict=True)))
            for steps in kept:
                words = self._results(steps, parts, given, sample).reshape(len(orders), *got.shape)
                wrong = np.count_nonzero(words != got, axis=(1, 2))
                best = int(np.argmin(wrong))
                self.combinations += len(orders)
                self._see(f"{in_words_of(steps, rule)}, in {orders[best][0]}", int(wrong[best]), got.size)
                for number in np.flatnonzero(wrong == 0).tolist():
                    order, schedule = orders[number]
                    plan = ProductModel(SINGLE, SINGLE, self.adapter.spec.k, step, schedule.tree, SINGLE)
                    found.append(CompositeCandidate(steps, rule, plan, ", ".join(filter(None, (order, how))), schedule))
        return found

    def _tree_of_sum(self) -> Node | None:
        """Return the tree that torch:sum has for f32 at this shape, None if it has none for all rows."""
        spec, library = self.adapter.spec, self.adapter.library
        opened = open_callable("torch:sum", ProductRequest((1, spec.n, spec.k), SINGLE, reduced="last"), {}, library.device)
        opened.adapter.check()
        found = characterise(opened.adapter, elements=spec.n, seed=self.outcome.seed).found
        plan = found[0].plan
        in_f32 = plan is not None and plan.step.root.arithmetic.result is SINGLE
        return plan.tree if plan is not None and in_f32 and len(found) == 1 and found[0].fits_in_range else None

    def _explaining(self, candidates: list[CompositeCandidate], sample: ProbedRows) -> list[CompositeCandidate]:
        """Return the candidates that explain a sample. They share chains and sums."""
        if len(candidates) > _MANY and len(sample.x) > 4 * FIRST_ROWS:
            candidates = self._explaining(candidates, sample.first(4 * FIRST_ROWS))
        if not candidates:
            return []
        given = candidates[0].steps.inputs(sample.x, sample.targets)
        sums, kept = RowSums(given.terms.T.copy()), []
        for each in candidates:
            parts = sums.result(each.rule, each.schedule)
            wrong = int(np.count_nonzero(self._results(each.steps, parts, given, sample) != sample.got))
            self._see(f"{in_words_of(each.steps, each.rule)}, in {each.order}", wrong, sample.got.size)
            kept += [] if wrong else [each]
        return kept

    def verify(self, candidates: list[CompositeCandidate], elements: int) -> None:
        """Compare the first candidate with fresh rows of every distribution, and record it with the surviving alternatives."""
        outcome, found, spec = self.outcome, self.outcome.found[0], self.adapter.spec
        chosen, verification = candidates[0], self.outcome.verification
        self.contradicting = verify_rows(self.adapter, chosen, elements, outcome.seed, verification, only=len(candidates) == 1)
        found.plan, found.multiplicity = chosen.model, np.ones(spec.k, np.int64)
        found.chains = found.chains_reached = len(chosen.schedule.chains)
        found.results, found.mismatches = verification.elements, verification.mismatches
        steps, orders = chosen.steps, [each for each in candidates if not each.same_bits(chosen)]
        named = [AlternativePlan(each.model, "order", each.order) for each in orders[:_MOST_NAMED]]
        if more := len(orders) - len(named):
            named.append(AlternativePlan(orders[-1].model, "order", f"{more} more"))
        found.surviving = named
        # The plan, candidates with its bits and candidates without a name of their own are no alternatives.
        found.alternatives = self.tried - (len(candidates) - len(named))
        texts = [each.in_words(chosen) for each in candidates if each.same_bits(chosen)]
        others = [text for text in texts if text != str(steps)]
        self.adapter.record = CompositeRecord(
            finish=steps.finish,
            function=steps.function,
            eps=steps.eps,
            order=chosen.order,
            moments=str(chosen.rule) if isinstance(chosen.rule, Welford) else "",
            same_bits=tuple(dict.fromkeys(others)),
        )
        if verification.mismatches:
            found.reason = f"{verification.mismatches:,} of {verification.elements:,} fresh results differ"
        elif not found.alternatives:
            outcome.stopped = "every way that was tried gives the same results: give a larger K, or f32"
        elif doubt := self._doubtful(candidates):
            outcome.stopped = f"{doubt}: give --elements {ENOUGH_IN_16_BITS}"
        elif self.adapter.given.reduction in ROWS_FINISHES:
            rows = reduction_of_rows(self.adapter, chosen, outcome.seed, verification)
            if isinstance(rows, str):
                outcome.stopped = rows
            else:
                self.adapter.record = self.adapter.record.model_copy(update={"rows": rows})

    def _doubtful(self, candidates: list[CompositeCandidate]) -> str:
        """Return why few results of 16 bits do not confirm the functions of the first candidate, "" if they do."""
        exact = self.composite.functions in ((), ("sqrt",))  # IEEE 754 leaves no choice
        if self.adapter.spec.out is SINGLE or exact or self.outcome.verification.elements >= ENOUGH_IN_16_BITS:
            return ""
        chosen = candidates[0].steps.function
        others = dict.fromkeys(each.steps.function for each in candidates if each.steps.function != chosen)
        seldom = f"{self.adapter.spec.out.name} seldom shows its difference from"
        return f"{chosen} explains every result, but {seldom} {' or '.join(others) or 'other functions'}"
