"""The probes of Blackwell's own kinds, on an emulated GPU: scales, packed elements, tensor memory lie as the PTX ISA says."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeDevice
from sparse_semantics import codes_drawn, written_out

from accprobe.build import compiler, probes
from accprobe.errors import AccprobeError
from accprobe.isa import tensor_memory, tile
from accprobe.isa.families import MMA_SYNC
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.operands.request import Request
from accprobe.verify.onehot import misplaced

OPTIONS = ["g++", "-std=c++20", "-O1", "-w", "-fPIC", "-pthread"]

FP4 = "m16n8k64.kind::{}.scale_vec::{}X.f32.e2m1.e2m1.f32.{}"
IN_REGISTERS = [
    "mma.sync.m16n8k32.kind::f8f6f4.f32.e4m3.e2m1.f32",
    "mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m1.e3m2.f32.ue8m0",
    f"mma.sync.{FP4.format('mxf4', 2, 'ue8m0')}",
    f"mma.sync.{FP4.format('mxf4nvf4', 4, 'ue4m3')}",
]
BESIDE_METADATA = [
    "mma.sp.m16n8k64.kind::f8f6f4.f32.e2m1.e5m2.f32",
    "mma.sp.m16n8k64.kind::mxf8f6f4.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0",
    "mma.sp.m16n8k128.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "mma.sp.m16n8k128.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
]
IN_TENSOR_MEMORY = [
    "tcgen05.m128n16k16.kind::f16.f32.bf16.bf16",
    "tcgen05.m128n16k16.kind::f16.f16.f16.f16",
    "tcgen05.m128n16k8.kind::tf32.f32.tf32.tf32",
    "tcgen05.m128n16k32.satfinite.kind::i8.s32.u8.s8",
    "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e5m2",
    "tcgen05.m128n16k32.kind::f8f6f4.f32.e2m3.e2m1",
    "tcgen05.m128n16k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m1.e3m2.ue8m0",
    "tcgen05.m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0",
    "tcgen05.m128n16k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3",
    "tcgen05.m128n16k96.kind::mxf4.scale_vec::3X.f32.e2m1.e2m1.ue8m0",
    "tcgen05.m128n16k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3",
]
PLAIN_PAIR = "tcgen05.m256n256k8.kind::tf32.f32.tf32.tf32"
OF_TWO_BLOCKS = [
    "tcgen05.m256n256k16.kind::f16.f32.bf16.bf16",
    "tcgen05.sp.m256n256k64.kind::mxf8f6f4.scale_vec::1X.f32.e4m3.e2m1.ue8m0",
    "tcgen05.m256n256k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3",
]
SPARSE_IN_TENSOR_MEMORY = [
    "tcgen05.sp.m128n16k32.kind::f16.f32.f16.f16",
    "tcgen05.sp.m128n16k16.kind::tf32.f32.tf32.tf32",
    "tcgen05.sp.m128n16k64.kind::f8f6f4.f32.e2m3.e2m1",
    "tcgen05.sp.m128n16k64.kind::i8.s32.u8.s8",
    "tcgen05.sp.m128n16k64.kind::mxf8f6f4.scale_vec::1X.f32.e2m1.e3m2.ue8m0",
    "tcgen05.sp.m128n16k128.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3",
]

# PTX ISA, "Instruction descriptor": bits of an element by its number there, kind by kind.
NARROW = {0: 8, 1: 8, 3: 6, 4: 6, 5: 4}
BITS_BY_CODE = {"f16": {0: 16, 1: 16}, "tf32": {2: 32}, "i8": {0: 8, 1: 8}, "f8f6f4": NARROW, "mxf8f6f4": NARROW}

Rule = Callable[[int, int, int], tuple[int, int]]


def fragments(inst: Instruction) -> list[tuple[int, int, Rule]]:
    """Of A, B, C, D and metadata: bits of an element in registers, elements a lane, place of element i of lane 4 g + t.

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
    """Where the operands lie in registers, and the memory that says so; nowhere where they are in tensor memory."""
    if inst.family is not MMA_SYNC:
        return (Operand * 5)(), []
    memory = []
    for bits, elements, rule in fragments(inst):
        at = np.array([[rule(lane // 4, lane % 4, i) for i in range(elements)] for lane in range(32)], np.int32)
        memory.append((bits, elements, np.ascontiguousarray(at.reshape(32, elements, 2).transpose(2, 0, 1))))
    each = [Operand(bits, elements, at[0].ctypes.data, at[1].ctypes.data) for bits, elements, at in memory]
    return (Operand * 5)(*each), [at for _, _, at in memory]


@pytest.fixture(scope="session")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the emulated GPU, compiled once."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("headers")
    for name in ("emulated_gpu.h", "emulated_blackwell.h"):
        shutil.copy(Path(__file__).parents[1] / "support" / name, folder)
    subprocess.run([*OPTIONS, "-x", "c++-header", str(folder / "emulated_blackwell.h")], check=True)
    return folder


def emulator(inst: Instruction, headers: Path, folder: Path, change: Callable[[str], str] = str) -> ctypes.CDLL:
    """The probe of `inst`, its text changed, compiled for the CPU."""
    text = re.sub(r"#define MULTIPLY.*", "#define MULTIPLY(...) multiply(__VA_ARGS__)", change(probes.source(inst)))
    text = re.sub(r"#ifdef ON_EVERY_SM\n.*?#else\n", "#ifndef ON_EVERY_SM\n", text, count=1, flags=re.DOTALL)
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
    code, library = folder / "probe.cpp", folder / "probe.so"
    code.write_text(text)
    command = [*OPTIONS, "-shared", f"-I{headers}", "-o", str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, inst: Instruction, asked: Request, placement: int) -> tuple[np.ndarray, int]:
    """Answers, and how many were stored."""
    operands, _memory = tables(inst)
    codes = BITS_BY_CODE.get(inst.kind or "", {1: 4})
    bits = (ctypes.c_int * 8)(*(codes.get(code, 0) for code in range(8)))
    scales = [x for x in (asked.scales_a, asked.scales_b) if x is not None]
    of_scales = (ctypes.c_void_p * 2)(*(x.ctypes.data for x in scales))
    d, stored = np.zeros(len(asked), inst.d.dtype), ctypes.c_ulonglong(7)
    groups = 0 if asked.metadata is None else asked.metadata.shape[1]
    shape, blocks = (
        Shape(inst.m, inst.n, inst.k, inst.family.threads, inst.stored.k, groups),
        inst.k // inst.scale_block if inst.scale_block else 0,
    )
    matrices = [ctypes.c_void_p(x.ctypes.data) for x in (asked.a, asked.b, asked.c)]
    result = [ctypes.c_void_p(d.ctypes.data), ctypes.byref(stored), ctypes.c_ulonglong(len(asked)), placement, 2]
    metadata = None if asked.metadata is None else ctypes.c_void_p(asked.metadata.ctypes.data)
    library.run(shape, operands, bits, int(inst.held_bits == 4), blocks, *matrices, metadata, of_scales, *result)
    return d, stored.value - 7


def drawn(inst: Instruction, count: int) -> tuple[Request, np.ndarray]:
    """Any codes, and their sums as integers: of fp4 in a byte of a register, as it lies there."""
    random = np.random.default_rng(count)
    asked = Request.zeros(inst, count)
    for patterns, fmt in ((asked.a, inst.a), (asked.b, inst.b)):
        patterns[:] = random.integers(0, 1 << min(fmt.storage_bits, fmt.bits + fmt.ignored_low_bits), patterns.shape)
    asked.c[:] = random.integers(0, 1 << inst.c.storage_bits, count, inst.c.dtype)
    in_a_byte = inst.family is MMA_SYNC and inst.held_bits == 8
    a, b = (
        x.astype(np.uint64) << np.uint64(2 * (in_a_byte and f.bits == 4)) for x, f in ((asked.a, inst.a), (asked.b, inst.b))
    )
    if inst.sparse:
        asked = replace(asked, metadata=codes_drawn(inst, random, count))
        a = written_out(inst, a, asked.metadata)
    products = a * b
    if asked.scales_a is not None and asked.scales_b is not None:
        for scales in (asked.scales_a, asked.scales_b):
            scales[:] = random.integers(0, 256, scales.shape)
            products *= np.repeat(scales.astype(np.uint64), inst.scale_block or 1, axis=1)
    return asked, products.sum(axis=1, dtype=np.uint64) + asked.c.astype(np.uint64)


@pytest.mark.parametrize("name", [*IN_REGISTERS, *BESIDE_METADATA, *IN_TENSOR_MEMORY, *SPARSE_IN_TENSOR_MEMORY, *OF_TWO_BLOCKS])
def test_every_problem_reaches_its_row_and_column(name: str, headers: Path, tmp_path: Path) -> None:
    inst = parse(name)
    library = emulator(inst, headers, tmp_path)
    few = tile.problems(inst)
    for count, placement in [(5 * few + 3, 0), (1, 1), (few, 3), (3 * few, tile.placements(inst) - 1)]:
        asked, sums = drawn(inst, count)
        d, stored = run(library, inst, asked, placement)
        np.testing.assert_array_equal(d, sums.astype(inst.d.dtype))
        assert stored == count
        library.count_cells(1)
        d, _ = run(library, inst, asked, placement)
        library.count_cells(0)
        rows, columns = tile.cells_of(inst, count, placement)
        np.testing.assert_array_equal(d, (sums + (rows * inst.n + columns).astype(np.uint64)).astype(inst.d.dtype))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (IN_REGISTERS[1], "lane / 4 + 8 * (lane % 2)", "lane % 8 + 8 * (lane % 2)"),
        (IN_REGISTERS[0], "#define B_SHIFT 2", "#define B_SHIFT 0"),
        (IN_TENSOR_MEMORY[5], "word / 4 * 16;", "word / 4 * 12;"),
        (IN_TENSOR_MEMORY[6], "top + i * 32 + lane % 32", "top + i * 32 + lane / 32"),
        (IN_TENSOR_MEMORY[0], "word / 4 * LEADING_OFFSET", "word / 4 * 64"),
        (IN_TENSOR_MEMORY[9], "word / 4 ^ row % 8", "word / 4 ^ row % 4"),
        (IN_TENSOR_MEMORY[10], "scale / 4 * SCALE_COLUMNS_OF_B", "scale / 4"),
        (OF_TWO_BLOCKS[0], "tile.line_of_column(left + column)", "tile.line_of_column(column)"),
        (OF_TWO_BLOCKS[1], "tile.line(top + of)", "tile.line(of)"),
        (SPARSE_IN_TENSOR_MEMORY[0], "row + i / OF_A_ROW * 8", "row + i / OF_A_ROW * 4"),
        (SPARSE_IN_TENSOR_MEMORY[3], "lane, column * 8, line_of", "lane, (1 - column) * 8, line_of"),
    ],
)
def test_a_wrong_layout_is_seen(name: str, old: str, new: str, headers: Path, tmp_path: Path) -> None:
    inst = parse(name)
    assert old in probes.source(inst)
    library = emulator(inst, headers, tmp_path, lambda text: text.replace(old, new))
    asked, sums = drawn(inst, 2 * tile.problems(inst))
    assert (run(library, inst, asked, 0)[0] != sums.astype(inst.d.dtype)).any()


class Emulated(FakeDevice):
    """The emulated GPU with one probe. It takes bit patterns for integers, so whole numbers are given as such."""

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


@pytest.mark.parametrize("name", [SPARSE_IN_TENSOR_MEMORY[1], pytest.param(PLAIN_PAIR, marks=pytest.mark.slow)])
def test_a_right_layout_passes_the_self_test(name: str, headers: Path, tmp_path: Path) -> None:
    inst = parse(name)
    assert misplaced(Emulated(emulator(inst, headers, tmp_path)), inst) == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        (
            SPARSE_IN_TENSOR_MEMORY[1],
            "lane / 8 % 2 * 4, line_of",
            "lane / 4 % 2 * 4, line_of",
            "stored element 4 of row 2 of A with metadata 0b0100 meets 9 of column 2 of B, not 8",
        ),
        pytest.param(
            SPARSE_IN_TENSOR_MEMORY[3],
            "lane, column * 8, line_of",
            "lane, (1 - column) * 8, line_of",
            "stored element 2 of row 1 of A with metadata 0b0100 meets 6 of column 1 of B, not 4",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            IN_TENSOR_MEMORY[10],
            "scale / 4 * SCALE_COLUMNS_OF_B",
            "scale / 4",
            "element 64 of row 15 of A meets nothing of column 1 of B, not 64",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            IN_TENSOR_MEMORY[10],
            "word / 4 ^ row % 8",
            "word / 4 ^ row % 4",
            "element 8 of row 4 of A meets nothing of column 4 of B, not 8",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            PLAIN_PAIR,
            "tile.line_of_column(left + column)",
            "tile.line_of_column(column)",
            "element 1 of row 128 of A meets nothing of column 128 of B, not 1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_self_test_tells_what_lies_wrong(
    name: str, old: str, new: str, told: str, headers: Path, tmp_path: Path
) -> None:
    inst = parse(name)
    assert old in probes.source(inst)
    found = misplaced(Emulated(emulator(inst, headers, tmp_path, lambda text: text.replace(old, new))), inst)
    assert found == f"the self-test: {told}; please report it"


# PTX ISA, "Instruction descriptor": (bits, field) transcribed from the three tables.
UNSCALED = {"sparse": (2, 1), "saturates": (3, 1), "d": (4, 2), "a": (7, 3), "b": (10, 3), "n": (17, 6), "m": (24, 5)}
SCALED = {"sparse": (2, 1), "id of b": (4, 2), "a": (7, 3), "b": (10, 3), "n": (17, 6), "scale": (23, 1), "m": (27, 2), "id of a": (29, 2), "k": (31, 1)}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("m128n16k16.kind::f16.f16.f16.f16", {"n": 2, "m": 8}),
        ("m128n16k16.kind::f16.f32.bf16.bf16", {"d": 1, "a": 1, "b": 1, "n": 2, "m": 8}),
        ("m128n16k8.kind::tf32.f32.tf32.tf32", {"d": 1, "a": 2, "b": 2, "n": 2, "m": 8}),
        ("m128n16k32.satfinite.kind::i8.s32.s8.u8", {"saturates": 1, "d": 2, "a": 1, "n": 2, "m": 8}),
        ("m128n16k32.kind::f8f6f4.f32.e5m2.e2m1", {"d": 1, "a": 1, "b": 5, "n": 2, "m": 8}),
        ("m128n16k32.kind::f8f6f4.f16.e2m3.e3m2", {"a": 3, "b": 4, "n": 2, "m": 8}),
        ("m256n256k32.kind::f8f6f4.f32.e4m3.e4m3", {"d": 1, "n": 32, "m": 16}),
        ("sp.m128n16k32.kind::f16.f32.bf16.bf16", {"sparse": 1, "d": 1, "a": 1, "b": 1, "n": 2, "m": 8}),
        ("sp.m128n16k128.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0", {"sparse": 1, "a": 1, "b": 1, "n": 2, "scale": 1, "m": 1}),
        ("m128n16k32.kind::mxf8f6f4.scale_vec::1X.f32.e4m3.e2m1.ue8m0", {"b": 5, "n": 2, "scale": 1, "m": 1}),
        ("m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0", {"a": 1, "b": 1, "n": 2, "scale": 1, "m": 1}),
        ("m128n16k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3", {"a": 1, "b": 1, "n": 2, "m": 1}),
        ("m128n16k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3", {"a": 1, "b": 1, "n": 2, "m": 1, "k": 1}),
    ],
)
def test_the_instruction_descriptor_has_the_fields_of_the_tables(name: str, fields: dict[str, int]) -> None:
    inst = parse(f"tcgen05.{name}")
    places = SCALED if inst.scale else UNSCALED
    for field, value in fields.items():
        assert value < 1 << places[field][1]
    assert tensor_memory.instruction_descriptor(inst) == sum(value << places[field][0] for field, value in fields.items())


