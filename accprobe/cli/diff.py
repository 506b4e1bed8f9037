"""`accprobe diff`: two reports compared."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import read_report
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from accprobe.report.report import Report

DIFFERENT = 1


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
def diff_command(a: str, b: str, only: tuple[str, ...], exit_zero: bool, form: str, expand: bool) -> None:
    """Compare two reports, or a report and published models.

    A and B are each a file, the name of a recorded report, or sim:NAME for published models. Instructions are compared by
    name, and by role where the generations offer different ones for the same operands.

    Needs: nothing.

    Exit status: 0 nothing differs, 1 something does, 2 trouble. What is undecided does not count as a difference.

    \b
    Examples:
      accprobe diff h200 sim:b200
      accprobe diff before.json after.json --only effective_bits
    """
    from accprobe.compare.diff import diff

    found = diff(_side(a), _side(b), only)
    if form == "json":
        from accprobe.render.data import diff_json

        click.echo(plain(diff_json(found)))
    elif form == "markdown":
        from accprobe.render.markdown import diff_markdown

        click.echo(plain(diff_markdown(found, expand)), nl=False)
    elif form == "html":
        from accprobe.render.html import diff_page

        click.echo(plain(diff_page(found, expand)))
    else:
        from accprobe.render.terminal.comparison import diff_report
        from accprobe.render.terminal.console import console

        out = console()
        out.print(diff_report(found, out.width, expand))
    if found.differs and not exit_zero:
        sys.exit(DIFFERENT)


def _side(name: str) -> Report:
    if name.startswith("sim:"):
        from accprobe.report.published import published

        return published(name)

    return read_report(name)
