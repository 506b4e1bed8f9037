"""Probes compiled for the CPU: see emulated_gpu.h. The places of operands in registers are transcribed from the PTX ISA."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from compiled import WHOLE_BLOCKS, library
from fakes import FakeDevice
from sparse_semantics import codes_drawn, group_of, written_out

from accprobe.build import probes
from accprobe.isa import tile
from accprobe.isa.families import MMA_SYNC, TCGEN05, WGMMA
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request

# PTX ISA, "Instruction descriptor": bits of an element by its number there, kind by kind.
NARROW = {0: 8, 1: 8, 3: 6, 4: 6, 5: 4}
BITS_BY_CODE = {"f16": {0: 16, 1: 16}, "tf32": {2: 32}, "i8": {0: 8, 1: 8}, "f8f6f4": NARROW, "mxf8f6f4": NARROW}

# Where an element of a fragment lies. PTX ISA, "Matrix Fragments for mma.…": element i of a lane, with g = lane / 4 and
# t = lane % 4. Of wgmma, "Register Fragments": the warp's 16 rows are those of mma.m16n8k….

Rule = Callable[[int, int, int], tuple[int, int]]


def fragment_a(inst: Instruction) -> tuple[int, Rule]:
    """Return the elements a lane has, and the rule of (g, t, i) to (row, k).

    Of a sparse A, "Matrix Fragments for sparse mma.…": what is stored lies as in a dense one of half the K.
    """
    if inst.quad_pairs:
        return 4, lambda g, t, i: (t if g < 4 else t + 4, i)
    packed, registers = max(1, 32 // inst.held_bits), min(inst.m, 16) // 8
    return inst.stored.k * registers // 4, lambda g, t, i: (
        g + i // packed % registers * 8,
        (i // packed // registers * 4 + t) * packed + i % packed,
    )


def fragment_b(inst: Instruction) -> tuple[int, Rule]:
    """Return the elements a lane has, and the rule of (g, t, i) to (k, column); none of wgmma, whose B is in shared memory."""
    if inst.family is WGMMA:
        return 0, lambda g, t, i: (0, 0)
    if inst.quad_pairs:
        return 4, lambda g, t, i: (i, t if g < 4 else t + 4)
    packed = max(1, 32 // inst.held_bits)
    return inst.k // 4, lambda g, t, i: ((i // packed * 4 + t) * packed + i % packed, g)


def fragment_d(inst: Instruction, fmt: Format) -> tuple[int, Rule]:
    """Return the elements a lane has, and the rule of (g, t, i) to (row, column), of C or of D."""
    if inst.quad_pairs and fmt.bits == 16:
        return 8, lambda g, t, i: (t if g < 4 else t + 4, i)
    if inst.quad_pairs:
        return 8, lambda g, t, i: ((t & 1) + (i & 2) + (0 if g < 4 else 4), (i & 4) + (t & 2) + (i & 1))
    if inst.family is WGMMA:
        return inst.n // 2, lambda g, t, i: (g + 8 * (i // 2 % 2), 8 * (i // 4) + t * 2 + i % 2)
    if inst.m == 8:
        return 2, lambda g, t, i: (g, t * 2 + i)
    return 4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))


NOTHING = (-1, -1)


def fragment_e(inst: Instruction) -> tuple[int, Rule]:
    """Return the codes a lane has, and the rule of (g, t, i) to (row, group), with selector 0; NOTHING: the lane gives none.

    The figures of "Matrix Fragments for sparse mma.…", and of "wgmma.mma_async.sp": its warp's 16 rows are those of mma.sp.
    """
    if not inst.sparse:
        return 0, lambda g, t, i: NOTHING
    lanes = inst.k // group_of(inst) // 4
    if inst.held_bits > 8:
        return 8, lambda g, t, i: (g + i // 4 * 8, t * 4 + i % 4) if t < lanes else NOTHING
    return 8, lambda g, t, i: (g + t % 2 * 8, i + t // 2 * 8) if t < lanes else NOTHING


class Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("m", "n", "k", "group", "stored", "codes"))


class Operand(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_int), ("elements", ctypes.c_int), ("row", ctypes.c_void_p), ("column", ctypes.c_void_p))


def table(inst: Instruction, bits: int, fragment: tuple[int, Rule], *, transposed: bool = False) -> tuple[Operand, np.ndarray]:
    """Return the places of an operand's elements in its matrix, and the memory that holds them."""
    elements, rule = fragment
    places = np.zeros((2, inst.threads, elements), np.int32)
    for thread in range(inst.threads):
        warp, lane = (0, thread % 4 + thread // 4 * 16) if inst.quad_pairs else divmod(thread, 32)
        for i in range(elements):
            row, column = rule(lane // 4, lane % 4, i)
            below = 16 * warp if (row, column) != NOTHING else 0
            places[:, thread, i] = (row, column) if transposed else (row + below, column)
    return Operand(bits, elements, places[0].ctypes.data, places[1].ctypes.data), places


def shape_of(inst: Instruction) -> Shape:
    return Shape(inst.m, inst.n, inst.k, inst.threads // inst.blocks, inst.stored.k, inst.k // group_of(inst) * inst.sparse)


def tables(inst: Instruction) -> tuple[ctypes.Array[Operand], list[np.ndarray]]:
    """Return the places of A, B, C, D and metadata in registers, and the memory behind them; empty for tensor memory."""
    if inst.family is TCGEN05:
        return (Operand * 5)(), []
    each = [
        table(inst, inst.held_bits, fragment_a(inst)),
        table(inst, inst.held_bits, fragment_b(inst), transposed=True),
        table(inst, inst.c.storage_bits, fragment_d(inst, inst.c)),
        table(inst, inst.d.storage_bits, fragment_d(inst, inst.d)),
        table(inst, 4, fragment_e(inst)),
    ]
    return (Operand * 5)(*(operand for operand, _ in each)), [memory for _, memory in each]


CALLS = {
    False: ("Value* stored, Value count, unsigned placement, unsigned grid", "{grid * ranks, 1}", "stored, count, placement"),
    True: ("unsigned rows, unsigned columns, unsigned high, unsigned wide", "{high, wide}", "rows, columns"),
}
"""Last parameters of `run`, the grid, and last arguments of the kernel, which computes matrix products or does not."""


def emulator(inst: Instruction, headers: Path, change: Callable[[str], str] = str, products: bool = False) -> ctypes.CDLL:
    """Return the probe of `inst`, its text changed, compiled for the CPU. headers: folder of the precompiled header."""
    text = change(probes.source(inst, products))
    text = re.sub(r"#define MULTIPLY.*", "#define MULTIPLY(...) multiply(__VA_ARGS__)", text)
    text = re.sub(r"#ifdef __CUDACC__\n.*?#endif\n", "", text, flags=re.DOTALL)
    text = re.sub(r'asm volatile\("fence[^;]*;"[^;]*;', "", text)
    assert "asm" not in text.replace('extern "C"', "")
    text = re.sub(r'extern "C" __global__ .*\n(probe|product)', r"template <int> static void \1", text)
    kernel = "product" if products else "probe"
    pair = f"if (rank) {kernel}<1>(ARGUMENTS); else " * (inst.blocks > 1)
    more = ", (const unsigned char*)metadata" * inst.sparse
    more += ", (const unsigned char*)scales[0], (const unsigned char*)scales[1]" if inst.scale else ""
    parameters, grid, arguments = CALLS[products]
    text = f"""#include "emulated_gpu.h"
{text}
extern "C" void count_cells(unsigned times) {{ cell_counts = times; }}
extern "C" void run(Shape s, const Operand* o, const int* bits, int dense, int of_row, const void* a, const void* b,
                    const void* c, const void* metadata, const void** scales, void* d, {parameters}) {{
    shape = s, operand_a = o[0], operand_b = o[1], operand_c = o[2], operand_d = o[3], operand_e = o[4];
    for (int i = 0; i < 8; i++) kind_bits[i] = bits[i];
    densely = dense, blocks = of_row, descriptor_has_scales = of_row;
    ranks = {inst.blocks};
#define ARGUMENTS (const Word*)a, (const Word*)b, (const CElement*)c{more}, (DElement*)d, {arguments}
    launch({grid}, [=] {{ {pair}{kernel}<0>(ARGUMENTS); }}, ranks);
}}
"""
    return library(text, (*WHOLE_BLOCKS, f"-I{headers}"))


def called(probe: ctypes.CDLL, inst: Instruction, request: Request, d: np.ndarray, *more: object) -> None:
    """Call `run` of an emulator, which writes d."""
    operands, _memory = tables(inst)
    codes = BITS_BY_CODE.get(inst.kind or "", {1: 4})
    bits = (ctypes.c_int * 8)(*(codes.get(code, 0) for code in range(8)))
    scales = [x for x in (request.scales_a, request.scales_b) if x is not None]
    of_scales = (ctypes.c_void_p * 2)(*(x.ctypes.data for x in scales))
    blocks = inst.k // inst.scale_block if inst.scale_block else 0
    matrices = [ctypes.c_void_p(x.ctypes.data) for x in (request.a, request.b, request.c)]
    metadata = None if request.metadata is None else ctypes.c_void_p(request.metadata.ctypes.data)
    result = ctypes.c_void_p(d.ctypes.data)
    probe.run(shape_of(inst), operands, bits, int(inst.held_bits == 4), blocks, *matrices, metadata, of_scales, result, *more)


def run(probe: ctypes.CDLL, inst: Instruction, request: Request, placement: int) -> tuple[np.ndarray, int]:
    """Return the results, and how many were stored."""
    d, stored = np.zeros(len(request), inst.d.dtype), ctypes.c_ulonglong(7)
    called(probe, inst, request, d, ctypes.byref(stored), ctypes.c_ulonglong(len(request)), placement, 2)
    return d, stored.value - 7


def drawn(inst: Instruction, count: int) -> tuple[Request, np.ndarray]:
    """Return random codes and their sums as integers; an fp4 in a byte of a register counts with its place there."""
    random = np.random.default_rng(count)
    request = Request.zeros(inst, count)
    for patterns, fmt in ((request.a, inst.a), (request.b, inst.b)):
        bits = min(63, fmt.storage_bits, fmt.bits + fmt.ignored_low_bits)
        patterns[:] = random.integers(0, 1 << bits, patterns.shape)
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
