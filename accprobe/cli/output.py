"""What commands that measure share: the report's file, and the banner of a simulated device."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.report import Report


def announce(report: Report) -> None:
    click.echo(f"accprobe: SIMULATED: no GPU found ({report.device.reason}); this is {report.device.name}", err=True)


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


@contextmanager
def saving(output: Path | None) -> Iterator[Callable[[Report], None]]:
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
