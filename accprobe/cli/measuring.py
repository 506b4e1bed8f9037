"""What `accprobe run` does with one device: its report measured, kept as it grows, and printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.interrupts import TimeLimitReached, time_limit
from accprobe.cli.output import announce, check_writable, end_interrupted, saving, tell, write
from accprobe.errors import AccprobeError
from accprobe.render.terminal.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.report.report import Report
    from accprobe.survey.run import Profiler

BESIDE = "h200"
"""The recorded report that is named where there is no GPU and a processor was measured."""


@dataclass(frozen=True)
class Wanted:
    """What was asked for, of each device."""

    select: tuple[str, ...]
    dots: int
    seed: int
    jobs: int | None
    with_uuid: bool
    form: str
    expand: bool
    all_n: bool
    time_limit: float | None = None


def measured_report(
    device: str, wanted: Wanted, output: Path | None, profiler: Profiler | None = None, record: Path | None = None
) -> Report:
    """The report of a device, kept and printed; an interruption or the time limit ends the process, with what was measured."""
    if output:
        check_writable(output)
    if record:
        check_writable(record)
    from accprobe.survey.run import survey

    latest: list[Report] = []
    with saving(output) as save, progress_bar("opening the device") as show:

        def on_row(report: Report) -> None:
            if not latest and report.device.reason:
                announce(report)
                _say_why_no_processor(report)
            latest[:] = [report]
            save(report)
            _advance(show, report)

        stop: KeyboardInterrupt | None = None
        try:
            asked = (wanted.select, wanted.dots, wanted.seed, wanted.jobs)
            with time_limit(wanted.time_limit):
                survey(device, *asked, on_row, profiler, wanted.with_uuid, record, wanted.all_n)
        except KeyboardInterrupt as e:
            stop = e
    if stop is None or output is None or isinstance(stop, TimeLimitReached):
        for report in latest:
            print_report(report, wanted)
    if stop is not None:
        end_interrupted(_count(latest[0]) if latest else "", output, stop)
    return latest[0]


def _say_why_no_processor(report: Report) -> None:
    """A simulated GPU stands in only where the processor cannot."""
    from accprobe.devices import why_no_processor

    if report.device.kind == "simulated" and (reason := why_no_processor()):
        tell(f"the processor is not measured: {reason}")


def _advance(show: Show, report: Report) -> None:
    skipped = len(report.instructions) - len(report.measured)
    show(len(report.measured), report.run.selected - skipped, f"measuring {report.device.name}")


def print_report(report: Report, wanted: Wanted) -> None:
    """On standard output; what stands in for a GPU, and why, was announced."""
    if wanted.form == "json":
        write(report.dumps())
        return
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.report import report_table

    out = console()
    announced = report.model_copy(update={"device": report.device.model_copy(update={"reason": ""})})
    out.print(report_table(announced, out.width, wanted.expand))
    if report.device.kind == "cpu" and report.device.reason:
        out.print(f"\n{_beside()}")


def _beside() -> str:
    """What must not be missed of a recorded GPU, and the command that shows the rest."""
    from accprobe.render.content.cells import meanings
    from accprobe.report.report import Report
    from accprobe.report.words import so_many

    report = Report.load(BESIDE)
    first, *_ = meanings(report)
    rest = f"`accprobe show {BESIDE}` shows all {so_many(len(report.measured), 'instruction')} of it."
    return f"Beside it, a GPU as it was recorded, {report.device.name}:\n! {first}\n{rest}"


def _count(report: Report) -> str:
    from accprobe.report.words import so_many

    skipped = len(report.instructions) - len(report.measured)
    return f"{len(report.measured)} of {so_many(report.run.selected - skipped, 'instruction')}"


def report_holds(report: Report) -> bool:
    """Whether every instruction is confirmed, or simulated with nothing against it.

    Raises AccprobeError where none could be measured.
    """
    if not report.measured:
        reasons = ", ".join(dict.fromkeys(row.reason for row in report.instructions))
        one = len(report.instructions) == 1
        none = "the one instruction" if one else f"none of the {len(report.instructions)} instructions"
        raise AccprobeError(f"{none} selected can{'not' * one} be measured here: {reasons}")
    return all(row.holds for row in report.measured)
