"""The configurations of one Triton kernel, and the operand types that it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.isa.formats import FORMATS, Format

MOST_WARPS = 32
"""Warps of the largest block of threads (CUDA C++ Programming Guide, "Compute Capabilities")."""

SIDE = 64
"""Rows, and columns, of a block of C."""

MOST_STAGES = 3
"""The largest number of operand blocks in shared memory: Triton's default."""


@dataclass(frozen=True)
class Dtype:
    """An operand type: its name here, its format, and its name in Triton."""

    name: str
    format: Format
    triton: str
    precision: str = "ieee"  # Triton's name for the precision of f32 operands.


DTYPES = {
    dtype.name: dtype
    for dtype in (
        Dtype("e4m3", FORMATS["e4m3"], "fp8e4nv"),
        Dtype("e5m2", FORMATS["e5m2"], "fp8e5"),
        Dtype("f16", FORMATS["f16"], "fp16"),
        Dtype("bf16", FORMATS["bf16"], "bf16"),
        Dtype("tf32", FORMATS["tf32"], "fp32", "tf32"),
    )
}


@dataclass(frozen=True)
class Configuration:
    """One compilation of the kernel. promote_every: Triton's max_num_imprecise_acc; None: Triton's default."""

    dtype: Dtype
    block_k: int
    num_warps: int
    promote_every: int | None = None

    @property
    def block_bytes(self) -> int:
        """Return the shared memory of the operands of one block."""
        return 2 * SIDE * self.block_k * self.dtype.format.storage_bits // 8

    def stages(self, shared_bytes: int) -> int:
        """Return the number of operand blocks that fit into that much shared memory, from 1 to MOST_STAGES."""
        return min(max(shared_bytes // self.block_bytes, 1), MOST_STAGES)


def configurations(
    dtypes: Iterable[str],
    block_ks: Iterable[int],
    num_warps: Iterable[int],
    promote_every: int | None = None,
) -> list[Configuration]:
    """Return every combination, by operand type, warps and block-K. Raises AccprobeError for a value that Triton rejects."""
    names = list(dict.fromkeys(dtypes))
    if unknown := [name for name in names if name not in DTYPES]:
        raise UnknownName(f"there is no operand type '{unknown[0]}'; {nearest(unknown[0], DTYPES)}")
    types = [DTYPES[name] for name in names]
    blocks, warps = list(dict.fromkeys(block_ks)), list(dict.fromkeys(num_warps))
    least = max(32 if each.format.storage_bits == 8 else 16 for each in types)  # the smallest K of `tl.dot`
    for size in blocks:
        _check_power("--block-k", size, least, 4096)
    for count in warps:
        _check_power("--num-warps", count, 1, MOST_WARPS)
    if promote_every is not None and promote_every % 32:
        raise AccprobeError(f"--promote-every {promote_every} is not a multiple of 32, the products of one QGMMA")
    return [Configuration(each, block_k, count, promote_every) for each, count, block_k in product(types, warps, blocks)]


def _check_power(option: str, value: int, least: int, most: int) -> None:
    if value & (value - 1) or not least <= value <= most:
        raise AccprobeError(f"{option} {value}: Triton takes powers of two, here from {least} to {most}")


def check_k(every: Iterable[Configuration], k: int) -> None:
    """Raise AccprobeError if K is not a multiple of a block."""
    for config in every:
        if k % config.block_k:
            near = -(-k // config.block_k) * config.block_k
            raise AccprobeError(f"--k {k} is not a multiple of block-K {config.block_k}; give {near}")
