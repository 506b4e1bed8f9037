"""A growing report kept in a file."""

from __future__ import annotations

import time
from pathlib import Path

from accprobe.report.report import Report


class Autosave:
    """Keeps the newest of a growing report in a file: at most four times a second, and at most a twentieth of the time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsaved: Report | None = None
        self._next = 0.0

    def __call__(self, report: Report) -> None:
        self._unsaved = report
        if time.monotonic() >= self._next:
            self.finish()

    def finish(self) -> None:
        """Save what is not saved yet."""
        if self._unsaved is None:
            return
        started = time.monotonic()
        self._unsaved.save(self._path)
        self._unsaved = None
        ended = time.monotonic()
        self._next = ended + max(0.25, 19 * (ended - started))
