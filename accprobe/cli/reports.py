"""Reports that commands read, and reports that they save while they measure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.build.atomic import uninterrupted
from accprobe.cli.interrupts import TimeLimitReached, exit_interrupted, time_limit, time_limit_option
from accprobe.cli.output import Command, Output, output_options, print_message
from accprobe.cli.streams import libraries_on_stderr
from accprobe.errors import AccprobeError, ReportError
from accprobe.render.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.render.document import Element
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
        print_message(remark)
    return chosen


def _read(name: str, evidence: bool) -> Report:
    from accprobe.report.evidence import load_with_evidence
    from accprobe.report.names import named_report
    from accprobe.report.recorded import STANDARD_INPUT, recorded
    from accprobe.report.report import Report

    if name == STANDARD_INPUT:
        return Report.read_from(sys.stdin.buffer, "standard input")
    if name in recorded() and Path(name).exists():
        print_message(f"{name} is the recorded report; ./{name} is the file of that name")
    return load_with_evidence(name) if evidence and not name.startswith("sim:") else named_report(name)


def report_options(same: str = "device is") -> Callable[[Command], Command]:
    """Add --format, -o and --time-limit. The command gets their values as one argument `to`. same: when rows stay in FILE."""
    stay = f"Report file, saved after each row. Rows already in FILE stay if {same} the same."
    return lambda command: time_limit_option(
        output_options("json", file_help=f"{stay} The previous file is kept as FILE~")(command)
    )


@contextmanager
def save_reports(output: Path | None) -> Iterator[Callable[[Report], None]]:
    """Yield a function that keeps a report in the file; whatever happens inside the block, the last report is written.

    No signal interrupts the writing: pydantic turns a KeyboardInterrupt into an error of its own. Raises ReportError before the
    block if the file has something else than a report, AccprobeError if it cannot be written.
    """
    if output is None:
        yield lambda _: None
        return
    from accprobe.report.autosave import Autosave
    from accprobe.report.report import Report

    if output.is_file() and output.stat().st_size:
        try:
            Report.load(output)
        except ReportError:
            raise ReportError(f"-o {output} exists and is not a report of this accprobe; give another name") from None
    save = Autosave(output, print_message)

    def written(report: Report | None) -> None:
        try:
            with uninterrupted():
                save.finish() if report is None else save(report)
        except OSError as e:
            raise AccprobeError(f"{output} cannot be written: {e.strerror}") from None

    try:
        yield written
    finally:
        written(None)


OnReport = Callable[..., None]
"""Called with each growing report, perhaps with the numbers of finished steps and of all, and names of rows to come."""

Measure = Callable[[OnReport, Show], object]


def measure_report(measure: Measure, to: Output, blocks: Callable[[Report], Iterable[Element]]) -> Report:
    """Call `measure`, save and print the report that it makes, and return it.

    A signal or the time limit ends the process; an AccprobeError is raised. The rows so far are saved before; they are
    printed if they have no file or the time is over. blocks: returns the printed blocks of a report.
    """
    latest: list[Report] = []
    stop: KeyboardInterrupt | AccprobeError | None = None
    with libraries_on_stderr(), save_reports(to.file) as save, progress_bar("opening") as show:

        def on_report(report: Report, done: int = 0, of: int = 0, missing: Sequence[str] = ()) -> None:
            if not latest and report.device.reason:
                announce(report)
            latest[:] = [report]
            save(report)
            if of:
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                show(done, of, f"measuring {missing[0] if missing else report.device.name}{more}")

        try:
            with time_limit(to.seconds):
                measure(on_report, show)
        except (KeyboardInterrupt, AccprobeError) as e:
            stop = e
    if latest and (
        stop is None or ((latest[0].claims or latest[0].sweeps) and (to.file is None or isinstance(stop, TimeLimitReached)))
    ):
        replace(to, file=None).deliver(lambda: blocks(latest[0]), json=latest[0].dumps)  # the file has it
    if isinstance(stop, KeyboardInterrupt):
        from accprobe.report.words import so_many

        done = sum(len(report.sweeps) + sum(row.status != "skipped" for row in report.claims) for report in latest)
        measured = so_many(done, "row")
        saved = f"{to.file} has {measured}" if to.file else f"{measured} measured; use -o FILE to keep the results"
        exit_interrupted(saved if done else "nothing was measured yet", stop)
    if stop is not None:
        raise stop
    return latest[0]


def announce(report: Report) -> None:
    """Print which device replaces a GPU, and why."""
    from accprobe.build.processor import explain_missing_instructions

    missing = f"no GPU found ({report.device.reason})"
    if report.device.kind == "cpu":
        print_message(f"{missing}; measuring the processor, {report.device.name}")
        return
    print_message(f"SIMULATED: {missing}; using {report.device.name}")
    if report.run.selected and (reason := explain_missing_instructions()):
        print_message(f"the processor is not measured: {reason}")
