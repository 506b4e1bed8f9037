"""Probes: they place operands as the PTX ISA says, which is tried on an emulated GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import WHOLE_BLOCKS, library, precompile
from marks import some
from once import folder_of_run, once
from probed import ONE_OF_EACH_LAYOUT
from sparse_semantics import codes_drawn, group_of, written_out

from accprobe.build import probes
from accprobe.errors import AccprobeError
from accprobe.isa import tile
from accprobe.isa.families import TCGEN05, WGMMA
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.report.report import Report


def test_hopper_has_a_probe_for_every_instruction_of_the_recorded_h200() -> None:
    probed = {inst.name for inst in catalog("sm_90a") if probes.why_no_probe(inst) is None}
    assert probed == {row.name for row in Report.load("h200").instructions}


def test_no_probe_has_a_reason_and_no_source() -> None:
    few_rows = replace(parse("mma.sync.m16n8k16.f32.f16.f16.f32"), family=TCGEN05)
    assert probes.why_no_probe(few_rows) == "no probe"
    with pytest.raises(AccprobeError, match="no probe"):
        probes.source(few_rows)


# Where an element of a fragment lies. PTX ISA, "Matrix Fragments for mma.…", transcribed shape by shape: element i of a lane,
# with g = lane / 4 and t = lane % 4. Of wgmma, "Register Fragments": the warp's 16 rows are those of mma.m16n8k….

Rule = Callable[[int, int, int], tuple[int, int]]


def fragment_a(inst: Instruction) -> tuple[int, Rule]:
    """(elements a lane, rule of (g, t, i) to (row, k)). Of a sparse A, "Matrix Fragments for sparse mma.…": what is stored lies
    as in a dense one of half the K.
    """
    rules: dict[tuple[int, int, int], tuple[int, Rule]] = {
        (8, 4, 64): (1, lambda g, t, i: (g, t)),
        (16, 4, 64): (2, lambda g, t, i: (g if i == 0 else g + 8, t)),
        (16, 8, 64): (4, lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4)),
        (16, 16, 64): (8, lambda g, t, i: (g, i * 2 + t) if i % 2 == 0 else (g + 8, i * 2 - 2 + t)),
        (16, 4, 32): (2, lambda g, t, i: (g if i == 0 else g + 8, t)),
        (16, 8, 32): (4, lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4)),
        (16, 8, 16): (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
        (16, 16, 16): (8, lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8))),
        (8, 16, 8): (4, lambda g, t, i: (g, t * 4 + i)),
        (16, 16, 8): (8, lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3))),
        (16, 32, 8): (16, lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16))),
        (8, 32, 4): (8, lambda g, t, i: (g, t * 8 + i)),
        (16, 32, 4): (16, lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7))),
        (16, 64, 4): (32, lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32))),
        (8, 128, 1): (32, lambda g, t, i: (g, t * 32 + i)),
        (16, 128, 1): (64, lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31))),
        (16, 256, 1): (
            128,
            lambda g, t, i: (g if i < 32 or 64 <= i < 96 else g + 8, t * 32 + (i & 31) + (0 if i < 64 else 128)),
        ),
        (8, 4, 16): (4, lambda g, t, i: (t if g < 4 else t + 4, i)),
    }
    return rules[min(inst.m, 16), inst.stored.k, inst.held_bits]


def fragment_b(inst: Instruction) -> tuple[int, Rule]:
    """(elements a lane, rule of (g, t, i) to (k, column)); none of wgmma, whose B is in shared memory."""
    if inst.family is WGMMA:
        return 0, lambda g, t, i: (0, 0)
    rules: dict[tuple[int, int], tuple[int, Rule]] = {
        (4, 64): (1, lambda g, t, i: (t, g)),
        (8, 64): (2, lambda g, t, i: (t if i == 0 else t + 4, g)),
        (16, 64): (4, lambda g, t, i: (t + i * 4, g)),
        (4, 32): (1, lambda g, t, i: (t, g)),
        (8, 32): (2, lambda g, t, i: (t if i == 0 else t + 4, g)),
        (8, 16): (2, lambda g, t, i: (t * 2 + i, g)),
        (16, 16): (4, lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g)),
        (16, 8): (4, lambda g, t, i: (t * 4 + i, g)),
        (32, 8): (8, lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g)),
        (32, 4): (8, lambda g, t, i: (t * 8 + i, g)),
        (64, 4): (16, lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g)),
        (128, 1): (32, lambda g, t, i: (t * 32 + i, g)),
        (256, 1): (64, lambda g, t, i: (t * 32 + (i & 31) + (0 if i < 32 else 128), g)),
        (4, 16): (4, lambda g, t, i: (i, t if g < 4 else t + 4)),
        (16, 32): (4, lambda g, t, i: (t + 4 * i, g)),
        (32, 16): (8, lambda g, t, i: (t * 2 + (i & 1) + i // 2 * 8, g)),
        (64, 8): (16, lambda g, t, i: (t * 4 + (i & 3) + i // 4 * 16, g)),
        (128, 4): (32, lambda g, t, i: (t * 8 + (i & 7) + i // 8 * 32, g)),
    }
    return rules[inst.k, inst.held_bits]


def fragment_d(inst: Instruction, fmt: Format) -> tuple[int, Rule]:
    """(elements a lane, rule of (g, t, i) to (row, column)), of C or of D."""
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
    """(codes a lane, rule of (g, t, i) to (row, group)) of metadata with selector 0; NOTHING: the lane gives none.

    The figures of "Matrix Fragments for sparse mma.…", and of "wgmma.mma_async.sp": its warp's 16 rows are those of mma.sp. By
    K and bits of an element.
    """
    rules: dict[tuple[int, int], tuple[int, Rule]] = {
        (16, 16): (8, lambda g, t, i: (g if i < 4 else g + 8, i & 3) if t == 0 else NOTHING),
        (8, 32): (8, lambda g, t, i: (g if i < 4 else g + 8, i & 3) if t == 0 else NOTHING),
        (32, 16): (8, lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)) if t < 2 else NOTHING),
        (16, 32): (8, lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)) if t < 2 else NOTHING),
        (32, 8): (8, lambda g, t, i: (g if t == 0 else g + 8, i) if t < 2 else NOTHING),
        (64, 4): (8, lambda g, t, i: (g if t == 0 else g + 8, i) if t < 2 else NOTHING),
        (64, 8): (8, lambda g, t, i: (g if t in (0, 2) else g + 8, i if t < 2 else i + 8)),
        (128, 4): (8, lambda g, t, i: (g if t in (0, 2) else g + 8, i if t < 2 else i + 8)),
    }
    return rules[inst.k, inst.held_bits] if inst.sparse else (0, lambda g, t, i: NOTHING)


class Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("m", "n", "k", "group", "stored", "codes"))


class Operand(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_int), ("elements", ctypes.c_int), ("row", ctypes.c_void_p), ("column", ctypes.c_void_p))


def table(inst: Instruction, bits: int, fragment: tuple[int, Rule], *, transposed: bool = False) -> tuple[Operand, np.ndarray]:
    """The operand's place in its matrix, and the memory that holds it."""
    elements, rule = fragment
    threads = inst.threads
    places = np.zeros((2, threads, elements), np.int32)
    for thread in range(threads):
        warp, lane = (0, thread % 4 + thread // 4 * 16) if inst.quad_pairs else divmod(thread, 32)
        for i in range(elements):
            row, column = rule(lane // 4, lane % 4, i)
            below = 16 * warp if (row, column) != NOTHING else 0
            places[:, thread, i] = (row, column) if transposed else (row + below, column)
    return Operand(bits, elements, places[0].ctypes.data, places[1].ctypes.data), places


RUN = {
    False: (
        "Value* stored, Value count, unsigned placement, unsigned blocks",
        "launch({blocks, 1}, [=] { probe(MATRICES, stored, count, placement); });",
    ),
    True: (
        "unsigned rows, unsigned columns, Index grid",
        "launch(grid, [=] { product(MATRICES, rows, columns); });",
    ),
}
"""Arguments besides the matrices, and the launch; by whether it computes matrix products."""


@pytest.fixture(scope="session")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(folder_of_run(tmp_path_factory) / "emulated_gpu", lambda folder: precompile(folder, "emulated_gpu.h"))


def emulator(inst: Instruction, headers: Path, products: bool = False) -> ctypes.CDLL:
    """The probe of `inst`, compiled for the CPU: see emulated_gpu.h."""
    text = re.sub(r"#define MULTIPLY.*", "#define MULTIPLY(...) multiply(__VA_ARGS__)", probes.source(inst, products))
    text = re.sub(r'asm volatile\("fence[^;]*;"[^;]*;', "", text)
    signature, call = RUN[products]
    assert "asm" not in text.replace('extern "C"', "")
    text = f"""#include "emulated_gpu.h"
{text}
#define MATRICES (const Word*)a, (const Word*)b, (const CElement*)c AND_METADATA((const unsigned char*)e), (DElement*)d
static void prepare(Shape s, const Operand* o) {{
    shape = s, operand_a = o[0], operand_b = o[1], operand_c = o[2], operand_d = o[3], operand_e = o[4];
}}
extern "C" void count_cells(unsigned times) {{ cell_counts = times; }}
extern "C" void run(Shape s, const Operand* o, const void* a, const void* b, const void* c,
                    const void* e, void* d, {signature}) {{
    prepare(s, o);
    {call}
}}
"""
    return library(text, (*WHOLE_BLOCKS, f"-I{headers}"))


def layout(inst: Instruction) -> tuple[Shape, ctypes.Array[Operand], list[np.ndarray]]:
    """The tile, where the operands lie in it, and the memory that says so."""
    tables = [
        table(inst, inst.held_bits, fragment_a(inst)),
        table(inst, inst.held_bits, fragment_b(inst), transposed=True),
        table(inst, inst.c.storage_bits, fragment_d(inst, inst.c)),
        table(inst, inst.d.storage_bits, fragment_d(inst, inst.d)),
        table(inst, 4, fragment_e(inst)),
    ]
    codes = inst.k // group_of(inst) if inst.sparse else 0
    shape = Shape(inst.m, inst.n, inst.k, inst.threads, inst.stored.k, codes)
    return shape, (Operand * 5)(*(operand for operand, _ in tables)), [memory for _, memory in tables]


def metadata_of(inst: Instruction, random: np.random.Generator, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of rows of A, none of a dense one, and the rows with zeros where nothing is stored."""
    if not inst.sparse:
        return np.zeros(0, np.uint8), a
    codes = codes_drawn(inst, random, len(a))
    return codes, written_out(inst, a, codes)


class Grid(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint))


@pytest.mark.parametrize("name", some(ONE_OF_EACH_LAYOUT, 32))
def test_products_reach_every_row_and_column(name: str, headers: Path) -> None:
    """Matrix products whose last tiles are not full, by the instruction's own K."""
    inst = parse(name)
    library = emulator(inst, headers, products=True)
    random = np.random.default_rng(1)
    shape, operands, _tables = layout(inst)
    rows, columns = inst.m + 5, inst.n + 3
    below = 1 << min(inst.held_bits, 63)
    a, b = (
        random.integers(0, below, size, f.dtype) for f, size in ((inst.a, (rows, inst.stored.k)), (inst.b, (columns, inst.k)))
    )
    e, whole = metadata_of(inst, random, a)
    c = random.integers(0, 1 << min(inst.c.storage_bits, 63), (rows, columns), inst.c.dtype)
    d = np.zeros((rows + 1, columns), inst.d.dtype)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c, e, d)]
    library.run(shape, operands, *pointers, rows, columns, Grid(2, 2))
    wide = whole.astype(np.uint64) @ b.astype(np.uint64).T + c.astype(np.uint64)
    np.testing.assert_array_equal(d[:rows], wide.astype(inst.d.dtype))
    assert not d[rows:].any()


@pytest.mark.parametrize("name", some(ONE_OF_EACH_LAYOUT, 16))
def test_every_problem_reaches_its_row_and_column(name: str, headers: Path) -> None:
    """On fragments as the PTX ISA lays them out, the probe computes every a · b + c, in the cells that `tile` says."""
    inst = parse(name)
    library = emulator(inst, headers)
    random = np.random.default_rng(1)
    shape, operands, _tables = layout(inst)
    few = tile.problems(inst)
    for count, placement in [(5 * few + 3, 0), (1, 1), (few, 3), (11 * few, tile.placements(inst) - 1)]:
        sizes = (inst.a, inst.stored.k), (inst.b, inst.k)
        a, b = (random.integers(0, 1 << min(inst.held_bits, 63), (count, k), f.dtype) for f, k in sizes)
        e, whole = metadata_of(inst, random, a)
        c = random.integers(0, 1 << min(inst.c.storage_bits, 63), count, inst.c.dtype)
        d, stored = np.zeros(count, inst.d.dtype), ctypes.c_ulonglong(7)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c, e, d)]
        library.run(shape, operands, *pointers, ctypes.byref(stored), ctypes.c_ulonglong(count), placement, 2)
        wide = (whole.astype(np.uint64) * b.astype(np.uint64)).sum(1, dtype=np.uint64) + c.astype(np.uint64)
        np.testing.assert_array_equal(d, wide.astype(inst.d.dtype))
        assert stored.value == 7 + count
        library.count_cells(1)
        library.run(shape, operands, *pointers, ctypes.byref(stored), ctypes.c_ulonglong(count), placement, 2)
        library.count_cells(0)
        rows, columns = tile.cells_of(inst, count, placement)
        np.testing.assert_array_equal(d, (wide + (rows * inst.n + columns).astype(np.uint64)).astype(inst.d.dtype))
