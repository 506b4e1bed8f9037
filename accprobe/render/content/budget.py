"""The account of an accumulation, as a table and in words: every output form has the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.advice import percent
from accprobe.budget.data import OwnData
from accprobe.budget.error_report import ErrorReport, ErrorRow
from accprobe.budget.errors import CONFIDENCE, Interval
from accprobe.render.content.phrases import Phrase, on_one_line

SIMULATED = "Simulated: the published model of the chip is evaluated; nothing was measured."

LOUD = 0.01
"""A relative error of at least so much is marked, and so is a bias."""


class BudgetColumn(NamedTuple):
    """cell: of an entry, empty where nothing is known. wide: left out where there is little room. means: what numbers are."""

    header: str
    cell: Callable[[ErrorRow], Phrase]
    wide: bool = False
    means: str = ""


BUDGET_COLUMNS = {
    "data": BudgetColumn("\ndata", lambda entry: Phrase(entry.data)),
    "scale": BudgetColumn("\nscale", lambda entry: _scale(entry)),
    "k": BudgetColumn("\nK", lambda entry: Phrase(f"{entry.k:,}")),
    "split_k": BudgetColumn("split\nK", lambda entry: Phrase(str(entry.split_k) if entry.split_k > 1 else "")),
    "promote_every": BudgetColumn("promoted\nevery", lambda entry: Phrase(str(entry.promote_every or "never"))),
    "error": BudgetColumn(
        "relative\nerror",
        lambda entry: _share(entry.errors.relative_error),
        means="relative error: |d - x| / |x|, Euclidean norms",
    ),
    "interval": BudgetColumn(
        "\n95 %",
        lambda entry: _interval(entry.errors.relative_error_interval),
        True,
        f"{CONFIDENCE:.0%}: where it lies, by bootstrap over the draws",
    ),
    "worst": BudgetColumn(
        "\nworst",
        lambda entry: _share(entry.errors.relative_error_worst, loud=False),
        True,
        "worst: the largest |d - x| over the root mean square of x",
    ),
    "bias": BudgetColumn("\nbias", lambda entry: _bias(entry), means="bias: the mean of d - x over that of |x|"),
    "over_sum": BudgetColumn("error over\nsum |a·b|", lambda entry: _number(entry.errors.max_error_over_sum)),
    "bound": BudgetColumn(
        "bound\nof any",
        lambda entry: _bound(entry.errors.bound_over_sum),
        means="bound of any: what no operands exceed of |d - x| over sum |a·b|; none: no useful one, it is 1 or more",
    ),
    "below": BudgetColumn("bound is\nlarger by", lambda entry: _below(entry), wide=True),
    "operands": BudgetColumn(
        "operands\nalone",
        lambda entry: _share(entry.quantisation_error, loud=False),
        True,
        "operands alone: what rounding them makes of the exact product",
    ),
    "snr": BudgetColumn("SNR of A, B\ndB", lambda entry: _snr(entry), wide=True),
    "lost": BudgetColumn("saturated,\nflushed", lambda entry: _lost(entry), wide=True),
    "scales": BudgetColumn("bytes of\nscales", lambda entry: _bytes(entry), wide=True),
    "tflops": BudgetColumn("\nTFLOP/s", lambda entry: Phrase(f"{entry.speed.tflops:.0f}" if entry.speed else "")),
}

_OF_SCALES = ("scale", "snr", "lost", "scales")
"""Told where scales are asked."""


def budget_title(accumulation: Accumulation) -> str:
    operands = accumulation.a.name if accumulation.a is accumulation.b else f"{accumulation.a} x {accumulation.b}"
    return f"{accumulation.name}: {operands}, {accumulation.step.products} products a fused sum"


def by_accumulation(account: ErrorReport) -> Iterator[tuple[Accumulation, list[ErrorRow]]]:
    """Each with its entries, by data, scale, split and interval, K growing."""
    for accumulation in account.accumulations:
        own = [entry for entry in account.entries if entry.accumulation == accumulation.name]
        if own:
            yield accumulation, own


def by_data(entries: list[ErrorRow]) -> Iterator[list[ErrorRow]]:
    """Entries of one kind of data and scale, one after the other."""
    for _, group in groupby(sorted(entries, key=_rank(entries)), lambda entry: (entry.data, entry.scale)):
        yield list(group)


def _rank(entries: list[ErrorRow]) -> Callable[[ErrorRow], tuple[int, int]]:
    kinds = list(dict.fromkeys(entry.data for entry in entries)), list(dict.fromkeys(entry.scale for entry in entries))
    return lambda entry: (kinds[0].index(entry.data), kinds[1].index(entry.scale))


def columns_of(account: ErrorReport, wide: bool = True) -> list[str]:
    """Those in which anything stands."""
    scaled = any(entry.scale != "none" for entry in account.entries)
    return [
        name
        for name, column in BUDGET_COLUMNS.items()
        if (wide or not column.wide)
        and (scaled or name not in _OF_SCALES)
        and any(column.cell(entry).text for entry in account.entries)
    ]


def budget_notes(account: ErrorReport, columns: Sequence[str] | None = None) -> Iterator[str]:
    """What has to be known to read the table of these columns; None: of all."""
    if not account.entries:
        return
    every = columns_of(account)
    shown = every if columns is None else columns
    means = "; ".join(filter(None, (BUDGET_COLUMNS[name].means for name in shown)))
    first = account.entries[0].errors
    out = " and ".join(dict.fromkeys(entry.out for entry in account.entries))
    yield (
        f"Of D in {out} against exact sums x; {first.outputs + first.overflowed:,} outputs a row, of {first.seeds} draws of"
        f" operands, seed {account.request.seed}. {means[:1].upper()}{means[1:]}."
    )
    if left_out := [on_one_line(BUDGET_COLUMNS[name].header) for name in every if name not in shown]:
        yield f"Left out at this width: {', '.join(left_out)}."
    if any(entry.errors.overflowed for entry in account.entries):
        most = max(entry.errors.overflowed for entry in account.entries)
        yield f"Up to {most:,} outputs of a row are not finite, and no error counts them."
    if any(entry.scale != "none" and not entry.is_scaled for entry in account.entries):
        yield (
            "*: scales of blocks along K are part of a product that promotes within each block; of others the errors are those"
            " of the sum of scaled operands."
        )
    if any(entry.scale == "nv16" for entry in account.entries):
        yield "nv16: e2m1 numbers, which the format of the operands holds, are summed as the named instruction sums them."
    fastest = next((entry.speed for entry in account.entries if entry.speed), None)
    if fastest and "tflops" in shown:
        yield (
            f"TFLOP/s: of the fastest Triton kernel that promotes at this interval, {fastest.shape}, {fastest.device}, as its"
            " sweep measured."
        )
    for data in account.request.data:
        if isinstance(data, OwnData):
            ks = dict.fromkeys(entry.k for entry in account.entries if entry.data == data.name)
            yield from filter(None, map(data.taken, ks))


def _share(value: float | None, loud: bool = True) -> Phrase:
    if value is None:
        return Phrase("")
    return Phrase(percent(value) if value else "0", "narrow" if loud and value >= LOUD else "")


def _interval(found: Interval | None) -> Phrase:
    if found is None or not found.high:
        return Phrase("")
    return Phrase(f"{percent(found.low).removesuffix(' %')} to {percent(found.high)}", "quiet")


def _bias(entry: ErrorRow) -> Phrase:
    """Where draws leave its sign open, none is told."""
    bias, interval = entry.errors.bias, entry.errors.bias_interval
    if bias is None:
        return Phrase("")
    if interval is not None and interval.low <= 0 <= interval.high:
        return Phrase("~0", "quiet")
    sign = "-" if bias < 0 else "+"
    return Phrase(f"{sign}{percent(abs(bias))}", "narrow" if abs(bias) >= LOUD else "")


def _number(value: float | None) -> Phrase:
    return Phrase("" if value is None else f"{value:.1e}" if value else "0")


def _bound(value: float | None) -> Phrase:
    """None where sums may lose all of the sum of |a·b|."""
    return Phrase("none", "quiet") if value is not None and value >= 1 else _number(value)


def _below(entry: ErrorRow) -> Phrase:
    seen, bound = entry.errors.max_error_over_sum, entry.errors.bound_over_sum
    return Phrase(f"{bound / seen:,.0f}" if seen and bound and bound < 1 else "")


def _scale(entry: ErrorRow) -> Phrase:
    return Phrase(entry.scale + ("" if entry.is_scaled or entry.scale == "none" else " *"))


def _snr(entry: ErrorRow) -> Phrase:
    return Phrase(", ".join("" if one.snr is None else f"{one.snr:.1f}" for one in (entry.a, entry.b)))


def _lost(entry: ErrorRow) -> Phrase:
    """Shares of A."""
    return Phrase(", ".join(percent(share) if share else "0" for share in (entry.a.saturated, entry.a.flushed)))


def _bytes(entry: ErrorRow) -> Phrase:
    """For each number of A."""
    return Phrase(f"{entry.a.scale_bytes:.2g}" if entry.a.scale_bytes else "")
