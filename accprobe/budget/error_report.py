"""The error report of an accumulation: its errors for each K, promotion interval, split, kind of operands and scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data, DrawnPair, OwnData, draw_values, quantise
from accprobe.budget.errors import F64, Errors, Tally, exact_sums, tally
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats, plain_product
from accprobe.evaluate.quantised import Fidelity
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel
from accprobe.report.report import Report

USUAL_KS = (1024, 4096, 16384)
USUAL_INTERVALS = (None, 128)

# Draws of operands, each from its own seed: the samples of the confidence intervals.
SEEDS = 16

# Columns of D for each row of a draw.
COLUMNS_A_ROW = 16

# Numbers in both operands of one draw: about 2 GiB together with intermediate results.
MOST_NUMBERS = 1 << 26

# Largest operand width that scales are supported for, in bits.
LARGEST_SCALED = 8


@dataclass(frozen=True)
class BudgetRequest:
    """The plans and operands of a report. ks, intervals, splits: None: as a measured product has them, else the defaults.

    out: D's format, None: of a measured product, else of the sums. outputs: lower bound for each row. seed: of the operands.
    """

    ks: tuple[int, ...] | None = None
    intervals: tuple[int | None, ...] | None = None
    splits: tuple[int, ...] | None = None
    out: Format | None = None
    data: tuple[Data, ...] = ("normal", "same-sign")
    scales: tuple[str, ...] = ("none",)
    outputs: int = 4096
    seed: int = 0

    def shape(self) -> tuple[int, int]:
        """Return M, N of one draw."""
        of_draw = -(-self.outputs // SEEDS)
        m = max(min(4, of_draw), isqrt(of_draw // COLUMNS_A_ROW))
        return m, -(-of_draw // m)

    def check(self, k: int) -> None:
        """Raise AccprobeError if the operands would not fit in memory."""
        m, n = self.shape()
        if (m + n) * k > MOST_NUMBERS:
            raise AccprobeError(
                f"K = {k}: the operands of {self.outputs} outputs would not fit in memory; give a K of at most"
                f" {MOST_NUMBERS // (m + n)}, or fewer --outputs"
            )


@dataclass(frozen=True)
class PlannedProduct:
    """One product of the report. promote_every: None if sums are never promoted."""

    promote_every: int | None
    split_k: int
    model: ProductModel


@dataclass(frozen=True)
class ErrorRow:
    """The errors of one plan with one kind of operands.

    is_scaled: whether the product applies the scales; otherwise the errors are of the sums of codes without scales.
    quantisation_error: relative error of the exact product of the rounded operands; a, b: the rounding of each operand in the
    first draw.
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


@dataclass(frozen=True)
class ErrorReport:
    """The rows of a request and their summary. interrupted: whether rows are missing."""

    request: BudgetRequest
    accumulations: tuple[Accumulation, ...]
    entries: tuple[ErrorRow, ...]
    words: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def simulated(self) -> list[str]:
        """Return the names of accumulations that were not measured on hardware."""
        return [each.name for each in self.accumulations if is_simulated(each)]


def is_simulated(accumulation: Accumulation) -> bool:
    source = accumulation.name.partition(":")[0]
    return source == "sim" or Report.load(source).device.kind == "simulated"


