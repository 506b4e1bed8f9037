"""Kernels: the probes compile for every target, place operands as the PTX ISA says, and are cached safely."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from accprobe.build import cache, compiler, probes
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.isa.families import WGMMA
from accprobe.isa.instructions import Instruction, catalog, parse

FP8 = ("e4m3", "e5m2")
INT8 = ("s8", "u8")


def required_on_hopper() -> list[str]:
    """Names of the instructions that must have a probe, spelled out apart from the catalog."""
    names = [f"mma.sync.m16n8k{k}.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f32", "f16")]
    names += [f"mma.sync.m16n8k{k}.f32.bf16.bf16.f32" for k in (8, 16)]
    names += [f"mma.sync.m16n8k{k}.f32.tf32.tf32.f32" for k in (4, 8)]
    names += [f"mma.sync.{shape}.f64.f64.f64.f64" for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]
    names += [f"mma.sync.m16n8k{k}.{d}.{a}.{b}.{d}" for k in (16, 32) for d in ("f32", "f16") for a in FP8 for b in FP8]
    for shape in ("m8n8k16", "m16n8k16", "m16n8k32"):
        names += [f"mma.sync.{shape}{sat}.s32.{a}.{b}.s32" for sat in ("", ".satfinite") for a in INT8 for b in INT8]
    for n in (8, 256):
        for rs in ("", ".rs"):
            names += [f"wgmma.m64n{n}k16.{d}.f16.f16{rs}" for d in ("f32", "f16")]
            names += [f"wgmma.m64n{n}k16.f32.bf16.bf16{rs}", f"wgmma.m64n{n}k8.f32.tf32.tf32{rs}"]
            names += [f"wgmma.m64n{n}k32.{d}.{a}.{b}{rs}" for d in ("f32", "f16") for a in FP8 for b in FP8]
            names += [f"wgmma.m64n{n}k32{sat}.s32.{a}.{b}{rs}" for sat in ("", ".satfinite") for a in INT8 for b in INT8]
    return names


def test_hopper_has_a_probe_for_everything_required() -> None:
    probed = {inst.name for inst in catalog("sm_90a") if probes.why_no_probe(inst) is None}
    assert probed == set(required_on_hopper())


def test_no_probe_has_a_reason_and_no_source() -> None:
    sparse = next(inst for inst in catalog("sm_90a") if inst.sparse)
    assert probes.why_no_probe(sparse) == "no probe yet"
    with pytest.raises(AccprobeError, match="no probe yet"):
        probes.source(sparse)


# Where an element of a fragment lies. PTX ISA, "Matrix Fragments for mma.…", transcribed shape by shape: element i of a lane,
# with g = lane / 4 and t = lane % 4. Of wgmma, "Register Fragments": the warp's 16 rows are those of mma.m16n8k….

Rule = Callable[[int, int, int], tuple[int, int]]


def fragment_a(inst: Instruction) -> tuple[int, Rule]:
    """(elements a lane, rule of (g, t, i) to (row, k))."""
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
    }
    return rules[min(inst.m, 16), inst.k, inst.a.storage_bits]


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
    }
    return rules[inst.k, inst.b.storage_bits]


def fragment_d(inst: Instruction) -> tuple[int, Rule]:
    """(elements a lane, rule of (g, t, i) to (row, column))."""
    if inst.family is WGMMA:
        return inst.n // 2, lambda g, t, i: (g + 8 * (i // 2 % 2), 8 * (i // 4) + t * 2 + i % 2)
    if inst.m == 8:
        return 2, lambda g, t, i: (g, t * 2 + i)
    return 4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))


class Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("m", "n", "k", "group"))


class Operand(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_int), ("elements", ctypes.c_int), ("row", ctypes.c_void_p), ("column", ctypes.c_void_p))


def table(inst: Instruction, bits: int, fragment: tuple[int, Rule], *, transposed: bool = False) -> tuple[Operand, np.ndarray]:
    """The operand's place in its matrix, and the memory that holds it."""
    elements, rule = fragment
    threads = inst.family.threads
    places = np.zeros((2, threads, elements), np.int32)
    for thread in range(threads):
        warp, lane = divmod(thread, 32)
        for i in range(elements):
            row, column = rule(lane // 4, lane % 4, i)
            places[:, thread, i] = (row, column) if transposed else (row + 16 * warp, column)
    return Operand(bits, elements, places[0].ctypes.data, places[1].ctypes.data), places


MATRICES = "(const Word*)a, (const Word*)b, (const CElement*)c, (DElement*)d"
RUN = {
    probes.Part.SHARE: (
        "Value* stored, Value count, unsigned row_shift, unsigned column_shift, unsigned blocks",
        f"launch({{blocks, 1}}, [=] {{ probe({MATRICES}, stored, count, row_shift, column_shift); }});",
    ),
    probes.Part.PRODUCT: (
        "unsigned rows, unsigned columns, Index grid",
        f"launch(grid, [=] {{ product({MATRICES}, rows, columns); }});",
    ),
}
"""By part, the arguments besides the matrices, and the launch."""


def emulator(inst: Instruction, folder: Path, part: probes.Part = probes.Part.SHARE) -> ctypes.CDLL:
    """The probe of `inst`, compiled for the CPU: see emulated_gpu.h."""
    text = re.sub(r"#define MULTIPLY.*", "#define MULTIPLY(...) multiply(__VA_ARGS__)", probes.source(inst, part))
    text = re.sub(r"#ifdef ON_EVERY_SM\n.*?#else\n", "#ifndef ON_EVERY_SM\n", text, count=1, flags=re.DOTALL)
    text = re.sub(r'asm volatile\("fence[^;]*;"[^;]*;', "", text)
    signature, call = RUN[part]
    assert "asm" not in text.replace('extern "C"', "")
    text = f"""#include "{Path(__file__).parents[1] / "support" / "emulated_gpu.h"}"
{text}
static void prepare(Shape s, const Operand* o) {{
    shape = s, operand_a = o[0], operand_b = o[1], operand_c = o[2], operand_d = o[3];
}}
extern "C" void run(Shape s, const Operand* o, const void* a, const void* b, const void* c, void* d, {signature}) {{
    prepare(s, o);
    {call}
}}
"""
    code, library = folder / "probe.cpp", folder / "probe.so"
    code.write_text(text)
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


ONE_OF_EACH_LAYOUT = [
    "mma.sync.m8n8k4.f64.f64.f64.f64",
    "mma.sync.m16n8k4.f64.f64.f64.f64",
    "mma.sync.m16n8k8.f64.f64.f64.f64",
    "mma.sync.m16n8k16.f64.f64.f64.f64",
    "mma.sync.m16n8k4.f32.tf32.tf32.f32",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "mma.sync.m16n8k8.f32.f16.f16.f32",
    "mma.sync.m16n8k8.f16.f16.f16.f16",
    "mma.sync.m16n8k16.f32.bf16.bf16.f32",
    "mma.sync.m8n8k16.s32.s8.u8.s32",
    "mma.sync.m16n8k16.f16.e4m3.e5m2.f16",
    "mma.sync.m16n8k32.f32.e4m3.e5m2.f32",
    "wgmma.m64n8k16.f32.f16.f16",
    "wgmma.m64n8k16.f16.f16.f16.rs",
    "wgmma.m64n8k8.f32.tf32.tf32.rs",
    "wgmma.m64n256k32.f32.e4m3.e5m2",
    "wgmma.m64n256k32.f16.e4m3.e5m2.rs",
]


def layout(inst: Instruction) -> tuple[Shape, ctypes.Array[Operand], list[np.ndarray]]:
    """The tile, where the operands lie in it, and the memory that says so."""
    tables = [
        table(inst, inst.a.storage_bits, fragment_a(inst)),
        table(inst, inst.b.storage_bits, fragment_b(inst), transposed=True),
        table(inst, inst.c.storage_bits, fragment_d(inst)),
        table(inst, inst.d.storage_bits, fragment_d(inst)),
    ]
    shape = Shape(inst.m, inst.n, inst.k, inst.family.threads)
    return shape, (Operand * 4)(*(operand for operand, _ in tables)), [memory for _, memory in tables]


class Grid(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", ONE_OF_EACH_LAYOUT)
def test_products_reach_every_row_and_column(name: str, tmp_path: Path) -> None:
    """Matrix products whose last tiles are not full, by the instruction's own K."""
    inst = parse(name)
    library = emulator(inst, tmp_path, probes.Part.PRODUCT)
    random = np.random.default_rng(1)
    shape, operands, _tables = layout(inst)
    rows, columns = inst.m + 5, inst.n + 3
    a, b = (
        random.integers(0, 1 << min(f.storage_bits, 63), (n, inst.k), f.dtype) for f, n in ((inst.a, rows), (inst.b, columns))
    )
    c = random.integers(0, 1 << min(inst.c.storage_bits, 63), (rows, columns), inst.c.dtype)
    d = np.zeros((rows + 1, columns), inst.d.dtype)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c, d)]
    library.run(shape, operands, *pointers, rows, columns, Grid(2, 2))
    wide = a.astype(np.uint64) @ b.astype(np.uint64).T + c.astype(np.uint64)
    np.testing.assert_array_equal(d[:rows], wide.astype(inst.d.dtype))
    assert not d[rows:].any()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", ONE_OF_EACH_LAYOUT)
