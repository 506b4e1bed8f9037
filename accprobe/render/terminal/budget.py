"""The account of an accumulation: a table, and what it means in words."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.budget.data import DATA_KINDS
from accprobe.budget.error_report import ErrorReport, ErrorRow
from accprobe.render.content.budget import (
    BUDGET_COLUMNS,
    SIMULATED,
    budget_notes,
    budget_title,
    by_accumulation,
    by_data,
    columns_of,
)
from accprobe.render.terminal.console import Hanging, ruled, styled

ROOMY = 126
"""Columns from which intervals, worst errors and what operands lost are shown."""

_WORDS = ("data", "scale")

_DISPENSABLE = ("scales", "lost", "below", "worst", "interval", "snr", "operands", "over_sum", "tflops")
"""Left out in this order where there is no room."""

LONGEST_KIND = max(DATA_KINDS, key=len)
"""What the first column has room for; longer names are broken."""


def budget_text(account: ErrorReport, width: int) -> RenderableType:
    parts: list[RenderableType] = []
    if account.words:
        parts += [Hanging([Text(f"- {sentence}") for sentence in account.words], 0), ""]
    columns = _fitting(account, columns_of(account, width >= ROOMY), width)
    for number, (accumulation, entries) in enumerate(by_accumulation(account)):
        parts += [""] if number else []
        parts.append(Text(budget_title(accumulation), "bold"))
        if accumulation.name in account.simulated:
            parts.append(Text(SIMULATED, "bold red"))
        parts.append(_table(entries, columns, width))
    parts.append(Hanging([Text(note, "dim") for note in budget_notes(account, columns)], 0))
    return Group(*parts)


def _fitting(account: ErrorReport, columns: list[str], width: int) -> list[str]:
    """Without the columns that there is least need of, where all of them are too wide."""
    gap = 2 if width >= ROOMY else 1

    def wide(name: str) -> int:
        cells = [] if name == "data" else [BUDGET_COLUMNS[name].cell(entry).text for entry in account.entries]
        return max(map(len, [*BUDGET_COLUMNS[name].header.split("\n"), *cells, LONGEST_KIND if name == "data" else ""])) + gap

    kept = list(columns)
    for name in _DISPENSABLE:
        if sum(map(wide, kept)) > width + gap and name in kept:
            kept.remove(name)
    return kept


def _table(entries: list[ErrorRow], columns: list[str], width: int) -> Table:
    found = ruled(gap=1 if width >= ROOMY else 0, left=0)
    for name in columns:
        header, is_word = BUDGET_COLUMNS[name].header, name in _WORDS
        least = len(LONGEST_KIND) if name == "data" else None
        found.add_column(
            header, justify="left" if is_word else "right", min_width=least, no_wrap=name != "data", overflow="fold"
        )
    for group in by_data(entries):
        for i, entry in enumerate(group):
            cells = [styled(BUDGET_COLUMNS[name].cell(entry)) for name in columns]
            found.add_row(*cells, end_section=i == len(group) - 1)
    return found
