"""Requests of a dense, a sparse and a block-scaled instruction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sparse_semantics import group_of

from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.request import Request

DENSE = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
SPARSE = parse("mma.sp.m16n8k32.f32.f16.f16.f32")
SCALED = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")


def request(inst: Instruction, n: int = 5) -> Request:
    """Return dot products whose rows all differ, in every array."""

    def some(width: int, dtype: np.dtype[np.unsignedinteger]) -> np.ndarray:
        return np.arange(n * width, dtype=np.int64).reshape(n, width).astype(dtype)

    made = Request(some(inst.k // (1 + inst.sparse), inst.a.dtype), some(inst.k, inst.b.dtype), some(1, inst.c.dtype)[:, 0])
    if inst.sparse:
        made = replace(made, metadata=some(inst.k // group_of(inst), np.dtype(np.uint8)))
    if inst.scale and inst.scale_block:
        scales = some(inst.k // inst.scale_block, inst.scale.dtype)
        made = replace(made, scales_a=scales, scales_b=scales + 1)
    return made
