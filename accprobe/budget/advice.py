"""What an account means for a kernel, in words: whether to promote and how often, the block-K that allows, the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Literal

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.allowance import Allowance, allowance
from accprobe.budget.data import Data
from accprobe.budget.error_report import AccountEntry, PlannedProduct, Question, data_name, error_of_plan
from accprobe.budget.errors import Errors
from accprobe.budget.speed import Speed, measured_speeds
from accprobe.isa.formats import FORMATS, Format

FEW_DRAWS = 4
"""Of operands, where an interval is looked for."""

USUAL_OUT = "bf16"
"""What sums are held against that are not rounded to a narrower format themselves."""

DRIFTS = 0.5
"""A bias of at least so much of the error is told as one."""

MARGIN = 1.25
"""Errors within this factor of the output's own rounding are about as large: which is larger depends on the operands."""


def own_rounding(out: Format) -> float:
    """The root mean square of the relative error of rounding to nearest, of numbers whose logarithms are uniform: of a step u
    over numbers x from 1 to 2, that of u / (√12 · x).
    """
    return 1 / (float(2**out.mantissa_bits) * sqrt(32 * log(2)))


def weighed(error: float, rounding: float) -> Literal["less", "about", "more"]:
    if error * MARGIN <= rounding:
        return "less"
    return "about" if error < rounding * MARGIN else "more"


@dataclass(frozen=True)
class Advice:
    """How often sums of one kind of data have to be promoted for their error to stay clearly below the output's own rounding.

    out: the output's format; rounding: `own_rounding` of it. unpromoted, bias: of sums that are never promoted, before the last
    rounding. longest: the longest interval whose error is below by MARGIN, of those asked and of 1, 2, 4, ... fused sums; None
    where sums that are never promoted are, or none is short enough; error: with it, or with the shortest. speed: of the fastest
    swept kernel that promotes at least so often. allowance: what a test of a plan that was asked may ask: of the one that is
    advised, else of the next shorter interval, else of that with the tightest bound; None where nothing is known of one.
    """

    accumulation: str
    data: str
    k: int
    out: str
    rounding: float
    unpromoted: float
    bias: float
    longest: int | None
    error: float
    speed: Speed | None
    allowance: Allowance | None

    @property
    def must_promote(self) -> bool:
        return weighed(self.unpromoted, self.rounding) == "more"

    @property
    def is_enough(self) -> bool:
        """Whether there is such an interval, or none is needed."""
        return self.longest is not None or not self.must_promote


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

    never, rounding = of_known.get(None) or errors(None), own_rounding(out)
    if never.error_of_sums is None or never.bias_of_sums is None:
        return None
    longest, error = None, never.error_of_sums
    if weighed(error, rounding) != "less":
        longest, error = _longest(_intervals(accumulation, k, of_known), error_of, rounding / MARGIN)
    speeds = [speed for at, speed in measured_speeds(accumulation).items() if longest and at <= longest]
    enough = longest is not None or weighed(never.error_of_sums, rounding) != "more"
    return Advice(
        accumulation=accumulation.name,
        data=data_name(data),
        k=k,
        out=out.name,
        rounding=rounding,
        unpromoted=never.error_of_sums,
        bias=never.bias_of_sums,
        longest=longest,
        error=error,
        speed=max(speeds, key=lambda speed: speed.tflops, default=None),
        allowance=allowance(accumulation, data, question.seed, _as_advised(those, longest, enough)),
    )


def _as_advised(entries: Sequence[AccountEntry], longest: int | None, enough: bool) -> Sequence[AccountEntry]:
    """Those of the longest interval that is no longer than it may be, or never promoted where none has to be; all where none is
    so, or promotion is not enough.
    """
    if not enough:
        return entries
    if longest is None:
        return [each for each in entries if each.promote_every is None] or entries
    every = max((each.promote_every for each in entries if each.promote_every and each.promote_every <= longest), default=None)
    return [each for each in entries if each.promote_every == every] if every else entries


