"""Find the steps and the order of a composite, and verify them on fresh rows.

Rows with one or two terms decide the steps, because their sum is the same in every order. Random rows then decide the order,
among those of `orders` and that of torch:sum at the same shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.composites.orders import LaneOrder, LaneSums, lane_orders
from accprobe.composites.steps import (
    COMPOSITES,
    LIBRARY,
    ROUNDED_FIRST,
    SINGLE,
    RowChange,
    SingleValues,
    Steps,
    functions_of,
    fused,
)
from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.arrays import open_arrays
from accprobe.gemm.callables.opening import Opened, ProductRequest, open_callable
from accprobe.gemm.callables.options import Options, with_defaults
from accprobe.gemm.characterise import UNFINISHED, Progress, characterise
from accprobe.gemm.checks.regions import Region, RegionMap, repeat_first
from accprobe.gemm.findings import ProductOutcome, RegionOutcome
from accprobe.gemm.plans import AlternativePlan
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits
from accprobe.model.product import Node, ProductModel, multiply_add, same_additions
from accprobe.model.tree import DotModel
from accprobe.operands.distributions import random_lines
from accprobe.report.products import CompositeRecord

# Rows with one or two terms, and random rows, that decide between candidates.
ISOLATED_ROWS, RANDOM_ROWS = 256, 192
# Times that several candidates are compared with more random rows.
MORE_ROUNDS = 4
ROW_KINDS = ("normal", "wide", "same sign", "sparse", "uniform", "integers")
# Rows that are predicted together.
ROWS_TOGETHER = 1 << 10


class CompositeAdapter(CallableAdapter):
    """A composite of x [rows, K]; as a product its result is the first column. record: the steps, once they are known."""

    def __init__(self, name: str, spec: Spec, eps: float | None, device: str | None) -> None:
        self.composite, self.eps = COMPOSITES[name], eps
        self.record: CompositeRecord | None = None
        self._eps_now = eps
        self._whole: Any = None
        super().__init__(spec, self._first_column, open_arrays("torch", device), name, by_columns=True)

    def _first_column(self, a: Any, b: Any) -> Any:
        self._whole = self.composite.call(b.T, self._eps_now)
        return self._whole[:, :1].T

    def results(self, x: Bits, eps: float | None) -> Bits:
        """Return the result words [rows, K] or [rows, 1] of x [rows, K]."""
        self._eps_now = eps
        self.product(np.full((1, self.spec.k), self.spec.a.whole(1), self.spec.a.dtype), x)
        return self.library.patterns(self._whole, self.spec.out)


def open_composite(name: str, request: ProductRequest, options: Options, device: str | None) -> Opened:
    """Open a composite of the last dimension of x [rows, K]. Raises AccprobeError."""
    if request.reduced != "last":
        raise AccprobeError(f"{name} is measured along the last dimension only: give --dim last")
    fmt = request.a or SINGLE
    if fmt.name not in ("f32", "f16", "bf16") or request.out not in (None, fmt):
        raise AccprobeError(f"{name} is measured from f32, f16 and bf16 to the same format: give --dtype")
    default = COMPOSITES[name].eps
    chosen = with_defaults(options, {} if default is None else {"eps": default}, name)
    spec = Spec(*request.shape, fmt, fmt, fmt, a_exponent=0)
    eps = chosen.get("eps")
    adapter = CompositeAdapter(name, spec, eps if isinstance(eps, float) else None, device)
    return Opened(adapter, {"dim": "last", **chosen})


class ProbedRows(NamedTuple):
    """Rows x, as words and values, and the results."""

    words: Bits
    x: SingleValues
    got: Bits
    eps: float | None


@dataclass(frozen=True)
class CompositeCandidate:
    """Steps and a plan of the sum. order: in words."""

    steps: Steps
    model: ProductModel
    order: str


def characterise_composite(
    adapter: CompositeAdapter, elements: int, seed: int, progress: Progress = lambda name, part: None
) -> ProductOutcome:
    """Infer the steps and the order of a composite and verify them on this number of fresh results."""
    spec = adapter.spec
    subject = RecordedCallable(adapter, calls=len(adapter.before))
    first = repeat_first(subject, adapter.before)
    region = Region(np.arange(1), np.arange(spec.n), spec.n)
    found = RegionOutcome(region)
    outcome = ProductOutcome(spec, RegionMap((region,), 0, 1), first, None, [found], seed=seed, stopped=UNFINISHED)
    search = _Search(adapter, outcome, np.random.default_rng((seed, 0xC0)))
    progress("steps around the sum", 0)
    kept = search.steps()
    progress("accumulation order", 0.1)
    candidates = search.orders(kept) if kept else []
    if candidates:
        progress("fresh results", 0.3)
        search.verify(candidates, elements)
    outcome.stopped = found.reason if found.plan is None else outcome.stopped.replace(UNFINISHED, "")
    outcome.calls = subject.calls + search.calls
    return outcome


@dataclass
class _Search:
    adapter: CompositeAdapter
    outcome: ProductOutcome
    rng: np.random.Generator
    calls: int = 0

    def _sample(self, kind: str, change: RowChange | None = None, eps: float | None = None) -> ProbedRows:
        """Probe random rows, with the callable's own eps unless one is given."""
        spec = self.adapter.spec
        words = random_lines(spec.b, (spec.n, spec.k), kind, self.rng)
        x = spec.b.values(words).astype(np.float32)
        if change is not None:
            x = change(x, self.rng)
            assert spec.b.ml_dtype is not None
            words = x.astype(spec.b.ml_dtype).view(spec.b.dtype)
            x = spec.b.values(words).astype(np.float32)
        self.calls += 1
        eps = self.adapter.eps if eps is None else eps
        return ProbedRows(words, x, self.adapter.results(words, eps), eps)

    def _samples(self, rows: int, change: RowChange | None = None, eps: float | None = None) -> list[ProbedRows]:
        return [self._sample("normal", change, eps) for _ in range(max(2, -(-rows // self.adapter.spec.n)))]

    def steps(self) -> list[Steps]:
        """Return the steps that explain rows of one or two terms; functions of the library only where nothing else does."""
        composite, found = self.adapter.composite, self.outcome.found[0]
        samples = self._samples(ISOLATED_ROWS, composite.isolated)
        wrong: list[tuple[int, Steps]] = []
        for name, compute in functions_of(composite.function, self.adapter.library):
            for finish in composite.finishes:
                steps = Steps(composite, name, compute, finish, self.adapter.eps)
                wrong.append((sum(self._mismatches(steps, sample) for sample in samples), steps))
        kept = [steps for count, steps in wrong if not count]
        if not kept:
            count, nearest = min(wrong, key=lambda each: each[0])
            total = sum(sample.got.size for sample in samples)
            found.reason = (
                f"the steps around the sum are not explained: in rows of one or two terms {count:,} of {total:,} results"
                f" differ from the nearest of {len(wrong)} ways, {nearest}"
            )
        return [steps for steps in kept if not steps.function.startswith(LIBRARY)] or kept

    def _mismatches(self, steps: Steps, sample: ProbedRows) -> int:
        a, b = steps.terms(sample.x)
        sums = np.sum(np.multiply(a, b, dtype=np.float64), axis=1).astype(np.float32)
        return int(np.count_nonzero(steps.results(sums, sample.x, b, self.adapter.spec.out) != sample.got))

    def orders(self, kept: list[Steps]) -> list[CompositeCandidate]:
        """Return the candidates that explain random rows."""
        composite, found = self.adapter.composite, self.outcome.found[0]
        samples = self._samples(RANDOM_ROWS, composite.sharpened, composite.sharp_eps)
        candidates = list(self._of_lanes(kept, samples))
        tried = found.alternatives
        if not candidates and (tree := self._tree_of_sum()) is not None:
            every = [
                CompositeCandidate(steps, self._plan(step, tree), _with_squares("the order of torch:sum", how))
                for steps in kept
                for step, how in self._additions().items()
            ]
            found.alternatives += len(every)
            candidates = self._explaining(every, samples)
        for _ in range(MORE_ROUNDS if len(candidates) > 1 else 0):
            candidates = self._explaining(candidates, self._samples(RANDOM_ROWS))
        if not candidates:
            found.reason = (
                f"the order of the sum is not explained: none of {tried} orders of lanes, nor that of torch:sum, gives the"
                f" results; {kept[0]} explains rows of one or two terms"
            )
        return candidates

    def _additions(self) -> Mapping[DotModel, str]:
        """Return the ways to add a term: products that f32 does not hold may be rounded first."""
        fmt = self.adapter.spec.b
        if self.adapter.composite.squares and 2 * fmt.mantissa_bits + 1 > SINGLE.mantissa_bits:
            return {multiply_add(): "fused", ROUNDED_FIRST: "rounded"}
        return {multiply_add(): ""}

    def _plan(self, step: DotModel, tree: Any) -> ProductModel:
        return ProductModel(SINGLE, SINGLE, self.adapter.spec.k, step, tree, SINGLE)

    def _of_lanes(self, kept: list[Steps], samples: list[ProbedRows]) -> Iterator[CompositeCandidate]:
        """Yield the orders of lanes that explain all samples. Steps with the same terms share their sums."""
        k, found, groups = self.adapter.spec.k, self.outcome.found[0], dict[str, list[Steps]]()
        for steps in kept:
            groups.setdefault("" if self.adapter.composite.squares else steps.function, []).append(steps)
        for group in groups.values():
            terms = [group[0].terms(sample.x) for sample in samples]
            for step, how in self._additions().items():
                sums = [_lane_sums(a, b, how == "fused") for a, b in terms]
                for order in lane_orders(k):
                    found.alternatives += len(group)
                    words = _with_squares(str(order), how)
                    for steps in group:
                        if all(self._matches(steps, order, *each) for each in zip(sums, terms, samples, strict=True)):
                            yield CompositeCandidate(steps, self._plan(step, order.tree(k)), words)

    def _matches(
        self, steps: Steps, order: LaneOrder, sums: LaneSums, terms: tuple[SingleValues, SingleValues], sample: ProbedRows
    ) -> bool:
        found = replace(steps, eps=sample.eps).results(sums.of(order), sample.x, terms[1], self.adapter.spec.out)
        return bool((found == sample.got).all())

    def _tree_of_sum(self) -> Node | None:
        """Return the tree that torch:sum has for f32 at this shape, None if it has none for all rows."""
        spec, library = self.adapter.spec, self.adapter.library
        opened = open_callable("torch:sum", ProductRequest((1, spec.n, spec.k), SINGLE, reduced="last"), {}, library.device)
        opened.adapter.check()
        found = characterise(opened.adapter, elements=spec.n, seed=self.outcome.seed).found
        plan = found[0].plan
        in_f32 = plan is not None and plan.step.root.arithmetic.result is SINGLE
        return plan.tree if plan is not None and in_f32 and len(found) == 1 and found[0].fits_in_range else None

    def _explaining(self, candidates: list[CompositeCandidate], samples: list[ProbedRows]) -> list[CompositeCandidate]:
        """Return the candidates that explain all samples. Candidates with one order and the same terms share their sums."""
        out = self.adapter.spec.out
        for sample in samples:
            sums: dict[tuple[str, str], SingleValues] = {}
            kept = []
            for each in candidates:
                a, b = each.steps.terms(sample.x)
                key = each.order, "" if self.adapter.composite.squares else each.steps.function
                if key not in sums:
                    sums[key] = each.steps.sums(each.model, a, b)
                if (replace(each.steps, eps=sample.eps).results(sums[key], sample.x, b, out) == sample.got).all():
                    kept.append(each)
            candidates = kept
        return candidates

    def _predicted(self, candidate: CompositeCandidate, words: Bits) -> Bits:
        spec = self.adapter.spec
        return candidate.steps.words(candidate.model, words, spec.b, spec.out)

    def verify(self, candidates: list[CompositeCandidate], elements: int) -> None:
        """Compare the first candidate with fresh rows of every distribution, and record it with what it stands for."""
        outcome, found, spec = self.outcome, self.outcome.found[0], self.adapter.spec
        chosen, verification = candidates[0], self.outcome.verification
        results = self._sample(ROW_KINDS[0]).got.size
        calls = max(1, min(ROWS_TOGETHER // spec.n, elements // (len(ROW_KINDS) * results)))
        for number, kind in enumerate(cycle(ROW_KINDS), 1):
            samples = [self._sample(kind) for _ in range(calls)]
            words, got = np.concatenate([each.words for each in samples]), np.concatenate([each.got for each in samples])
            verification.compare(kind, spec.out, got, self._predicted(chosen, words), np.arange(len(got)), np.arange(spec.k))
            if number >= len(ROW_KINDS) and verification.elements >= elements:
                break
        found.plan, found.multiplicity = chosen.model, np.ones(spec.k, np.int64)
        found.chains = found.chains_reached = len(list(chosen.model.chains()))
        found.results, found.mismatches = verification.elements, verification.mismatches
        steps, orders = chosen.steps, [each for each in candidates if not same_additions(each.model, chosen.model)]
        found.surviving = [AlternativePlan(each.model, "order", each.order) for each in orders]
        found.alternatives -= len(candidates) - len(orders)  # the plan itself, and those that give the same bits
        others = [str(each.steps) for each in candidates if each.steps is not steps]
        self.adapter.record = CompositeRecord(
            finish=steps.finish,
            function=steps.function,
            eps=steps.eps,
            order=chosen.order,
            same_bits=tuple(dict.fromkeys(others)),
        )
        if verification.mismatches:
            found.reason = f"{verification.mismatches:,} of {verification.elements:,} fresh results differ"
        if steps.function.startswith(LIBRARY):
            outcome.stopped = (
                f"{steps.function} computes the function on this device, and its bits have no recorded model; the other steps"
                " and the order explain every result"
            )


def _with_squares(order: str, how: str) -> str:
    return f"{order}, squares {how}" if how else order


def _lane_sums(a: SingleValues, b: SingleValues, is_fused: bool) -> LaneSums:
    if is_fused:
        return LaneSums(lambda total, x: fused(x, x, total).astype(np.float32), b)
    products: NDArray[np.float32] = a * b
    return LaneSums(np.add, products)
