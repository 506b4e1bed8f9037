"""A report as a table for the terminal."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from accprobe.render.cells import Cells, Line, cells, lines, meanings
from accprobe.render.patterns import patterns
from accprobe.render.plain import plain
from accprobe.report.report import Report, Row, Status
from accprobe.report.words import is_converted, is_narrow

FILE_COLUMNS = 160
"""Width where the output is no terminal and COLUMNS does not say."""

NARROWEST_NAME = 30
"""Columns are left out until the names have this much."""

HEADERS = Cells(
    ran_as="ran as",
    effective_bits="effective\nbits",
    alignment_bits="align.\nbits F",
    alignment_rounding="align.\nrounding",
    result_rounding="result\nrounding",
    products_per_sum="products\na sum",
    addend="C joins",
    dots="dots\nverified",
    rivals="rivals\nleft/tried",
    status="status",  # type: ignore[arg-type]
)

GAP = 2
"""Between two columns."""

LUXURIES = ("alignment_rounding", "dots", "rivals")
"""Columns left out, in this order, before a name takes more than a line."""

DISPENSABLE = (*LUXURIES, "addend", "products_per_sum", "alignment_bits", "result_rounding")
"""Columns in the order in which a narrow terminal goes without them."""

FACTS = {"sm_count": "{} SMs", "memory_gib": "{} GiB", "max_clock_mhz": "{} MHz at most"}
"""Facts about a device in words; others are written after their names."""

STATUS_STYLES: dict[Status, str] = {"confirmed": "green", "inferred": "yellow", "unverified": "red", "skipped": "dim"}


NARROWEST = 80
"""Columns below which cells would be cut to single letters: a terminal that is narrower wraps the lines instead."""


class PlainConsole(Console):
    """A console that no text can steer: whatever names and reasons hold, colours and layout are accprobe's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


