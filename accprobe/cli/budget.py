"""`accprobe budget`: the errors of a matrix product with some arithmetic, and how often a kernel must promote."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.output import (
    INTERRUPTED,
    Output,
    count,
    count_or_none,
    document_text,
    output_options,
    seed_option,
    several,
    tell,
)
from accprobe.errors import AccprobeError
from accprobe.render.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.budget.error_report import ErrorReport, ErrorRow

_OUTS = ("f32", "f16", "bf16")


@click.command("budget")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--dtype", metavar="A[:B]", help="Operand formats where NAME leaves them open, such as bf16.")
@click.option(
    "--k",
    "ks",
    type=several(count),
    metavar="N,…",
    help="K of the product.  [default: 1024,4096,16384; that of a product or FILE]",
)
@click.option(
    "--promote-every",
    "intervals",
    type=several(count_or_none),
    metavar="N,…",
    help="Promotion interval, or none.  [default: none,128; that of a product]",
)
@click.option("--split-k", "splits", type=several(count), metavar="N,…", help="Slices of K.  [default: 1; those of a product]")
@click.option("--out", metavar="FORMAT", help="Format of D: f32, f16 or bf16.  [default: that of the sums, or of a product]")
@click.option(
    "--data", type=several(str), default="normal,positive", show_default=True, metavar="KIND|FILE,…", help="Operands."
)
@click.option(
    "--scale", "scales", type=several(str), default="none", show_default=True, metavar="KIND,…", help="Scales of the operands."
)
@click.option(
    "--outputs",
    type=count,
    default=4096,
    show_default=True,
    metavar="COUNT",
    help="Minimum number of elements of D to emulate for each row of the table.",
)
@seed_option
@output_options("json", "html", "markdown")
def budget_command(names: tuple[str, ...], dtype: str | None, to: Output, **options: Any) -> None:
    """Compute the error of a matrix product, and how often to promote.

    Each NAME is an opcode (QGMMA), an instruction of a report (h200:wgmma.m64n8k32.f32.e4m3.e4m3, sim:b200:UTCQMMA), or a
    measured product ('products-h200:torch:mm 256x256x4096 bf16 -> bf16', whose promotion, split-K and format of D are the
    defaults). The product is emulated bit for bit and compared with exact sums.

    Data: normal, positive (uniform in [0, 1)), attention, cancelling, outliers, integers (-7 to 7), or FILE.npy, .pt or
    .safetensors with tensors a [M, K] and b [K, N], or with weights [N, K] for B; FILE:TENSOR selects one of several tensors.
    Scales: none, tensor, row, 1x128, 128x128 (blocks of B; 1x128 of A), mx32, nv16.

    Needs: nothing; extra fast for speed, torch for .pt.

    Exit status: 0; 2 error; 130 interrupted.

    \b
    Example:
      accprobe budget QGMMA --k 7168 --promote-every none,128 --out bf16
    """
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.error_report import BudgetRequest, ErrorReport, planned
    from accprobe.budget.quantise import SHARINGS
    from accprobe.cli.arrays import data_named, scale_named
    from accprobe.isa import formats

    out = options["out"]
    options["out"] = formats.get(out) if out else None
    options["data"] = tuple(map(data_named, options["data"]))
    request = BudgetRequest(**options)
    for scale in request.scales:
        scale_named(scale, SHARINGS)
    if request.out is not None and request.out.name not in _OUTS:
        raise AccprobeError(f"--out {out} is not supported; give one of {', '.join(_OUTS)}")
    accumulations = tuple({each.name: each for each in (of_named(name, dtype or "") for name in names)}.values())
    for each in accumulations:
        planned(each, request)
    for each in accumulations:
        if each.remark:
            tell(each.remark)
    with progress_bar("errors") as show:
        found = _computed(ErrorReport(request, accumulations, ()), show)
    if found.entries or not found.interrupted:
        from accprobe.render.subjects.budget import budget_blocks

        to.deliver(lambda: budget_blocks(found), lambda form: _text(found, form))
    if found.interrupted:
        from accprobe.report.words import so_many

        tell(f"interrupted: {so_many(len(found.entries), 'row')} known")
        sys.exit(INTERRUPTED)


def _computed(report: ErrorReport, show: Show) -> ErrorReport:
    """Compute the rows and the summary; keep the rows so far after Ctrl-C."""
    from accprobe.budget.advice import Advice, advice, sentences
    from accprobe.budget.error_report import entries

    found: list[ErrorRow] = []
    advised: list[Advice] = []
    request, interrupted = report.request, False
    try:
        for accumulation in report.accumulations:
            found.extend(entries(accumulation, request, show))
        for accumulation in report.accumulations:
            k = max(entry.k for entry in found if entry.accumulation == accumulation.name)
            if recommended := advice(accumulation, request, k, found, show):
                advised.append(recommended)
    except KeyboardInterrupt:
        interrupted = True
    return replace(report, entries=tuple(found), words=tuple(sentences(found, advised)), interrupted=interrupted)


def _text(found: ErrorReport, form: str) -> str:
    from accprobe.render.data import budget_json
    from accprobe.render.subjects.budget import budget_blocks

    return budget_json(found) if form == "json" else document_text(form, budget_blocks(found), "Error budget")
