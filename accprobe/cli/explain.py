"""`accprobe explain`: the known plan that gives the bits of a result; `accprobe predict`: the bits that a model gives."""

from __future__ import annotations

import io
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accprobe.cli.output import DIFFERS, FILE, Output, check_no_input, check_writable, output_options, print_message
from accprobe.errors import AccprobeError
from accprobe.render.progress import PERCENT, progress_bar

if TYPE_CHECKING:
    from accprobe.callables.spec import Spec
    from accprobe.gemm.known_plans import Explanation
    from accprobe.isa.formats import Bits, Format

# Rows and columns of D that are compared with the products of transposed operands, and how much nearer D must be to one.
COMPARED_LINES, CLEARLY = 32, 16


@click.command("explain")
@click.option("--a", "a", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Matrix A [M, K].")
@click.option("--b", "b", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Matrix B [K, N].")
@click.argument("got", metavar="RESULT", type=click.Path(path_type=Path))
@click.argument("other", metavar="[RESULT2]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--dtype", metavar="FORMAT", help="Format of A and B if their files hold raw integers, or are .npy files of bf16 or fp8."
)
@click.option(
    "--out", metavar="FORMAT", help="Format of the results if their files hold raw integers, or are .npy files of bf16 or fp8."
)
@click.option("--all", "everything", is_flag=True, help="Compare every element of a large result, instead of a sample.")
@output_options("json")
def explain_command(
    a: Path,
    b: Path,
    got: Path,
    other: Path | None,
    dtype: str | None,
    out: str | None,
    everything: bool,
    to: Output,
) -> None:
    """Find the known plan that reproduces a result bit for bit.

    RESULT and RESULT2 are D = A·B [M, N], as two programs computed it. A plan is a summation tree and its arithmetic. accprobe
    knows chains of measured or published instructions, with and without promotion and split-K. It also knows f64 sums in any
    order, rounded at the end. The output also names regions with different plans. It names each k with a product missing,
    counted twice, or taken from the wrong row of B, if enough results show it. Files are .npy, .pt or .safetensors with
    one matrix each. numpy has no bf16 or fp8: for .npy files of these, give --dtype and --out.

    Needs: nothing; torch for .pt files. Large products are faster with the extra fast (numba).

    Exit status 0: one plan explains every compared element of all results. 1: elements are not explained, products are missing
    or counted twice, or a region or the other result has another plan. 2: error.

    \b
    Example:
      accprobe explain --a a.npy --b b.npy on_h100.npy on_h200.npy
    """
    from accprobe.cli.arrays import read_matrix
    from accprobe.gemm.explain import AT_MOST, explain
    from accprobe.gemm.known_plans import differing_plans
    from accprobe.isa import formats
    from accprobe.render.subjects.explanation import explanation_blocks

    given = formats.get(dtype) if dtype else None
    (of_a, fmt_a), (of_b, fmt_b) = read_matrix(a, given), read_matrix(b, given)
    results = [read_matrix(path, formats.get(out) if out else None) for path in (got, other) if path is not None]
    specs = _specs(of_a, of_b, fmt_a, fmt_b, results[0][1])
    spec = specs[0]
    for path, (d, fmt) in zip((got, other), results, strict=False):
        if d.shape != (spec.m, spec.n) or fmt is not spec.out:
            raise AccprobeError(f"{path} is {list(d.shape)} of {fmt}; expected {[spec.m, spec.n]} of {spec.out}")
    words = [d for d, _ in results]
    (of_a, of_b), transposed = _arranged(spec, of_a, of_b, words[0])
    most = 1 << 62 if everything else AT_MOST  # more elements than any result has
    with progress_bar("plans") as show:
        found = explain(specs, of_a, of_b.T.copy(), words, most, lambda name, part: show(int(PERCENT * part), PERCENT, name))
    names = [str(path) for path in (got, other) if path is not None]
    differ = differing_plans(found)
    differs = bool(differ) or any(each.mismatches or each.adds_wrong_products or each.regions for each in found)
    results_json = [{"file": name, **_explanation(each, spec.out)} for name, each in zip(names, found, strict=True)]
    data = {"transposed": transposed, "results": results_json} | ({} if differ is None else {"differ": differ})
    text = json.dumps(data, indent=2) + "\n"
    to.deliver(lambda: explanation_blocks(names, found, spec.out, transposed), differs, json=lambda: text)
    if differs:
        sys.exit(DIFFERS)


def _specs(a: Bits, b: Bits, of_a: Format, of_b: Format, out: Format) -> list[Spec]:
    """Return the ways to read the operands: some units read f32 as tf32."""
    from accprobe.callables.spec import Spec
    from accprobe.gemm.plans import any_known
    from accprobe.isa.formats import FORMATS

    if a.shape[1] != b.shape[0]:
        which = "B" if a.shape[1] == b.shape[1] else "A" if a.shape[0] == b.shape[0] else ""
        turned = which and f"; save {which} transposed"
        raise AccprobeError(f"A has shape {list(a.shape)} and B {list(b.shape)}; expected [M, K] and [K, N]{turned}")
    if of_a is not of_b and not any_known(of_a, of_b):
        unlike = f"A has the type {of_a} and B {of_b}"
        raise AccprobeError(f"{unlike}, and no known instruction multiplies these: give both in one type")
    (m, k), n = a.shape, b.shape[1]
    f32, tf32 = FORMATS["f32"], FORMATS["tf32"]
    several = [(f32, f32), (tf32, tf32)] if of_a is of_b is f32 else [(of_a, of_b)]
    return [Spec(m, n, k, x, y, out) for x, y in several]


def _arranged(spec: Spec, a: Bits, b: Bits, d: Bits) -> tuple[tuple[Bits, Bits], list[str]]:
    """Return A [M, K] and B [K, N], and which of them were transposed because D is near that product alone."""
    import numpy as np

    rows, columns = (np.linspace(0, n - 1, min(n, COMPARED_LINES)).astype(int) for n in d.shape)
    got = spec.out.values(d[np.ix_(rows, columns)])
    errors: dict[str, float] = {}
    ways = {"": (a, b)} | ({"B": (a, b.T)} if spec.k == spec.n else {}) | ({"A": (a.T, b)} if spec.m == spec.k else {})
    ways |= {"AB": (a.T, b.T)} if spec.m == spec.k == spec.n else {}
    with np.errstate(all="ignore"):
        for way, (x, y) in ways.items():
            away = np.abs(spec.a.values(x[rows]) @ spec.b.values(y[:, columns]) - got)
            errors[way] = float(np.median(away[np.isfinite(away)])) if np.isfinite(away).any() else np.inf
    nearest = min(errors, key=errors.__getitem__)
    way = nearest if errors[nearest] * CLEARLY < errors[""] else ""
    return ways[way], list(way)


def _explanation(found: Explanation, out: Format) -> dict[str, Any]:
    """Return the JSON of one result or region.

    words: number of elements of the result; compared: of these; wrong: of the compared ones. more: number of plans beside
    `plans` that give the same bits in a sample. others_tried: whether every known arithmetic was tried; false if the search
    ended at the first that explains all or nearly all of the result. unknown: facts about a result that no plan explains, else
    null.
    """
    from accprobe.gemm.verification import EXPECTED_NAN, is_nan_pattern

    def expected(pattern: int) -> str:
        return EXPECTED_NAN if is_nan_pattern(out, pattern) else hex(pattern)

    return {
        "words": found.words,
        "compared": found.compared,
        "wrong": found.mismatches,
        "plans": [{"name": plan.name, "findings": dict(plan.findings)} for plan in found.plans],
        "more": found.more,
        "others_tried": not found.stopped,
        "regions": [{"rows": part.rows, "columns": part.columns, **_explanation(part.found, out)} for part in found.regions],
        "unexplained": [
            {"row": x.row, "column": x.column, "got": hex(x.got), "expected": expected(x.expected)} for x in found.places
        ],
        "unknown": found.unknown and asdict(found.unknown),
    }


@click.command("predict")
@click.argument("like", metavar="MODEL")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", required=False, type=click.Path(path_type=Path))
@click.option("--c", "c", type=click.Path(path_type=Path), metavar="FILE", help="Addend C, [M, N] in the type of D.")
@click.option("--scale-a", type=click.Path(path_type=Path), metavar="FILE", help="float32 scales of A.")
@click.option("--scale-b", type=click.Path(path_type=Path), metavar="FILE", help="float32 scales of B.")
@click.option(
    "--promote-every", type=int, metavar="N", help="Promotion interval: products after which a partial sum is added to float32."
)
@click.option("--dim", type=click.Choice(["first", "last"]), default="last", show_default=True, help="Reduced dimension of A.")
@click.option(
    "-o", "out", required=True, type=FILE, metavar="FILE.npy", help="Output file. The previous file is kept as FILE~."
)
def predict_command(
    like: str,
    a: Path,
    b: Path | None,
    c: Path | None,
    scale_a: Path | None,
    scale_b: Path | None,
    promote_every: int | None,
    dim: str,
    out: Path,
) -> None:
    """Compute results with a recorded or published model.

    With A [M, K] and B [K, N], MODEL is an instruction (QGMMA, h200:wgmma.m64n8k32.f32.e4m3.e4m3) or a recorded product
    (products-h200:torch:mm). A alone needs a function (functions-h200:ex2.approx.ftz.f32), computed for each element, or a
    recorded reduction; torch:cross_entropy takes its targets as B. The shapes and types of the operands choose the row of the
    report. If several rows fit, add words of one, as in 'products-h200:torch:mm 512x512x512 bf16 -> bf16'.

    Files are .npy, .pt or .safetensors with one array each.

    Needs: nothing; torch for .pt files. Large products are faster with the extra fast (numba).

    Exit status 0: written. 2: error.

    \b
    Examples:
      accprobe predict products-h200:torch:mm a.npy b.npy -o d.npy
      accprobe predict functions-h200:ex2.approx.ftz.f32 x.npy -o y.npy
    """
    import numpy as np

    from accprobe.build import atomic
    from accprobe.cli.arrays import read_array
    from accprobe.emulate import predict

    if out.suffix != ".npy":
        raise click.UsageError(f"-o {out}: the result is written as .npy; let the name end in .npy")
    check_writable(out)
    check_no_input(out, (a, b, c, scale_a, scale_b))
    if (scale_a is None) != (scale_b is None):
        raise AccprobeError("give both --scale-a and --scale-b, or neither")
    scales = None if scale_a is None or scale_b is None else (read_array(scale_a), read_array(scale_b))
    start = None if c is None else read_array(c)
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always", UserWarning)
        d = predict(
            like,
            read_array(a),
            None if b is None else read_array(b),
            start,
            scales=scales,
            promote_every=promote_every,
            dim=0 if dim == "first" else -1,
        )
    for remark in dict.fromkeys(str(each.message) for each in remarks):
        print_message(remark)
    file = io.BytesIO()
    np.save(file, d)
    atomic.keep_previous(out)
    atomic.save(out, file.getvalue())
    click.echo(f"{out}: {list(d.shape)} {d.dtype}, as {like} computes it")