def console() -> Console:
    """Standard output; honours NO_COLOR and COLUMNS."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FILE_COLUMNS
    out = PlainConsole(width=width, highlight=False, markup=False, soft_wrap=False)
    out.width = max(out.width, NARROWEST)
    return out


def table(report: Report, width: int, expand: bool = False) -> RenderableType:
    """The whole report; `expand`: one line an instruction."""
    every = [cells(row) for row in report.measured]
    columns = _columns(report.measured, every, width, expand)
    shown = lines(report.measured, columns, collapse=not expand)
    parts: list[RenderableType] = [title(report)]
    if shown:
        room = width - sum(_width(every, column) + GAP for column in columns)
        parts.append(_table(shown, columns, max(room, NARROWEST_NAME)))
    left_out = [name for name in _told(every) if name not in columns]
    return Group(*parts, *_below(report, shown, left_out))


def title(report: Report) -> Text:
    """What was measured, with what."""
    text = Text()
    if report.device.kind == "simulated":
        because = f"no GPU found ({report.device.reason}); " if report.device.reason else ""
        text.append(f"SIMULATED: {because}these are published models, nothing was measured\n", "bold red")
    if report.device.kind == "replay":
        text.append("REPLAYED from a recording: nothing was measured now\n", "bold magenta")
    facts = ", ".join(FACTS.get(key, f"{key.replace('_', ' ')} {{}}").format(fact) for key, fact in report.device.facts.items())
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    text.append(f"{report.device.name}, {report.device.architecture}", "bold")
    text.append(
        f"{'; ' if facts else ''}{facts}\naccprobe {report.tool.version}{commit}, seed {report.seed}; {versions}", "dim"
    )
    return text


def _columns(rows: list[Row], every: list[Cells], width: int, expand: bool) -> list[str]:
    """The columns that fit beside the names."""
    columns = _told(every)
    for name in DISPENSABLE:
        names = NARROWEST_NAME
        if name in LUXURIES:
            names = max([names, *(len(line.pattern) for line in lines(rows, columns, collapse=not expand))])
        if names + sum(_width(every, column) + GAP for column in columns) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _told(every: list[Cells]) -> list[str]:
    """The columns that are not empty."""
    return [name for name in Cells._fields if any(getattr(cells, name) for cells in every)]


def _width(every: list[Cells], column: str) -> int:
    header = max(map(len, getattr(HEADERS, column).split("\n")))
    return max([header, *(len(getattr(cells, column)) for cells in every)])


def _table(shown: list[Line], columns: list[str], room: int) -> Table:
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    found.add_column("instruction", no_wrap=True)
    for column in columns:
        found.add_column(getattr(HEADERS, column), overflow="fold")
    family = shown[0].row.instruction.family
    for line in shown:
        if line.row.instruction.family != family:
            family = line.row.instruction.family
            found.add_section()
        found.add_row(wrapped(line.pattern, room), *(_cell(line, column) for column in columns))
    return found


def _cell(line: Line, column: str) -> Text:
    row, text = line.row, getattr(line.cells, column)
    if column == "effective_bits" and is_narrow(row):
        return Text(text, "bold yellow")
    if column == "ran_as" and is_converted(row):
        return Text(text, "bold magenta")
    return Text(text, STATUS_STYLES[row.status] if column == "status" else "")


def wrapped(name: str, room: int) -> str:
    """The name on as many lines as it needs, broken before dots."""
    broken = [""]
    for piece in re.split(r"(?=\.)(?![^{]*\})", name):
        if len(broken[-1]) + len(piece) > room and broken[-1].strip():
            broken.append("  ")
        broken[-1] += piece
    return "\n".join(broken)


def _below(report: Report, shown: list[Line], left_out: list[str]) -> Iterator[Text]:
    if left_out:
        headers = ", ".join(getattr(HEADERS, name).replace("\n", " ") for name in left_out)
        yield Text(f"Left out at this width: {headers}.", "dim")
    for sentence in meanings(report):
        yield Text(f"! {sentence}", "yellow")
    yield from (Text(line, "dim") for line in legend(report.measured))
    for (status, reason), names in reasons(report.measured).items():
        yield Text(f"{status}: {reason}: {', '.join(patterns(names))}", STATUS_STYLES[status])
    for reason, count in Counter(row.reason for row in report.instructions if row.status == "skipped").items():
        listing = f" (`accprobe list --instructions {report.device.architecture}` names them)"
        if report.device.kind == "simulated":
            listing = ""
        yield Text(f"{reason}: {count} of {report.run.selected} instructions{listing}", "dim")
    yield summary(report, len(shown))


def legend(rows: list[Row]) -> Iterator[str]:
    """What the marks in the table mean, of those that it has."""
    every = [text for row in rows for text in cells(row)]
    if any(text.startswith("≥") for text in every):
        yield "≥: a lower bound, the operands' formats reach no further."
    if "any" in every:
        yield "any: the bits are the same whatever it is, as those of integer sums that wrap are in every order."
    undetermined = Counter(
        feature for row in rows for feature, finding in row.findings.items() if finding.bound == "undetermined" and finding.left
    )
    if undetermined:
        mark = "?: undetermined" if any(text.endswith("?") for text in every) else "Undetermined"
        features = ", ".join(f"{feature} {count}" for feature, count in undetermined.most_common())
        yield (
            f"{mark}, several values explain everything seen; instructions by feature: {features}."
            " With an instruction's name `show` lists the values."
        )


def reasons(rows: list[Row]) -> dict[tuple[Status, str], list[str]]:
    """Names of what is not confirmed, by status and reason."""
    found: dict[tuple[Status, str], list[str]] = {}
    for row in rows:
        if row.status != "confirmed":
            found.setdefault((row.status, row.reason), []).append(row.name)
    return found


def summary(report: Report, lines_shown: int | None = None) -> Text:
    """How many instructions ended in which status. lines_shown: lines of the table, where like instructions share one."""
    counts = Counter(row.status for row in report.instructions)
    done = {"simulated": "simulated", "replay": "replayed"}.get(report.device.kind, "measured")
    text = Text(f"{len(report.measured)} instructions {done} in {report.run.seconds:.1f} s: ", "bold")
    text.append(
        ", ".join(f"{counts[status]} {status}" for status in get_args(Status) if status != "skipped" and counts[status])
        or "none",
        "bold",
    )
    if counts["skipped"]:
        text.append(f"; {counts['skipped']} skipped")
    if lines_shown is not None and lines_shown < len(report.measured):
        text.append(f"; like ones share a line ({lines_shown} line{'s' * (lines_shown > 1)}, --all has each)", "dim")
    if cut := report.run.selected - len(report.instructions):
        text.append(f"\nThe run was cut short: {cut} of {report.run.selected} instructions are missing", "bold red")
    return text
