"""`accprobe run`: characterise, verify and report every instruction of one device; of several, see `run_many`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.interrupts import TimeLimitReached, time_limit, time_limit_option
from accprobe.cli.output import (
    DIFFERS,
    OutputFile,
    PositiveCount,
    check_writable,
    format_option,
    output_option,
    report_output,
    seed_option,
    tell,
    write,
)
from accprobe.cli.reports import announce, end_interrupted, saving, say_what_is_unseen
from accprobe.errors import AccprobeError
from accprobe.render.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.report.report import Report
    from accprobe.sass.lowering import Lowering
    from accprobe.survey.run import Profiler

BESIDE = "h200"
"""The recorded report to name where there is no GPU and a processor was measured."""


@dataclass(frozen=True)
class RunRequest:
    """The options of `accprobe run`; `output` is the report's file."""

    device: str
    select: tuple[str, ...]
    dots: int
    seed: int
    jobs: int | None
    output: Path | None
    ncu: bool
    record: Path | None
    time_limit: float | None
    form: str
    expand: bool
    with_uuid: bool


@click.command("run")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Device to measure: auto, gpu, all, cuda:N, cpu, sim:NAME or replay:FILE.",
)
@click.option("--select", multiple=True, metavar="NAME", help="Instructions: a name, a glob or an opcode. Repeatable.")
@click.option("--dots", type=PositiveCount(), default=16384, show_default=True, help="Random dot products per instruction.")
@seed_option
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Worker processes.  [default: one per core, at most 8]")
@output_option("Report file, written row by row; rows of the same device, version and seed are kept, the old file as FILE~")
@click.option("--ncu", is_flag=True, help="Count the executed opcodes with Nsight Compute (mostly needs root).")
@click.option(
    "--record",
    type=OutputFile(stdout=False),
    metavar="FILE",
    help="Recording of every exchange with the device; `--device replay:FILE` replays it without a GPU.",
)
@time_limit_option
@format_option("json")
@click.option("--all", "expand", is_flag=True, help="Print one line per instruction instead of grouping equal ones.")
@click.option("--with-uuid", is_flag=True, help="Put the GPU's UUID, which identifies the board, in the report.")
def run_command(**options: Any) -> None:
    """Measure, bit for bit, every matrix instruction of a GPU or CPU.

    Characterises each instruction, verifies the model on fresh random dot products, and searches results that contradict it
    or leave alternatives. Instructions without a probe are skipped and do not count. -o keeps what was measured before an
    interruption.

    Without a GPU, `--device auto` measures the processor if it has matrix instructions, else it runs published models under a
    banner: their rows are simulated, never confirmed. In CI, use `--device gpu`, which fails instead.

    `--device all`, or several names separated by commas, measures the first GPU of each kind and verifies the others of that
    kind against its report; with several kinds, -o FILE becomes one file per kind.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for sim: and replay: devices.

    Exit status: 0 every instruction is confirmed, or simulated without a contradiction, 1 some are not or --time-limit ended
    the run, 2 nothing could be measured, 130 interrupted by Ctrl-C or SIGTERM.

    \b
    Example:
      accprobe run --device cuda:0 --select 'wgmma.*e4m3*' -o report.json
    """
    options["output"], options["form"] = report_output(options["output"], options["form"])
    request = RunRequest(**options)
    if request.record and request.output and request.record.resolve() == request.output.resolve():
        raise click.UsageError("-o and --record name the same file; give two")
    several = request.device == "all" or "," in request.device
    if several and (request.ncu or request.record or request.time_limit):
        raise click.UsageError("--ncu, --record and --time-limit are for one device; name it with --device")
    say_what_is_unseen(request.device)
    if several:
        from accprobe.cli.run_many import run_each

        good = run_each(request)
    else:
        good = report_holds(measured_report(request, request.device, request.output))
    if not good:
        sys.exit(DIFFERS)