def _intervals(accumulation: Accumulation, k: int, asked: Iterable[int | None]) -> list[int]:
    """One fused sum, its doubles, and those that are asked, below K; at least one."""
    of_sum = len(accumulation.pattern)
    doubles = (of_sum << i for i in range(k.bit_length()))
    return sorted({each for each in (*doubles, *asked) if each and each < k}) or [of_sum]


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
    """What promotion buys, what has to be promoted, and what a test may ask, of the largest K; then of other K and scales."""
    several = len({each.accumulation for each in found}) > 1
    yield from _together(advised)
    for each in advised:
        of = f"{each.accumulation}, " if several else ""
        those = [entry for entry in found if _is_of(entry, each)]
        allowed = each.allowance.sentence() if each.allowance else ""
        told = filter(None, (_promotion(each), _bought(those) if each.must_promote else "", allowed))
        yield f"{of}K = {each.k}, {each.data} data: {' '.join(told)}"
    yield from _of_other_k(found, advised, several)
    yield from _scales(found, several)


def _is_of(entry: AccountEntry, advice: Advice) -> bool:
    return (entry.accumulation, entry.data, entry.k) == (advice.accumulation, advice.data, advice.k)


def _promotion(told: Advice) -> str:
    if not told.unpromoted:
        return "never promoted, sums are exact: promotion is not needed."
    own = f"{told.out}'s own rounding, {percent(told.rounding)}"
    drift = abs(told.bias) >= DRIFTS * told.unpromoted
    how = f"a drift: {percent(abs(told.bias))} {'low' if told.bias < 0 else 'high'}" if drift else "a walk, of no sign"
    never = f"never promoted, sums, before D is rounded, err by {percent(told.unpromoted)} ({how})"
    if told.longest is None and told.must_promote:
        still = f"promoted after every fused sum, still {percent(told.error)}"
        return f"{never}, {ratio(told.unpromoted / told.rounding)} times {own}; {still}."
    longest = (
        f"Of the intervals asked and of 1, 2, 4, … fused sums, the longest with at most {percent(told.rounding / MARGIN)},"
        f" {percent(1 / MARGIN)} of that rounding, is {told.longest} products, {percent(told.error)}"
    )
    match weighed(told.unpromoted, told.rounding):
        case "less":
            return f"{never}, less than {own}: promotion is not needed."
        case "about":
            clearly_less = f" {longest}." if told.longest else ""
            return f"{never}, about as large as {own}: promotion is hardly needed.{clearly_less}"
        case "more":
            return (
                f"{never}, {ratio(told.unpromoted / told.rounding)} times {own}: promote. {longest}:"
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
    """Of all kinds of data, where there are several, of one K, and an interval is enough for all."""
    for name in dict.fromkeys(each.accumulation for each in advised):
        those = [each for each in advised if each.accumulation == name]
        if len(those) < 2 or len({each.k for each in those}) > 1 or not all(each.is_enough for each in those):
            continue
        of = f"{name}, " if len({each.accumulation for each in advised}) > 1 else ""
        all_of = f"{of}K = {those[0].k}, all of these data"
        needed = [each.longest for each in those if each.longest]
        if not any(each.must_promote for each in those):
            hardly = any(weighed(each.unpromoted, each.rounding) == "about" for each in those)
            yield f"{all_of}: promotion is {'hardly' if hardly else 'not'} needed."
            continue
        least = min(needed)
        speeds = [each.speed for each in those if each.speed and each.longest == least]
        ran = f"; block-K {speeds[0].block_k} {ran_at(speeds[0])}" if speeds else ""
        yield f"{all_of}: promote at least every {least} products{ran}."


def _of_other_k(found: Sequence[AccountEntry], advised: Sequence[Advice], several: bool) -> Iterator[str]:
    """Of each K that is not told of otherwise, by how much sums err that are never promoted."""
    for name in dict.fromkeys(each.accumulation for each in advised):
        of_name = {each.data: each for each in advised if each.accumulation == name}
        others = [entry for entry in found if entry.accumulation == name and entry.data in of_name]
        others = [entry for entry in others if entry.k != of_name[entry.data].k and entry.promote_every is None]
        for k in dict.fromkeys(entry.k for entry in others):
            first: dict[str, AccountEntry] = {}
            for entry in others:
                if entry.k == k:
                    first.setdefault(entry.data, entry)
            told = [f"{data} data {_beside(entry, of_name[data])}" for data, entry in first.items()]
            yield f"{f'{name}, ' if several else ''}K = {k}, never promoted: {', '.join(told)}."


def _beside(entry: AccountEntry, advice: Advice) -> str:
    error = entry.errors.error_of_sums or 0.0
    words = {"less": "less than", "about": "about as large as", "more": "more than"}
    return f"{percent(error)}, {words[weighed(error, advice.rounding)]} {advice.out}'s own rounding"


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
