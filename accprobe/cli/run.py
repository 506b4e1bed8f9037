"""`accprobe run`: characterise, verify and report every instruction of a device."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.report import Report

NOT_CONFIRMED = 1
COULD_NOT = 2
INTERRUPTED = 130


@click.command()
@click.option(
    "--device", default="auto", show_default=True, metavar="auto|cuda:N|sim:NAME|replay:FILE", help="What to measure."
)
@click.option("--select", multiple=True, metavar="GLOB", help="Only instructions whose name matches; may be given again.")
@click.option("--dots", type=click.IntRange(1), default=16384, show_default=True, help="Random dot products to verify each on.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random operands.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes.  [default: one a core, at most 10]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep the report here, as rows are finished; a report that is there already is kept as FILE~.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep every exchange with the device here; `--device replay:FILE` plays it back where there is no GPU.",
)
@click.option("--format", "form", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True)
@click.option("--all", "expand", is_flag=True, help="One line an instruction, like ones too.")
def run(
    device: str,
    select: tuple[str, ...],
    dots: int,
    seed: int,
    jobs: int | None,
    output: Path | None,
    record: Path | None,
    form: str,
    expand: bool,
) -> None:
    """Measure every matrix instruction of a GPU: characterise it, verify the result bit for bit, try to refute it.

    Exit status: 0 every instruction is confirmed, 1 some is not, 2 nothing could be measured, 130 interrupted.

    \b
    Example:
      accprobe run --device cuda:0 --select 'wgmma.*e4m3*' -o report.json
    """
    if output:
        _check_writable(output)
        _keep_previous(output)
    if record:
        _check_writable(record)
    from accprobe.survey import survey

    latest: list[Report] = []
    with _saving(output) as save, _progress() as advance:

        def on_row(report: Report) -> None:
            if not latest and report.device.reason:
                _announce(report)
            latest[:] = [report]
            save(report)
            advance(report)

        interrupted = False
        try:
            survey(device, select, dots, seed, jobs, on_row, record)
        except KeyboardInterrupt:
            interrupted = True
    if not interrupted or output is None:
        _print(latest, form, expand)
    if interrupted:
        _end_interrupted(latest, output)
    _exit(latest[0])


def _announce(report: Report) -> None:
    click.echo(f"accprobe: SIMULATED: no GPU found ({report.device.reason}); this is {report.device.name}", err=True)


def _check_writable(path: Path) -> None:
    """Before the long run, whether its report can be written. Raises AccprobeError."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        if path.exists():
            path.open("a").close()
        if path.is_file() or not path.exists():
            probe = path.resolve().with_name(f".{path.name}.check")
            probe.open("w").close()
            probe.unlink()
    except OSError as e:
        raise AccprobeError(f"{path} cannot be written: {e.strerror}") from None


def _keep_previous(path: Path) -> None:
    """What is in the file already goes to FILE~: rows replace it one by one."""
    if path.is_file() and path.stat().st_size:
        shutil.copyfile(path, path.with_name(f"{path.name}~"))


@contextmanager
def _saving(output: Path | None) -> Iterator[Callable[[Report], None]]:
    """Keeps the report in the file; whatever happens inside, what was measured is there."""
    if output is None:
        yield lambda _: None
        return
    from accprobe.report import Autosave

    save = Autosave(output)
    try:
        try:
            yield save
        finally:
            save.finish()
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None


@contextmanager
def _progress() -> Iterator[Callable[[Report], None]]:
    """A progress bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("opening the device", total=None)

        def advance(report: Report) -> None:
            skipped = len(report.instructions) - len(report.measured)
            bar.update(
                task,
                description=f"measuring {report.device.name}",
                total=report.run.selected - skipped,
                completed=len(report.measured),
            )

        yield advance


def _print(latest: list[Report], form: str, expand: bool) -> None:
    for report in latest:
        if form == "json":
            click.echo(report.dumps(), nl=False)
        else:
            from accprobe.render.terminal import console, table

            out = console()
            out.print(table(report, out.width, expand))


def _end_interrupted(latest: list[Report], output: Path | None) -> None:
    if not latest:
        kept = "nothing was measured yet"
    else:
        done = _count(latest[0])
        kept = f"{output} has {done}" if output else f"{done} measured; with -o FILE they are kept"
    click.echo(f"accprobe: interrupted: {kept}", err=True)
    sys.exit(INTERRUPTED)


def _count(report: Report) -> str:
    skipped = len(report.instructions) - len(report.measured)
    return f"{len(report.measured)} of {report.run.selected - skipped} instructions"


def _exit(report: Report) -> None:
    if not report.measured:
        reasons = ", ".join(dict.fromkeys(row.reason for row in report.instructions))
        raise AccprobeError(f"none of the {len(report.instructions)} instructions selected can be measured here: {reasons}")
    if any(row.status != "confirmed" for row in report.measured):
        sys.exit(NOT_CONFIRMED)
