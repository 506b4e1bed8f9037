"""Reports that commands read, and those that they keep while they measure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from accprobe.cli.interrupts import TimeLimitReached, time_limit, uninterrupted
from accprobe.cli.output import INTERRUPTED, TIMED_OUT, tell
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.report.report import Report


def read_report(name: str, row: str = "", evidence: bool = False) -> Report:
    """Read "h200", "sim:h100", a file or "-", or only the rows of "h200:QGMMA", and warn if a file has a recorded report's
    name.

    row: as a user types it. evidence: also read the exchanges from the file beside the report. Raises AccprobeError.
    """
    if not name:
        raise AccprobeError("no report is named: give a file, a recorded report, sim:NAME, or - for standard input")
    from accprobe.report.names import rows_named, split_row

    source, rows = split_row(name)
    report = _read(source or name, evidence)
    if row and rows:
        raise AccprobeError(f"{name} names rows already: leave out '{row}'")
    if not (row or rows):
        return report
    chosen, remark = rows_named(report, source, row or rows)
    if remark:
        tell(remark)
    return chosen


def _read(name: str, evidence: bool) -> Report:
    if name.startswith("sim:"):
        from accprobe.report.published import published

        return published(name)
    from accprobe.report.recorded import STANDARD_INPUT, recorded
    from accprobe.report.report import Report

    if name == STANDARD_INPUT:
        return Report.read_from(sys.stdin.buffer, "standard input")
    if name in recorded() and Path(name).exists():
        tell(f"{name} is the recorded report; ./{name} is the file of that name")
    if not evidence:
        return Report.load(name)
    from accprobe.report.evidence import load_with_evidence

    return load_with_evidence(name)


def check_report(path: Path | None) -> None:
    """Check before a long run that the file it adds to is a report. Raises ReportError."""
    if path is None or not path.is_file() or not path.stat().st_size:
        return
    from accprobe.report.report import Report

    Report.load(path)


@contextmanager
def saving(output: Path | None) -> Iterator[Callable[[Report], None]]:
    """Yield a function that keeps a report in the file; whatever happens inside the block, the last report is written.

    No signal interrupts the writing: pydantic turns a KeyboardInterrupt into an error of its own.
    """
    if output is None:
        yield lambda _: None
        return
    from accprobe.report.autosave import Autosave

    save = Autosave(output, tell)
    try:
        try:
            yield uninterrupted()(save)
        finally:
            with uninterrupted():
                save.finish()
    except OSError as e:
        raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None


def measured_report(
    measure: Callable[[Callable[[Report], None]], object],
    output: Path | None,
    seconds: float | None,
    steps: Callable[[Report], tuple[int, int]],
    counted: Callable[[Report], str],
    shown: Callable[[Report], None],
) -> Report:
    """Return the report that `measure` makes, saved and printed. A signal or the time limit ends the process with the rows so
    far.

    measure: calls its argument with each growing report. steps: the number of finished steps and of all; counted: in words.
    """
    latest: list[Report] = []
    stop: KeyboardInterrupt | None = None
    with saving(output) as save, progress_bar("opening the device") as show:

        def on_report(report: Report) -> None:
            if not latest and report.device.reason:
                announce(report)
            latest[:] = [report]
            save(report)
            show(*steps(report), f"measuring {report.device.name}")

        try:
            with time_limit(seconds):
                measure(on_report)
        except KeyboardInterrupt as e:
            stop = e
    if stop is None or output is None or isinstance(stop, TimeLimitReached):
        for report in latest:
            shown(report)
    if stop is not None:
        end_interrupted(counted(latest[0]) if latest else "", output, stop)
    return latest[0]


def announce(report: Report) -> None:
    """Print which device replaces a GPU, and why."""
    from accprobe.devices import why_no_processor

    missing = f"no GPU found ({report.device.reason})"
    if report.device.kind == "cpu":
        tell(f"{missing}; measuring the processor, {report.device.name}")
        return
    tell(f"SIMULATED: {missing}; using {report.device.name}")
    if report.run.selected and (reason := why_no_processor()):
        tell(f"the processor is not measured: {reason}")


def end_interrupted(measured: str, output: Path | None, stop: KeyboardInterrupt) -> NoReturn:
    """Exit after a signal or a time limit, and print the number of saved results. measured: "2 sweeps", or ""."""
    if not measured:
        kept = "nothing was measured yet"
    else:
        kept = f"{output} has {measured}" if output else f"{measured} measured; use -o FILE to keep them"
    timed_out = isinstance(stop, TimeLimitReached)
    tell(f"{stop if timed_out else 'interrupted'}: {kept}")
    sys.exit(TIMED_OUT if timed_out else INTERRUPTED)
