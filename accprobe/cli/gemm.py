"""`accprobe gemm`: what arithmetic a whole matrix product has, whoever computes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli import interrupts
from accprobe.cli.count import PositiveCount
from accprobe.cli.interrupts import TimeLimitReached, ending_by, time_limit_option
from accprobe.cli.output import (
    OutputFile,
    check_report,
    check_writable,
    end_interrupted,
    list_names,
    named_form,
    saving,
    tell,
    to_stdout,
    write,
)
from accprobe.cli.product_run import ProductQuestion, ProductRun
from accprobe.cli.streams import libraries_on_stderr
from accprobe.cli.supervision import supervised
from accprobe.errors import AccprobeError, DeviceError
from accprobe.render.terminal.progress import progress_bar

if TYPE_CHECKING:
    from accprobe.budget.data import OwnData
    from accprobe.gemm.callables.opening import ProductRequest
    from accprobe.report.report import Report

NOT_SO = 1
SCALE_NAMES = ("none", "tensor", "row", "1x128", "128x128")


@click.command("gemm")
@click.argument("callable_", metavar="[CALLABLE]", required=False)
@click.option("--shape", "shapes", multiple=True, metavar="MxNxK", help="May be given again.  [default: 256x256x1024]")
@click.option("--dtype", metavar="NAME[:NAME]", help="Format of A, and of B if another.  [default: CALLABLE's]")
@click.option("--out", metavar="NAME", help="Format of D.  [default: CALLABLE's]")
@click.option("--scale", type=click.Choice(SCALE_NAMES), default="none", show_default=True, help="What has a scale.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE,…", help="Of CALLABLE, or a flag of torch's.")
@click.option("--versus", metavar="CALLABLE", help="Another one, asked the same.")
@click.option("--sweep", metavar="m=N,N,…", help="Which M give the same bits for the same row of A, at its place.")
@click.option("--device", metavar="cuda:N|cpu", help="[default: the first GPU that can be used, else the CPU]")
@click.option("--arrays", type=click.Choice(("torch", "numpy", "cupy", "jax")), help="What a function of yours takes.")
@click.option(
    "--elements",
    type=PositiveCount(),
    help="Fresh elements to prove it on.  [default: 2^18; 2^22 on a GPU; of 4,096 calls at most]",
)
@click.option(
    "--data",
    metavar="FILE[:TENSOR]",
    help="Operands of your own to verify the plan on, too: .npy, .pt or .safetensors with a [M, K] and b [K, N], or one [N, K]"
    " matrix for B. Rows of A and columns of B are drawn from it.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the operands.")
@click.option("--ncu", is_flag=True, help="Nsight Compute counts which opcodes a call executes.")
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "html"]), default="terminal")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="Keep the products in this report, as they are found; one of the same device keeps what else it has, and is kept as"
    " FILE~ too. - is standard output.",
)
@time_limit_option
@click.option("--list", "listing", is_flag=True, help="The callables that have names, and what they lack here.")
def gemm_command(
    callable_: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    out: str | None,
    scale: str,
    options: tuple[str, ...],
    versus: str | None,
    sweep: str | None,
    device: str | None,
    arrays: str | None,
    elements: int | None,
    data: str | None,
    seed: int,
    ncu: bool,
    form: str,
    output: Path | None,
    time_limit: float | None,
    listing: bool,
) -> None:
    """Find what arithmetic a matrix product has.

    CALLABLE is a name that --list tells, FILE.py:FUNCTION or package.module:FUNCTION. A function takes a [M, K] and b [K, N],
    with --scale the scales of both too, and gives d [M, N]; --option gives it keyword arguments. It is asked until a plan is
    found: which k join when, in what precision, how partial sums are merged, scaled and rounded. The plan predicts fresh
    results bit for bit, or the row is not confirmed.

    Several shapes, values of options, or --versus: each is a row, and what differs is said.

    Needs: extra cuda13 or cuda12 for torch, triton and cupy on a GPU; nothing for what numpy computes.

    On a terminal each finding is printed as it is found. Ctrl-C and --time-limit keep what is known of the product that is
    being measured: its row is `inferred`, with the reason.

    Exit status: 0 every row is confirmed, and nothing is wrong with the results; 1 some is not, a product is dropped or counted
    twice, two rows differ, with --sweep the same row has other bits, or the time limit is over; 2 it could not be asked;
    130 interrupted.

    \b
    Examples:
      accprobe gemm numpy:matmul --shape 64x64x512
      accprobe gemm torch:_scaled_mm --dtype e4m3 --option use_fast_accum=True,False
      accprobe gemm kernels.py:my_gemm --dtype bf16 --versus torch:mm -o report.json
      accprobe gemm torch:mm --shape 128x4096x4096 --sweep m=1,2,4,8,16,128
    """
    if listing:
        _list(form)
        return
    if callable_ is None:
        raise click.UsageError("no CALLABLE is given; `accprobe gemm --list` tells those that have names")
    output, form = to_stdout(output, form)
    ms = _sizes(sweep) if sweep else ()
    if output:
        named_form(output, {})
        check_writable(output)
    supervised(callable_ if versus is None else f"{callable_} or {versus}", output)
    check_report(output)
    run = ProductRun(elements, seed, device, ncu, None if data is None else _own_data(data))
    stopped: KeyboardInterrupt | AccprobeError | None = None
    ends = partial(_end_now, run, form, output)
    with libraries_on_stderr(), saving(output) as save, progress_bar("opening") as show, ending_by(ends):
        try:
            with interrupts.time_limit(time_limit):
                names = [callable_, *([versus] if versus else [])]
                questions = _questions(names, shapes, _asking(dtype, out, scale), options, arrays)
                run.open_each(questions)
                for question in questions:
                    for row in run.swept(question, ms, show) if ms else [run.asked(question, show)]:
                        save(run.add(row))
        except (KeyboardInterrupt, AccprobeError) as e:
            stopped = e
            ended_early = isinstance(e, KeyboardInterrupt | DeviceError)
            if ended_early and (report := run.keep_measured(_why_stopped(e))):
                save(report)
    _end(run, form, output, stopped)


def _why_stopped(error: KeyboardInterrupt | AccprobeError) -> str:
    return str(error) or "interrupted"


def _end(run: ProductRun, form: str, output: Path | None, stopped: KeyboardInterrupt | AccprobeError | None) -> None:
    if run.report is not None and run.rows and (stopped is None or output is None or isinstance(stopped, TimeLimitReached)):
        _print(run, run.report, form)
    for sentence in run.unseen:
        tell(sentence)
    if isinstance(stopped, KeyboardInterrupt):
        in_part = " (the last in part)" if run.rows and run.rows[-1].reason == _why_stopped(stopped) else ""
        count = f"{len(run.rows)} product{'s' * (len(run.rows) != 1)}{in_part}" if run.rows else ""
        end_interrupted(count, output, stopped)
    if stopped is not None:
        raise stopped
    if run.wrong:
        sys.exit(NOT_SO)


def _end_now(run: ProductRun, form: str, output: Path | None, stopped: KeyboardInterrupt) -> None:
    """In the middle of a callable that does not let itself be interrupted."""
    run.keep_measured(_why_stopped(stopped))
    if output and run.report and run.rows:
        with saving(output) as save:
            save(run.report)
    _end(run, form, output, stopped)


def _questions(
    names: Sequence[str], shapes: Sequence[str], asking: ProductRequest, options: Sequence[str], arrays: str | None
) -> list[ProductQuestion]:
    """Each callable, shape and combination of options; of the options, a second callable is given those that it takes.

    arrays: of functions that have no name here, where there is one.
    """
    from accprobe.gemm.callables.opening import DEFAULT_SHAPE, UserFunction, find_callable
    from accprobe.gemm.callables.options import parse_options
    from accprobe.gemm.spec import parse_shape

    every = {name: find_callable(name) for name in names}
    any_own = any(isinstance(found, UserFunction) for found in every.values())
    questions = []
    for name, found in every.items():
        for shape in dict.fromkeys(map(parse_shape, shapes)) or (DEFAULT_SHAPE,):
            for chosen in parse_options(options):
                taken = {key: value for key, value in chosen.items() if name == names[0] or found.takes(key)}
                of = arrays if isinstance(found, UserFunction) or not any_own else None
                question = ProductQuestion(name, replace(asking, shape=shape), taken, of)
                questions += [question] if question not in questions else []
    return questions


def _own_data(name: str) -> OwnData:
    from accprobe.cli.arrays import own_data

    return own_data(name)


def _asking(dtype: str | None, out: str | None, scale: str) -> ProductRequest:
    from accprobe.gemm.callables.opening import ProductRequest
    from accprobe.isa import formats

    a, _, b = (dtype or "").partition(":")
    return ProductRequest(
        a=formats.get(a) if a else None,
        b=formats.get(b) if b else None,
        out=formats.get(out) if out else None,
        scale=_scale(scale),
    )


def _scale(name: str) -> Any:
    return None if name == "none" else name


def _sizes(text: str) -> tuple[int, ...]:
    """M of "m=1,2,4"."""
    name, _, values = text.partition("=")
    words = [word.strip() for word in values.split(",") if word.strip()]
    if name.strip() != "m" or not words or not all(word.isdigit() and int(word) for word in words):
        raise AccprobeError(f"--sweep '{text}': give m and its values, such as m=1,2,4,8,16")
    return tuple(dict.fromkeys(map(int, words)))


def _list(form: str) -> None:
    from accprobe.gemm.callables.builtin import BUILTIN

    if form == "json":
        told = [{"name": each.name, "title": each.title, "lacks": each.why_not() or None} for each in BUILTIN.values()]
        write(json.dumps(told, indent=2) + "\n")
        return
    if form != "terminal":
        raise click.UsageError(f"--list has no {form}: give --format json, or none")
    yours = ("FILE.py:FUNCTION, package.module:FUNCTION", "a function of yours: d = f(a, b), or f(a, b, scale_a, scale_b)")
    every = ((listed.name, listed.title, listed.why_not()) for listed in BUILTIN.values())
    list_names([*((name, f"{title}{f'; {missing}' if missing else ''}") for name, title, missing in every), yours])


def _print(run: ProductRun, report: Report, form: str) -> None:
    if form != "terminal":
        said = "".join(f"\n- {sentence}" for sentence in run.said) if form == "markdown" else ""
        write(_text(report, form) + (f"{said}\n" if said else ""))
        return
    from accprobe.render.terminal.console import console
    from accprobe.render.terminal.products import product_table

    out = console()
    out.print(product_table(run.rows, expand=True))
    if run.said:
        out.print("", *run.said, sep="\n", markup=False, highlight=False)


def _text(report: Report, form: str) -> str:
    if form == "json":
        return report.dumps()
    if form == "markdown":
        from accprobe.render.markdown import rows_markdown

        return rows_markdown(report)
    from accprobe.render.html import report_page

    return report_page(report)