def plans_of(accumulation: Accumulation, request: BudgetRequest, data: Data) -> list[PlannedProduct]:
    """Return the plans by K, then by split, then by interval. Raises AccprobeError if one is impossible."""
    measured, out = accumulation.measured, request.out
    if measured is not None and (request.ks, request.intervals, request.splits) == (None, None, None):
        model = measured if out is None else replace(measured, result=out)
        return [PlannedProduct(accumulation.promote_every, accumulation.split_k, model)]
    if measured is not None:
        out = out or measured.result
    own_k = (data.k,) if isinstance(data, OwnData) else USUAL_KS
    ks = request.ks or ((measured.k,) if measured else own_k)
    intervals = request.intervals or ((accumulation.promote_every,) if measured else USUAL_INTERVALS)
    splits = request.splits or (accumulation.split_k,)
    for k in ks:
        request.check(k)
    return [
        PlannedProduct(interval, split, accumulation.product(k, interval, split, out))
        for k in ks
        for split in splits
        for interval in (intervals if set(request.scales) != {"none"} else _promoting(intervals, -(-k // split)))
    ]


def _promoting(intervals: Iterable[int | None], k: int) -> Iterable[int | None]:
    """Return the intervals of a slice of that K; an interval that is not shorter promotes nothing."""
    return dict.fromkeys(each if each and each < k else None for each in intervals)


def planned(accumulation: Accumulation, request: BudgetRequest) -> list[tuple[Data, list[PlannedProduct]]]:
    """Return every plan, by kind of operands. Raises AccprobeError if one is impossible."""
    if F64 in (accumulation.a, accumulation.b):
        raise AccprobeError("products of f64 have no error report: float64 does not hold their exact sums")
    if set(request.scales) != {"none"} and max(accumulation.a.bits, accumulation.b.bits) > LARGEST_SCALED:
        raise AccprobeError(
            f"{accumulation.name}: --scale supports operands of at most {LARGEST_SCALED} bits; products of {accumulation.a}"
            " that are scaled to its largest number would overflow"
        )
    return [(data, plans_of(accumulation, request, data)) for data in request.data]


def entries(
    accumulation: Accumulation, request: BudgetRequest, show: Callable[[int, int, str], object] = lambda *_: None
) -> Iterator[ErrorRow]:
    """Yield every plan with every kind of operands and every scale; all plans of one K have the same operands."""
    every = planned(accumulation, request)
    total = sum(len(each) for _, each in every) * len(request.scales) * SEEDS
    done = 0
    for data, each in every:
        for k in dict.fromkeys(plan.model.k for plan in each):
            of_k = [plan for plan in each if plan.model.k == k]
            ledgers = [_Ledger(accumulation, data, scale, of_k) for scale in request.scales]
            for draw in range(SEEDS):
                values = draw_values(data, *request.shape(), k, np.random.default_rng([request.seed, draw]))
                wide = plain_product(*(x.astype(np.float64) for x in values))
                for ledger in ledgers:
                    show(done, total, f"{accumulation.name}: {data!s}, K = {k}")
                    ledger.add(values, wide)
                    done += len(of_k)
            for ledger in ledgers:
                yield from ledger.entries()


class _Ledger:
    """Running totals of the draws, for all plans of one K with one scale."""

    def __init__(self, accumulation: Accumulation, data: Data, scale: str, of_k: Sequence[PlannedProduct]) -> None:
        self._accumulation, self._data, self._scale, self._plans = accumulation, data, scale, of_k
        self._tallies: list[list[Tally]] = [[] for _ in of_k]
        self._models = [plan.model for plan in of_k]
        self._fidelity: tuple[Fidelity, ...] = ()
        self._lost, self._whole = 0.0, 0.0

    def add(self, values: DrawnPair, wide: Floats) -> None:
        """Add one draw. wide: the exact product of the values, to measure the rounding of the operands."""
        pair = quantise(self._scale, self._accumulation.a, self._accumulation.b, values)
        plain = scaled = exact_sums(pair.a.values(scaled=False), pair.b.values(scaled=False))
        if self._scale != "none":
            scaled = exact_sums(pair.a.values(), pair.b.values())
        self._lost += float(np.square(scaled.sums - wide).sum())
        self._whole += float(np.square(wide).sum())
        self._fidelity = self._fidelity or (pair.a.fidelity(values.a), pair.b.fidelity(values.b))
        for i, plan in enumerate(self._plans):
            scales, words = pair.apply_scales(plan.model) or (None, None)
            self._models[i] = replace(plan.model, scales=scales)
            self._tallies[i].append(tally(self._models[i], pair.patterns, scaled if scales else plain, words))

    def entries(self) -> Iterator[ErrorRow]:
        lost = (self._lost / self._whole) ** 0.5 if self._whole else None
        for plan, model, tallies in zip(self._plans, self._models, self._tallies, strict=True):
            yield ErrorRow(
                self._accumulation.name,
                model.k,
                plan.promote_every,
                plan.split_k,
                plan.model.result.name,
                str(self._data),
                self._scale,
                model.scales is not None,
                Errors.of(model, tallies),
                lost,
                *self._fidelity,
            )
