"""Documents as text: terminal, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Iterable

from accprobe.compare.diff import Diff, headline
from accprobe.records.rows import Row
from accprobe.render.document import Element
from accprobe.render.html import html_page
from accprobe.render.markdown import markdown_text
from accprobe.render.subjects.comparison import diff_blocks
from accprobe.render.subjects.instruction import instruction_section
from accprobe.render.subjects.report import report_blocks, report_page
from accprobe.render.terminal import screen_lines
from accprobe.report.report import Report


def on_terminal(blocks: Iterable[Element], width: int = 160) -> str:
    return "\n".join(line.plain for line in screen_lines(blocks, width))


def in_markdown(blocks: Iterable[Element]) -> str:
    """Return Markdown without the backslashes of escaped characters."""
    return markdown_text(blocks).replace("\\", "")


def table_of(report: Report, width: int = 160, expand: bool = False) -> str:
    return on_terminal(report_blocks(report, expand), width)


def details_of(row: Row, width: int = 160) -> str:
    return on_terminal([instruction_section(row, level=2)], width)


def page_of(report: Report) -> str:
    return html_page(report.device.name, list(report_page(report)))


def page_of_diff(diff: Diff) -> str:
    return html_page(headline(diff), list(diff_blocks(diff)))
