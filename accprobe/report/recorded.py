"""Reports by name: those that come with accprobe, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accprobe.build.checkout import data_folder
from accprobe.build.lowerings import ATLAS
from accprobe.errors import ReportError, nearest
from accprobe.model.published import EXPLAINED

STANDARD_INPUT = "-"
"""The name of the report that is read from standard input."""


def recorded() -> list[str]:
    """Return names of the reports that come with accprobe."""
    names = (entry.name.removesuffix(".json") for entry in data_folder("reports").iterdir() if entry.name.endswith(".json"))
    return sorted(name for name in names if name not in (ATLAS, EXPLAINED))


def find(name: str | Path) -> Path:
    """Return the recorded report of that name, else an existing file; a Path is a file. Raises ReportError where there is
    neither.

    A file with the name of a recorded report is "./NAME": which of the two is meant does not depend on the folder. A pipe is
    refused: one that nobody writes to would be waited for without an end.
    """
    known = recorded()
    if isinstance(name, str) and name in known:
        return data_folder("reports") / f"{name}.json"
    path = Path(name)
    if path.is_file() or path.is_dir():
        return path
    if path.exists():
        raise ReportError(f"{name} is not a regular file; redirect a pipe to standard input and give -")
    if str(name).startswith("sim:"):
        raise ReportError(f"{name} is a device; `accprobe run --device {name} -o FILE` makes a report of it")
    raise no_report(str(name), known)


def no_report(name: str, known: Sequence[str]) -> ReportError:
    """known: names of the recorded reports that would do."""
    return ReportError(f"there is no file and no recorded report '{name}'; {nearest(name, known)}")
