"""`accprobe sweep`: the truncation-mask sweep over block-K, on a GPU, on published models, or compiled only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.interrupts import TimeLimitReached, time_limit, time_limit_option
from accprobe.cli.output import (
    DIFFERS,
    OutputFile,
    ParamType,
    check_writable,
    format_option,
    output_option,
    report_output,
    seed_option,
    write,
)
from accprobe.cli.reports import announce, check_report, end_interrupted, saving
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.report.report import Report
    from accprobe.report.sweeps import OperandSet
    from accprobe.sweep.atlas import Entry
    from accprobe.sweep.configurations import Configuration

COMPILED_FOR = "sm_80,sm_89,sm_90,sm_100,sm_120"


class _Several(ParamType[list[Any]]):
    """Values separated by commas."""

    def __init__(self, kind: Callable[[str], Any], name: str) -> None:
        self._kind, self.name = kind, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        try:
            return [self._kind(word.strip()) for word in value.split(",") if word.strip()] or self.fail(
                "no value is given", param
            )
        except ValueError:
            self.fail(f"'{value}' is not {self.name}", param, ctx)


_NUMBERS = _Several(int, "a list of whole numbers, such as 32,64")
_NAMES = _Several(str, "a list of names")
_SIZE = click.IntRange(1)


@dataclass(frozen=True)
class SweepRequest:
    """The options of `accprobe sweep`; `output` is the report's file, `plot` that of a drawing."""

    device: str
    dtypes: list[str]
    block_ks: list[int]
    num_warps: list[int]
    block_m: int
    block_n: int
    m: int | None
    n: int | None
    k: int
    promote_every: int | None
    rounded: bool
    operand_sets: list[str] | None
    seed: int
    output: Path | None
    plot: Path | None
    ncu: bool
    time_limit: float | None
    form: str
    expand: bool
    compile_only: bool
    arch: list[str]


@click.command("sweep")
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="Device: auto, gpu, cuda:N or sim:NAME.")
@click.option("--dtype", "dtypes", type=_NAMES, default="e4m3", show_default=True, metavar="NAME,…", help="Operand formats.")
@click.option(
    "--block-k",
    "block_ks",
    type=_NUMBERS,
    default="32,64,128,256,512",
    show_default=True,
    metavar="N,…",
    help="Block sizes in K.",
)
@click.option("--num-warps", type=_NUMBERS, default="2,4,8", show_default=True, metavar="N,…", help="Warps of a program.")
@click.option("--block-m", type=_SIZE, default=64, show_default=True, metavar="N", help="Block size in M.")
@click.option("--block-n", type=_SIZE, default=64, show_default=True, metavar="N", help="Block size in N.")
@click.option("--m", type=_SIZE, metavar="N", help="Rows of A.  [default: 2048; 64 simulated]")
@click.option("--n", type=_SIZE, metavar="N", help="Columns of B.  [default: 2048; 64 simulated]")
@click.option("--k", type=_SIZE, default=2048, show_default=True, metavar="N", help="Columns of A.")
@click.option("--promote-every", type=_SIZE, metavar="N", help="Promotion interval of tl.dot itself.")
@click.option("--round", "rounded", is_flag=True, help="Round partial sums to the bits of a mask instead of truncating them.")
@click.option("--operands", "operand_sets", type=_NAMES, metavar="SET,…", help="Sets: normal, full-width.  [default: both]")
@seed_option
@output_option("Report file, written sweep by sweep; results of the same device are kept, the old file as FILE~")
@click.option("--plot", type=OutputFile(stdout=False), metavar="FILE", help="Drawing of the sweeps, an .svg file.")
@click.option("--ncu", is_flag=True, help="Compare the executed opcodes with the cubin, with Nsight Compute.")
@time_limit_option
@format_option("json")
@click.option("--all", "expand", is_flag=True, help="Print all 24 counts of changed elements per configuration.")
@click.option("--compile-only", is_flag=True, help="Print the opcode of each configuration on each --arch; needs no GPU.")
@click.option(
    "--arch",
    type=_NAMES,
    default=COMPILED_FOR,
    show_default=True,
    metavar="NAME,…",
    help="Architectures of --compile-only.",
)
def sweep_command(**options: Any) -> None:
    """Measure how many bits the partial sums of a Triton GEMM have.

    Clears low bits of the partial sums with a mask: the largest number of bits that can be cleared without a change shows how
    many the unit computes. The same masks on exact sums show whether the operands could have shown more.

    Needs: extra cuda13 or cuda12 on a GPU; extra sweep for sim: devices and --compile-only.

    Exit status: 0 every result agrees with the published model of its opcode, or there is none; 1 some do not, or execute
    other opcodes than their cubin has, or --time-limit ended it; 2 nothing could be measured; 130 interrupted.

    \b
    Examples:
      accprobe sweep --block-k 32,128,512 --num-warps 4 --dtype e4m3,bf16 -o report.json --plot sweep.svg
      accprobe sweep --device sim:h100
      accprobe sweep --compile-only --arch sm_90,sm_100 --num-warps 2,4
    """
    from accprobe.sweep.configurations import configurations

    options["output"], options["form"] = report_output(options["output"], options["form"])
    request = SweepRequest(**options)
    blocks = (request.block_ks, request.num_warps, request.block_m, request.block_n)
    wanted = configurations(request.dtypes, *blocks, request.promote_every, request.rounded)
    if request.compile_only:
        if request.time_limit:
            raise click.UsageError("--compile-only measures nothing: leave out --time-limit")
        _compile_only(wanted, request.arch, request.form, request.output or request.plot)
        return
    sets = _known_sets(request.operand_sets or [])
    for path in filter(None, (request.output, request.plot)):
        check_writable(path)
    if request.plot:
        from accprobe.render.subjects.sweep_series import check_suffix

        check_suffix(request.plot)
    check_report(request.output)
    _sweep(request, wanted, sets)


