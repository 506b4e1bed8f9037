"""One instruction of each layout of operands that probes have."""

from __future__ import annotations

from accprobe.isa.instructions import Instruction, catalog


def _layout(inst: Instruction) -> tuple[object, ...]:
    held = inst.held_bits, inst.c.storage_bits, inst.d.storage_bits
    return inst.family, inst.sparse, inst.m, inst.k, *held, inst.a_registers


ONE_OF_EACH_LAYOUT = [
    *reversed({_layout(inst): inst.name for inst in reversed(catalog("sm_90a"))}.values()),
    "wgmma.m64n256k32.f32.e4m3.e5m2",
    "wgmma.sp.m64n256k64.f32.e4m3.e5m2",
    "mma.sp.m16n8k64.kind::f8f6f4.f32.e4m3.e5m2.f32",
]
"""The first of each in the catalogue, two of the largest n, and one that later GPUs have."""
