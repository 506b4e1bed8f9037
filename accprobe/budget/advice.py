"""What an account means for a kernel, in words: whether to promote and how often, the block-K that allows, the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from accprobe.budget.account import AccountEntry, PlannedProduct, Question, data_name, error_of_plan
from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data
from accprobe.budget.errors import Errors
from accprobe.budget.speed import Speed, measured_speeds
from accprobe.isa.formats import FORMATS

FEW_DRAWS = 4
"""Of operands, where an interval is looked for."""

USUAL_OUT = "bf16"
"""What sums are held against that are not rounded to a narrower format themselves."""

DRIFTS = 0.5
"""A bias of at least so much of the error is told as one."""


@dataclass(frozen=True)
class Advice:
    """How often sums of one kind of data have to be promoted for their error to stay below the output's own rounding.

    out: the output's format; rounding: the relative error of exact sums that are rounded to it. unpromoted, bias: of sums that
    are never promoted, before the last rounding. longest: the longest interval whose error is below, None where none is needed
    or none is short enough; is_enough: whether there is one, or none is needed; error: with it. speed: of the fastest swept
    kernel that promotes at least so often.
    """

    accumulation: str
    data: str
    k: int
    out: str
    rounding: float
    unpromoted: float
    bias: float
    longest: int | None
    is_enough: bool
    error: float
    speed: Speed | None

    @property
    def must_promote(self) -> bool:
        return self.longest is not None or not self.is_enough


def advice(
    accumulation: Accumulation, question: Question, k: int, data: Data, known: Sequence[AccountEntry] = ()
) -> Advice | None:
    """Of the first split and scale that are asked; None where all sums are zero. known: entries, whose errors are taken."""
    out = question.out if question.out and question.out.mantissa_bits < FORMATS["f32"].mantissa_bits else FORMATS[USUAL_OUT]

    split, scale = question.splits[0] if question.splits else accumulation.split_k, question.scales[0]
    those = [each for each in known if (each.accumulation, each.data, each.k) == (accumulation.name, data_name(data), k)]
    of_known = {each.promote_every: each.errors for each in those if (each.split_k, each.scale) == (split, scale)}

    def errors(every: int | None) -> Errors:
        plan = PlannedProduct(k, every, split, accumulation.product(k, every, split, out))
        return error_of_plan(plan, accumulation, data, scale, question, FEW_DRAWS)

    def error_of(every: int) -> float:
        return (of_known.get(every) or errors(every)).error_of_sums or 0.0

    few = errors(None)
    never, rounding = of_known.get(None) or few, few.error_of_rounding
    if never.error_of_sums is None or rounding is None or never.bias_of_sums is None:
        return None
    longest, error = None, never.error_of_sums
    is_enough = error <= rounding
    if not is_enough:
        intervals = _intervals(accumulation, k)
        longest, error = _longest(intervals, error_of, rounding)
        is_enough = longest is not None
    speeds = [speed for at, speed in measured_speeds(accumulation).items() if longest and at <= longest]
    return Advice(
        accumulation=accumulation.name,
        data=data_name(data),
        k=k,
        out=out.name,
        rounding=rounding,
        unpromoted=never.error_of_sums,
        bias=never.bias_of_sums,
        longest=longest,
        is_enough=is_enough,
        error=error,
        speed=max(speeds, key=lambda speed: speed.tflops, default=None),
    )


def _intervals(accumulation: Accumulation, k: int) -> list[int]:
    """One fused sum, and its doubles, below K; at least one."""
    of_sum = len(accumulation.pattern)
    found = [of_sum << i for i in range(max(1, (k - 1).bit_length())) if of_sum << i < k]
    return found or [of_sum]


def _longest(intervals: Sequence[int], error_of: Callable[[int], float], at_most: float) -> tuple[int | None, float]:
    """The longest interval whose error is no more, and that error; None, and the error of the shortest, where none is."""
    low, high, best, error = 0, len(intervals), None, None
    while low < high:
        middle = (low + high) // 2
        found = error_of(intervals[middle])
        if found <= at_most:
            low, best, error = middle + 1, intervals[middle], found
        else:
            high, error = middle, error if best else found
    assert error is not None
    return best, error


def sentences(found: Sequence[AccountEntry], advised: Sequence[Advice]) -> Iterator[str]:
    """What promotion buys, what has to be promoted, and what a test may ask, of the largest K; then of scales."""
    several = len({each.accumulation for each in found}) > 1
    yield from _together(advised)
    for each in advised:
        of = f"{each.accumulation}, " if several else ""
        those = [entry for entry in found if _is_of(entry, each)]
        told = filter(None, (_promotion(each), _bought(those) if each.must_promote else "", _tolerance(those)))
        yield f"{of}K = {each.k}, {each.data} data: {' '.join(told)}"
    yield from _scales(found, several)


def _is_of(entry: AccountEntry, advice: Advice) -> bool:
    return (entry.accumulation, entry.data, entry.k) == (advice.accumulation, advice.data, advice.k)


def _promotion(told: Advice) -> str:
    if not told.unpromoted:
        return "never promoted, sums are exact: promotion is not needed."
    own = f"{told.out}'s own rounding, {percent(told.rounding)}"
    drift = abs(told.bias) >= DRIFTS * told.unpromoted
    how = f"a drift: {percent(abs(told.bias))} {'low' if told.bias < 0 else 'high'}" if drift else "a walk, of no sign"
    never = f"never promoted, sums err by {percent(told.unpromoted)} ({how})"
    if not told.must_promote:
        return f"{never}, less than {own}: promotion is not needed."
    times = f"{never}, {ratio(told.unpromoted / told.rounding)} times {own}"
    if told.longest is None:
        return f"{times}; promoted after every fused sum, still {percent(told.error)}."
    return (
        f"{times}: promote. The longest interval with less is {told.longest} products, {percent(told.error)}:"
        f" a block-K of at most {told.longest} where each block begins at zero."
    )


def _bought(entries: Sequence[AccountEntry]) -> str:
    """By the shortest interval that is there, of the same split and scale as without."""
    never = next((entry for entry in entries if entry.promote_every is None), None)
    if never is None:
        return ""
    alike = [each for each in entries if each.promote_every and (each.split_k, each.scale) == (never.split_k, never.scale)]
    best = min(alike, key=lambda entry: entry.promote_every or 0, default=None)
    if best is None or not never.errors.error_of_sums or not best.errors.error_of_sums:
        return ""
    before, after = never.errors.error_of_sums, best.errors.error_of_sums
    return (
        f"Promotion every {best.promote_every} buys {percent(before)} → {percent(after)}, {ratio(before / after)} times less."
    )


def _together(advised: Sequence[Advice]) -> Iterator[str]:
    """Of all kinds of data, where there are several."""
    for name in dict.fromkeys(each.accumulation for each in advised):
        those = [each for each in advised if each.accumulation == name and each.is_enough]
        k, needed = max((each.k for each in those), default=0), [each.longest for each in those if each.longest]
        of_k = [each for each in those if each.k == k]
        if len(of_k) < 2:
            continue
        of = f"{name}, " if len({each.accumulation for each in advised}) > 1 else ""
        if not needed:
            yield f"{of}K = {k}, all of these data: promotion is not needed."
            continue
        least = min(needed)
        speeds = [each.speed for each in of_k if each.speed and each.longest == least]
        ran = f"; block-K {speeds[0].block_k} {ran_at(speeds[0])}" if speeds else ""
        yield f"{of}K = {k}, all of these data: promote at least every {least} products{ran}."


def _tolerance(entries: Sequence[AccountEntry]) -> str:
    """Of the plan with the tightest bound."""
    bounded = [entry for entry in entries if entry.errors.bound_over_sum is not None and entry.errors.max_error is not None]
    if not bounded:
        return ""
    best = min(bounded, key=lambda entry: entry.errors.bound_over_sum or 0.0)
    errors = best.errors
    assert errors.bound_over_sum is not None
    assert errors.max_error is not None
    plan = f"promoted every {best.promote_every}" if best.promote_every else "never promoted"
    scaled = "" if best.scale == "none" or best.is_scaled else " of the scaled operands"
    most = errors.bound_over_sum * errors.largest_sum
    return (
        f"As atol, {plan}, {best.out} out: the largest error{scaled} of {errors.outputs:,} outputs was {errors.max_error:.3g};"
        f" no operands make one above {errors.bound_over_sum:.3g} of an output's sum of |a·b|, here {most:.3g}."
    )


def _scales(found: Sequence[AccountEntry], several: bool) -> Iterator[str]:
    """What the operands' own rounding costs, once for each kind of data and scale, at the largest K."""
    told: dict[tuple[str, str, str], AccountEntry] = {}
    for entry in sorted(found, key=lambda entry: -entry.k):
        if entry.quantisation_error:
            told.setdefault((entry.accumulation, entry.data, entry.scale), entry)
    for (name, data, scale), entry in told.items():
        of = f"{name}, " if several else ""
        how = "rounded as they are" if scale == "none" else f"with scales by {scale}"
        shares = {"saturated": entry.a.saturated, "flushed": entry.a.flushed}
        losses = "".join(f", {percent(share)} of A {what}" for what, share in shares.items() if share)
        alone = percent(entry.quantisation_error or 0)
        yield f"{of}K = {entry.k}, {data} operands {how}: their rounding alone makes {alone}{losses}."


def ran_at(speed: Speed) -> str:
    return f"ran at {speed.tflops:.0f} TFLOP/s ({speed.shape}, {speed.device})"


def percent(share: float) -> str:
    """ "25 %", "0.13 %", "3.1e-06 %"."""
    value = 100 * share
    return f"{value:.2g} %" if value < 99.5 else f"{value:.0f} %"


def ratio(times: float) -> str:
    """In two digits, all of them where there are more."""
    return f"{times:.0f}" if times >= 100 else f"{times:.2g}"