def test_every_problem_reaches_its_row_and_column(name: str, tmp_path: Path) -> None:
    """On fragments as the PTX ISA lays them out, the probe computes every a · b + c, at every placement and count."""
    inst = parse(name)
    library = emulator(inst, tmp_path)
    random = np.random.default_rng(1)
    shape, operands, _tables = layout(inst)
    few = probes.problems(inst)
    for count, placement in [(5 * few + 3, 0), (1, 1), (few, 3), (11 * few, probes.placements(inst) - 1)]:
        a, b = (random.integers(0, 1 << min(f.storage_bits, 63), (count, inst.k), f.dtype) for f in (inst.a, inst.b))
        c = random.integers(0, 1 << min(inst.c.storage_bits, 63), count, inst.c.dtype)
        d, stored = np.zeros(count, inst.d.dtype), ctypes.c_ulonglong(7)
        row_shift, column_shift = probes.shifts(inst, placement)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c, d)]
        library.run(shape, operands, *pointers, ctypes.byref(stored), ctypes.c_ulonglong(count), row_shift, column_shift, 2)
        wide = (a.astype(np.uint64) * b.astype(np.uint64)).sum(1, dtype=np.uint64) + c.astype(np.uint64)
        np.testing.assert_array_equal(d, wide.astype(inst.d.dtype))
        assert stored.value == 7 + count


