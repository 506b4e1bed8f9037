"""`accprobe predict`: the results of a recorded or published model for operands in files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import click

from accprobe.cli.output import check_writable, tell
from accprobe.errors import AccprobeError


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
@click.option("-o", "out", required=True, type=click.Path(path_type=Path), metavar="FILE.npy", help="Output file.")
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

    MODEL with A [M, K] and B [K, N] is an instruction (QGMMA, h200:wgmma.m64n8k32.f32.e4m3.e4m3) or a product of a report
    (products-h200:torch:mm), whose row is chosen by the shapes and types of A and B. A product of scaled operands takes its
    scales in two more files.

    MODEL with A alone is a function (functions-h200:ex2.approx.ftz.f32), computed for each element, or a reduction of a
    report, whose row is chosen by the shape and type of A.

    Files are .npy, .pt or .safetensors with one array each. Results are written as .npy in their own type. No GPU is needed.

    Needs: nothing; extra fast for large products, torch for .pt.

    Exit status: 0 written; 2 error.

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
        tell(remark)
    file = io.BytesIO()
    np.save(file, d)
    atomic.save(out, file.getvalue())
    click.echo(f"{out}: {list(d.shape)} {d.dtype}, as {like} computes it")
