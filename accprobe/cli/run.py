"""`accprobe run`: measure, verify and report every instruction of a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accprobe.cli.output import DIFFERS, Output, check_writable, count, print_message, seed_option
from accprobe.cli.reports import OnReport, measure_report, report_options
from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.build.lowerings import Lowering
    from accprobe.isa.instructions import Instruction
    from accprobe.render.document import Element
    from accprobe.report.report import Report
    from accprobe.survey.run import Profiler


@click.command("run")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Device to measure: auto, gpu, cuda:N, cpu, sim:NAME or replay:FILE.",
)
@click.option("--select", multiple=True, metavar="GLOB", help="Instructions: a name, a glob or an opcode. Repeatable.")
@click.option(
    "--dots", type=count, default=16384, show_default=True, metavar="COUNT", help="Random dot products per instruction."
)
@seed_option
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Worker processes.  [default: one per core, at most 8]")
@click.option(
    "--ncu",
    is_flag=True,
    help="Count the executed opcodes with Nsight Compute (needs root unless the driver permits profiling for all users).",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Recording of every query and its results; `--device replay:FILE` replays it without a GPU.",
)
@report_options("device, accprobe, environment and seed are")
@click.option("--all", "expand", is_flag=True, help="Print one line per instruction instead of grouping equal ones.")
def run_command(
    device: str,
    select: tuple[str, ...],
    dots: int,
    seed: int,
    jobs: int | None,
    ncu: bool,
    record: Path | None,
    expand: bool,
    to: Output,
) -> None:
    """Measure, bit for bit, every matrix instruction of a GPU or CPU.

    Infers a model of each instruction, verifies it on fresh random dot products, and searches for operands that contradict it
    or rule out alternatives. Instructions without a probe are skipped. Ctrl-C keeps the rows so far: accprobe writes them to
    the FILE of -o, or prints them.

    Without a GPU, `--device auto` measures the processor if it has matrix instructions, else it evaluates published models;
    their rows are `simulated`. In CI, use `--device gpu`, which fails instead.

    Needs: extra cuda13 or cuda12 on a GPU; nothing for cpu, sim: and replay: devices.

    Exit status 0: every instruction is confirmed, or simulated without a contradiction. 1: some are not, or --time-limit ended
    the run. 2: nothing could be measured. 130: interrupted.

    \b
    Example:
      accprobe run --device cuda:0 --select 'wgmma.*e4m3*' -o report.json
    """
    if record and to.file and record.resolve() == to.file.resolve():
        raise click.UsageError("-o and --record name the same file; give two")
    if record:
        check_writable(record)
    from accprobe.survey.run import survey

    profiler = _open_profiler(device) if ncu else None

    def measure(on_report: OnReport, _: object) -> None:
        def on_row(report: Report, missing: list[str]) -> None:
            on_report(report, len(report.measured), report.measurable, missing)

        survey(device, select, dots, seed, jobs, on_row, profiler, record)

    report = measure_report(measure, to, lambda report: _blocks(report, expand))
    _check_any_measured(report)
    if not all(row.holds for row in report.measured):
        sys.exit(DIFFERS)


def _blocks(report: Report, expand: bool) -> Iterator[Element]:
    from accprobe.render.subjects.report import report_blocks

    announced = report.model_copy(update={"device": report.device.model_copy(update={"reason": ""})})  # `announce` named it
    return report_blocks(announced, expand)


def _check_any_measured(report: Report) -> None:
    """Raise AccprobeError if no instruction could be measured."""
    if not report.measured:
        reasons = ", ".join(dict.fromkeys(row.reason for row in report.instructions))
        count = len(report.instructions)
        none = "the selected instruction cannot" if count == 1 else f"none of the {count} selected instructions can"
        raise AccprobeError(f"{none} be measured here: {reasons}")


def _open_profiler(device: str) -> Profiler:
    """Return a function that counts executed opcodes with ncu; it returns {} where ncu fails. Raises AccprobeError."""
    from accprobe.build.driver import explain_missing_gpu, no_gpu
    from accprobe.devices import CPU, FIRST_GPU, FIXED_NAMES

    if device == CPU or device.startswith("sim:"):
        raise AccprobeError(f"--ncu needs a GPU: {device} executes no GPU code")
    of_first_gpu = device in FIXED_NAMES  # auto or gpu
    if of_first_gpu and (reason := explain_missing_gpu()):
        raise no_gpu(reason, "leave out --ncu")

    def query(insts: Sequence[Instruction]) -> Mapping[str, Lowering]:
        from accprobe.audit.ncu import lowerings

        try:
            return lowerings(FIRST_GPU if of_first_gpu else device, insts)
        except AccprobeError as e:
            print_message(f"ncu counted nothing, so the opcodes come from the disassembly: {e}")
            return {}

    return query
