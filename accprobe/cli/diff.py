"""`accprobe diff`: two reports compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import OutputFile, deliver, named_form
from accprobe.cli.reports import read_report
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from accprobe.compare.diff import Diff

DIFFERENT = 1

_FORMS = {".html": "html", ".md": "markdown"}
"""By the endings of files; others are JSON."""


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--only", multiple=True, metavar="FIELD", help="Compare this field alone; may be given again.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever differs.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "json", "markdown", "html"]),
    default="terminal",
    show_default=True,
)
@click.option("--all", "expand", is_flag=True, help="One entry an instruction, like ones too.")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="Write it here; where --format does not say, .html and .md are such, others JSON. - is standard output.",
)
def diff_command(a: str, b: str, only: tuple[str, ...], exit_zero: bool, form: str, expand: bool, output: Path | None) -> None:
    """Compare two reports, or a report and published models.

    A and B are each a file, the name of a recorded report, sim:NAME for published models, or - for standard input.
    Instructions are compared by name, and by role where the generations offer different ones for the same operands.

    Needs: nothing.

    Exit status: 0 nothing differs, 1 something does, 2 trouble. What is undecided does not count as a difference.

    \b
    Examples:
      accprobe diff h200 sim:b200
      accprobe diff before.json after.json --only effective_bits
      accprobe diff h100 h200 -o gpus.html
    """
    from accprobe.compare.diff import diff
    from accprobe.report.recorded import STANDARD_INPUT

    if a == b == STANDARD_INPUT:
        raise click.UsageError("standard input can be read once: give one of the two as a file")
    if output and form == "terminal":
        form = named_form(output, _FORMS)
    found = diff(read_report(a), read_report(b), only)
    if form == "terminal":
        from accprobe.render.terminal.comparison import diff_report
        from accprobe.render.terminal.console import console

        out = console()
        out.print(diff_report(found, out.width, expand))
    else:
        deliver(plain(_text(found, form, expand)), output)
    if found.differs and not exit_zero:
        sys.exit(DIFFERENT)


def _text(found: Diff, form: str, expand: bool) -> str:
    if form == "json":
        from accprobe.render.data import diff_json

        return diff_json(found) + "\n"
    if form == "markdown":
        from accprobe.render.markdown import diff_markdown

        return diff_markdown(found, expand)
    from accprobe.render.html import diff_page

    return diff_page(found, expand) + "\n"
