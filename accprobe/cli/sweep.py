"""`accprobe sweep`: the truncation-mask sweep over block-K, on a GPU or on published models."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.output import DIFFERS, Output, count, seed_option, several
from accprobe.cli.reports import OnReport, measure_report, report_options
from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.report.report import Report


@click.command("sweep")
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="Device: auto, gpu, cuda:N or sim:NAME.")
@click.option(
    "--dtype", "dtypes", type=several(str), default="e4m3", show_default=True, metavar="NAME,…", help="Operand formats."
)
@click.option(
    "--block-k",
    "block_ks",
    type=several(count),
    default="32,64,128,256,512",
    show_default=True,
    metavar="N,…",
    help="Block sizes in K.",
)
@click.option("--num-warps", type=several(count), default="2,4,8", show_default=True, metavar="N,…", help="Warps of a program.")
@click.option("--k", type=count, default=2048, show_default=True, metavar="N", help="Columns of A.")
@click.option("--promote-every", type=count, metavar="N", help="Value of tl.dot's max_num_imprecise_acc.")
@seed_option
@report_options()
def sweep_command(
    device: str,
    k: int,
    seed: int,
    to: Output,
    **blocks: Any,
) -> None:
    """Measure how many bits the partial sums of a Triton GEMM have.

    Clears more and more low bits of the partial sums with a mask. If n of their 23 fraction bits can be cleared and no result
    changes, the matrix instruction computes 23 - n. As a control, accprobe computes the partial sums of the same operands in
    f64 and masks them in the same way. If none of these changes either, the operands need no more bits, and the number is a
    lower bound (≥). Each configuration is measured with two kinds of operands: normal (standard normal) and full-width
    (their partial sums need all bits of f32).

    Needs: extra cuda13 or cuda12 on a GPU; extra sweep for sim: devices.

    Exit status 0: every result agrees with the published model of its opcode, or there is none. 1: some do not, or --time-limit
    ended it. 2: nothing could be measured. 130: interrupted.

    \b
    Examples:
      accprobe sweep --block-k 32,128,512 --num-warps 4 --dtype e4m3,bf16 -o report.json
      accprobe sweep --device sim:h100
    """
    from accprobe.render.subjects.report import report_blocks
    from accprobe.sweep.configurations import configurations
    from accprobe.sweep.sweeper import sweep

    wanted = configurations(**blocks)

    def measure(on_report: OnReport, _: object) -> None:
        def on_record(report: Report) -> None:
            on_report(report, len({(each.dtype, each.num_warps, each.block_k) for each in report.sweeps}), len(wanted))

        sweep(device, wanted, k, seed, on_record)

    report = measure_report(measure, to, lambda report: report_blocks(report, expand=True))
    _exit(report)


def _exit(report: Report) -> None:
    if not any(each.measured for each in report.sweeps):
        reasons = "; ".join(dict.fromkeys(each.reason for each in report.sweeps))
        raise AccprobeError(f"none of the configurations can be swept here: {reasons}")
    differ = (each.prediction is not None and each.prediction.differ > 0 for each in report.sweeps)
    if any(differ):
        sys.exit(DIFFERS)
