"""Whole products: a line each, or each with all that was found, a label beside every line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe.render.content import products
from accprobe.render.content.products import ProductLine
from accprobe.render.terminal.console import Hanging, ruled, styled
from accprobe.report.products import ProductRow

SHOWN_IN_FULL = 3
"""Products that are shown in full without being asked for."""

LABEL = 12
"""Columns of a line's label, with its gap."""


def product_table(rows: Sequence[ProductRow], expand: bool = False) -> RenderableType:
    """What is wrong first; then a line a product, or `expand` and where there are few of them, everything."""
    shown = products.wrong_first(rows)
    if expand or len(shown) <= SHOWN_IN_FULL:
        spaced = [part for row in shown for part in (Text(), product_details(row))]
        return Group(*spaced[1:])
    loud = [Text(f"! {row.title}: ", "bold red") + styled(alarm) for row in shown for alarm in products.alarms(row)]
    found = ruled(left=0, gap=2)
    for header in products.HEADERS:
        found.add_column(header, overflow="fold", no_wrap=header == "status")
    for row in shown:
        found.add_row(*map(styled, products.summary_line(row)))
    why = [Text(f"{row.title}: ") + styled(products.status_phrases(row)[0]) + f": {row.reason}" for row in shown if row.reason]
    title = Text(f"Whole products: {len(shown)}", "bold").append("; --all has each in full", "not bold")
    return Group(title, Hanging(loud, 0), found, Hanging(why, 0))


def product_details(row: ProductRow) -> RenderableType:
    """Everything that the report says of one product."""
    parts: list[RenderableType] = [Hanging([Text(f"! {alarm.text}", styled(alarm).style) for alarm in products.alarms(row)], 0)]
    parts.append(Hanging([Text.assemble(*map(styled, products.heading(row)))], 0))
    if proviso := products.proviso(row):
        parts.append(Hanging([Text(proviso, styled(products.status_phrases(row)[0]).style)], 0))
    parts.append(_lines(products.lines(row)))
    for region, lines in products.plans(row):
        parts += [Hanging([Text(products.region_heading(region), "bold")], 0), Padding(_lines(lines), (0, 0, 0, 2))]
    return Group(*parts)


def _lines(lines: Iterable[ProductLine]) -> Table:
    grid = Table.grid()
    grid.add_column(width=LABEL, no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(Text(line.label, "dim"), styled(line.said))
    return grid