def _sweep(request: SweepRequest, wanted: Sequence[Configuration], sets: list[OperandSet]) -> None:
    from accprobe.sweep.sweeper import Problem, sweep

    latest: list[Report] = []
    stop: KeyboardInterrupt | None = None
    with saving(request.output) as save, progress_bar("compiling") as show:

        def on_record(report: Report) -> None:
            if not latest and report.device.reason:
                announce(report)
            latest[:] = [report]
            save(report)
            done = {(each.dtype, each.num_warps, each.block_k) for each in report.sweeps}
            show(len(done), len(wanted), f"sweeping on {report.device.name}")

        try:
            with time_limit(request.time_limit):
                problem = Problem(request.m, request.n, request.k, request.seed)
                sweep(request.device, wanted, problem, sets, on_record, request.ncu)
        except KeyboardInterrupt as e:
            stop = e
    if stop is None or request.output is None or isinstance(stop, TimeLimitReached):
        _print(latest, request.form, request.expand)
    if request.plot and latest and latest[0].sweeps:
        from accprobe.render.subjects.sweep_series import save as draw

        draw(latest[0].sweeps, request.plot, latest[0].device.kind == "simulated")
    if stop is not None:
        done = len(latest[0].sweeps) if latest else 0
        end_interrupted(f"{done} sweeps" if done else "", request.output, stop)
    _exit(latest[0])


def _known_sets(names: Sequence[str]) -> list[OperandSet]:
    from accprobe.sweep.operands import SETS

    for name in names:
        if name not in SETS:
            raise UnknownName(f"there is no operand set '{name}'; {nearest(name, SETS)}")
    return [known for known in SETS if known in names]


def _print(latest: list[Report], form: str, expand: bool) -> None:
    for report in latest:
        if form == "json":
            write(report.dumps())
        else:
            from accprobe.render.subjects.report import report_blocks
            from accprobe.render.terminal import print_blocks

            print_blocks(report_blocks(report, expand, every_sweep=True))


def _compile_only(wanted: Sequence[Configuration], names: list[str], form: str, file: Path | None) -> None:
    from accprobe.sweep.atlas import atlas, compile_targets

    if file:
        raise AccprobeError(f"--compile-only measures nothing, so {file} cannot be written; redirect --format json to a file")
    total = len(wanted) * len(compile_targets(names))
    entries: list[Entry] = []
    with progress_bar("compiling") as show:
        for entry in atlas(names, wanted):
            entries.append(entry)
            show(len(entries), total, "compiling")
    if form == "json":
        import json

        lines = (json.dumps(entry.model_dump(mode="json", exclude_defaults=True)) for entry in entries)
        write("[\n" + ",\n".join(lines) + "\n]\n")
        return
    from accprobe.render.subjects.sweeps import compilation_blocks
    from accprobe.render.terminal import print_blocks

    print_blocks(compilation_blocks(entries))
    if all(entry.reason for entry in entries):
        raise AccprobeError(f"none of the {len(entries)} configurations becomes a matrix instruction")


def _exit(report: Report) -> None:
    if not any(each.measured for each in report.sweeps):
        reasons = "; ".join(dict.fromkeys(each.reason for each in report.sweeps))
        raise AccprobeError(f"none of the configurations can be swept here: {reasons}")
    differ = (each.prediction is not None and each.prediction.differ > 0 for each in report.sweeps)
    if any(differ) or any(each.profile is not None and not each.profile.agrees for each in report.sweeps):
        sys.exit(DIFFERS)
