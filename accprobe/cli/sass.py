"""`accprobe sass`: which matrix instruction really runs, in any binary, and what it means for precision."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import INTERRUPTED, clear_progress, tell, write
from accprobe.errors import AccprobeError
from accprobe.render.plain import plain
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.audit.kernels import Kernel, Reading
    from accprobe.audit.requirements import Requirements, Shortfall

FALLS_SHORT = 1
COULD_NOT = 2
FOR_CHECKS = ("junit", "sarif", "github")
"""Forms that have what falls short, and nothing else."""


@click.command("sass")
@click.argument("files", nargs=-1, type=click.UNPROCESSED, metavar="[FILE|DIR]...")
@click.option("--arch", metavar="ARCH,…", help="Only these architectures; PTX is assembled for them. Without FILE: the atlas.")
@click.option("--ncu", is_flag=True, help="FILE… is a command: run it under the profiler, and count what is executed.")
@click.option(
    "--fail-below", type=click.IntRange(0), metavar="BITS", help="Exit 1 where an accumulator has fewer, or unknown, bits."
)
@click.option(
    "--unless-promoted",
    type=click.IntRange(1),
    metavar="K",
    help="With --fail-below: sums of K products at most that are then promoted pass.",
)
@click.option("--require", multiple=True, metavar="OPCODE", help="Exit 1 where a kernel's matrix opcodes have none of these.")
@click.option("--forbid", multiple=True, metavar="OPCODE", help="Exit 1 where a kernel has one of these.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes.  [default: one a core, at most 8]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "json", "markdown", *FOR_CHECKS]),
    default="terminal",
    show_default=True,
    help="junit, sarif and github: what falls short, as annotations of a check.",
)
@click.option("--all", "expand", is_flag=True, help="Each kernel by itself, like ones too.")
def sass_command(
    files: tuple[str, ...],
    arch: str | None,
    ncu: bool,
    fail_below: int | None,
    unless_promoted: int | None,
    require: tuple[str, ...],
    forbid: tuple[str, ...],
    jobs: int | None,
    form: str,
    expand: bool,
) -> None:
    """Show which matrix instruction really runs, in any binary.

    That is: cubins, fatbins, libraries, executables, PTX, wheels, and caches of Triton and inductor. Of each kernel: matrix
    opcodes, conversions that feed them, fraction bits of the accumulator and how they are known, and after how many
    instructions a sum is promoted: added to other registers. Without FILE, --arch shows what accprobe's own probes become:
    the atlas of PTX instructions and opcodes.

    Needs: extra sass; for PTX, ptxas too, which extra sweep brings; extra cuda13 or cuda12 for the atlas; Nsight Compute
    for --ncu.

    Each file is printed as soon as it is read. Ctrl-C keeps what is printed.

    Exit status: 0; 1 a kernel falls short of --fail-below, --require or --forbid; 2 something could not be read;
    130 interrupted.

    \b
    Examples:
      accprobe sass ~/.triton/cache
      accprobe sass libkernels.so --arch sm_90a --fail-below 22 --unless-promoted 128
      accprobe sass --arch sm_89,sm_90a
      accprobe sass --ncu -- python my_script.py
    """
    from accprobe.audit.requirements import Requirements, shortfalls

    demanded = Requirements(fail_below, unless_promoted, require, forbid)
    if unless_promoted is not None and fail_below is None:
        raise click.UsageError("--unless-promoted goes with --fail-below")
    if form in FOR_CHECKS and not demanded:
        raise click.UsageError(f"--format {form} tells what falls short: it goes with --fail-below, --require or --forbid")
    targets = _targets(arch)
    if not files:
        if ncu:
            raise click.UsageError("--ncu needs a command: accprobe sass --ncu -- python my_script.py")
        if not targets:
            raise click.UsageError("name a file or folder, or --arch for what accprobe's own probes become")
        if form in FOR_CHECKS:
            raise click.UsageError(f"--format {form} needs a file or folder to check")
        _atlas(targets, form, jobs)
        return
    if ncu:
        kernels, reading = _profiled(files)
        _show_file(kernels, form, expand)
    else:
        kernels, reading = _read([Path(file) for file in files], targets, jobs, lambda found: _show_file(found, form, expand))
    found = shortfalls(kernels, demanded)
    if form in FOR_CHECKS:
        _print_checks(kernels, reading, found, form)
    else:
        _print(kernels, reading, form, expand)
    _exit(reading, demanded, found, told=form in FOR_CHECKS)


def _targets(arch: str | None) -> tuple[str, ...]:
    """The architectures named. Raises UnknownName."""
    from accprobe.isa import architectures

    names = [name.strip() for name in (arch or "").split(",") if name.strip()]
    for name in names:
        architectures.get(name)
    return tuple(dict.fromkeys(names))


def _read(
    paths: list[Path], targets: tuple[str, ...], jobs: int | None, show_file: Callable[[list[Kernel]], None]
) -> tuple[list[Kernel], Reading]:
    """Every kernel, and what was seen; each file is shown as soon as it is read, and on Ctrl-C as far as it is read."""
    from accprobe.audit.kernels import Reading, libraries
    from accprobe.survey.workers import default_jobs

    reading = Reading()
    kernels: list[Kernel] = []
    with progress_bar("looking for device code", in_lines="cubins") as show:

        def advance(reading: Reading) -> None:
            kernels = (
                f"{len(reading.begun):,} kernels with matrix opcodes in {reading.begun[0].file}; " if reading.begun else ""
            )
            show(reading.done, reading.pieces, f"{kernels}{sum(reading.functions.values()):,} functions")

        try:
            for found in libraries(paths, targets, jobs or default_jobs(), reading, advance):
                kernels += found
                show_file(found)
        except KeyboardInterrupt:
            show_file(reading.begun)
            tell(f"interrupted: {reading.done:,} cubins were read; what was found in them is printed")
            sys.exit(INTERRUPTED)
    return kernels, reading


def _show_file(kernels: list[Kernel], form: str, expand: bool) -> None:
    """What a file has, on a terminal: other forms have all files at the end."""
    if form != "terminal" or not kernels:
        return
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.sass import kernel_tables

    clear_progress()
    console().print(kernel_tables(kernels, expand))
    sys.stdout.flush()


def _profiled(command: tuple[str, ...]) -> tuple[list[Kernel], Reading]:
    from accprobe.audit.ncu import profile_command

    return profile_command(command)


def _atlas(targets: tuple[str, ...], form: str, jobs: int | None) -> None:
    from accprobe.audit import atlas

    drawn = atlas.compile_atlas(targets, jobs)
    if form == "json":
        write(atlas.dumps(drawn))
        return
    if form == "markdown":
        from accprobe.render.markdown import lowerings_markdown

        write(lowerings_markdown(drawn))
    else:
        from accprobe.render.terminal.console import console
        from accprobe.render.terminal.sass import lowering_table

        console().print(lowering_table(drawn))


def _print(kernels: list[Kernel], reading: Reading, form: str, expand: bool) -> None:
    if form == "json":
        from accprobe.render.data import kernels_json

        write(kernels_json(kernels, reading))
    elif form == "markdown":
        from accprobe.render.markdown import kernels_markdown

        write(plain(kernels_markdown(kernels, reading, expand)))
    else:
        from accprobe.render.terminal.console import console
        from accprobe.render.terminal.sass import kernels_total

        console().print(kernels_total(kernels, reading))


def _print_checks(kernels: list[Kernel], reading: Reading, found: list[Shortfall], form: str) -> None:
    from accprobe.render import checks

    if form == "junit":
        write(checks.junit(kernels, reading, found))
    elif form == "sarif":
        write(checks.sarif(reading, found))
    else:
        write(checks.github(reading, found))


def _exit(reading: Reading, demanded: Requirements, found: list[Shortfall], told: bool) -> None:
    """told: what falls short is on standard output already."""
    from accprobe.render.content.sass import shortfall_line

    for problem in reading.problems:
        tell(problem)
    for shortfall in [] if told else found:
        tell(shortfall_line(shortfall))
    if found:
        sys.exit(FALLS_SHORT)
    if demanded and reading.problems:
        raise AccprobeError("what could not be read was not checked either")
    if reading.problems:
        sys.exit(COULD_NOT)
