"""`accprobe show`: a report as a table or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import deliver, form_of_file, format_option, output_option
from accprobe.cli.reports import read_report
from accprobe.errors import AccprobeError
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accprobe.render.document import Element
    from accprobe.report.report import Report

_ENDINGS = {".html": "html", ".md": "markdown", ".csv": "csv", ".jsonl": "jsonl"}


@click.command("show")
@click.argument("report")
@click.argument("instruction", required=False)
@click.option("--dtype", metavar="A[:B]", help="Show only instructions with these operands, such as bf16 or e4m3:e5m2.")
@format_option("markdown", "html", "json", "jsonl", "csv")
@click.option("--all", "expand", is_flag=True, help="Print one line per instruction instead of grouping equal ones.")
@click.option("--sweeps", is_flag=True, help="Print every sweep instead of one line per operand type.")
@click.option("--plots/--no-plots", default=True, help="Draw the sweeps in HTML.")
@output_option("Output file, as its name ends: .html, .md, .csv, .jsonl, else JSON")
def show_command(
    report: str,
    instruction: str | None,
    dtype: str | None,
    form: str,
    expand: bool,
    sweeps: bool,
    plots: bool,
    output: Path | None,
) -> None:
    """Show a report: a table, or one instruction in full.

    REPORT is a file, a recorded report, sim:NAME for published models, or - for standard input. INSTRUCTION is a name, a glob
    or an opcode: one match is shown in full, several as a table. In a report of products it is a callable, followed by words
    such as the shape. REPORT:INSTRUCTION means the same.

    Needs: nothing.

    Exit status: 0; 2 error.

    \b
    Examples:
      accprobe show report.json
      accprobe show h200 QGMMA
      accprobe show h200 wgmma.m64n8k32.f32.e4m3.e4m3
      accprobe show report.json 'torch:mm 16x8x*'
      accprobe show h200 -o h200.html
    """
    from accprobe.report.names import split_row

    if output and form == "terminal":
        form = form_of_file(output, _ENDINGS)
    of_rows = bool(instruction or dtype or split_row(report)[1])
    loaded = read_report(report, instruction or "", dtype or "", evidence=of_rows or form not in ("terminal", "csv", "jsonl"))
    in_full = of_rows and len(loaded.instructions) <= 1
    if form in ("csv", "jsonl") and loaded.products and not loaded.instructions:
        raise AccprobeError(f"{form} has columns of instructions only, not of products; give --format json, markdown or html")
    if form == "terminal":
        from accprobe.render.terminal import print_blocks

        print_blocks(_blocks(loaded, in_full, expand, sweeps))
    else:
        deliver(plain(_text(loaded, form, in_full, expand, sweeps, plots)), output)


def _blocks(report: Report, in_full: bool, expand: bool, sweeps: bool) -> Iterator[Element]:
    from accprobe.render.subjects.report import report_blocks, rows_blocks

    return rows_blocks(report) if in_full else report_blocks(report, expand, sweeps)


def _text(report: Report, form: str, in_full: bool, expand: bool, sweeps: bool, plots: bool) -> str:
    if form == "json":
        return report.dumps()
    if form == "html":
        from accprobe.render.html import html_page
        from accprobe.render.subjects.report import report_page

        return html_page(report.device.name, list(report_page(report, plots)))
    if form == "markdown":
        from accprobe.render.markdown import markdown_text

        return markdown_text(_blocks(report, in_full, expand, sweeps))
    from accprobe.render.data import comma_separated, json_lines

    return comma_separated(report) if form == "csv" else json_lines(report)
