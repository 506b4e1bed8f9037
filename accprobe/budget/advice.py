"""Recommendations from an error report: whether to promote, and how often."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Literal

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.error_report import BudgetRequest, ErrorRow, entries
from accprobe.budget.errors import Errors
from accprobe.isa.formats import FORMATS, Format
from accprobe.report.words import percent

# The search for an interval emulates so many times fewer outputs.
FEWER = 8

# Result format with the rounding error to compare with if D is not narrower than f32.
USUAL_OUT = "bf16"

# An error is reported as biased if the bias is at least this share of it.
BIASED = 0.5

# Errors within this factor of the rounding error of D count as about as large: which is larger depends on the operands.
MARGIN = 1.25


def own_rounding(out: Format) -> float:
    """Return the root mean square of the relative rounding error, to nearest, of numbers with uniform logarithms.

    For numbers x from 1 to 2 with distance u, the relative error has the root mean square u / (√12 · x).
    """
    return 1 / (float(2**out.mantissa_bits) * sqrt(32 * log(2)))


def weighed(error: float, rounding: float) -> Literal["less", "about", "more"]:
    if error * MARGIN <= rounding:
        return "less"
    return "about" if error < rounding * MARGIN else "more"


@dataclass(frozen=True)
class Advice:
    """The recommendation for one accumulation at one K, over all kinds of operands.

    out: result format; rounding: its `own_rounding`. promote_every: the longest interval tried with all errors below it by
    MARGIN, None if sums need no promotion; is_enough: whether there is one, otherwise promote_every is one pattern. kinds: by
    kind of operands, the errors of sums that are never promoted, and of sums promoted as recommended.
    """

    accumulation: str
    k: int
    out: str
    rounding: float
    promote_every: int | None
    is_enough: bool
    kinds: Mapping[str, tuple[Errors, Errors]]


def advice(
    accumulation: Accumulation,
    request: BudgetRequest,
    k: int,
    known: Sequence[ErrorRow] = (),
    show: Callable[[int, int, str], object] = lambda *_: None,
) -> Advice | None:
    """Return the advice for the first split and scale; None if all sums are zero or overflow. known: rows to reuse."""
    out = request.out if request.out and request.out.mantissa_bits < FORMATS["f32"].mantissa_bits else FORMATS[USUAL_OUT]
    rounding = own_rounding(out)
    split, scale = (request.splits or (accumulation.split_k,))[0], request.scales[0]
    plan = accumulation.name, k, split, scale
    same = [row for row in known if (row.accumulation, row.k, row.split_k, row.scale) == plan]
    of_sum = len(accumulation.pattern)
    some = (*(of_sum << i for i in range(k.bit_length())), *(row.promote_every for row in same))
    intervals = sorted({every for every in some if every and every < -(-k // split)}) or [of_sum]
    errors = {(row.data, row.promote_every): row.errors for row in same}
    new = tuple(every for every in (None, *intervals) if any((str(data), every) not in errors for data in request.data))
    fewer = max(1, request.outputs // FEWER)
    others = replace(request, ks=(k,), intervals=new, splits=(split,), scales=(scale,), out=out, outputs=fewer)
    found = {(row.data, row.promote_every): row.errors for row in entries(accumulation, others, show)}
    errors = found | errors

    kinds = [data for data in map(str, request.data) if errors[data, None].error_of_sums is not None]
    longest: list[int | None] = []
    for data in kinds:
        if weighed(_of_sums(errors[data, None]), rounding) == "more":
            enough = bisect_right([_of_sums(errors[data, every]) for every in intervals], rounding / MARGIN)
            longest.append(intervals[enough - 1] if enough else None)
    if not kinds:
        return None
    every = None if not longest else min(each or 0 for each in longest) or of_sum
    return Advice(
        accumulation=accumulation.name,
        k=k,
        out=out.name,
        rounding=rounding,
        promote_every=every,
        is_enough=all(longest),
        kinds={data: (errors[data, None], errors[data, every]) for data in kinds},
    )


def sentences(found: Sequence[ErrorRow], advised: Iterable[Advice]) -> Iterator[str]:
    """Yield the recommendation of each accumulation, its reason by kind of operands, and the error of rounded operands."""
    several = len({entry.accumulation for entry in found}) > 1
    for each in advised:
        yield f"{each.accumulation}: {_recommendation(each)}" if several else _recommendation(each)
        for data in each.kinds:
            yield _reason(each, data)
    yield from _operands(found, several)


def _recommendation(advice: Advice) -> str:
    own = f"the {advice.out} rounding error ({percent(advice.rounding)})"
    if advice.promote_every is None:
        about = any(weighed(_of_sums(unpromoted), advice.rounding) == "about" for unpromoted, _ in advice.kinds.values())
        compared = "about" if about else "below"
        return f"Promotion is not needed at K = {advice.k}: without it the error before D is rounded is {compared} {own}."
    if not advice.is_enough:
        every = f"every {advice.promote_every} products, the shortest interval,"
        return f"Promote {every} at K = {advice.k}: even then the error before D is rounded is not below {own}."
    return (
        f"Promote every {advice.promote_every} products at K = {advice.k}: the error before D is rounded is then below {own}."
    )


def _reason(advice: Advice, data: str) -> str:
    error, promoted = map(_of_sums, advice.kinds[data])
    if not error:
        return f"{data} operands: sums are exact without promotion."
    bias = advice.kinds[data][0].bias_of_sums or 0.0
    is_biased = abs(bias) >= BIASED * error
    size = percent(abs(bias) if is_biased else error)
    how_large = f"the result is {size} too {'low' if bias < 0 else 'high'}" if is_biased else f"the random error is {size}"
    own = f"the {advice.out} rounding error"
    compared = {"less": "below", "about": "about", "more": f"{ratio(error / advice.rounding)} times"}
    after = f" With promotion every {advice.promote_every}: {percent(promoted)}." if advice.promote_every else ""
    weight = compared[weighed(error, advice.rounding)]
    return f"{data} operands: before D is rounded, {how_large} without promotion, {weight} {own}.{after}"


def _of_sums(errors: Errors) -> float:
    return errors.error_of_sums or 0.0


def _operands(found: Sequence[ErrorRow], several: bool) -> Iterator[str]:
    """Yield the error from rounding the operands, once for each accumulation, kind and scale, at its largest K."""
    largest: dict[tuple[str, str, str], ErrorRow] = {}
    for entry in sorted(found, key=lambda entry: -entry.k):
        if entry.quantisation_error:
            largest.setdefault((entry.accumulation, entry.data, entry.scale), entry)
    for (name, data, scale), entry in largest.items():
        of = f"{name}, " if several else ""
        how = "" if scale == "none" else f" with scale {scale}"
        losses = [
            f"{percent(share)} of A's elements {what}"
            for what, share in (("saturate", entry.a.saturated), ("become zero", entry.a.flushed))
            if share
        ]
        rest = f" ({', '.join(losses)})" if losses else ""
        yield f"{of}{data} operands: rounding them{how} alone costs {percent(entry.quantisation_error or 0)}{rest}."


def ratio(times: float) -> str:
    """Return a ratio in two digits, or in whole numbers from 100 on."""
    return f"{times:.0f}" if times >= 99.5 else f"{times:.2g}"
