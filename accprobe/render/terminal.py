"""A report as a table for the terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe.render.cells import Cells, Line, is_converted, is_narrow, lines, meanings, word
from accprobe.render.patterns import patterns
from accprobe.report import Report, Row

FILE_COLUMNS = 160
"""Width where the output is no terminal and COLUMNS does not say."""

NARROWEST_NAME = 30
"""Columns are left out until the names have this much."""

HEADERS = Cells(
    ran_as="ran as",
    effective_bits="effective\nbits",
    alignment_bits="aligned\nto F",
    alignment_rounding="below F",
    result_rounding="result\nrounding",
    products_per_sum="products\na sum",
    addend="C joins",
    dots="dots\nverified",
    rivals="rivals\nleft/tried",
    status="status",  # type: ignore[arg-type]
)

DISPENSABLE = ("alignment_rounding", "dots", "rivals", "addend", "products_per_sum", "alignment_bits", "result_rounding")
"""Columns in the order in which a narrow terminal goes without them."""

STATUS_STYLES = {"confirmed": "green", "inferred": "yellow", "unverified": "red", "skipped": "dim"}


def console() -> Console:
    """Standard output; honours NO_COLOR and COLUMNS."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else FILE_COLUMNS
    return Console(width=width, highlight=False, markup=False, soft_wrap=False)


def table(report: Report, width: int, expand: bool = False) -> RenderableType:
    """The whole report; `expand`: one line an instruction."""
    shown = lines(report.measured, collapse=not expand)
    columns = _columns(shown, width)
    parts: list[RenderableType] = [title(report)]
    if shown:
        parts.append(_table(shown, columns, width))
    parts += [Padding(text, (0, 0, 0, 1)) for text in _below(report, shown, columns)]
    return Group(*parts)


def title(report: Report) -> Text:
    """What was measured, with what."""
    text = Text()
    if report.device.kind == "simulated":
        because = f"no GPU found ({report.device.reason}); " if report.device.reason else ""
        text.append(f"SIMULATED: {because}these are published models, nothing was measured\n", "bold red")
    facts = ", ".join(f"{key.replace('_', ' ')} {fact}" for key, fact in report.device.facts.items())
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    text.append(f"{report.device.name}, {report.device.architecture}", "bold")
    text.append(f"{'; ' if facts else ''}{facts}\naccprobe {report.tool.version}{commit}, seed {report.seed}; {versions}", "dim")
    return text


def _columns(shown: list[Line], width: int) -> list[str]:
    """The columns that fit."""
    columns = [name for name in Cells._fields if any(getattr(line.cells, name) for line in shown)]
    for name in DISPENSABLE:
        if NARROWEST_NAME + 2 + sum(_width(shown, column) + 2 for column in columns) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _width(shown: list[Line], column: str) -> int:
    header = max(map(len, getattr(HEADERS, column).split("\n")))
    return max([header, *(len(getattr(line.cells, column)) for line in shown)])


def _table(shown: list[Line], columns: list[str], width: int) -> Table:
    room = max(NARROWEST_NAME, width - 2 - sum(_width(shown, column) + 2 for column in columns))
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    found.add_column("instruction", no_wrap=True)
    for column in columns:
        found.add_column(getattr(HEADERS, column), overflow="fold")
    family = shown[0].rows[0].instruction.family
    for line in shown:
        if line.rows[0].instruction.family != family:
            family = line.rows[0].instruction.family
            found.add_section()
        found.add_row(_wrapped(line.pattern, room), *(_cell(line, column) for column in columns))
    return found


def _cell(line: Line, column: str) -> Text:
    row, text = line.rows[0], getattr(line.cells, column)
    if column == "effective_bits" and is_narrow(row):
        return Text(text, "bold yellow")
    if column == "ran_as" and is_converted(row):
        return Text(text, "bold magenta")
    return Text(text, STATUS_STYLES[row.status] if column == "status" else "")


def _wrapped(name: str, room: int) -> str:
    """The name on as many lines as it needs, broken before dots."""
    broken = [""]
    for i, part in enumerate(name.split(".")):
        piece = f".{part}" if i else part
        if len(broken[-1]) + len(piece) > room and broken[-1].strip():
            broken.append("  ")
        broken[-1] += piece
    return "\n".join(broken)


def _below(report: Report, shown: list[Line], columns: list[str]) -> Iterator[Text]:
    missing = [getattr(HEADERS, name).replace("\n", " ") for name in Cells._fields if name not in columns] if shown else []
    if missing:
        yield Text(f"Left out at this width: {', '.join(missing)}.", "dim")
    for sentence in meanings(report):
        yield Text(f"! {sentence}", "yellow")
    yield from (Text(line, "dim") for line in _legend(shown))
    for (status, reason), names in _reasons(report.measured).items():
        yield Text(f"{status}: {reason}: {', '.join(patterns(names))}", STATUS_STYLES[status])
    for reason, count in Counter(row.reason for row in report.instructions if row.status == "skipped").items():
        listing = f"accprobe list --instructions {report.device.architecture}"
        yield Text(f"{reason}: {count} instructions (`{listing}` names them)", "dim")
    yield _summary(report, shown)


def _legend(shown: list[Line]) -> Iterator[str]:
    texts = [text for line in shown for text in line.cells]
    if any(text.startswith("≥") for text in texts):
        yield "≥: a lower bound, the operands' formats reach no further."
    left: dict[str, set[str]] = {}
    for line in shown:
        for feature, finding in line.rows[0].findings.items():
            if finding.bound == "undetermined" and len(finding.left) > 1:
                left.setdefault(feature, set()).add(" or ".join(word(v, feature) for v in finding.left))
    for feature, choices in left.items():
        yield f"?: {feature} is undetermined in some: {'; '.join(sorted(choices))}."


def _reasons(rows: list[Row]) -> dict[tuple[str, str], list[str]]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.status != "confirmed":
            reasons.setdefault((row.status, row.reason), []).append(row.name)
    return reasons


def _summary(report: Report, shown: list[Line]) -> Text:
    counts = Counter(row.status for row in report.instructions)
    text = Text(f"{len(report.measured)} instructions measured in {report.run.seconds:.1f} s: ", "bold")
    text.append(", ".join(f"{counts[s]} {s}" for s in STATUS_STYLES if counts[s] and s != "skipped") or "none", "bold")
    if counts["skipped"]:
        text.append(f"; {counts['skipped']} skipped")
    if len(shown) < len(report.measured):
        text.append(f"; like ones share a line ({len(shown)} lines, --all has each)", "dim")
    if cut := report.run.selected - len(report.instructions):
        text.append(f"\nThe run was cut short: {cut} of {report.run.selected} instructions are missing", "bold red")
    return text
