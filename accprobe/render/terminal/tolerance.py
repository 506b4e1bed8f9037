"""The recommended test of a product, and the table of what tests notice."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from accprobe.budget.error_report import is_simulated
from accprobe.budget.tolerance import ToleranceReport
from accprobe.render.content.budget import SIMULATED
from accprobe.render.content.tolerance import (
    kill_rows,
    test_titles,
    tolerance_facts,
    tolerance_title,
    tolerance_words,
)
from accprobe.render.terminal.console import Hanging, ruled, styled


def tolerance_text(found: ToleranceReport) -> RenderableType:
    parts: list[RenderableType] = [Text(tolerance_title(found), "bold")]
    if is_simulated(found.request.accumulation):
        parts.append(Text(SIMULATED, "bold red"))
    parts += [Hanging([Text(f"{name:<9}{told}") for name, told in tolerance_facts(found)], 0), ""]
    table = ruled(gap=1, left=0)
    for header in ("\nmistake", *test_titles(found).values()):
        table.add_column(header)
    for row in kill_rows(found):
        table.add_row(*map(styled, row))
    return Group(*parts, table, Hanging([Text(f"- {sentence}") for sentence in tolerance_words(found)], 0))
