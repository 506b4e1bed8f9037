"""`accprobe sass`: the matrix instructions in a binary, and their precision."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.interrupts import exit_interrupted
from accprobe.cli.output import COULD_NOT, DIFFERS, clear_progress, format_option, print_message, several, write
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.audit.kernels import Kernel, Reading, Shortfall


def _architecture(name: str) -> str:
    """Return the name of an architecture. Raises UnknownName."""
    from accprobe.isa import architectures

    architectures.get(name)
    return name


@click.command("sass")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE|DIR...")
@click.option("--arch", type=several(_architecture), metavar="ARCH,…", help="Read only these architectures, such as sm_90a.")
@click.option(
    "--fail-below",
    type=click.IntRange(0),
    metavar="BITS",
    help="Fail kernels with an accumulator of fewer than BITS fraction bits.",
)
@click.option(
    "--unless-promoted",
    type=click.IntRange(1),
    metavar="N",
    help="With --fail-below: pass kernels that promote after at most N products.",
)
@click.option(
    "--require",
    multiple=True,
    metavar="OPCODE",
    help="Fail kernels that have matrix opcodes, but none of the opcodes given with --require. Repeatable.",
)
@click.option("--forbid", multiple=True, metavar="OPCODE", help="Fail kernels that have one of these opcodes. Repeatable.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Worker processes.  [default: one per core, at most 8]")
@format_option("json")
@click.option("--all", "expand", is_flag=True, help="Print one line per kernel instead of grouping equal ones.")
def sass_command(
    files: tuple[Path, ...],
    arch: tuple[str, ...] | None,
    fail_below: int | None,
    unless_promoted: int | None,
    require: tuple[str, ...],
    forbid: tuple[str, ...],
    jobs: int | None,
    form: str,
    expand: bool,
) -> None:
    """Show the matrix instructions in binaries, and their accumulators.

    Reads cubins, fatbins, libraries, executables, wheels, and folders with such files, such as the caches of Triton and
    inductor. For each kernel it prints the matrix opcodes, the conversions before them, and the fraction bits of the
    accumulator. It also prints the promotion interval: the products after which a partial sum is added to a separate f32
    accumulator.

    Needs: extra sass.

    Exit status 0: read. 1: a kernel fails --fail-below, --require or --forbid. 2: a file could not be read. 130: interrupted.

    \b
    Examples:
      accprobe sass ~/.triton/cache
      accprobe sass libkernels.so --arch sm_90a --fail-below 22 --unless-promoted 128
    """
    from accprobe.audit.kernels import Requirements, shortfalls
    from accprobe.render.data import kernels_json
    from accprobe.render.document import Paragraph
    from accprobe.render.subjects.sass import kernels_total, shortfall_line
    from accprobe.render.terminal import print_blocks

    demanded = Requirements(fail_below, unless_promoted, require, forbid)
    if unless_promoted is not None and fail_below is None:
        raise click.UsageError("--unless-promoted goes with --fail-below")
    on_terminal = form == "terminal"
    if demanded and on_terminal:
        click.echo("the kernels of each file follow as it is read; the last line is the verdict\n")
    kernels, reading = _read(files, arch or (), jobs, lambda found: _show_file(found, expand) if on_terminal else None)
    failed = shortfalls(kernels, demanded)
    if on_terminal:
        print_blocks([*kernels_total(kernels, reading), *([Paragraph(_verdict(kernels, reading, failed))] if demanded else ())])
    else:
        write(kernels_json(kernels, reading))
    for sentence in (*reading.problems, *map(shortfall_line, failed)):
        print_message(sentence)
    if failed:
        sys.exit(DIFFERS)
    if demanded and reading.problems:
        raise AccprobeError("the requirements were not checked on what could not be read")
    if reading.problems:
        sys.exit(COULD_NOT)


def _read(
    paths: Sequence[Path], targets: tuple[str, ...], jobs: int | None, show_file: Callable[[list[Kernel]], None]
) -> tuple[list[Kernel], Reading]:
    """Return every kernel. Each file is shown as soon as it is read; after Ctrl-C, the part that was read."""
    from accprobe.audit.kernels import Reading, libraries
    from accprobe.survey.workers import default_jobs

    reading = Reading()
    kernels: list[Kernel] = []
    with progress_bar("looking for device code") as show:

        def advance(reading: Reading) -> None:
            begun = reading.begun
            kernels = f"{len(begun):,} kernels with matrix opcodes in {begun[0].file}; " if begun else ""
            show(reading.done, reading.pieces, f"{kernels}{sum(reading.functions.values()):,} functions")

        try:
            for found in libraries(paths, targets, jobs or default_jobs(), reading, advance):
                kernels += found
                show_file(found)
        except KeyboardInterrupt:
            show_file(reading.begun)
            exit_interrupted(f"{reading.done:,} cubins were read; their kernels are printed")
    return kernels, reading


def _show_file(kernels: list[Kernel], expand: bool) -> None:
    """Print the kernels of a file, and an empty line."""
    from accprobe.render.subjects.sass import kernel_blocks
    from accprobe.render.terminal import print_blocks

    if kernels:
        clear_progress()
        print_blocks(kernel_blocks(kernels, expand))
        click.echo()
        sys.stdout.flush()


def _verdict(kernels: list[Kernel], reading: Reading, failed: list[Shortfall]) -> str:
    from accprobe.report.words import so_many

    count = f"{so_many(len(kernels), 'kernel')} with matrix opcodes"
    if failed:
        failing = len({id(kernel) for each in failed for kernel in each.kernels})
        return f"FAILED: {failing:,} of {count}" if kernels else "FAILED: no kernel with matrix opcodes"
    return f"UNDECIDED: not everything was read; {count} passed" if reading.problems else f"passed: {count}"
