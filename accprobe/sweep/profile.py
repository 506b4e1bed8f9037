"""Whether the matrix opcodes that are executed are those of the disassembly: the profiler's counts of one launch each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from accprobe.audit import ncu
from accprobe.errors import DeviceError
from accprobe.report.sweeps import Profile
from accprobe.sweep.compilation import KERNEL, Compiled
from accprobe.sweep.configurations import Configuration

SIZE = 512
"""M, N and K of the launch, where blocks are no larger: enough for every block-K that is usual, few enough to count at once."""


def size(config: Configuration) -> int:
    return max(SIZE, config.block_m, config.block_n, config.block_k)


def expected(compiled: Compiled) -> dict[str, int]:
    """Executions, each by a warp, of one launch."""
    config, side = compiled.configuration, size(compiled.configuration)
    times = side // config.block_k * (side // config.block_m) * (side // config.block_n) * config.num_warps
    counts = dict(compiled.lowering.sequence) if compiled.lowering else {}
    return {opcode: counts[opcode] * times for opcode in (compiled.lowering.matrix if compiled.lowering else ())}


def profiles(index: int, every: Sequence[Compiled]) -> dict[Configuration, Profile]:
    """Those of what compiles, in one run of a child under the profiler. Raises as `ncu.launches`, and DeviceError where the
    child did not launch them all.
    """
    launched = [each for each in every if each.kernel is not None]
    if not launched:
        return {}
    command = [sys.executable, "-m", "accprobe.sweep", "--device", str(index)]
    command += [argument(each.configuration) for each in launched]
    seen = [dict(launch.count()) for launch in ncu.launches(command, f"^{KERNEL}$")]
    if len(seen) != len(launched):
        raise DeviceError(f"the profiler saw {len(seen)} of {len(launched)} configurations on cuda:{index}")
    return {each.configuration: profile(each, counts) for each, counts in zip(launched, seen, strict=True)}


def profile(compiled: Compiled, executed: dict[str, int]) -> Profile:
    return Profile(
        size=size(compiled.configuration), executed=tuple(executed.items()), expected=tuple(expected(compiled).items())
    )


def argument(config: Configuration) -> str:
    """A configuration as the child takes it: "e4m3:128:4:64:64", then the products of a promotion, then "round"."""
    fields = [config.dtype.name, config.block_k, config.num_warps, config.block_m, config.block_n, config.promote_every or ""]
    return ":".join(map(str, [*fields, "round" if config.rounded else ""])).rstrip(":")
