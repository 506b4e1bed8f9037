"""A growing report kept in a file, which other processes may write too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from accprobe.build import atomic
from accprobe.errors import ReportError
from accprobe.isa.instructions import catalog
from accprobe.report.report import Report
from accprobe.report.words import so_many

LOCK_SECONDS = 30.0
"""How long another process may keep the lock, to read and write one report."""


class Autosave:
    """Save a growing report at most four times a second, and at most a twentieth of the time.

    Rows of other processes stay (`with_results`); the file as it was found is kept as FILE~. A report without results
    replaces no other. on_replaced: called with a sentence where the report replaces all rows of the file.
    """

    def __init__(self, path: Path, on_replaced: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._on_replaced = on_replaced
        self._unsaved: Report | None = None
        self._next = 0.0
        self._is_first = True

    def __call__(self, report: Report) -> None:
        self._unsaved = report
        if time.monotonic() >= self._next:
            self.finish()

    def finish(self) -> None:
        """Save the latest report now. Raises OSError, and ReportError as `with_results`."""
        if self._unsaved is None:
            return
        started = time.monotonic()
        self._save(self._unsaved)
        self._unsaved = None
        ended = time.monotonic()
        self._next = ended + max(0.25, 19 * (ended - started))

    def _save(self, report: Report) -> None:
        if self._path.exists() and not self._path.is_file():
            report.save(self._path)
            return
        target = self._path.resolve()
        with atomic.locked(target.with_name(f".{target.name}.lock"), LOCK_SECONDS):
            found = self._found()
            whole = with_results(found, report) if found else None
            if found and not (report.sweeps or any(claim.status != "skipped" for claim in report.claims)):
                return
            if (self._is_first or whole is None) and target.is_file() and target.stat().st_size:
                atomic.keep_previous(self._path)
            (whole or report).save(target)
        if found and whole is None:
            kept = f"{so_many(len(found.claims), 'result')} of another device, seed, version or environment"
            self._on_replaced(f"{self._path} had {kept}, now in {self._path}~")
        self._is_first = False

    def _found(self) -> Report | None:
        try:
            return Report.load(self._path) if self._path.exists() else None
        except ReportError:
            return None


def with_results(kept: Report, new: Report) -> Report | None:
    """Return the report in a file with what a new one has, which replaces claims and sweeps of the same key, in the catalog's
    order.

    None where the new report is of `accprobe run`, with another device, accprobe, environment or seed. Raises ReportError where
    the results of another command are of another device.
    """
    is_run = new.run.selected > 0
    if is_run and _conditions(kept) != _conditions(new):
        return None
    if _device(kept) != _device(new):
        raise ReportError(f"the file has a report of {kept.device.name}, this is {new.device.name}; give another file")
    claims = {claim.key: claim for claim in (*kept.claims, *new.claims)}
    sweeps = {sweep.key: sweep for sweep in (*kept.sweeps, *new.sweeps)}
    head = new if is_run else kept
    place = {inst.name: i for i, inst in enumerate(catalog(new.device.architecture))}
    ordered = sorted(claims.values(), key=lambda claim: place.get(claim.name, len(place)))
    whole = head.with_claims(ordered, sweeps=tuple(sweeps.values()))
    selected = max(kept.run.selected, new.run.selected, len(whole.instructions))
    return whole.model_copy(update={"run": head.run.model_copy(update={"selected": selected})})


def _conditions(report: Report) -> object:
    return report.device, report.tool, report.environment, report.seed


def _device(report: Report) -> object:
    return report.device.kind, report.device.name, report.device.architecture
