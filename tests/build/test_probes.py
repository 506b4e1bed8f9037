"""Probes on an emulated GPU: operands in registers, scales, packed elements and tensor memory lie as the PTX ISA says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import precompile
from emulated_gpu import Emulated, called, drawn, emulator, run
from marks import some
from once import folder_of_run, once
from probed import ONE_OF_EACH_LAYOUT
from sparse_semantics import written_out

from accprobe.build import probes
from accprobe.errors import AccprobeError
from accprobe.isa import tile
from accprobe.isa.families import TCGEN05
from accprobe.isa.instructions import catalog, parse
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request
from accprobe.verify.onehot import misplaced

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


@pytest.fixture(scope="session")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the emulated GPU."""
    return once(folder_of_run(tmp_path_factory) / "emulated_gpu", lambda folder: precompile(folder, "emulated_gpu.h"))


@pytest.mark.parametrize(
    "name",
    [
        *(
            name
            for kind in (IN_REGISTERS, BESIDE_METADATA, IN_TENSOR_MEMORY, SPARSE_IN_TENSOR_MEMORY)
            for name in some(kind, 20)
        ),
        *some(OF_TWO_BLOCKS, 8),
        *some(ONE_OF_EACH_LAYOUT, 64),
    ],
)
def test_every_problem_reaches_its_row_and_column(name: str, headers: Path) -> None:
    inst = parse(name)
    library = emulator(inst, headers)
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


@pytest.mark.parametrize("name", some(ONE_OF_EACH_LAYOUT, 64))
def test_products_reach_every_row_and_column(name: str, headers: Path) -> None:
    """Matrix products whose last tiles are not full, by the instruction's own K."""
    inst = parse(name)
    rows, columns = inst.m + 5, inst.n + 3
    asked, _ = drawn(inst, rows * columns)
    a, b, c = asked.a[:rows], asked.b[:columns], asked.c.reshape(rows, columns)
    d = np.zeros((rows + 1, columns), inst.d.dtype)
    metadata = None if asked.metadata is None else asked.metadata[:rows]
    called(emulator(inst, headers, products=True), inst, Request(a, b, c, metadata=metadata), d, rows, columns, 2, 2)
    whole = a if metadata is None else written_out(inst, a, metadata)
    wide = whole.astype(np.uint64) @ b.astype(np.uint64).T + c.astype(np.uint64)
    np.testing.assert_array_equal(d[:rows], wide.astype(inst.d.dtype))
    assert not d[rows:].any()


@pytest.mark.parametrize("name", [SPARSE_IN_TENSOR_MEMORY[1], pytest.param(PLAIN_PAIR, marks=pytest.mark.slow)])
def test_a_right_layout_passes_the_self_test(name: str, headers: Path) -> None:
    inst = parse(name)
    assert misplaced(InstructionSubject(Emulated(emulator(inst, headers)), inst)) == ""


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
            "element 64 of row 63 of A meets nothing of column 14 of B, not 64",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            PLAIN_PAIR,
            "tile.line_of_column(left + column)",
            "tile.line_of_column(column)",
            "element 5 of row 128 of A meets nothing of column 128 of B, not 5",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_self_test_tells_what_lies_wrong(name: str, old: str, new: str, told: str, headers: Path) -> None:
    inst = parse(name)
    assert old in probes.source(inst)
    found = misplaced(InstructionSubject(Emulated(emulator(inst, headers, lambda text: text.replace(old, new))), inst))
    assert found == f"the self-test: {told}; please report it"


def test_no_probe_has_a_reason_and_no_source() -> None:
    few_rows = replace(parse("mma.sync.m16n8k16.f32.f16.f16.f32"), family=TCGEN05)
    assert probes.find_probe(few_rows) is None
    with pytest.raises(AccprobeError, match="no probe"):
        probes.source(few_rows)


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"])
def test_everything_has_a_probe(target: str) -> None:
    assert [inst.name for inst in catalog(target) if not probes.find_probe(inst)] == []


@pytest.mark.parametrize("name", [IN_REGISTERS[1], IN_TENSOR_MEMORY[0]])
def test_there_are_no_matrix_products_of_them(name: str) -> None:
    assert not probes.multiplies_matrices(parse(name))
    with pytest.raises(AccprobeError, match="has no probe of matrix products"):
        probes.source(parse(name), products=True)
