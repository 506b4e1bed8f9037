"""What commands share: sentences for the user, the report's file, and the banner of a simulated device."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.interrupts import uninterrupted
from accprobe.errors import AccprobeError
from accprobe.render.plain import plain

if TYPE_CHECKING:
    from accprobe.report.report import Report


def tell(sentence: str) -> None:
    """A sentence for the user, on standard error."""
    click.echo(f"accprobe: {plain(sentence)}", err=True)


def announce(report: Report) -> None:
    tell(f"SIMULATED: no GPU found ({report.device.reason}); this is {report.device.name}")


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


def keep_previous(path: Path) -> None:
    """What is in the file already goes to FILE~: rows replace it one by one."""
    if path.is_file() and path.stat().st_size:
        shutil.copyfile(path, path.with_name(f"{path.name}~"))


def read_report(name: str | Path) -> Report:
    """A report, with a word where its file is of an older schema. Raises ReportError."""
    from accprobe.report.report import SCHEMA, Report

    report, schema = Report.read(name)
    if schema != SCHEMA:
        tell(f"{name} is of schema {schema}, read as schema {SCHEMA}: `accprobe show {name} --format json` writes that")
    return report


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
