"""Probes of Blackwell compiled for the CPU: see emulated_blackwell.h."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from compiled import WHOLE_BLOCKS, library
from fakes import FakeDevice
from sparse_semantics import codes_drawn, written_out

from accprobe.build import probes
from accprobe.isa import tile
from accprobe.isa.families import MMA_SYNC
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request

# PTX ISA, "Instruction descriptor": bits of an element by its number there, kind by kind.
NARROW = {0: 8, 1: 8, 3: 6, 4: 6, 5: 4}
BITS_BY_CODE = {"f16": {0: 16, 1: 16}, "tf32": {2: 32}, "i8": {0: 8, 1: 8}, "f8f6f4": NARROW, "mxf8f6f4": NARROW}

Rule = Callable[[int, int, int], tuple[int, int]]


def fragments(inst: Instruction) -> list[tuple[int, int, Rule]]:
    """Return, for A, B, C, D and metadata: bits of an element, elements per lane, place of element i of lane 4 g + t.

    PTX ISA, "Matrix Fragments for mma.m16n8k32" and "mma.m16n8k64", "for sparse mma.m16n8k64" and "mma.m16n8k128".
    """
    bits, run = (4, 8) if inst.kind in ("mxf4", "mxf4nvf4") else (8, 4)

    def of_a(g: int, t: int, i: int) -> tuple[int, int]:
        return g + i // run % 2 * 8, t * run + i % run + i // (2 * run) * 4 * run

    def of_b(g: int, t: int, i: int) -> tuple[int, int]:
        return t * run + i % run + i // run * 4 * run, g

    def of_d(g: int, t: int, i: int) -> tuple[int, int]:
        return (g if i < 2 else g + 8), t * 2 + i % 2

    def of_metadata(g: int, t: int, i: int) -> tuple[int, int]:
        return (g if t in (0, 2) else g + 8), (i if t < 2 else i + 8)

    return [
        (bits, inst.stored.k // 2, of_a),
        (bits, inst.k // 4, of_b),
        (32, 4, of_d),
        (32, 4, of_d),
        (4, 8 * inst.sparse, of_metadata),
    ]


class Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("m", "n", "k", "group", "stored", "codes"))


class Operand(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_int), ("elements", ctypes.c_int), ("row", ctypes.c_void_p), ("column", ctypes.c_void_p))


def tables(inst: Instruction) -> tuple[ctypes.Array[Operand], list[np.ndarray]]:
    """Return the places of the operands in registers, and the memory behind them; empty for operands in tensor memory."""
    if inst.family is not MMA_SYNC:
        return (Operand * 5)(), []
    memory = []
    for bits, elements, rule in fragments(inst):
        at = np.array([[rule(lane // 4, lane % 4, i) for i in range(elements)] for lane in range(32)], np.int32)
        memory.append((bits, elements, np.ascontiguousarray(at.reshape(32, elements, 2).transpose(2, 0, 1))))
    each = [Operand(bits, elements, at[0].ctypes.data, at[1].ctypes.data) for bits, elements, at in memory]
    return (Operand * 5)(*each), [at for _, _, at in memory]


def emulator(inst: Instruction, headers: Path, change: Callable[[str], str] = str) -> ctypes.CDLL:
    """Return the probe of `inst`, its text changed, compiled for the CPU. headers: folder of the precompiled header."""
    text = re.sub(r"#define MULTIPLY.*", "#define MULTIPLY(...) multiply(__VA_ARGS__)", change(probes.source(inst)))
    text = re.sub(r"#ifdef __CUDACC__\n.*?#endif\n", "", text, flags=re.DOTALL)
    assert "asm" not in text.replace('extern "C"', "")
    text = re.sub(r'extern "C" __global__ .*\nprobe', "template <int> static void probe", text)
    pair = "if (rank) probe<1>(ARGUMENTS); else " * (inst.blocks > 1)
    scales = ", (const unsigned char*)metadata" * inst.sparse
    scales += ", (const unsigned char*)scales[0], (const unsigned char*)scales[1]" if inst.scale else ""
    text = f"""#include "emulated_blackwell.h"
{text}
extern "C" void count_cells(unsigned times) {{ cell_counts = times; }}
extern "C" void run(Shape s, const Operand* o, const int* bits, int dense, int of_row, const void* a, const void* b,
                    const void* c, const void* metadata, const void** scales, void* d, Value* stored, Value count,
                    unsigned placement, unsigned grid) {{
    shape = s, operand_a = o[0], operand_b = o[1], operand_c = o[2], operand_d = o[3], operand_e = o[4];
    for (int i = 0; i < 8; i++) kind_bits[i] = bits[i];
    densely = dense, blocks = of_row, descriptor_has_scales = of_row;
    ranks = {inst.blocks};
#define ARGUMENTS (const Word*)a, (const Word*)b, (const CElement*)c{scales}, (DElement*)d, stored, count, placement
    launch({{grid * ranks, 1}}, [=] {{ {pair}probe<0>(ARGUMENTS); }}, ranks);
}}
"""
    return library(text, (*WHOLE_BLOCKS, f"-I{headers}"))


def run(probe: ctypes.CDLL, inst: Instruction, request: Request, placement: int) -> tuple[np.ndarray, int]:
    """Return the results, and how many were stored."""
    operands, _memory = tables(inst)
    codes = BITS_BY_CODE.get(inst.kind or "", {1: 4})
    bits = (ctypes.c_int * 8)(*(codes.get(code, 0) for code in range(8)))
    scales = [x for x in (request.scales_a, request.scales_b) if x is not None]
    of_scales = (ctypes.c_void_p * 2)(*(x.ctypes.data for x in scales))
    d, stored = np.zeros(len(request), inst.d.dtype), ctypes.c_ulonglong(7)
    groups = 0 if request.metadata is None else request.metadata.shape[1]
    shape, blocks = (
        Shape(inst.m, inst.n, inst.k, inst.family.threads, inst.stored.k, groups),
        inst.k // inst.scale_block if inst.scale_block else 0,
    )
    matrices = [ctypes.c_void_p(x.ctypes.data) for x in (request.a, request.b, request.c)]
    result = [ctypes.c_void_p(d.ctypes.data), ctypes.byref(stored), ctypes.c_ulonglong(len(request)), placement, 2]
    metadata = None if request.metadata is None else ctypes.c_void_p(request.metadata.ctypes.data)
    probe.run(shape, operands, bits, int(inst.held_bits == 4), blocks, *matrices, metadata, of_scales, *result)
    return d, stored.value - 7


def drawn(inst: Instruction, count: int) -> tuple[Request, np.ndarray]:
    """Return random codes and their sums as integers; an fp4 in a byte of a register counts with its place there."""
    random = np.random.default_rng(count)
    request = Request.zeros(inst, count)
    for patterns, fmt in ((request.a, inst.a), (request.b, inst.b)):
        patterns[:] = random.integers(0, 1 << min(fmt.storage_bits, fmt.bits + fmt.ignored_low_bits), patterns.shape)
    request.c[:] = random.integers(0, 1 << inst.c.storage_bits, count, inst.c.dtype)
    in_a_byte = inst.family is MMA_SYNC and inst.held_bits == 8
    a, b = (
        x.astype(np.uint64) << np.uint64(2 * (in_a_byte and f.bits == 4)) for x, f in ((request.a, inst.a), (request.b, inst.b))
    )
    if inst.sparse:
        request = replace(request, metadata=codes_drawn(inst, random, count))
        a = written_out(inst, a, request.metadata)
    products = a * b
    if request.scales_a is not None and request.scales_b is not None:
        for scales in (request.scales_a, request.scales_b):
            scales[:] = random.integers(0, 256, scales.shape)
            products *= np.repeat(scales.astype(np.uint64), inst.scale_block or 1, axis=1)
    return request, products.sum(axis=1, dtype=np.uint64) + request.c.astype(np.uint64)


class Emulated(FakeDevice):
    """The emulated GPU with one probe. It computes with bit patterns as integers, so it receives whole numbers as integers."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.library = library

    def placements(self, inst: Instruction) -> int:
        return tile.placements(inst)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        formats = {"a": inst.a, "b": inst.b, "c": inst.c} | dict.fromkeys(("scales_a", "scales_b"), inst.scale)
        whole = {
            name: fmt.values(patterns).astype(fmt.dtype)
            for name, fmt in formats.items()
            if fmt is not None and (patterns := getattr(request, name)) is not None
        }
        numbers, at = np.unique(run(self.library, inst, replace(request, **whole), placement)[0], return_inverse=True)
        return np.array([inst.d.whole(number) for number in numbers.tolist()], inst.d.dtype)[at]
