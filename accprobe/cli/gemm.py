"""`accprobe gemm`: the arithmetic of a matrix product, as any callable computes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.output import DIFFERS, Output, count, list_names, print_message, seed_option
from accprobe.cli.product_run import ProductRun, ProductSetting
from accprobe.cli.reports import OnReport, measure_report, report_options
from accprobe.errors import AccprobeError, DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accprobe.callables.builtin import Builtin
    from accprobe.render.document import Element
    from accprobe.render.progress import Show

SCALE_NAMES = ("none", "tensor", "row", "1x128", "128x128")


@click.command("gemm")
@click.argument("callable_", metavar="[CALLABLE]", required=False)
@click.option("--shape", "shapes", multiple=True, metavar="MxNxK", help="Shape. Repeatable.  [default: 256x256x1024]")
@click.option("--dtype", metavar="A[:B]", help="Format of A, and of B if it differs.  [default: see --list]")
@click.option("--out", metavar="FORMAT", help="Format of D.  [default: see --list]")
@click.option("--scale", type=click.Choice(SCALE_NAMES), default="none", show_default=True, help="Scales of the operands.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Option of CALLABLE, such as use_fast_accum=False, or a flag of torch.backends.cuda.matmul, such as"
    " allow_tf32=True. Repeatable.",
)
@click.option("--versus", metavar="CALLABLE", help="Second callable, probed in the same way and compared.")
@click.option(
    "--sweep",
    metavar="m=M,M,…",
    help="Values of M, used instead of the M of --shape: compare the rows of D that they share.",
)
@click.option("--device", metavar="cuda:N|cpu", help="Device.  [default: the first usable GPU, else the CPU]")
@click.option("--arrays", type=click.Choice(("torch", "numpy", "jax")), help="Arrays that your function takes.")
@click.option(
    "--elements",
    type=count,
    help="Fresh elements to verify the plan on.  [default: 2^18, on a GPU 2^22, from at most 4096 calls of CALLABLE]",
)
@click.option(
    "--data",
    metavar="FILE[:TENSOR]",
    help="File with your own operands. A .pt or .safetensors file has tensors a [M, K] and b [K, N], or one tensor with weights"
    " [N, K] for B. An .npy file has weights. accprobe also verifies the plan on rows and columns drawn from them.",
)
@seed_option
@report_options()
@click.option("--list", "listing", is_flag=True, help="List built-in callables and missing dependencies.")
def gemm_command(
    listing: bool,
    callable_: str | None,
    versus: str | None,
    sweep: str | None,
    elements: int | None,
    seed: int,
    device: str | None,
    data: str | None,
    to: Output,
    **given: Any,
) -> None:
    """Find the arithmetic of a matrix product.

    CALLABLE is a built-in name (see --list), FILE.py:FUNCTION or package.module:FUNCTION. A function takes a [M, K] and b
    [K, N], with --scale also the scales of both, and returns d [M, N]. Without --scale, a function that takes torch tensors
    and has a parameter `bias` without a default also gets a bias [N]. --option passes keyword arguments. accprobe infers the
    accumulation order, the precision, and how partial sums are combined, scaled and rounded. A row is confirmed only if this
    plan predicts fresh results bit for bit.

    Each shape, each value of an option, and --versus give a row; the differences follow. Ctrl-C and --time-limit keep what is
    known of the current product.

    Needs: nothing for numpy; torch for torch callables; extra cuda13 or cuda12 for torch and triton on a GPU.

    Exit status 0: every row is confirmed and no result is wrong. 1: a row is not confirmed, a term is missing or counted twice,
    two rows differ or may differ, or --sweep found different bits. 2: it could not be probed. 130: interrupted.

    \b
    Examples:
      accprobe gemm numpy:matmul --shape 64x64x512
      accprobe gemm torch:_scaled_mm --dtype e4m3 --option use_fast_accum=True,False
      accprobe gemm kernels.py:my_gemm --dtype bf16 --versus torch:mm -o report.json
      accprobe gemm torch:mm --shape 128x4096x4096 --sweep m=1,2,4,8,16,128
    """
    if listing:
        if callable_ is not None:
            raise click.UsageError(f"--list prints every built-in callable: leave out {callable_}")
        _list()
        return
    if callable_ is None:
        raise click.UsageError("no CALLABLE is given; `accprobe gemm --list` lists the built-in ones")
    ms = swept_sizes("m", sweep, versus)
    callables = [callable_, *([versus] if versus else [])]
    from accprobe.cli.arrays import own_data

    run = ProductRun(elements, seed, device, own_data(data) if data else None)
    measure_each(run, lambda: _settings(callables, **given), to, ms)


def measure_each(
    run: ProductRun,
    settings_of: Callable[[], list[ProductSetting]],
    to: Output,
    ms: tuple[int, ...] = (),
) -> None:
    """Measure a row for each setting, save and print them. Exit with status 1 if one is wrong or not confirmed, or if two
    differ. Ctrl-C and the time limit keep the results so far.
    """

    def measure(on_report: OnReport, show: Show) -> None:
        try:
            settings = settings_of()
            run.open_each(settings)
            for setting in settings:
                for row in run.sweep_rows(setting, ms, show) if ms else [run.measure(setting, show)]:
                    on_report(run.add(row))
        except (KeyboardInterrupt, DeviceError, MemoryError) as e:
            if report := run.keep_measured(str(e) or "interrupted"):
                on_report(report)
            if isinstance(e, MemoryError):
                raise DeviceError(f"not enough memory: give a smaller --shape or fewer --elements ({e})") from None
            raise

    try:
        measure_report(measure, to, lambda _: _blocks(run))
    finally:
        for sentence in run.not_read:
            print_message(sentence)
    if run.wrong:
        sys.exit(DIFFERS)


def _settings(
    callables: list[str],
    shapes: tuple[str, ...],
    dtype: str | None,
    out: str | None,
    scale: str,
    options: tuple[str, ...],
    arrays: str | None,
) -> list[ProductSetting]:
    """Return each callable, shape and combination of options once; a second callable is given the options that it takes."""
    from accprobe.callables.opening import DEFAULT_SHAPE, ProductRequest, UserFunction, find_callable
    from accprobe.callables.options import parse_options
    from accprobe.callables.spec import parse_shape
    from accprobe.isa import formats

    of_a, _, of_b = (dtype or "").partition(":")
    a, b, d = (formats.get(name) if name else None for name in (of_a, of_b, out))
    scale_of: Any = None if scale == "none" else scale
    every = {name: find_callable(name) for name in callables}
    any_own = any(isinstance(found, UserFunction) for found in every.values())
    settings: dict[str, ProductSetting] = {}
    for name, found in every.items():
        for shape in dict.fromkeys(map(parse_shape, shapes)) or (DEFAULT_SHAPE,):
            for chosen in parse_options(options):
                taken = {key: value for key, value in chosen.items() if name == callables[0] or found.takes(key)}
                own = arrays if isinstance(found, UserFunction) or not any_own else None
                setting = ProductSetting(name, ProductRequest(shape, a, b, d, scale_of), taken, own)
                settings.setdefault(repr(setting), setting)
    return list(settings.values())


def swept_sizes(of: str, text: str | None, versus: str | None) -> tuple[int, ...]:
    """Return the sizes in "m=1,2,4" or "rows=1,2,4", none without --sweep. of: the name. Raises AccprobeError."""
    if text is None:
        return ()
    if versus:
        raise AccprobeError("--sweep compares sizes of one callable: leave out --versus, or run it for each callable")
    name, _, values = text.partition("=")
    words = [word.strip() for word in values.split(",") if word.strip()]
    if name.strip() != of or not words or not all(word.isdigit() and int(word) for word in words):
        raise AccprobeError(f"--sweep '{text}' is not a list of {of}; give for example {of}=1,8,64")
    if len(sizes := tuple(dict.fromkeys(map(int, words)))) < 2:
        raise AccprobeError(f"--sweep '{text}' has one size, with which nothing is compared; give for example {of}=1,8,64")
    return sizes


def _list() -> None:
    from accprobe.callables.builtin import BUILTIN

    yours = (
        "FILE.py:FUNCTION, package.module:FUNCTION",
        "your function: d = f(a, b), f(a, b, bias) or f(a, b, scale_a, scale_b); default f32 -> what it returns",
    )
    every = [(listed.name, "; ".join(filter(None, _listed(listed)))) for listed in BUILTIN.values()]
    list_names([*every, yours])


def _listed(builtin: Builtin) -> tuple[str, str, str]:
    """Return the title, the default formats and the missing dependencies."""
    from accprobe.isa.formats import FORMATS

    first = FORMATS[builtin.formats[0]]
    return builtin.title, f"default {first} -> {builtin.result(first)}", builtin.explain_unavailable()


def _blocks(run: ProductRun) -> Iterator[Element]:
    from accprobe.render.document import paragraphs
    from accprobe.render.subjects.products import products_blocks

    if run.sweeping:
        yield from paragraphs(run.sentences, "strong")
    yield from products_blocks(run.rows, expand=True)
    if not run.sweeping:
        yield from paragraphs(run.sentences)
