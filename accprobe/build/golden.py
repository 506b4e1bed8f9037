"""Kernels that run a matrix unit at full load with chains of one instruction, and compare each result with a known one."""

from __future__ import annotations

from dataclasses import dataclass

from accprobe.build.probes import device_code, find_probe, parameters, probe_of
from accprobe.isa.families import registers
from accprobe.isa.instructions import Instruction
from accprobe.isa.ptx import wgmma_chain

MOST_SMS = 4096
"""The same constant as in golden.cuh."""

METADATA_LINES = 16
"""Number of rows of a sparse A with distinct metadata. Row r uses the metadata of row r mod 16, in every tile. The same
constant as in golden_kernel.cuh.
"""


@dataclass(frozen=True)
class GoldenShape:
    """The work of one block. steps: operand tiles of A, and of B, in shared memory, a power of two. chain: number of
    instructions that accumulate before a comparison. groups: thread groups; each computes one chain. tiles_m, tiles_n:
    tiles of the instruction side by side. addends: a chain begins with an addend C per row, equal in all columns,
    instead of zero.
    """

    inst: Instruction
    steps: int
    chain: int
    groups: int
    tiles_m: int
    tiles_n: int
    addends: bool = False

    @property
    def rows(self) -> int:
        return self.tiles_m * self.inst.m

    @property
    def columns(self) -> int:
        return self.tiles_n * self.inst.n

    @property
    def chains(self) -> int:
        return self.steps * self.steps

    @property
    def results(self) -> int:
        """Return the number of results of a chain."""
        return self.rows * self.columns

    @property
    def group_threads(self) -> int:
        return self.inst.family.threads

    @property
    def threads(self) -> int:
        return self.groups * self.group_threads

    @property
    def shared_bytes(self) -> int:
        elements = self.rows * self.inst.stored.k + self.columns * self.inst.k
        return self.steps * elements * self.inst.a.storage_bits // 8


def is_golden(inst: Instruction) -> bool:
    """Return whether a kernel of chains exists: for `mma.sync` and `wgmma` with one register per result, without scales, b1,
    packed operands or A in registers.
    """
    plain = not (inst.scale or inst.bit_op or inst.a_registers or inst.quad_pairs)
    whole = inst.a.storage_bits == inst.held_bits and inst.d.storage_bits == inst.c.storage_bits == inst.register_bits
    probe = find_probe(inst)
    return probe is not None and probe.golden and plain and whole


def golden_shape(inst: Instruction) -> GoldenShape:
    """Return the shape that keeps a unit busy: up to 128 result registers per thread, as large products have; `wgmma` has n /
    2. With 64-bit operand registers, 64 result registers and twice as many warps.
    """
    if inst.family.warps > 1:
        return GoldenShape(inst, steps=8 if inst.sparse else 16, chain=4, groups=2, tiles_m=1, tiles_n=1)
    wide = inst.register_bits // 32
    return GoldenShape(inst, steps=8, chain=4, groups=8 * wide, tiles_m=64 // inst.m // wide, tiles_n=8 // wide)


def golden_source(shape: GoldenShape) -> str:
    """Return the complete CUDA C++. Raises AccprobeError if the instruction has no probe."""
    inst = shape.inst
    values = {"STEPS": shape.steps, "CHAIN": shape.chain, "TEAMS": shape.groups, "GROUP_THREADS": shape.group_threads}
    values |= {"TILES_M": shape.tiles_m, "TILES_N": shape.tiles_n, "ADDENDS": int(shape.addends)}
    defines = "".join(f"#define {name} {value}\n" for name, value in values.items())
    if inst.family.warps > 1:
        defines += f"#define MULTIPLY_CHAIN({wgmma_chain(inst, registers(inst), shape.chain, shape.threads, shape.addends)}\n"
    return parameters(inst) + defines + device_code(f"golden_{probe_of(inst).file}")
