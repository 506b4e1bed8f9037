"""The error budget of accumulations: the recommendation, a table of errors for each, and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Literal, NamedTuple, TypeVar

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.advice import percent
from accprobe.budget.data import DATA_KINDS, OwnData
from accprobe.budget.error_report import ErrorReport, ErrorRow
from accprobe.budget.errors import CONFIDENCE, Interval
from accprobe.render.charts import LOOKS, Chart, Curve, chart_picture, decades, doublings, upwards
from accprobe.render.document import Column, Element, Figure, Grid, Heading, List, Paragraph, Phrase

Need = Literal["answer", "context", "detail"]

_Key = TypeVar("_Key")

_PlanKey = tuple[str, int | None, int]
"""An arithmetic: its accumulation, interval and slices."""

SIMULATED = "Simulated: the published model of the chip is evaluated; nothing was measured."

LONGEST_KIND = max(map(len, DATA_KINDS))
"""Characters that the first column has room for."""

LOUD = 0.01
"""A relative error of at least so much is marked, and so is a bias."""


class BudgetColumn(NamedTuple):
    """cell: of an entry, empty where nothing is known. means: what the numbers are."""

    column: Column
    cell: Callable[[ErrorRow], Phrase]
    means: str = ""


def _column(header: str, need: Need, cell: Callable[[ErrorRow], Phrase], means: str = "") -> BudgetColumn:
    """Return a column of numbers."""
    return BudgetColumn(Column(header, need, number=True), cell, means)


BUDGET_COLUMNS = {
    "data": BudgetColumn(Column("data", least=LONGEST_KIND), lambda entry: Phrase(entry.data)),
    "scale": BudgetColumn(Column("scale", whole=True), lambda entry: _scale(entry)),
    "k": _column("K", "answer", lambda entry: Phrase(f"{entry.k:,}")),
    "split_k": _column("split\nK", "answer", lambda entry: Phrase(str(entry.split_k) if entry.split_k > 1 else "")),
    "promote_every": _column("promoted\nevery", "answer", lambda entry: Phrase(str(entry.promote_every or "never"))),
    "error": _column(
        "relative\nerror",
        "answer",
        lambda entry: _share(entry.errors.relative_error),
        "relative error: |d - x| / |x|, Euclidean norms",
    ),
    "bias": _column("bias", "answer", lambda entry: _bias(entry), "bias: the mean of d - x over that of |x|"),
    "tflops": _column("TFLOP/s", "context", lambda entry: Phrase(f"{entry.speed.tflops:.0f}" if entry.speed else "")),
    "bound": _column(
        "bound\nof any",
        "context",
        lambda entry: _bound(entry.errors.bound_over_sum),
        "bound of any: |d - x| over sum |a·b| that no operands exceed; none: 1 or more",
    ),
    "over_sum": _column("error over\nsum |a·b|", "detail", lambda entry: _number(entry.errors.max_error_over_sum)),
    "interval": _column(
        "95 %",
        "detail",
        lambda entry: _interval(entry.errors.relative_error_interval),
        f"{CONFIDENCE:.0%}: interval of the relative error, by bootstrap over the draws",
    ),
    "worst": _column(
        "worst",
        "detail",
        lambda entry: _share(entry.errors.relative_error_worst, loud=False),
        "worst: the largest |d - x| over the root mean square of x",
    ),
    "below": _column("bound is\nlarger by", "detail", lambda entry: _below(entry)),
    "operands": _column(
        "operands\nalone",
        "detail",
        lambda entry: _share(entry.quantisation_error, loud=False),
        "operands alone: the error of rounding A and B",
    ),
    "snr": _column("SNR of A, B\ndB", "detail", lambda entry: _snr(entry)),
    "lost": _column("saturated,\nflushed", "detail", lambda entry: _lost(entry)),
    "scales": _column("bytes of\nscales", "detail", lambda entry: _bytes(entry)),
}

_OF_SCALES = ("scale", "snr", "lost", "scales")
"""Told where scales are asked."""


def budget_blocks(account: ErrorReport) -> Iterator[Element]:
    """Yield the recommendation, the errors of each accumulation, and what the columns mean."""
    if account.simulated:
        which = f" {', '.join(account.simulated)}." if len(account.simulated) < len(account.accumulations) else ""
        yield Paragraph(Phrase(f"{SIMULATED}{which}", "bad"), boxed=True)
    if account.interrupted:
        yield Paragraph(Phrase("Interrupted: some of the errors are missing.", "warning"), boxed=True)
    first, *others = account.words or ("What the arithmetic costs",)
    yield Heading(first, 1)
    if others:
        yield List(tuple(others), "-")
    columns = columns_of(account)
    for accumulation, entries in by_accumulation(account):
        yield Heading(budget_title(accumulation), 2)
        yield _table(entries, columns)
    yield from (Paragraph(Phrase(note, "quiet")) for note in budget_notes(account))
    if pictures := tuple(map(chart_picture, budget_charts(account))):
        yield Figure(pictures)


def _table(entries: list[ErrorRow], columns: Sequence[str]) -> Grid:
    groups = list(by_data(entries))
    rows = tuple(tuple(BUDGET_COLUMNS[name].cell(entry) for name in columns) for group in groups for entry in group)
    ends = frozenset(at - 1 for at in accumulate(map(len, groups)))
    return Grid(tuple(BUDGET_COLUMNS[name].column for name in columns), rows, ends)


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


def columns_of(account: ErrorReport) -> list[str]:
    """Return those in which anything stands."""
    scaled = any(entry.scale != "none" for entry in account.entries)
    return [
        name
        for name, column in BUDGET_COLUMNS.items()
        if (scaled or name not in _OF_SCALES) and any(column.cell(entry).text for entry in account.entries)
    ]


def budget_notes(account: ErrorReport) -> Iterator[str]:
    """Yield what has to be known to read the tables."""
    if not account.entries:
        return
    shown = columns_of(account)
    means = "; ".join(filter(None, (BUDGET_COLUMNS[name].means for name in shown)))
    first = account.entries[0].errors
    out = " and ".join(dict.fromkeys(entry.out for entry in account.entries))
    yield (
        f"Of D in {out} against exact sums x; {first.outputs + first.overflowed:,} outputs a row, of {first.seeds} draws of"
        f" operands, seed {account.request.seed}. {means[:1].upper()}{means[1:]}."
    )
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


def budget_charts(account: ErrorReport) -> list[Chart]:
    """All of errors have one scale, so that drift and walk are seen beside each other."""
    return [*_against_k(account), *_against_interval(account)]


def _against_k(account: ErrorReport) -> Iterator[Chart]:
    told = [entry for entry in account.entries if entry.errors.relative_error]
    if len({entry.k for entry in told}) < 2:
        return
    looks = {key: f"s{i % LOOKS}" for i, key in enumerate(dict.fromkeys(map(_plan, told)))}
    x, y = doublings([entry.k for entry in told]), decades([entry.errors.relative_error or 0 for entry in told])
    for (data, scale), alike in _grouped(told, lambda entry: (entry.data, entry.scale)):
        curves = [
            Curve(
                tuple((entry.k, entry.errors.relative_error or 0) for entry in of_plan),
                _label(account, key),
                looks[key],
                tips=tuple(f"K = {entry.k}: {entry.errors.relative_error:.2g}" for entry in of_plan),
            )
            for key, of_plan in _grouped(alike, _plan)
        ]
        title = f"{data}, scales by {scale}" if scale != "none" else data
        yield Chart(title, f"relative error; {_kind(alike)}", "K", x, y, tuple(curves))


def _kind(entries: Sequence[ErrorRow]) -> str:
    """Whether the errors of the sums that err most have a sign."""
    worst = max(entries, key=lambda entry: entry.errors.relative_error or 0).errors
    drifts = abs(worst.bias or 0) > 0.5 * (worst.relative_error or 0)
    return "a drift, of one sign" if drifts else "a walk, of no sign"


def _against_interval(account: ErrorReport) -> Iterator[Chart]:
    """Where a sweep measured at least two of the intervals: what is gained and what is paid, at the largest K."""
    swept = [entry for entry in account.entries if entry.speed and entry.promote_every and entry.errors.relative_error]
    for name, of_name in _grouped(swept, lambda entry: entry.accumulation):
        k = max(entry.k for entry in of_name)
        shown = [entry for entry in of_name if entry.k == k and entry.split_k == of_name[0].split_k]
        intervals = [entry.promote_every or 0 for entry in shown]
        if len(set(intervals)) < 2:
            continue
        y = decades([entry.errors.relative_error or 0 for entry in shown])
        curves = tuple(
            Curve(
                tuple((entry.promote_every or 0, entry.errors.relative_error or 0) for entry in _by_interval(of_data)),
                f"{data}, scales by {scale}" if scale != "none" else data,
                f"s{i % LOOKS}",
            )
            for i, ((data, scale), of_data) in enumerate(_grouped(shown, lambda entry: (entry.data, entry.scale)))
        )
        of = f" of {name}" if len(account.accumulations) > 1 else ""
        yield Chart(f"Error by interval{of}, K = {k}", "relative error", "promoted every", doublings(intervals), y, curves)
        speeds = {entry.promote_every or 0: entry.speed.tflops for entry in _by_interval(shown) if entry.speed}
        speed = shown[0].speed
        assert speed is not None
        measured = Curve(tuple(speeds.items()), f"{speed.shape}, {speed.device}", "s0")
        fastest = upwards(max(speeds.values()))
        yield Chart(
            f"Speed by interval{of}, as measured", "TFLOP/s", "promoted every", doublings(intervals), fastest, (measured,)
        )


def _by_interval(entries: Sequence[ErrorRow]) -> list[ErrorRow]:
    return sorted(entries, key=lambda entry: entry.promote_every or 0)


def _plan(entry: ErrorRow) -> _PlanKey:
    return entry.accumulation, entry.promote_every, entry.split_k


def _label(account: ErrorReport, key: _PlanKey) -> str:
    name, interval, split = key
    promoted = f"promoted every {interval}" if interval else "never promoted"
    slices = f", {split} slices" if split > 1 else ""
    return f"{name}, {promoted}{slices}" if len(account.accumulations) > 1 else f"{promoted}{slices}"


def _grouped(entries: Sequence[ErrorRow], key: Callable[[ErrorRow], _Key]) -> list[tuple[_Key, list[ErrorRow]]]:
    """Those of one key together, in the order in which keys come."""
    found: dict[_Key, list[ErrorRow]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return list(found.items())
