"""What commands share: sentences for the user, the report's file, how an interrupted run ends, and the banner of a simulated
device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from accprobe.cli.interrupts import TimeLimitReached, uninterrupted
from accprobe.cli.parameter import ParamType
from accprobe.errors import AccprobeError
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from accprobe.report.report import Report

INTERRUPTED = 130
"""The exit status of what a signal ended."""

TIMED_OUT = 1
"""The exit status of what --time-limit ended: not everything is confirmed."""


def tell(sentence: str) -> None:
    """A sentence for the user, on standard error; on a terminal it takes the line on which a progress bar may stand."""
    clear_progress()
    click.echo(f"accprobe: {plain(sentence)}", err=True)


def clear_progress() -> None:
    """Clears the line of a terminal on which a progress bar may stand."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def write(text: str) -> None:
    """What programs read, on standard output: in UTF-8 whatever the locale, as JSON and HTML have to be."""
    click.echo(text.encode(), nl=False)


def list_names(items: Iterable[tuple[str, str]]) -> None:
    """A name a line, each with its remark or "": after a tab, or where a terminal shows them, wrapped as it is wide."""
    if sys.stdout.isatty():
        from accprobe.render.terminal.console import console, hanging_names

        console().print(hanging_names(items))
        return
    for name, remark in items:
        click.echo(f"{name}\t{remark}" if remark else name)


def deliver(text: str, output: Path | None) -> None:
    """A text to its file, or to standard output. Raises AccprobeError where it cannot be written."""
    from accprobe.build import atomic

    if output is None or output == STDOUT:
        write(text)
        return
    try:
        atomic.save(output, text.encode())
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None


class OutputFile(ParamType[Path]):
    """A file to write; - is standard output, and a file of that name is ./-."""

    name = "file"

    def __init__(self, stdout: bool = True) -> None:
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":
            self.fail("no file is named: give its name", param, ctx)
        if os.path.basename(value) in ("", ".", ".."):
            self.fail(f"'{value}' is a folder: give the name of a file", param, ctx)
        if value == "-" and not self._stdout:
            self.fail("'-' is standard output, which this cannot go to; a file of that name is ./-", param, ctx)
        return STDOUT if value == "-" else Path(value)


STDOUT = Path("/dev/stdout")

ENDINGS = (".txt", ".html", ".htm", ".md", ".csv", ".tsv", ".jsonl", ".xml", ".prom", ".svg", ".pdf", ".yaml", ".yml", ".toml")
"""Of files that nobody expects JSON in."""


def named_form(output: Path, forms: Mapping[str, str]) -> str:
    """The form that the name of a file asks for, of those by their endings; JSON where it asks for none.

    Raises UsageError where it asks for another.
    """
    ending = output.suffix.lower()
    if ending in ENDINGS and ending not in forms:
        *others, last = (*forms, ".json")
        known = f"{', '.join(others)}{' or ' * bool(others)}{last}"
        raise click.UsageError(
            f"-o writes no {output.suffix}: let the name end in {known}; > {output.name} keeps what is printed"
        )
    return forms.get(ending, "json")


def to_stdout(output: Path | None, form: str) -> tuple[Path | None, str]:
    """(file, form) of a report; where the file is standard output, none is kept, and the report is what is printed."""
    return (None, "json") if output == STDOUT else (output, form)


def say_what_is_unseen(device: str) -> None:
    """Of a device, or of several with commas between, whose SMs are not all asked."""
    from accprobe.devices import unseen

    for name in dict.fromkeys(each.strip() for each in device.split(",")):
        if clause := unseen(name):
            tell(f"{name}: {clause}")


def announce(report: Report) -> None:
    """What stands in for a GPU, and why."""
    missing = f"no GPU found ({report.device.reason})"
    if report.device.kind == "cpu":
        tell(f"{missing}; this is the processor, {report.device.name}, and its own dot products")
    else:
        tell(f"SIMULATED: {missing}; this is {report.device.name}")


def check_writable(path: Path) -> None:
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


def check_report(path: Path | None) -> None:
    """Before the long run, whether what is in its file is a report, to which it adds. Raises ReportError."""
    if path is None or not path.is_file() or not path.stat().st_size:
        return
    from accprobe.report.report import Report

    Report.load(path)


def end_interrupted(measured: str, output: Path | None, stop: KeyboardInterrupt | None = None) -> NoReturn:
    """Ends with what is kept of a run. measured: "2 sweeps", or nothing. stop: what ended it; a time limit says so."""
    if not measured:
        kept = "nothing was measured yet"
    else:
        kept = f"{output} has {measured}" if output else f"{measured} measured; with -o FILE they are kept"
    timed_out = isinstance(stop, TimeLimitReached)
    tell(f"{stop if timed_out else 'interrupted'}: {kept}")
    sys.exit(TIMED_OUT if timed_out else INTERRUPTED)


@contextmanager
def saving(output: Path | None) -> Iterator[Callable[[Report], None]]:
    """Keeps the report in the file; whatever happens inside, what was measured is there.

    Nothing interrupts the writing: pydantic makes an error of its own of a KeyboardInterrupt.
    """
    if output is None:
        yield lambda _: None
        return
    from accprobe.report.autosave import Autosave

    save = Autosave(output)
    try:
        try:
            yield uninterrupted()(save)
        finally:
            with uninterrupted():
                save.finish()
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None