def test_what_has_no_descriptor_says_so() -> None:
    with pytest.raises(AccprobeError, match="has no instruction descriptor"):
        tensor_memory.instruction_descriptor(parse("mma.sync.m16n8k16.f32.f16.f16.f32"))


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("m128n16k16.kind::f16.f32.f16.f16", 32),
        ("m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0", 32),
        ("m256n256k16.kind::f16.f32.f16.f16", 256),
        ("sp.m256n256k32.kind::f16.f32.f16.f16", 512),
        ("m256n256k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0", 512),
        ("m128n16k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3", 32),
    ],
)
def test_columns_of_tensor_memory(name: str, columns: int) -> None:
    assert tensor_memory.columns(parse(f"tcgen05.{name}")) == columns


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"])
def test_everything_has_a_probe(target: str) -> None:
    assert [inst.name for inst in catalog(target) if probes.why_no_probe(inst)] == []


def test_two_sms_that_share_a_tile_are_not_asked_one_by_one() -> None:
    inst = parse(OF_TWO_BLOCKS[0])
    assert (inst.blocks, inst.threads) == (2, 256)
    assert "#define CLUSTER __cluster_dims__(2, 1, 1)" in probes.source(inst)
    with pytest.raises(AccprobeError, match="has no probe of each SM: two share its tile"):
        probes.source(inst, probes.Part.EVERY_SM)