@pytest.mark.parametrize(
    "name", ["mma.sync.m8n8k4.f64.f64.f64.f64", "mma.sync.m16n8k8.f16.f16.f16.f16", *ONE_OF_EACH_LAYOUT[-5:]]
)
def test_placements_visit_every_row_and_column_and_move_them_against_each_other(name: str) -> None:
    inst = parse(name)
    cells = [probes.shifts(inst, placement) for placement in range(probes.placements(inst))]
    assert {row for row, _ in cells} == set(range(inst.m))
    assert {column for _, column in cells} == set(range(inst.n))
    few = probes.problems(inst)
    assert {(row - column) % few for row, column in cells} == set(range(few))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("cache")
def test_everything_required_on_hopper_compiles() -> None:
    insts = [parse(name) for name in required_on_hopper()]
    cubins = compiler.compile_all(insts, "sm_90a")
    assert set(cubins) == set(insts)
    assert len({cubin.sha256 for cubin in cubins.values()}) == len(insts)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_103a", "sm_120a", "sm_121a"])
def test_every_probe_compiles_for_every_target_that_has_its_instruction(target: str) -> None:
    insts = [inst for inst in catalog(target) if probes.why_no_probe(inst) is None]
    assert set(compiler.compile_all(insts, target)) == set(insts) != set()


SMALL = "mma.sync.m8n8k16.s32.s8.s8.s32"


def test_second_compile_comes_from_the_cache(cache: Path) -> None:
    first = compiler.compile(parse(SMALL), "sm_90a")
    second = compiler.compile(parse(SMALL), "sm_90a")
    assert first.milliseconds is not None
    assert second.milliseconds is None
    assert (second.path, second.sha256) == (first.path, first.sha256)
    assert first.path.parent == cache
    assert compiler.compile(parse(SMALL), "sm_80").path != first.path


@pytest.mark.parametrize("damage", ["cubin cut", "cubin gone", "entry cut", "entry of another kind"])
def test_damaged_cache_is_built_again(cache: Path, damage: str) -> None:
    first = compiler.compile(parse(SMALL), "sm_90a")
    (entry,) = cache.glob("*.json")
    match damage:
        case "cubin cut":
            first.path.write_bytes(first.path.read_bytes()[:100])
        case "cubin gone":
            first.path.unlink()
        case "entry cut":
            entry.write_text("{")
        case _:
            entry.write_text("[]")
    again = compiler.compile(parse(SMALL), "sm_90a")
    assert again.milliseconds is not None
    assert again.path.read_bytes()[:4] == b"\x7fELF"
    assert compiler.compile(parse(SMALL), "sm_90a").milliseconds is None


def test_no_temporary_files_are_left(cache: Path) -> None:
    compiler.compile(parse(SMALL), "sm_90a")
    assert sorted(path.suffix for path in cache.iterdir()) == [".cubin", ".json"]


@pytest.mark.usefixtures("cache")
def test_target_without_the_instruction_is_one_sentence() -> None:
    with pytest.raises(
        AccprobeError, match=r"^mma\.sync\.m16n8k16\.f32\.e4m3\.e4m3\.f32 does not compile for sm_80: Feature.*sm_89"
    ) as caught:
        compiler.compile(parse("mma.sync.m16n8k16.f32.e4m3.e4m3.f32"), "sm_80")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_missing_compiler_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cuda.core", "cuda.core.experimental"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolMissing, match=r"pip install 'accprobe\[cuda13\]'"):
        compiler.compile(parse(SMALL), "sm_90a")


def test_cache_folder_that_cannot_be_made_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(AccprobeError, match="set ACCPROBE_CACHE_DIR"):
        cache.cache_folder()
