"""One launch of each configuration, for a profiler to look at: `ncu … python -m accprobe.sweep e4m3:128:4 e4m3:128:2`.

Prints what the profiler must count, a line a launch.
"""

from __future__ import annotations

import json

import click

from accprobe.devices import open_device
from accprobe.sweep import gpu
from accprobe.sweep.compilation import KERNEL, compile_configurations
from accprobe.sweep.configurations import Configuration, configurations
from accprobe.sweep.gpu import GpuBench
from accprobe.sweep.operands import draw_matrices, sets


@click.command()
@click.argument("configuration", nargs=-1, required=True)
@click.option("--device", default=0, show_default=True, help="Number of the GPU.")
def launch_kernels(configuration: tuple[str, ...], device: int) -> None:
    """Launch each CONFIGURATION once: DTYPE:BLOCK_K:WARPS[:BLOCK_M:BLOCK_N[:PROMOTE_EVERY[:round]]]."""
    bench = GpuBench(device)
    every = [parse_configuration(text) for text in configuration]
    for config, compiled in zip(every, compile_configurations(every, open_device(f"cuda:{device}").architecture), strict=True):
        if compiled.reason:
            raise click.ClickException(compiled.reason)
        side = gpu.size(config)
        bench.launch(compiled, draw_matrices(sets(config.dtype)[0], config.dtype, side, side, side, config.block_k, seed=0))
        click.echo(json.dumps({"kernel": KERNEL, "size": side, "executed": gpu.expected(compiled)}))


def parse_configuration(text: str) -> Configuration:
    """Parse the text of `gpu.argument`."""
    dtype, block_k, warps, block_m, block_n, promoted, rounded = (*text.split(":"), *[""] * 6)[:7]
    (config,) = configurations(
        [dtype],
        [int(block_k)],
        [int(warps)],
        int(block_m or 64),
        int(block_n or 64),
        int(promoted) if promoted else None,
        rounded == "round",
    )
    return config


if __name__ == "__main__":
    launch_kernels()
