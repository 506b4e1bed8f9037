"""The account of an accumulation: its errors for every K, promotion, split, kind of data and scales that are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data, DrawnValues, OwnData, drawn_values
from accprobe.budget.errors import Errors, Tally, check_formats, exact_sums, plain_product, tally
from accprobe.budget.quantise import Fidelity, quantised
from accprobe.budget.speed import Speed, measured_speeds
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel
from accprobe.report.report import Report

USUAL_KS = (1024, 4096, 16384)
USUAL_INTERVALS = (None, 128)

SEEDS = 16
"""Of operands, each from a seed of its own: so many samples the intervals of confidence are of."""

COLUMNS_A_ROW = 16
"""Of the outputs of a draw, where they are many."""

MOST_NUMBERS = 1 << 26
"""Of both operands of one draw: about 2 GiB with what is computed of them."""

LARGEST_SCALED = 8
"""Bits of operands that have scales, at most."""

Tick = Callable[[int, int, str], None]
"""Told how many products are done, of how many, and what is computed."""


@dataclass(frozen=True)
class Question:
    """What is asked. ks, intervals, splits: None where nothing is said of them, and the usual ones are meant; of a measured
    product, its own. out: D's format, None: that of the sums. outputs: of each entry, at least. seed: of the operands.
    """

    ks: tuple[int, ...] | None = None
    intervals: tuple[int | None, ...] | None = None
    splits: tuple[int, ...] | None = None
    out: Format | None = None
    data: tuple[Data, ...] = ("normal", "positive")
    scales: tuple[str, ...] = ("none",)
    outputs: int = 4096
    seed: int = 0

    def shape(self, draws: int = SEEDS) -> tuple[int, int]:
        """M, N of one draw."""
        of_draw = -(-self.outputs // draws)
        m = max(min(4, of_draw), isqrt(of_draw // COLUMNS_A_ROW))
        return m, -(-of_draw // m)

    def check(self, k: int) -> None:
        """Raises AccprobeError where the operands of that K would not fit in memory."""
        m, n = self.shape()
        if (m + n) * k > MOST_NUMBERS:
            raise AccprobeError(
                f"K = {k}: the operands of {self.outputs} outputs would not fit in memory; give a K of at most"
                f" {MOST_NUMBERS // (m + n)}, or fewer --outputs"
            )


@dataclass(frozen=True)
class PlannedProduct:
    """One product whose errors are asked. promote_every: None where sums are never promoted."""

    k: int
    promote_every: int | None
    split_k: int
    model: ProductModel


@dataclass(frozen=True)
class AccountEntry:
    """The errors of one plan with one kind of data.

    is_scaled: whether scales are part of the product; where they are not, the errors are those of the sum of scaled operands.
    quantisation_error: what the operands' rounding alone does to the exact product, relative as the errors are; a, b: what it
    does to each, in the first draw. speed: of the fastest kernel of that interval, where a sweep has one.
    """

    accumulation: str
    k: int
    promote_every: int | None
    split_k: int
    out: str
    data: str
    scale: str
    is_scaled: bool
    errors: Errors
    quantisation_error: float | None
    a: Fidelity
    b: Fidelity
    speed: Speed | None


@dataclass(frozen=True)
class ErrorReport:
    """What was asked, and what is known of it. interrupted: whether more was asked than is here."""

    question: Question
    accumulations: tuple[Accumulation, ...]
    entries: tuple[AccountEntry, ...]
    words: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def simulated(self) -> list[str]:
        """Names of accumulations that no hardware was measured for."""
        return [each.name for each in self.accumulations if is_simulated(each)]


def is_simulated(accumulation: Accumulation) -> bool:
    source = accumulation.name.partition(":")[0]
    return source == "sim" or Report.load(source).device.kind == "simulated"


def plans_of(accumulation: Accumulation, question: Question, data: Data) -> list[PlannedProduct]:
    """By K, then by split, then by interval. Raises AccprobeError where one cannot be."""
    measured, out = accumulation.measured, question.out
    if measured is not None and (question.ks, question.intervals, question.splits) == (None, None, None):
        model = accumulation.as_measured(out)
        return [PlannedProduct(model.k, accumulation.promote_every, accumulation.split_k, model)]
    if measured is not None:
        out = out or measured.result
    own_k = (data.k,) if isinstance(data, OwnData) else USUAL_KS
    ks = question.ks or ((measured.k,) if measured else own_k)
    intervals = question.intervals or ((accumulation.promote_every,) if measured else USUAL_INTERVALS)
    splits = question.splits or (accumulation.split_k,)
    for k in ks:
        question.check(k)
    return [
        PlannedProduct(k, interval, split, accumulation.product(k, interval, split, out))
        for k in ks
        for split in splits
        for interval in (intervals if set(question.scales) != {"none"} else _promoting(intervals, -(-k // split)))
    ]


def _promoting(intervals: Iterable[int | None], k: int) -> Iterable[int | None]:
    """The intervals of a slice of that K; one that is no shorter promotes nothing."""
    return dict.fromkeys(each if each and each < k else None for each in intervals)


def asked(accumulation: Accumulation, question: Question) -> list[tuple[Data, list[PlannedProduct]]]:
    """Every plan, by kind of data. Raises AccprobeError where errors cannot be told of one."""
    check_formats(accumulation.a, accumulation.b)
    if set(question.scales) != {"none"} and max(accumulation.a.bits, accumulation.b.bits) > LARGEST_SCALED:
        raise AccprobeError(
            f"{accumulation.name}: scales are told of operands of at most {LARGEST_SCALED} bits; scaled to the largest number"
            f" of {accumulation.a}, products would overflow"
        )
    return [(data, plans_of(accumulation, question, data)) for data in question.data]


def _untold(done: int, total: int, what: str) -> None:
    """Tells nobody."""


def entries(accumulation: Accumulation, question: Question, tick: Tick = _untold) -> Iterator[AccountEntry]:
    """Every plan with every kind of data and every scale; all plans of one K with the same operands."""
    every = asked(accumulation, question)
    speeds = measured_speeds(accumulation)
    total = sum(len(each) for _, each in every) * len(question.scales) * SEEDS
    done = 0
    for data, each in every:
        for k in dict.fromkeys(plan.k for plan in each):
            of_k = [plan for plan in each if plan.k == k]
            ledgers = [_Ledger(accumulation, data, scale, of_k) for scale in question.scales]
            for draw in range(SEEDS):
                values = drawn_values(data, *question.shape(), k, np.random.default_rng([question.seed, draw]))
                wide = plain_product(*(x.astype(np.float64) for x in values))
                for ledger in ledgers:
                    tick(done, total, f"{accumulation.name}: {data_name(data)}, K = {k}")
                    ledger.add(values, wide)
                    done += len(of_k)
            for ledger in ledgers:
                yield from ledger.entries(speeds)


def error_of_plan(
    plan: PlannedProduct, accumulation: Accumulation, data: Data, scale: str, question: Question, draws: int
) -> Errors:
    """The errors of one plan, with fewer draws of as many outputs each."""
    ledger = _Ledger(accumulation, data, scale, [plan])
    for draw in range(draws):
        values = drawn_values(data, *question.shape(), plan.k, np.random.default_rng([question.seed, draw]))
        ledger.add(values, None)
    return Errors.of(plan.model, ledger.tallies[0])


def data_name(data: Data) -> str:
    return data.name if isinstance(data, OwnData) else data


class _Ledger:
    """What draws add up to, for all plans of one K with one scale."""

    def __init__(self, accumulation: Accumulation, data: Data, scale: str, of_k: Sequence[PlannedProduct]) -> None:
        self._accumulation, self._data, self._scale, self._plans = accumulation, data, scale, of_k
        self.tallies: list[list[Tally]] = [[] for _ in of_k]
        self._models = [replace(plan.model, scales=None) for plan in of_k]
        self._fidelity: tuple[Fidelity, Fidelity] | None = None
        self._lost, self._whole = 0.0, 0.0

    def add(self, values: DrawnValues, wide: Floats | None) -> None:
        """One draw. wide: the exact product of the values, where what quantising loses is asked."""
        pair = quantised(self._scale, self._accumulation.a, self._accumulation.b, values)
        plain = scaled = exact_sums(pair.a.values(scaled=False), pair.b.values(scaled=False))
        if self._scale != "none":
            scaled = exact_sums(pair.a.values(), pair.b.values())
        if wide is not None:
            self._lost += float(np.square(scaled.sums - wide).sum())
            self._whole += float(np.square(wide).sum())
            self._fidelity = self._fidelity or (pair.a.fidelity(values.a), pair.b.fidelity(values.b))
        for i, plan in enumerate(self._plans):
            applied = pair.applied(plan.model)
            if applied is None:
                self.tallies[i].append(tally(self._models[i], pair.patterns, plain))
            else:
                scales, words = applied
                self._models[i] = replace(plan.model, scales=scales)
                self.tallies[i].append(tally(self._models[i], pair.patterns, scaled, words))

    def entries(self, speeds: dict[int, Speed]) -> Iterator[AccountEntry]:
        assert self._fidelity is not None
        lost = (self._lost / self._whole) ** 0.5 if self._whole else None
        for plan, model, tallies in zip(self._plans, self._models, self.tallies, strict=True):
            yield AccountEntry(
                self._accumulation.name,
                plan.k,
                plan.promote_every,
                plan.split_k,
                plan.model.result.name,
                data_name(self._data),
                self._scale,
                model.scales is not None,
                Errors.of(model, tallies),
                lost,
                *self._fidelity,
                speeds.get(plan.promote_every or 0),
            )
