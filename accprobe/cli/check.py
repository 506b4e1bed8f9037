"""`accprobe check`: whether a report is as a project needs it, for CI."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from accprobe.cli.output import tell
from accprobe.cli.reports import read_report
from accprobe.errors import AccprobeError

BROKEN = 1


@click.command("check")
@click.argument("report")
@click.option("--require", multiple=True, metavar="LINE", help="'GLOB: FIELD OPERATOR VALUE'; may be given again.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="TOML",
    help="A file with a list of such lines: require = [...]; may be given again.",
)
@click.option("--allow-simulated", is_flag=True, help="Check published models too, of which nothing is measured.")
def check_command(report: str, require: tuple[str, ...], files: tuple[Path, ...], allow_simulated: bool) -> None:
    """Check a report against a project's requirements.

    REPORT is a file, the name of a recorded one, or - for standard input. A field is a column of `accprobe show REPORT
    --format csv`. A value that is not known well enough breaks a requirement, and so does one that is not confirmed; a
    requirement that no measured instruction matches is broken too. A report of a simulated device was not measured, and is
    refused, unless --allow-simulated says otherwise. A glob with a colon is of whole products: a callable, and after it words
    that tell which of its products, such as the shape, a format or an option; a field is a finding of products.

    Needs: nothing.

    Exit status: 0 every requirement is kept, 1 some is broken, 2 trouble.

    \b
    Examples:
      accprobe check report.json --require 'wgmma.*.f32.e4m3.*: effective_bits >= 13'
      accprobe check report.json --require 'torch:_scaled_mm 4096x4096x*: promote_every <= 128'
    """
    from accprobe.compare.requirements import check_requirements, parse_requirement, read_file
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.requirements import outcome_text

    requirements = [*map(parse_requirement, require), *(one for path in files for one in read_file(path))]
    if not requirements:
        raise click.UsageError("there is nothing to check: give --require LINE or --file TOML")
    loaded = read_report(report)
    if loaded.device.kind == "simulated":
        if not allow_simulated:
            raise AccprobeError(f"{report}: {loaded.device.name}, nothing was measured; --allow-simulated checks it still")
        tell(f"SIMULATED: {report} is of published models, nothing was measured")
    found = check_requirements(loaded, requirements)
    console().print(outcome_text(found))
    if not all(outcome.passed for outcome in found):
        sys.exit(BROKEN)
