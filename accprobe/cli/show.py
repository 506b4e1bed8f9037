"""`accprobe show`: render a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accprobe.cli.output import read_report, tell
from accprobe.errors import ToolMissing
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from accprobe.report.report import Report


@click.command("show")
@click.argument("report")
@click.argument("instruction", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "markdown", "html", "json", "jsonl", "csv"]),
    default="terminal",
    show_default=True,
)
@click.option("--all", "expand", is_flag=True, help="One line an instruction, like ones too.")
@click.option("--plots/--no-plots", default=True, help="In HTML: whether the sweeps are drawn, which takes seconds.")
def show_command(report: str, instruction: str | None, form: str, expand: bool, plots: bool) -> None:
    """Show a report: a table, or one instruction in full.

    REPORT is a file or the name of a recorded one; with INSTRUCTION, a name or glob, everything about those is shown.

    Needs: nothing; extra plots for the drawings of sweeps in HTML, which are left out without it.

    Exit status: 0; 2 trouble.

    \b
    Examples:
      accprobe show report.json
      accprobe show report.json wgmma.m64n8k32.f32.e4m3.e4m3
      accprobe show h200 --format html > h200.html
    """
    from accprobe.errors import UnknownName, nearest

    loaded = read_report(report)
    if instruction is not None:
        from accprobe.survey.selection import matching

        names = [row.name for row in loaded.instructions]
        chosen = set(matching(names, instruction))
        if not chosen:
            raise UnknownName(f"{report} has no instruction '{instruction}'; {nearest(instruction, names)}")
        rows = tuple(row for row in loaded.instructions if row.name in chosen)
        loaded = loaded.model_copy(update={"instructions": rows})
    if form == "terminal":
        _terminal(loaded, instruction is not None, expand)
    else:
        click.echo(plain(_text(loaded, form, instruction is not None, expand, plots)), nl=False)


def _terminal(report: Report, in_full: bool, expand: bool) -> None:
    from accprobe.render.content.overview import report_title
    from accprobe.render.terminal.console import console, styled_lines
    from accprobe.render.terminal.details import row_details
    from accprobe.render.terminal.report import report_table
    from accprobe.render.terminal.sweeps import sweep_tables

    out = console()
    if not in_full:
        if report.instructions or not report.sweeps:
            out.print(report_table(report, out.width, expand))
        else:
            out.print(styled_lines(report_title(report)))
        if report.sweeps:
            out.print("", sweep_tables(report.sweeps, out.width, expand, report.device.kind == "simulated"), sep="\n")
        return
    for i, row in enumerate(report.instructions):
        out.print(*([""] if i else []), row_details(row), sep="\n")


def _figures(report: Report) -> list[str]:
    """The sweeps as SVG, a figure an operand type. Raises ToolMissing without matplotlib."""
    from accprobe.render.pictures import sweeps as figures

    try:
        drawn = figures.by_type(report.sweeps, report.device.kind == "simulated")
        return [figures.svg(figure, name) for name, figure in drawn.items()]
    except ToolMissing as e:
        tell(f"the sweeps are shown without plots: {e}")
        return []


def _text(report: Report, form: str, in_full: bool, expand: bool, plots: bool) -> str:
    if form == "json":
        return report.dumps()
    if form == "html":
        from accprobe.render.html import report_page

        return report_page(report, _figures(report) if plots and report.sweeps else ())
    if form == "markdown":
        from accprobe.render.markdown import report_markdown, rows_markdown

        return rows_markdown(report.instructions) if in_full else report_markdown(report, expand)
    from accprobe.render.data import comma_separated, json_lines

    return comma_separated(report) if form == "csv" else json_lines(report)
