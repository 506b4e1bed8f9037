"""Reports by name: those that come with accprobe, and files."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from accprobe.errors import ReportError, nearest
from accprobe.model.explained import EXPLAINED

ATLAS = "lowering"
"""Beside the reports lies the atlas of lowerings, which `accprobe sass --arch` writes; and what published models explain."""


def recorded() -> list[str]:
    """Names of the reports that come with accprobe."""
    entries = files("accprobe.reports").iterdir()
    names = (entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json"))
    return sorted(name for name in names if name not in (ATLAS, EXPLAINED))


def find(name: str | Path) -> Path | Traversable:
    """An existing file, else a recorded report. Raises ReportError where there is neither."""
    path, known = Path(name), recorded()
    if path.is_file() or (path.exists() and str(name) not in known):
        return path
    if str(name) in known:
        return files("accprobe.reports") / f"{name}.json"
    if str(name).startswith("sim:"):
        raise ReportError(f"{name} is a device; `accprobe run --device {name} -o FILE` makes a report of it")
    hint = f"; of the recorded reports, {nearest(str(name), known)}" if known else ""
    raise ReportError(f"there is no file and no recorded report '{name}'{hint}")
