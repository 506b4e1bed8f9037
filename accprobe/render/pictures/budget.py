"""Charts of an account: errors against K, one for each kind of data and scale; error and speed against the interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from accprobe.budget.error_report import ErrorReport, ErrorRow
from accprobe.render.pictures.charts import LOOKS, Chart, Curve, decades, doublings, upwards

_Key = TypeVar("_Key")

_PlanKey = tuple[str, int | None, int]
"""An arithmetic: its accumulation, interval and slices."""


def budget_charts(account: ErrorReport) -> list[Chart]:
    """All of errors have one scale, so that drift and walk are seen beside each other."""
    return [*_against_k(account), *_against_interval(account)]


def _against_k(account: ErrorReport) -> Iterator[Chart]:
    told = [entry for entry in account.entries if entry.errors.relative_error]
    if not told:
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