@pytest.mark.parametrize("name", [IN_REGISTERS[1], IN_TENSOR_MEMORY[0]])
def test_there_are_no_matrix_products_of_them(name: str) -> None:
    assert not probes.multiplies_matrices(parse(name))
    with pytest.raises(AccprobeError, match="has no probe of matrix products"):
        probes.source(parse(name), probes.Part.PRODUCT)


OPCODES = [
    ("sm_120a", IN_REGISTERS[0], "QMMA.16832.F32.E4M3.E2M1"),
    ("sm_121a", IN_REGISTERS[1], "QMMA.SF.16832.F32.E2M1.E3M2.E8"),
    ("sm_120a", "mma.sync.m16n8k32.kind::f8f6f4.f16.e2m1.e2m1.f16", "QMMA.16832.F16.E2M1.E2M1"),
    ("sm_120a", BESIDE_METADATA[0], "QMMA.SP.16864.F32.E2M1.E5M2"),
    ("sm_121a", BESIDE_METADATA[1], "QMMA.SF.SP.16864.F32.E4M3.E2M1.E8"),
    ("sm_120a", BESIDE_METADATA[3], "OMMA.SF.SP.168128.F32.E2M1.E2M1.UE4M3.4X"),
    ("sm_120a", IN_REGISTERS[2], "OMMA.SF.16864.F32.E2M1.E2M1.E8"),
    ("sm_121a", IN_REGISTERS[3], "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"),
    ("sm_100a", IN_TENSOR_MEMORY[0], "UTCHMMA"),
    ("sm_103a", IN_TENSOR_MEMORY[2], "UTCHMMA"),
    ("sm_110a", IN_TENSOR_MEMORY[3], "UTCIMMA"),
    ("sm_100a", IN_TENSOR_MEMORY[5], "UTCQMMA"),
    ("sm_103a", IN_TENSOR_MEMORY[6], "UTCQMMA"),
    ("sm_110a", IN_TENSOR_MEMORY[7], "UTCOMMA"),
    ("sm_100a", IN_TENSOR_MEMORY[8], "UTCOMMA.4X"),
    ("sm_103a", IN_TENSOR_MEMORY[9], "UTCOMMA"),
    ("sm_103a", IN_TENSOR_MEMORY[10], "UTCOMMA.BLOCK16"),
    ("sm_100a", OF_TWO_BLOCKS[0], "UTCHMMA.2CTA"),
    ("sm_110a", OF_TWO_BLOCKS[1], "UTCQMMA.2CTA"),
    ("sm_103a", OF_TWO_BLOCKS[2], "UTCOMMA.2CTA.BLOCK16"),
    ("sm_100a", SPARSE_IN_TENSOR_MEMORY[0], "UTCHMMA"),
    ("sm_103a", SPARSE_IN_TENSOR_MEMORY[1], "UTCHMMA"),
    ("sm_103a", SPARSE_IN_TENSOR_MEMORY[2], "UTCQMMA"),
    ("sm_110a", SPARSE_IN_TENSOR_MEMORY[3], "UTCIMMA"),
    ("sm_100a", SPARSE_IN_TENSOR_MEMORY[4], "UTCQMMA"),
    ("sm_103a", SPARSE_IN_TENSOR_MEMORY[5], "UTCOMMA.BLOCK16"),
]


@pytest.mark.parametrize(("target", "name", "opcode"), OPCODES, ids=[f"{t}-{n}" for t, n, _ in OPCODES])
def test_what_they_become(target: str, name: str, opcode: str) -> None:
    from compiled import needs

    from accprobe.sass import lowering, opcodes

    pytest.importorskip("cuda.core", exc_type=ImportError)
    needs("nvdisasm")
    found = lowering.lowering(compiler.compile(parse(name), target))
    assert found.sequence == ((opcode, 1),)
    assert opcodes.relation(parse(name), opcode) == "native"
