"""Recommendations from an error report: whether to promote and how often, and the tolerance of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from typing import Literal

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data
from accprobe.budget.error_report import (
    BudgetRequest,
    ErrorRow,
    PlannedProduct,
    Speed,
    error_of_plan,
    measured_speeds,
)
from accprobe.budget.errors import Errors
from accprobe.budget.tolerance import OwnTest, ToleranceRequest, usual_test
from accprobe.isa.formats import FORMATS, Format

# Draws of operands in the search for an interval.
FEW_DRAWS = 4

# Result format whose rounding error is the yardstick if D is not narrower than f32.
USUAL_OUT = "bf16"

# An error is reported as biased if the bias is at least this share of it.
BIASED = 0.5

# Errors within this factor of the rounding error of D count as about as large: which is larger depends on the operands.
MARGIN = 1.25

# Longest K for which a tolerance is computed; bounds of longer products take long.
MOST_K = 1 << 16


def own_rounding(out: Format) -> float:
    """Return the root mean square of the relative rounding error, to nearest, of numbers with uniform logarithms.

    Over numbers x from 1 to 2 with distance u, that of u / (√12 · x).
    """
    return 1 / (float(2**out.mantissa_bits) * sqrt(32 * log(2)))


def weighed(error: float, rounding: float) -> Literal["less", "about", "more"]:
    if error * MARGIN <= rounding:
        return "less"
    return "about" if error < rounding * MARGIN else "more"


@dataclass(frozen=True)
class DataAdvice:
    """One kind of operands. unpromoted, bias: of sums that are never promoted, before D is rounded; error: of the sums when
    promoted as recommended. tolerance: of a test of that plan against f64 sums, None if it was not computed.
    """

    data: str
    unpromoted: float
    bias: float
    error: float
    tolerance: OwnTest | None


@dataclass(frozen=True)
class Advice:
    """The recommendation for one accumulation at one K, over all kinds of operands.

    out: result format; rounding: its `own_rounding`. promote_every: the longest interval whose errors all stay clearly below
    that, None if sums need no promotion; is_enough: whether there is one, otherwise promote_every is one fused sum.
    speed: of the fastest swept kernel that promotes at least as often.
    """

    accumulation: str
    k: int
    out: str
    rounding: float
    promote_every: int | None
    is_enough: bool
    speed: Speed | None
    kinds: tuple[DataAdvice, ...]


def advice(
    accumulation: Accumulation,
    request: BudgetRequest,
    k: int,
    known: Sequence[ErrorRow] = (),
    show: Callable[[str], object] = lambda _: None,
) -> Advice | None:
    """Return the advice for the first split and scale; None if all sums are zero. known: entries whose errors are reused."""
    out = request.out if request.out and request.out.mantissa_bits < FORMATS["f32"].mantissa_bits else FORMATS[USUAL_OUT]
    rounding = own_rounding(out)
    errors = _ErrorsOfPlans(accumulation, request, k, out, known)
    kinds = [data for data in request.data if errors.of(data, None).error_of_sums is not None]
    longest: list[int | None] = []
    for data in kinds:
        show(f"promotion interval, {data!s} data")
        if weighed(errors.of_sums(data, None), rounding) == "more":
            longest.append(_longest(errors.intervals(), partial(errors.of_sums, data), rounding / MARGIN))
    if not kinds:
        return None
    is_enough = all(longest)
    every = None if not longest else min(each or 0 for each in longest) or len(accumulation.pattern)
    speeds = [speed for at, speed in measured_speeds(accumulation).items() if every and at <= every]
    return Advice(
        accumulation=accumulation.name,
        k=k,
        out=out.name,
        rounding=rounding,
        promote_every=every,
        is_enough=is_enough,
        speed=max(speeds, key=lambda speed: speed.tflops, default=None) if is_enough else None,
        kinds=tuple(
            DataAdvice(
                str(data),
                errors.of_sums(data, None),
                errors.of(data, None).bias_of_sums or 0.0,
                errors.of_sums(data, every),
                _tolerance(accumulation, request, k, every, data),
            )
            for data in kinds
        ),
    )


class _ErrorsOfPlans:
    """Errors by data and interval at one K: known ones, others from a few draws."""

    def __init__(
        self, accumulation: Accumulation, request: BudgetRequest, k: int, out: Format, known: Sequence[ErrorRow]
    ) -> None:
        self._accumulation, self._request, self._k, self._out = accumulation, request, k, out
        self._split = request.splits[0] if request.splits else accumulation.split_k
        plan = accumulation.name, k, self._split, request.scales[0]
        same = [each for each in known if (each.accumulation, each.k, each.split_k, each.scale) == plan]
        self._found: dict[tuple[str, int | None], Errors] = {(each.data, each.promote_every): each.errors for each in same}

    def of(self, data: Data, every: int | None) -> Errors:
        key = str(data), every
        if key not in self._found:
            model = self._accumulation.product(self._k, every, self._split, self._out)
            plan = PlannedProduct(self._k, every, self._split, model)
            scale = self._request.scales[0]
            self._found[key] = error_of_plan(plan, self._accumulation, data, scale, self._request, FEW_DRAWS)
        return self._found[key]

    def of_sums(self, data: Data, every: int | None) -> float:
        """Return the error before D is rounded."""
        return self.of(data, every).error_of_sums or 0.0

    def intervals(self) -> list[int]:
        """Return one fused sum, its doubles, and the intervals that are known, below K; at least one."""
        of_sum = len(self._accumulation.pattern)
        doubles = (of_sum << i for i in range(self._k.bit_length()))
        known = (every for _, every in self._found)
        return sorted({each for each in (*doubles, *known) if each and each < self._k}) or [of_sum]


def _longest(intervals: Sequence[int], error_of: Callable[[int], float], at_most: float) -> int | None:
    """Return the longest interval whose error is at most that, by bisection; None if there is none."""
    low, high, best = 0, len(intervals), None
    while low < high:
        middle = (low + high) // 2
        if error_of(intervals[middle]) <= at_most:
            low, best = middle + 1, intervals[middle]
        else:
            high = middle
    return best


def _tolerance(accumulation: Accumulation, request: BudgetRequest, k: int, every: int | None, data: Data) -> OwnTest | None:
    if request.scales[0] != "none" or k > MOST_K:
        return None
    split = request.splits[0] if request.splits else accumulation.split_k
    out = request.out or (accumulation.measured.result if accumulation.measured else FORMATS["f32"])
    return usual_test(ToleranceRequest(accumulation, k, None, None, every, split, out, data, None, request.seed))


def sentences(found: Sequence[ErrorRow], advised: Iterable[Advice]) -> Iterator[str]:
    """Yield the recommendation of each accumulation, its reason by kind of operands, and the error of rounded operands."""
    several = len({entry.accumulation for entry in found}) > 1
    for each in advised:
        yield f"{each.accumulation}: {_recommendation(each)}" if several else _recommendation(each)
        for kind in each.kinds:
            yield " ".join(filter(None, (_reason(each, kind), _tolerance_text(each, kind))))
    yield from _operands(found, several)


def _recommendation(advice: Advice) -> str:
    own = f"the {advice.out} rounding error ({percent(advice.rounding)})"
    if advice.promote_every is None:
        about = any(weighed(kind.unpromoted, advice.rounding) == "about" for kind in advice.kinds)
        return f"Promotion is not needed at K = {advice.k}: without it the error is {'about' if about else 'below'} {own}."
    if not advice.is_enough:
        return f"Promote after every fused sum at K = {advice.k}: even then the error is not below {own}."
    speed = advice.speed
    ran = (
        f" Block-K {speed.block_k} ran at {speed.tflops:.0f} TFLOP/s ({speed.shape}, {speed.device})."
        if speed is not None
        else ""
    )
    return f"Promote every {advice.promote_every} products at K = {advice.k}: the error is then below {own}.{ran}"


def _reason(advice: Advice, kind: DataAdvice) -> str:
    if not kind.unpromoted:
        return f"{kind.data} data: sums are exact without promotion."
    biased = abs(kind.bias) >= BIASED * kind.unpromoted
    size = percent(abs(kind.bias) if biased else kind.unpromoted)
    error = f"the result is {size} too {'low' if kind.bias < 0 else 'high'}" if biased else f"the random error is {size}"
    own = f"the {advice.out} rounding error"
    match weighed(kind.unpromoted, advice.rounding):
        case "less":
            compared = f"below {own}"
        case "about":
            compared = f"about {own}"
        case "more":
            compared = f"{ratio(kind.unpromoted / advice.rounding)} times {own}"
    promoted = f" With promotion every {advice.promote_every}: {percent(kind.error)}." if advice.promote_every else ""
    return f"{kind.data} data: without promotion {error}, {compared}.{promoted}"


def _tolerance_text(advice: Advice, kind: DataAdvice) -> str:
    if kind.tolerance is None:
        return ""
    plan = f"promotion every {advice.promote_every}" if advice.promote_every else "no promotion"
    rtol = f"rtol = {kind.tolerance.rtol:.3g}, " if kind.tolerance.rtol else ""
    return f"Test tolerance against f64 sums, {plan}: {rtol}atol = {kind.tolerance.atol:.3g}."


def _operands(found: Sequence[ErrorRow], several: bool) -> Iterator[str]:
    """Yield the error from rounding the operands, once for each kind and scale, at the largest K."""
    largest: dict[tuple[str, str, str], ErrorRow] = {}
    for entry in sorted(found, key=lambda entry: -entry.k):
        if entry.quantisation_error:
            largest.setdefault((entry.accumulation, entry.data, entry.scale), entry)
    for (name, data, scale), entry in largest.items():
        of = f"{name}, " if several else ""
        how = "" if scale == "none" else f" with scale {scale}"
        losses = [
            f"{percent(share)} of A {what}"
            for what, share in (("saturate", entry.a.saturated), ("become zero", entry.a.flushed))
            if share
        ]
        rest = f" ({', '.join(losses)})" if losses else ""
        yield f"{of}{data} data: rounding the operands{how} alone costs {percent(entry.quantisation_error or 0)}{rest}."


def percent(share: float) -> str:
    """Return "25 %", "0.13 %", "3.1e-06 %"."""
    value = 100 * share
    return f"{value:.2g} %" if value < 99.5 else f"{value:.0f} %"


def ratio(times: float) -> str:
    """Return a ratio in two digits, or in whole numbers from 100 on."""
    return f"{times:.0f}" if times >= 100 else f"{times:.2g}"
