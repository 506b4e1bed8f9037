"""`accprobe budget`: the errors of a matrix product, and how often to promote; `accprobe tolerance`: a test of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.interrupts import exit_interrupted
from accprobe.cli.output import (
    FiniteRange,
    Output,
    count,
    output_options,
    print_message,
    seed_option,
    several,
)
from accprobe.errors import AccprobeError, nearest
from accprobe.render.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.budget.error_report import ErrorReport, ErrorRow

_OUTS = ("f32", "f16", "bf16")

MOST_OUTPUTS = 1 << 22
"""Largest M·N; M·K and N·K may be eight times as large. Each mistake of the table is a product of its own."""


@click.command("budget")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--dtype", metavar="A[:B]", help="Operand formats where NAME leaves them open, such as bf16.")
@click.option(
    "--k",
    "ks",
    type=several(count),
    metavar="N,…",
    help="K of the product.  [default: 1024,4096,16384, or from a product or FILE]",
)
@click.option(
    "--promote-every",
    "intervals",
    type=several(lambda word: None if word == "none" else count(word)),
    metavar="N,…",
    help="Promotion interval, or none.  [default: none,128, or from a product]",
)
@click.option("--split-k", "splits", type=several(count), metavar="N,…", help="Slices of K.  [default: 1, or from a product]")
@click.option(
    "--out", metavar="FORMAT", help="Format of D: f32, f16 or bf16.  [default: the format of the sums, or from a product]"
)
@click.option(
    "--data", type=several(str), default="normal,same-sign", show_default=True, metavar="KIND|FILE,…", help="Operands."
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
@output_options("json")
def budget_command(names: tuple[str, ...], dtype: str | None, to: Output, **options: Any) -> None:
    """Compute the error of a matrix product, and how often to promote.

    The product is emulated bit for bit and compared with exact sums. Each NAME is one of:

    \b
      opcode       QGMMA
      instruction  of a report: h200:wgmma.m64n8k32.f32.e4m3.e4m3, sim:b200:UTCQMMA
      product      measured: 'products-h200:torch:mm 256x256x4096 bf16 -> bf16'

    A measured product sets the defaults of K, promotion, split-K and the format of D.

    Operands (--data):

    \b
      normal       standard normal
      same-sign    uniform in [0, 1)
      attention    A = exp(s - max) of normal scores s
      cancelling   the second half of K cancels the first, except 1 product in 16
      outliers     1 k in 256 of A is 10^2 to 10^4 times larger
      integers     -7 to 7
      FILE         .npy, .pt or .safetensors: a [M, K] and b [K, N], or weights
                   [N, K] for B; FILE:TENSOR selects one

    Scales (--scale): none, tensor, row, 1x128, 128x128 (blocks of B; 1x128 of A), mx32 (MXFP8 and MXFP4: blocks of 32), nv16
    (NVFP4: blocks of 16).

    Needs: nothing; torch for .pt files. Faster with the extra fast (numba).

    Exit status 0: computed. 2: error. 130: interrupted.

    \b
    Example:
      accprobe budget QGMMA --k 7168 --promote-every none,128 --out bf16
    """
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.error_report import BudgetRequest, ErrorReport, planned
    from accprobe.cli.arrays import data_named
    from accprobe.evaluate.quantised import SHARINGS
    from accprobe.isa import formats

    out = options["out"]
    options["out"] = formats.get(out) if out else None
    options["data"] = tuple(map(data_named, options["data"]))
    request = BudgetRequest(**options)
    if unknown := next((scale for scale in request.scales if scale not in SHARINGS), None):
        raise AccprobeError(f"unknown scale '{unknown}'; {nearest(unknown, SHARINGS)}")
    if request.out is not None and request.out.name not in _OUTS:
        raise AccprobeError(f"--out {out} is not supported; give one of {', '.join(_OUTS)}")
    accumulations = tuple({each.name: each for each in (of_named(name, dtype or "") for name in names)}.values())
    for each in accumulations:
        planned(each, request)
    for each in accumulations:
        if each.remark:
            print_message(each.remark)
    with progress_bar("errors") as show:
        found = _computed(ErrorReport(request, accumulations, ()), show)
    if found.entries or not found.interrupted:
        from accprobe.render.data import budget_json
        from accprobe.render.subjects.budget import budget_blocks

        to.deliver(lambda: budget_blocks(found), json=lambda: budget_json(found))
    if found.interrupted:
        from accprobe.report.words import so_many

        exit_interrupted(f"{so_many(len(found.entries), 'row')} known")


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


def _interval(word: str) -> int:
    """Return the products of a promotion interval, 0 for none."""
    return 0 if word == "none" else count(word)


@click.command("tolerance")
@click.argument("name")
@click.option("--dtype", metavar="A[:B]", help="Operand formats where NAME leaves them open, such as bf16.")
@click.option("--k", type=count, metavar="COUNT", help="K of the product; required unless NAME is a product or --data a file.")
@click.option("--m", type=count, metavar="COUNT", help="Rows of D in a trial.  [default: as K allows, at most 64]")
@click.option("--n", type=count, metavar="COUNT", help="Columns of D in a trial.  [default: as K allows, at most 64]")
@click.option(
    "--promote-every", type=_interval, metavar="N|none", help="Promotion interval.  [default: none, or from a product]"
)
@click.option("--split-k", type=count, metavar="COUNT", help="Slices of K.  [default: 1, or from a product]")
@click.option("--out", metavar="FORMAT", help="Format of D.  [default: the format of the sums, or from a product]")
@click.option("--data", default="normal", show_default=True, metavar="KIND|FILE", help="Operands.")
@click.option(
    "--false-alarms",
    type=FiniteRange(0, 1, True, True),
    metavar="RATE",
    default=1e-9,
    show_default=True,
    help="Share of correct elements that may exceed the tolerance.",
)
@click.option(
    "--atol",
    type=FiniteRange(0),
    metavar="X",
    help="Absolute tolerance of your own test, which compares with f64 sums.",
)
@click.option("--rtol", type=FiniteRange(0), metavar="X", help="Relative tolerance of your own test.")
@seed_option
@output_options("json")
def tolerance_command(
    name: str,
    dtype: str | None,
    k: int | None,
    m: int | None,
    n: int | None,
    promote_every: int | None,
    split_k: int | None,
    out: str | None,
    data: str,
    false_alarms: float,
    atol: float | None,
    rtol: float | None,
    seed: int,
    to: Output,
) -> None:
    """Recommend a tolerance for a test, and show the mistakes it detects.

    NAME is an opcode (QGMMA), an instruction of a report, or a measured product; --data is a kind of data or a file. `accprobe
    budget --help` describes both. At most --false-alarms of the elements of correct results exceed the recommended tolerance.

    The table has mistakes of a kernel, such as a dropped sum or a k counted twice. It shows the share of trials in which each
    test detects them: of 200 trials, or fewer for a large K or result. The tests are accprobe.testing.assert_matmul_close,
    allclose with the recommended atol and rtol, DeepGEMM's calc_diff < 1e-3, and your own --atol and --rtol.

    Needs: nothing; torch for .pt files. Faster with the extra fast (numba).

    Exit status 0: computed. 2: error. 130: interrupted.

    \b
    Example:
      accprobe tolerance QGMMA --k 7168 --promote-every 128 --out bf16
    """
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.data import OwnData
    from accprobe.budget.tolerance import OwnTest, ToleranceRequest, advised
    from accprobe.cli.arrays import data_named
    from accprobe.isa import formats
    from accprobe.render.data import tolerance_json
    from accprobe.render.subjects.budget import tolerance_blocks

    accumulation, operands = of_named(name, dtype or ""), data_named(data)
    measured = accumulation.measured
    found_k = k or (measured.k if measured else operands.k if isinstance(operands, OwnData) else None)
    if found_k is None:
        raise click.UsageError("the K of the product is missing: give --k N")
    rows, columns = m or 1, n or 1
    if rows * columns > MOST_OUTPUTS or max(rows, columns) * found_k > 8 * MOST_OUTPUTS:
        raise AccprobeError(f"{rows} x {columns} x {found_k} is too large: give a smaller --m, --n or --k")
    rounded = formats.get(out) if out else measured.result if measured else accumulation.result
    if rounded.kind != "float" or rounded.infinity is None:
        raise AccprobeError(f"--out {out} is not supported; give a float format with infinities, such as f32, bf16 or f16")
    request = ToleranceRequest(
        accumulation,
        found_k,
        m,
        n,
        accumulation.promote_every if promote_every is None else promote_every or None,
        split_k or accumulation.split_k,
        rounded,
        operands,
        seed,
        rate=false_alarms,
        own=None if atol is None and rtol is None else OwnTest(atol or 0.0, rtol or 0.0),
    )
    with progress_bar("tolerance") as show:
        found = advised(request, lambda what: show(0, None, what))
    if accumulation.remark:
        print_message(accumulation.remark)
    to.deliver(lambda: tolerance_blocks(found), json=lambda: tolerance_json(found))