def measured_report(request: RunRequest, device: str, output: Path | None) -> Report:
    """Measure, keep and print the report of a device; a signal or the time limit ends the process with what was measured."""
    for file in filter(None, (output, request.record)):
        check_writable(file)
    from accprobe.survey.run import survey

    profiler = _profiler(device) if request.ncu else None
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
            wanted = (request.select, request.dots, request.seed, request.jobs)
            with time_limit(request.time_limit):
                survey(device, *wanted, on_row, profiler, request.with_uuid, request.record)
        except KeyboardInterrupt as e:
            stop = e
    if stop is None or output is None or isinstance(stop, TimeLimitReached):
        for report in latest:
            print_report(report, request)
    if stop is not None:
        end_interrupted(_count(latest[0]) if latest else "", output, stop)
    return latest[0]


def _say_why_no_processor(report: Report) -> None:
    """Say why a simulated GPU replaces the processor."""
    from accprobe.devices import why_no_processor

    if report.device.kind == "simulated" and (reason := why_no_processor()):
        tell(f"the processor is not measured: {reason}")


def _advance(show: Show, report: Report) -> None:
    skipped = len(report.instructions) - len(report.measured)
    show(len(report.measured), report.run.selected - skipped, f"measuring {report.device.name}")


def print_report(report: Report, request: RunRequest) -> None:
    """Print a report; `announce` said before which device replaces a GPU."""
    if request.form == "json":
        write(report.dumps())
        return
    from accprobe.render.document import Paragraph
    from accprobe.render.subjects.report import report_blocks
    from accprobe.render.terminal import print_blocks

    announced = report.model_copy(update={"device": report.device.model_copy(update={"reason": ""})})
    is_instead = report.device.kind == "cpu" and report.device.reason
    print_blocks([*report_blocks(announced, request.expand), *([Paragraph(_beside())] if is_instead else [])])


def _beside() -> str:
    """Return the headline of a recorded GPU, and the command that shows the rest."""
    from accprobe.render.subjects.report import beside
    from accprobe.report.report import Report
    from accprobe.report.words import so_many

    report = Report.load(BESIDE)
    rest = f"`accprobe show {BESIDE}` shows all {so_many(len(report.measured), 'instruction')} of it."
    return f"For comparison, a recorded GPU, {report.device.name}:\n! {beside(report)}\n{rest}"


def _count(report: Report) -> str:
    from accprobe.report.words import so_many

    skipped = len(report.instructions) - len(report.measured)
    return f"{len(report.measured)} of {so_many(report.run.selected - skipped, 'instruction')}"


def report_holds(report: Report) -> bool:
    """Return whether every instruction is confirmed, or simulated without a contradiction.

    Raises AccprobeError where none could be measured.
    """
    if not report.measured:
        reasons = ", ".join(dict.fromkeys(row.reason for row in report.instructions))
        one = len(report.instructions) == 1
        none = "the selected instruction" if one else f"none of the {len(report.instructions)} selected instructions"
        raise AccprobeError(f"{none} can{'not' * one} be measured here: {reasons}")
    return all(row.holds for row in report.measured)


def _profiler(device: str) -> Profiler:
    """Return a function that counts executed opcodes with ncu; without ncu the disassembly counts. Raises AccprobeError."""
    from accprobe.build.driver import why_no_gpu
    from accprobe.devices import CPU, FIRST_GPU, WORDS_ALONE

    if device.startswith("sim:"):
        raise AccprobeError("--ncu needs a GPU: a simulated device executes nothing")
    if device == CPU:
        raise AccprobeError("--ncu needs a GPU; the opcodes of a processor come from its machine code")
    if device in WORDS_ALONE and (reason := why_no_gpu()):
        raise AccprobeError(f"--ncu needs a GPU: {reason}")

    def query(insts: Sequence[Instruction]) -> Mapping[str, Lowering]:
        from accprobe.audit.ncu import lowerings

        try:
            return lowerings(FIRST_GPU if device in WORDS_ALONE else device, insts)
        except AccprobeError as e:
            tell(f"nothing was counted, the opcodes are those of the disassembly: {e}")
            return {}

    return query
