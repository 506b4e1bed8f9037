"""A report as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.render.content.cells import HEADERS, TableLine, cells, columns_told, lines, meanings
from accprobe.render.content.overview import banner_lines, legend, reasons, report_headline, report_title, summary, why_skipped
from accprobe.render.content.phrases import on_one_line
from accprobe.render.terminal.console import STYLES, ruled, styled, styled_lines, wrapped
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import so_many

NARROWEST_NAME = 26
"""Columns are left out until the names have this much."""

COLUMN_GAP = 2  # between two columns

NARROW, OPCODES_WIDTH = 100, 16  # on terminals below NARROW columns, longer lists of opcodes take several lines

LUXURIES = ("cells", "events", "alignment_rounding", "dots", "alternatives")
"""Columns left out, in this order, before a name takes more than a line."""

DISPENSABLE = ("addend", "products_per_sum", "result_rounding", "alignment_bits")
"""Columns that a narrow terminal goes without too, in this order."""


def report_table(report: Report, width: int, expand: bool = False) -> RenderableType:
    """The whole report; `expand`: one line an instruction."""
    rows = report.measured
    columns = _columns(rows, width, expand)
    shown = lines(rows, columns, collapse=not expand)
    parts: list[RenderableType] = [styled_lines([*banner_lines(report), report_headline(report)])]
    if shown:
        parts += [Text(), _table(shown, columns, max(width - _taken(rows, columns, width), NARROWEST_NAME), width)]
    parts += [Text(f"! {sentence}", "yellow") for sentence in meanings(report)]
    measured = styled_lines([*summary(report, len(shown)), *report_title(report)])
    return Group(*parts, *_below(report, columns), measured)


def _columns(rows: Sequence[Row], width: int, expand: bool) -> list[str]:
    """The columns that fit beside the names. What all rows have alike says least: a sentence tells it as well."""
    columns = columns_told(rows)
    luxuries = sorted(LUXURIES, key=lambda name: not _of_all(rows, name))
    if _of_all(rows, "status"):
        luxuries.append("status")
    for name in (*luxuries, *DISPENSABLE):
        names = NARROWEST_NAME
        if name in luxuries:
            names = max([names, *(len(line.pattern) for line in lines(rows, columns, collapse=not expand))])
        if names + _taken(rows, columns, width) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _of_all(rows: Sequence[Row], column: str) -> str:
    """What all rows have in a column, "" where they differ."""
    every = {str(getattr(cells(row), column)) for row in rows}
    return every.pop() if len(every) == 1 else ""


def _taken(rows: Sequence[Row], columns: Sequence[str], terminal: int) -> int:
    """The width of some columns."""
    every = [cells(row) for row in rows]
    texts = ((*HEADERS[column].split("\n"), *(getattr(one, column) for one in every)) for column in columns)
    widths = ((column_width(name, terminal), max(map(len, column))) for name, column in zip(columns, texts, strict=True))
    return sum(min(width, most or width) + COLUMN_GAP for most, width in widths)


def column_width(column: str, terminal: int) -> int | None:
    """Return the width that a column may take on a terminal, None for any."""
    return OPCODES_WIDTH if column == "ran_as" and terminal < NARROW else None


def _table(shown: list[TableLine], columns: list[str], room: int, terminal: int) -> Table:
    found = ruled(left=0)
    found.add_column("instruction", no_wrap=True)
    for column in columns:
        found.add_column(HEADERS[column], overflow="fold", max_width=column_width(column, terminal))
    family = shown[0].row.instruction.family
    for line in shown:
        if line.row.instruction.family != family:
            family = line.row.instruction.family
            found.add_section()
        found.add_row(wrapped(line.pattern, room), *map(styled, line.phrases(columns)))
    return found


def _below(report: Report, columns: list[str]) -> Iterator[Text]:
    if left_out := [name for name in columns_told(report.measured) if name not in columns]:
        yield Text(f"Left out at this width: {', '.join(_left_out(report.measured, name) for name in left_out)}.", "dim")
    yield from (Text(line, "dim") for line in legend(report.measured, columns))
    for why in reasons(report.measured):
        yield Text(why.text, STYLES[why.status])
    for why in why_skipped(report):
        listing = f" (`accprobe list --instructions {report.device.architecture}` names them)"
        if report.device.kind == "simulated":
            listing = ""
        yield Text(f"{why.reason}: {len(why.names)} of {so_many(report.run.selected, 'instruction')}{listing}", "dim")


def _left_out(rows: Sequence[Row], column: str) -> str:
    """ "C joins"; "status (confirmed everywhere)"."""
    header, same = on_one_line(HEADERS[column]), _of_all(rows, column)
    return f"{header} ({same} everywhere)" if same else header
