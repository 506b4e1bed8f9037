"""`accprobe reduce`: the arithmetic of sums and means, of composites such as softmax, and of collectives."""

from __future__ import annotations

import re
from typing import Any

import click

from accprobe.cli.gemm import measure_each, swept_sizes
from accprobe.cli.output import Output, count, seed_option
from accprobe.cli.product_run import ProductRun, ProductSetting
from accprobe.cli.reports import report_options
from accprobe.errors import AccprobeError

_SHAPE_HELP = "Rows, and elements per row. Repeatable.  [default: 64x1024; with --ranks: 1024]"
_DIM_HELP = "Reduced dimension: last (x is [ROWS, K]), first ([K, ROWS]) or all ([K]; give --shape 1xK).  [default: last]"
_SHAPE = re.compile(r"(\d{1,30})(?:[x×](\d{1,30}))?")


@click.command("reduce")
@click.argument("callable_", metavar="CALLABLE")
@click.option("--shape", "shapes", multiple=True, metavar="ROWSxK", help=_SHAPE_HELP)
@click.option("--dim", type=click.Choice(("last", "first", "all")), help=_DIM_HELP)
@click.option("--dtype", metavar="FORMAT", default="f32", show_default=True, help="Format of the elements.")
@click.option("--out", metavar="FORMAT", help="Format of the result.  [default: what CALLABLE returns]")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Option of CALLABLE, such as eps=1e-5. Repeatable.",
)
@click.option("--versus", metavar="CALLABLE", help="Second callable, probed in the same way and compared.")
@click.option(
    "--sweep",
    metavar="rows=N,N,…",
    help="Numbers of rows, used instead of the rows of --shape. The results of the rows that they share are compared.",
)
@click.option("--ranks", type=count, metavar="N", help="Collective: number of ranks; --shape gives its elements.")
@click.option("--backend", type=click.Choice(("gloo", "nccl")), help="Collective: backend.  [default: gloo]")
@click.option("--op", type=click.Choice(("sum", "avg")), help="Collective: operation.  [default: sum]")
@click.option("--device", metavar="cuda:N|cpu", help="Device.  [default: the first usable GPU, else the CPU]")
@click.option("--arrays", type=click.Choice(("torch", "numpy", "jax")), help="Arrays that your function takes.")
@click.option(
    "--elements",
    type=count,
    help="Minimum of fresh results to verify the plan on.  [default: 2^18 from at most 2^14 calls of CALLABLE,"
    " on a GPU 2^20 from at most 2^17; composites: see above]",
)
@seed_option
@report_options()
def reduce_command(
    callable_: str,
    shapes: tuple[str, ...],
    dim: str | None,
    dtype: str,
    out: str | None,
    options: tuple[str, ...],
    versus: str | None,
    sweep: str | None,
    ranks: int | None,
    backend: str | None,
    op: str | None,
    device: str | None,
    arrays: str | None,
    elements: int | None,
    seed: int,
    to: Output,
) -> None:
    """Find the arithmetic of a reduction.

    CALLABLE is FILE.py:FUNCTION or package:function (torch:sum, numpy:mean) that adds one dimension of x. accprobe probes it
    until a plan is found. A plan is the order of the additions (lanes, blocks, trees) and the format and rounding of partial
    sums. A row is confirmed only if the plan predicts fresh results bit for bit. A mean needs a K that is a power of two.

    CALLABLE can also be a composite of torch: softmax, rms_norm, layer_norm, norm, logsumexp, cross_entropy, var or std.
    accprobe then finds the order of its sum and the steps around it. On a CPU, only rms_norm and norm are supported. For
    softmax, rms_norm and layer_norm in 16 bits, --elements is 2^25 by default. norm, logsumexp, cross_entropy, var and std have
    one result per row, for which the default is at most 2^25/K, on a GPU 2^27/K. In f32 on a GPU the default is that of other
    reductions.

    In the output, k is the place of an element in its sum. Column n of row 0 is the result of row n of x. --sweep groups
    numbers of rows by the bits of the rows that they share, and measures a plan for each group.

    With --ranks, CALLABLE is torch.distributed:all_reduce or reduce_scatter, and accprobe starts a process for each rank. In
    the output, k is then the contributing rank, a row the rank that returns the result, a column an element. --backend nccl has
    run with two GPUs, never with more.

    Needs: nothing for numpy; torch for torch callables; extra cuda13 or cuda12 for a GPU.

    Exit status 0: every row is confirmed and no result is wrong. 1: a row is not confirmed, an element is missing or counted
    twice, two rows differ or may differ, or --sweep found different bits. 2: it could not be probed. 130: interrupted.

    \b
    Examples:
      accprobe reduce numpy:sum --shape 64x4096
      accprobe reduce torch:sum --dtype bf16 --dim first
      accprobe reduce torch:sum --shape 64x4096 --sweep rows=1,8,64
      accprobe reduce torch.distributed:all_reduce --ranks 4 --shape 4096 --dtype bf16
    """
    from accprobe.callables.opening import ProductRequest
    from accprobe.callables.options import parse_options
    from accprobe.callables.reductions import COLLECTIVES, check_ranks
    from accprobe.isa import formats

    callables = [callable_, *([versus] if versus else [])]
    for name in callables:
        check_ranks(name, ranks)
    rows = swept_sizes("rows", sweep, versus)
    sizes = [_shape(each, ranks) for each in shapes] or [(64, 1024) if ranks is None else (1024, ranks)]
    if ranks is None and (stray := "--op" if op else "--backend" if backend else ""):
        raise AccprobeError(f"{stray} belongs to collectives such as {COLLECTIVES[0]}: leave it out")
    if ranks is not None:
        backend = backend or "gloo"
        if dim:
            raise AccprobeError("--dim has no effect on a collective, which adds over the ranks: leave it out")
        if rows:
            raise AccprobeError("--sweep compares numbers of rows, which a collective does not have: leave it out")
        dim, options = "ranks", (*options, f"backend={backend}", f"op={op or 'sum'}")
        device = "cpu" if backend == "gloo" and device is None else device
    a, d = formats.get(dtype), formats.get(out) if out else None
    reduced: Any = dim or "last"
    requests = [ProductRequest((ranks or 1, each, k), a, a, d, reduced=reduced) for each, k in dict.fromkeys(sizes)]
    chosen = parse_options(options)
    settings = [ProductSetting(name, request, some, arrays) for name in callables for request in requests for some in chosen]
    measure_each(ProductRun(elements, seed, device), lambda: settings, to, rows)


def _shape(text: str, ranks: int | None) -> tuple[int, int]:
    """Return the rows and K of "64x4096"; of a collective, its elements, "4096", and the number of ranks."""
    from accprobe.callables.spec import check_sizes

    found = _SHAPE.fullmatch(text.strip())
    if found is None or (found[2] is None) == (ranks is None):
        expected = "ROWSxK, such as 64x4096" if ranks is None else "the number of elements, such as 4096"
        raise AccprobeError(f"'{text:.40}' is not a shape: give {expected}")
    rows, k = int(found[1]), int(found[2] or ranks or 0)
    if not rows or k < 2:
        raise AccprobeError(f"--shape {text} has nothing to add: give at least {'1x2' if ranks is None else '1'}")
    check_sizes(1, rows, k)
    return rows, k
