"""One launch of one configuration, for a profiler to look at: `ncu … python -m accprobe.sweep e4m3 128 4`.

Prints what the profiler must count: the matrix opcodes of the cubin, times blocks along k, programs and warps.
"""

from __future__ import annotations

import json

import click

from accprobe.devices import open_device
from accprobe.sweep.compilation import compile_all
from accprobe.sweep.configurations import check_problem, configurations
from accprobe.sweep.gpu import GpuBench
from accprobe.sweep.operands import draw, sets


@click.command()
@click.argument("dtype")
@click.argument("block_k", type=int)
@click.argument("num_warps", type=int)
@click.option("--device", default=0, show_default=True, help="Number of the GPU.")
@click.option("--size", default=512, show_default=True, help="M, N and K.")
def launch(dtype: str, block_k: int, num_warps: int, device: int, size: int) -> None:
    """Launch one configuration once."""
    (config,) = configurations([dtype], [block_k], [num_warps])
    check_problem([config], size, size, size)
    (compiled,) = compile_all([config], open_device(f"cuda:{device}").architecture)
    if compiled.reason:
        raise click.ClickException(compiled.reason)
    GpuBench(device).launch(compiled, draw(sets(config.dtype)[0], config.dtype, size, size, size, block_k, seed=0))
    warps = (size // config.block_m) * (size // config.block_n) * num_warps
    sequence = compiled.lowering.sequence if compiled.lowering else ()
    found = {opcode: count * (size // block_k) * warps for opcode, count in sequence}
    matrix = compiled.lowering.matrix if compiled.lowering else ()
    click.echo(json.dumps({"kernel": compiled.kernel.name, "executed": {opcode: found[opcode] for opcode in matrix}}))


if __name__ == "__main__":
    launch()
