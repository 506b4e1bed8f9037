"""`accprobe budget`: the errors that a product of some arithmetic makes, and what they mean for a kernel."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from accprobe.cli.count import PositiveCount
from accprobe.cli.output import INTERRUPTED, STDOUT, OutputFile, check_writable, deliver, named_form, tell
from accprobe.errors import AccprobeError, nearest
from accprobe.render.plain import plain
from accprobe.render.terminal.progress import Show, progress_bar

if TYPE_CHECKING:
    from accprobe.budget.data import Data
    from accprobe.budget.error_report import ErrorReport, ErrorRow

_FILE = re.compile(r"\.(npy|pt|pth|safetensors)(:|$)|/")
"""What is no kind of data but a file."""

_OUTS = ("f32", "f16", "bf16")

_FORMS = {".html": "html", ".csv": "csv", ".md": "markdown"}
"""By how a file's name ends; JSON otherwise."""

T = TypeVar("T")


@click.command("budget")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--dtype", metavar="A[:B]", help="Operands, where NAME leaves them open, such as bf16.")
@click.option("--k", "ks", metavar="N,…", help="Products of an output.  [default: 1024,4096,16384; that of PRODUCT or FILE]")
@click.option("--promote-every", "intervals", metavar="N,…", help="Products, or none.  [default: none,128; as PRODUCT]")
@click.option("--split-k", "splits", metavar="N,…", help="Slices of K.  [default: 1; as PRODUCT]")
@click.option("--out", metavar="FORMAT", help="What D is rounded to.  [default: nothing; as PRODUCT]")
@click.option("--data", default="normal,positive", show_default=True, metavar="KIND|FILE,…", help="Operands.")
@click.option("--scale", "scales", default="none", show_default=True, metavar="KIND,…", help="What has a scale of its own.")
@click.option("--outputs", type=PositiveCount(), default=4096, show_default=True, help="Of each row, at least.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the operands.")
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "csv", "html"]), default="terminal")
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Keep it: .html, .csv, .md, others JSON; - is stdout.")
def budget_command(
    names: tuple[str, ...],
    dtype: str | None,
    ks: str | None,
    intervals: str | None,
    splits: str | None,
    out: str | None,
    data: str,
    scales: str,
    outputs: int,
    seed: int,
    form: str,
    output: Path | None,
) -> None:
    """Tell how wrong a product is, and how often to promote.

    Errors of D against exact sums, by exact emulation of a chain of an instruction, or of a measured product. In words: what
    promotion buys, the longest interval that keeps the error below the output's own rounding, which block-K that allows, and
    which atol a test may have.

    Data: normal, positive (uniform in [0, 1)), attention, cancelling, outliers, integers (-7 to 7); or FILE.npy, .pt or
    .safetensors with tensors a [M, K] and b [K, N], or a layer's weights [N, K], FILE:NAME where there are several. Scales:
    none, tensor, row, 1x128, 128x128 (B; A 1x128), mx32, nv16.

    Needs: nothing; extra fast to be fast, torch for .pt.

    Exit status: 0; 2 trouble; 130 interrupted.

    \b
    Example:
      accprobe budget QGMMA --k 7168 --promote-every none,128 --out bf16
    """
    from accprobe.budget.accumulation import of_named
    from accprobe.budget.error_report import BudgetRequest, ErrorReport, planned
    from accprobe.isa import formats

    request = BudgetRequest(
        ks=_each("--k", ks, _count),
        intervals=_each("--promote-every", intervals, lambda word: None if word == "none" else _count(word)),
        splits=_each("--split-k", splits, _count),
        out=formats.get(out) if out else None,
        data=_each("--data", data, _data) or (),
        scales=_each("--scale", scales, _scale) or (),
        outputs=outputs,
        seed=seed,
    )
    if request.out is not None and request.out.name not in _OUTS:
        raise AccprobeError(f"--out {out}: errors are told of results in {', '.join(_OUTS)}")
    in_file = named_form(output, _FORMS) if output and form == "terminal" else form
    if output:
        check_writable(output)
    accumulations = tuple({each.name: each for each in (of_named(name, dtype or "") for name in names)}.values())
    for each in accumulations:
        planned(each, request)
    for each in accumulations:
        if each.remark:
            tell(each.remark)
    with progress_bar("errors") as show:
        account = _account(ErrorReport(request, accumulations, ()), show)
    if account.entries or not account.interrupted:
        _print(account, form, in_file, output)
    if account.interrupted:
        from accprobe.report.words import so_many

        tell(f"interrupted: {so_many(len(account.entries), 'row')} known")
        sys.exit(INTERRUPTED)


def _account(account: ErrorReport, show: Show) -> ErrorReport:
    """Compute the rows and the summary; keep what is known after Ctrl-C."""
    from dataclasses import replace

    from accprobe.budget.advice import Advice, advice, sentences
    from accprobe.budget.error_report import entries

    found: list[ErrorRow] = []
    advised: list[Advice] = []
    request, interrupted = account.request, False
    try:
        for accumulation in account.accumulations:
            found.extend(entries(accumulation, request, show))
        for accumulation in account.accumulations:
            k = max(entry.k for entry in found if entry.accumulation == accumulation.name)
            if recommended := advice(accumulation, request, k, found, lambda what: show(0, None, what)):
                advised.append(recommended)
    except KeyboardInterrupt:
        interrupted = True
    return replace(account, entries=tuple(found), words=tuple(sentences(found, advised)), interrupted=interrupted)


def _print(account: ErrorReport, form: str, in_file: str, output: Path | None) -> None:
    """The table, or another form; into a file too."""
    if form == "terminal" and output != STDOUT:
        from accprobe.render.terminal.budget import budget_text
        from accprobe.render.terminal.console import console

        out = console()
        out.print(budget_text(account, out.width))
    if form == "terminal" and output is None:
        return
    deliver(plain(_text(account, in_file)), output)


def _text(account: ErrorReport, form: str) -> str:
    if form == "html":
        from accprobe.render.html import budget_page

        return budget_page(account)
    if form == "markdown":
        from accprobe.render.markdown import budget_markdown

        return budget_markdown(account)
    from accprobe.render.data import budget_csv, budget_json

    return budget_csv(account) if form == "csv" else budget_json(account)


def _each(option: str, words: str | None, read: Callable[[str], T]) -> tuple[T, ...] | None:
    """The values of an option, each once."""
    if words is None:
        return None
    try:
        return tuple(dict.fromkeys(read(word.strip()) for word in words.split(",")))
    except click.BadParameter as e:
        raise click.UsageError(f"{option} {words}: {e.message}") from None


def _count(word: str) -> int:
    return PositiveCount().convert(word, None, None)


def _data(word: str) -> Data:
    from accprobe.budget.data import DATA_KINDS

    if word in DATA_KINDS:
        return word
    if _FILE.search(word):
        from accprobe.cli.arrays import own_data

        return own_data(word)
    raise AccprobeError(f"'{word}' is no FILE.npy, .pt or .safetensors, and no kind of data; {nearest(word, DATA_KINDS)}")


def _scale(word: str) -> str:
    from accprobe.budget.quantise import SHARINGS

    if word not in SHARINGS:
        raise AccprobeError(f"unknown scale '{word}'; {nearest(word, SHARINGS)}")
    return word
