"""`accprobe show`, `diff` and `check`: a report in any format, its differences from another, and requirements on it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from accprobe.cli.output import DIFFERS, Output, output_options, print_message
from accprobe.cli.reports import read_report
from accprobe.errors import AccprobeError

_DATA = "accprobe.render.data"  # Imported only where it is used: that takes 0.1 s.


@click.command("show")
@click.argument("report")
@click.argument("row", required=False)
@click.option("--all", "expand", is_flag=True, help="Print a line for each instruction, and each product or reduction in full.")
@output_options("json", "html", "markdown", "csv")
def show_command(report: str, row: str | None, expand: bool, to: Output) -> None:
    """Show a report: a table, or one row in full.

    REPORT is a file, a recorded report, sim:NAME for published models, or - for standard input. ROW is a name, a glob or
    an opcode: one match is shown in full, several instructions or functions as a table. A product or reduction is
    named by its callable, followed by words such as the shape. `show h200:QGMMA` equals `show h200 QGMMA`.

    Needs: nothing.

    Exit status 0: printed. 2: error.

    \b
    Examples:
      accprobe show report.json
      accprobe show h200 QGMMA
      accprobe show h200 wgmma.m64n8k32.f32.e4m3.e4m3
      accprobe show report.json 'torch:mm 16x8x*'
      accprobe show h200 -o h200.html
    """
    from accprobe.render.subjects.report import report_blocks, report_page, rows_blocks
    from accprobe.report.names import split_row

    of_rows = bool(row or split_row(report)[1])
    loaded = read_report(report, row or "", evidence=of_rows or not {to.form, to.in_file} <= {"terminal", "csv", ""})
    is_in_full = of_rows and len(loaded.instructions) <= 1
    to.deliver(
        lambda: rows_blocks(loaded) if is_in_full else report_blocks(loaded, expand),
        page=lambda: report_page(loaded),
        title=loaded.device.name,
        json=loaded.dumps,
        csv=lambda: import_module(_DATA).comma_separated(loaded),
    )


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--only", multiple=True, metavar="FIELD", help="Compare this field only. Repeatable.")
@click.option("--all", "expand", is_flag=True, help="Print one entry per instruction instead of grouping equal ones.")
@output_options("json", "html", "markdown")
def diff_command(a: str, b: str, only: tuple[str, ...], expand: bool, to: Output) -> None:
    """Compare two reports, or a report and published models.

    For A and B, give a file, a recorded report, sim:NAME for published models, or - for standard input. REPORT:NAME compares
    only some rows, such as h200:QGMMA. Instructions are paired by name, or by their operands if two generations have different
    instructions for them. A value that is uncertain on one side and may be equal on the other does not count as a difference.

    Needs: nothing.

    Exit status 0: nothing differs. 1: a value differs, or one report has a row that the other lacks. 2: error.

    \b
    Examples:
      accprobe diff h200 sim:b200
      accprobe diff before.json after.json --only effective_bits
      accprobe diff h100 h200 -o gpus.html
    """
    from accprobe.compare.diff import diff, headline
    from accprobe.render.subjects.comparison import diff_blocks
    from accprobe.report.recorded import STANDARD_INPUT

    if a == b == STANDARD_INPUT:
        raise click.UsageError("A and B are both standard input: give one of them as a file")
    found = diff(read_report(a), read_report(b), only)
    to.deliver(lambda: diff_blocks(found, expand), title=headline(found), json=lambda: import_module(_DATA).diff_json(found))
    if found.differs:
        sys.exit(DIFFERS)


@click.command("check")
@click.argument("report")
@click.option("--require", multiple=True, metavar="LINE", help="Requirement 'NAME: FIELD OPERATOR VALUE'. Repeatable.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Text file with one requirement per line. Repeatable.",
)
@click.option("--allow-simulated", is_flag=True, help="Check published models too, although accprobe did not measure them.")
def check_command(report: str, require: tuple[str, ...], files: tuple[Path, ...], allow_simulated: bool) -> None:
    """Check a report against a project's requirements.

    REPORT is a file, a recorded report, sim:NAME for published models, or - for standard input. The NAME of a requirement is a
    glob, an opcode or a callable. Words may follow it: the shape, a format or an option. `accprobe list --fields` lists the
    fields. A requirement fails if a possible value of a finding fails it, if the finding's row is not confirmed, or if no
    measured row matches. A lower bound that is too low fails too: ≥ 12 fails >= 13 and == 12. `check` fails if the run of the
    report stopped early. sim:NAME and simulated reports need --allow-simulated.

    Needs: nothing.

    Exit status 0: every requirement passed. 1: one failed. 2: error.

    \b
    Examples:
      accprobe check report.json --require 'wgmma.*.f32.e4m3.*: effective_bits >= 13'
      accprobe check report.json --require 'torch:_scaled_mm use_fast_accum=False: promote_every <= 128'
      accprobe check functions.json --require 'ex2.*: mismatches == 0'
    """
    from accprobe.compare.requirements import check_requirement, parse_requirement, read_file
    from accprobe.render.subjects.comparison import requirement_blocks
    from accprobe.render.terminal import print_blocks
    from accprobe.report.words import so_many

    requirements = [*map(parse_requirement, require), *(one for path in files for one in read_file(path))]
    if not requirements:
        raise click.UsageError("there is nothing to check: give --require LINE or --file FILE")
    loaded = read_report(report)
    if loaded.device.kind == "simulated":
        if not allow_simulated:
            raise AccprobeError(
                f"{report} is {loaded.device.name}, nothing was measured; give --allow-simulated to check it anyway"
            )
        print_message(f"SIMULATED: {report} has published models, nothing was measured")
    found = [check_requirement(loaded, each) for each in requirements]
    missing = loaded.measurable - len(loaded.measured)
    print_blocks(requirement_blocks(found, f"{missing} of {so_many(loaded.measurable, 'instruction')}" if missing else ""))
    if missing or not all(outcome.passed for outcome in found):
        sys.exit(DIFFERS)
