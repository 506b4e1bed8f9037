"""`accprobe show`: a report as a table or in another format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accprobe.cli.output import Output, document_text, output_options
from accprobe.cli.reports import read_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accprobe.render.document import Element


@click.command("show")
@click.argument("report")
@click.argument("instruction", required=False)
@click.option(
    "--all", "expand", is_flag=True, help="Print every instruction, product and sweep, instead of grouping equal ones."
)
@output_options("json", "html", "markdown", "csv", is_shown=False)
def show_command(report: str, instruction: str | None, expand: bool, to: Output) -> None:
    """Show a report: a table, or one row in full.

    REPORT is a file, a recorded report, sim:NAME for published models, or - for standard input. INSTRUCTION is a name, a glob
    or an opcode: one match is shown in full, several as a table. In a report of products it is a callable, followed by words
    such as the shape; in a report of functions, a function or an opcode. `show h200:QGMMA` equals `show h200 QGMMA`.

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

    of_rows = bool(instruction or split_row(report)[1])
    form = to.in_file
    loaded = read_report(report, instruction or "", evidence=of_rows or form not in ("terminal", "csv"))

    def blocks() -> Iterator[Element]:
        from accprobe.render.subjects.report import report_blocks, rows_blocks

        is_in_full = of_rows and len(loaded.instructions) <= 1
        return rows_blocks(loaded) if is_in_full else report_blocks(loaded, expand)

    def text(form: str) -> str:
        if form == "json":
            return loaded.dumps()
        if form == "csv":
            from accprobe.render.data import comma_separated

            return comma_separated(loaded)
        from accprobe.render.subjects.report import report_page

        return document_text(form, blocks() if form == "markdown" else report_page(loaded), loaded.device.name)

    to.deliver(blocks, text)
