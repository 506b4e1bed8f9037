"""`accprobe tolerance`: a recommended test of a matrix product, and the mistakes that tests detect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from accprobe.cli.output import Output, count, count_or_none, document_text, output_options, seed_option, tell
from accprobe.errors import AccprobeError
from accprobe.render.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.budget.tolerance import ToleranceRequest

MOST_OUTPUTS = 1 << 22
"""Largest M·N; M·K and N·K may be eight times as large. Each planted mistake is a product of its own."""


def _interval(word: str) -> int:
    """Return the products of a promotion interval, 0 for none."""
    return count_or_none(word) or 0


@click.command("tolerance")
@click.argument("name")
@click.option("--dtype", metavar="A[:B]", help="Operand formats where NAME leaves them open, such as bf16.")
@click.option("--k", type=count, metavar="COUNT", help="K of the product.  [default: that of a product or FILE]")
@click.option("--m", type=count, metavar="COUNT", help="Rows of a test's result.  [default: as K allows, at most 64]")
@click.option("--n", type=count, metavar="COUNT", help="Columns of a test's result.  [default: as K allows, at most 64]")
@click.option(
    "--promote-every", type=_interval, metavar="N|none", help="Promotion interval.  [default: none; that of a product]"
)
@click.option("--split-k", type=count, metavar="COUNT", help="Slices of K.  [default: 1; that of a product]")
@click.option("--out", metavar="FORMAT", help="Format of D.  [default: that of the sums, or of a product]")
@click.option("--data", default="normal", show_default=True, metavar="KIND|FILE", help="Operands.")
@click.option(
    "--scale",
    default="none",
    show_default=True,
    metavar="KIND",
    help="Scales of the operands; 1x128 and 128x128 need --promote-every 128.",
)
@click.option(
    "--false-alarms",
    type=click.FloatRange(0, 1, True, True),
    metavar="RATE",
    default=1e-9,
    show_default=True,
    help="False alarms per element.",
)
@click.option("--atol", type=click.FloatRange(0), metavar="X", help="Absolute tolerance of your own test, to evaluate it too.")
@click.option("--rtol", type=click.FloatRange(0), metavar="X", help="Relative tolerance of your own test.")
@click.option("--reference", type=click.Choice(["f64", "f32", "bf16"]), help="Reference of your own test.  [default: f64]")
@seed_option
@output_options("json", "markdown")
def tolerance_command(to: Output, **options: Any) -> None:
    """Recommend a test of a product, and show the mistakes it detects.

    NAME is an opcode, an instruction of a report or a measured product, as for `accprobe budget`. The recommended tolerance
    bounds the emulated errors of such operands at the given rate of false alarms; the worst case of all operands follows. The
    table shows in which share of 200 trials with fresh operands each mistake is detected: by
    accprobe.testing.assert_matmul_close, by rtol and atol, by DeepGEMM's calc_diff < 1e-3, and by your own --atol and --rtol.

    Data: as for `accprobe budget`. Scales, drawn at random: none, tensor, row, 1x128, 128x128 (blocks of B; 1x128 of A).

    Needs: nothing; extra fast for speed, torch for .pt.

    Exit status: 0; 2 error; 130 interrupted.

    \b
    Example:
      accprobe tolerance QGMMA --k 7168 --promote-every 128 --out bf16
    """
    from accprobe.budget.tolerance import advised
    from accprobe.render.data import tolerance_json
    from accprobe.render.subjects.tolerance import tolerance_blocks

    request = _request(**options)
    with progress_bar("tolerance") as show:
        found = advised(request, lambda what: show(0, None, what))
    if request.accumulation.remark:
        tell(request.accumulation.remark)
    to.deliver(
        lambda: tolerance_blocks(found),
        lambda form: tolerance_json(found) if form == "json" else document_text(form, tolerance_blocks(found), ""),
    )


def _request(
    name: str,
    dtype: str | None,
    k: int | None,
    m: int | None,
    n: int | None,
    promote_every: int | None,
    split_k: int | None,
    out: str | None,
    data: str,
    scale: str,
    false_alarms: float,
    atol: float | None,
    rtol: float | None,
    reference: Any,
    seed: int,
) -> ToleranceRequest:
    """Complete the options with the values of a measured product or of the user's data. Raises UsageError, AccprobeError."""
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.data import OwnData
    from accprobe.budget.tolerance import OwnTest, ToleranceRequest
    from accprobe.cli.arrays import data_named, scale_named
    from accprobe.isa import formats
    from accprobe.model.product import ScaleOf

    accumulation, operands = of_named(name, dtype or ""), data_named(data)
    measured = accumulation.measured
    found_k = k or (measured.k if measured else operands.k if isinstance(operands, OwnData) else None)
    if found_k is None:
        raise click.UsageError("the K of the product is missing: give --k N")
    rows, columns = m or 1, n or 1
    if rows * columns > MOST_OUTPUTS or max(rows, columns) * found_k > 8 * MOST_OUTPUTS:
        raise AccprobeError(f"{rows} x {columns} x {found_k} is too large: give a smaller --m and --n")
    rounded = formats.get(out) if out else measured.result if measured else accumulation.result
    if rounded.kind != "float" or rounded.infinity is None:
        raise AccprobeError(f"--out {out} is not supported; give a float format with infinities, such as f32, bf16 or f16")
    if reference and atol is None and rtol is None:
        raise click.UsageError("--reference is for your own test: give its --atol or --rtol too")
    known: Any = scale_named(scale, ["none", *get_args(ScaleOf)])
    return ToleranceRequest(
        accumulation,
        found_k,
        m,
        n,
        accumulation.promote_every if promote_every is None else promote_every or None,
        split_k or accumulation.split_k,
        rounded,
        operands,
        None if known == "none" else known,
        seed,
        rate=false_alarms,
        own=None if atol is None and rtol is None else OwnTest(atol or 0.0, rtol or 0.0, reference or "f64"),
    )
