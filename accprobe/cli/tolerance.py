"""`accprobe tolerance`: what a test of a product may ask, and which mistakes it would notice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from accprobe.cli.count import PositiveCount
from accprobe.cli.output import STDOUT, OutputFile, check_writable, deliver, named_form, tell
from accprobe.errors import AccprobeError, nearest
from accprobe.render.plain import plain
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.budget.data import Data
    from accprobe.budget.tolerance import Reference, ToleranceReport
    from accprobe.model.product import ScaleOf

MOST_OUTPUTS = 1 << 22
"""M times N, and M or N times K, are no more than so many and eight times as many: each mistake is a product of its own."""


@click.command("tolerance")
@click.argument("name")
@click.option("--dtype", metavar="A[:B]", help="Operands, where NAME leaves them open, such as bf16.")
@click.option("--k", type=PositiveCount(), help="Products of an output.  [default: that of PRODUCT or FILE]")
@click.option("--m", type=PositiveCount(), help="Rows of a test's result.  [default: as K allows, at most 64]")
@click.option("--n", type=PositiveCount(), help="Columns of a test's result.  [default: as K allows, at most 64]")
@click.option("--promote-every", metavar="N|none", help="Products that a chain takes.  [default: none; as PRODUCT]")
@click.option("--split-k", type=PositiveCount(), help="Slices of K.  [default: 1; as PRODUCT]")
@click.option("--out", metavar="FORMAT", help="What D is rounded to.  [default: that of PRODUCT, else nothing]")
@click.option("--data", default="normal", show_default=True, metavar="KIND|FILE", help="Operands.")
@click.option("--scale", default="none", show_default=True, metavar="KIND", help="What has a scale of its own.")
@click.option("--false-alarms", type=click.FloatRange(0, 1, True, True), default=1e-9, show_default=True, help="Per element.")
@click.option("--atol", type=click.FloatRange(0), help="Absolute tolerance of your own test, to judge it too.")
@click.option("--rtol", type=click.FloatRange(0), help="Relative tolerance of your own test.")
@click.option("--reference", type=click.Choice(["f64", "f32", "bf16"]), help="Reference of your own test.  [default: f64]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the operands.")
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown"]), default="terminal", show_default=True)
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Keep it: .md Markdown, others JSON; - is stdout.")
def tolerance_command(
    name: str,
    dtype: str | None,
    k: int | None,
    m: int | None,
    n: int | None,
    promote_every: str | None,
    split_k: int | None,
    out: str | None,
    data: str,
    scale: str,
    false_alarms: float,
    atol: float | None,
    rtol: float | None,
    reference: Reference | None,
    seed: int,
    form: str,
    output: Path | None,
) -> None:
    """Recommend a test of a product, and show what tests notice.

    The tolerance is what exact emulation of these inputs stays within, at a stated rate of false alarms; the worst case is the
    second number. The table shows in how many of 200 tests of fresh inputs each mistake is noticed: by the recommended
    accprobe.testing.assert_matmul_close, by rtol and atol, by the worst case, by DeepGEMM's calc_diff < 1e-3, and by your own
    --atol and --rtol.

    Data: normal, positive, attention, cancelling, outliers, integers (from -7 to 7); or FILE.npy, .pt or .safetensors as
    `accprobe budget` takes them.
    Scales, at random: none, tensor, row, 1x128, 128x128 (B; A 1x128).

    Needs: nothing; extra fast to be fast, torch for .pt.

    Exit status: 0; 2 trouble; 130 interrupted.

    \b
    Example:
      accprobe tolerance QGMMA --k 7168 --promote-every 128 --out bf16
    """
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.data import OwnData
    from accprobe.budget.tolerance import OwnTest, ToleranceRequest, advised
    from accprobe.isa import formats

    accumulation = of_named(name, dtype or "")
    operands = _data(data)
    found_k = k or (accumulation.measured.k if accumulation.measured else operands.k if isinstance(operands, OwnData) else None)
    if found_k is None:
        raise click.UsageError("give the K of the product: --k N")
    rows, columns = m or 1, n or 1
    if rows * columns > MOST_OUTPUTS or max(rows, columns) * found_k > 8 * MOST_OUTPUTS:
        raise AccprobeError(
            f"{rows} x {columns} x {found_k} is too large: a few rows and columns tell as much; give smaller --m and --n"
        )
    rounded = formats.get(out) if out else accumulation.measured.result if accumulation.measured else accumulation.result
    if rounded.kind != "float" or rounded.infinity is None:
        raise AccprobeError(f"--out {out}: results are float numbers with infinities, such as f32, bf16 and f16")
    in_file = named_form(output, {".md": "markdown"}) if output and form == "terminal" else form
    if output:
        check_writable(output)
    every = accumulation.promote_every if promote_every is None else _interval(promote_every)
    slices = split_k or accumulation.split_k
    if reference and atol is None and rtol is None:
        raise click.UsageError("--reference is that of your own test: give its --atol or --rtol too")
    own = None if atol is None and rtol is None else OwnTest(atol or 0.0, rtol or 0.0, reference or "f64")
    asked = ToleranceRequest(
        accumulation, found_k, m, n, every, slices, rounded, operands, _scale(scale), seed, rate=false_alarms, own=own
    )
    with progress_bar("tolerance") as show:
        found = advised(asked, lambda what: show(0, None, what))
    if accumulation.remark:
        tell(accumulation.remark)
    _print(found, form, in_file, output)


def _interval(word: str) -> int | None:
    try:
        return None if word == "none" else PositiveCount().convert(word, None, None)
    except click.BadParameter as e:
        raise click.UsageError(f"--promote-every: {e.message}, nor none") from None


def _data(word: str) -> Data:
    from accprobe.budget.data import DATA_KINDS
    from accprobe.cli.arrays import own_data

    if word in DATA_KINDS:
        return word
    if "." in word or "/" in word:
        return own_data(word)
    if set(word.split(",")) <= set(DATA_KINDS):
        raise AccprobeError(f"'{word}' is several kinds of data: give one")
    raise AccprobeError(f"'{word}' is no FILE.npy, .pt or .safetensors, and no kind of data; {nearest(word, DATA_KINDS)}")


def _scale(word: str) -> ScaleOf | None:
    from accprobe.model.product import ScaleOf

    found: ScaleOf | None = next((each for each in get_args(ScaleOf) if each == word), None)
    if found is None and word != "none":
        raise AccprobeError(f"unknown scale '{word}'; {nearest(word, ['none', *get_args(ScaleOf)])}")
    return found


def _print(found: ToleranceReport, form: str, in_file: str, output: Path | None) -> None:
    """What is told; into a file too, as its name ends where no form is asked for."""
    from accprobe.render.data import tolerance_json
    from accprobe.render.markdown import tolerance_markdown

    if form == "terminal" and output != STDOUT:
        from accprobe.render.terminal.console import console
        from accprobe.render.terminal.tolerance import tolerance_text

        console().print(tolerance_text(found))
    if form == "terminal" and output is None:
        return
    deliver(plain(tolerance_markdown(found) if in_file == "markdown" else tolerance_json(found)), output)
