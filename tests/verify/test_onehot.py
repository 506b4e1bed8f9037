"""The self-test of a probe: devices whose operands lie wrong in the tile, each found, with the place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fakes import FakeDevice
from sparse_semantics import patterns_of, written_out

from accprobe.build.lowerings import Lowering
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request
from accprobe.survey.run import survey
from accprobe.verify.onehot import misplaced, one_hot

Moved = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]
"""Changes A [N, K], written out, B [N, K] and C [N] where they lie in rows and columns [2, N]."""

EACH = [
    "mma.sync.m16n8k16.f32.f16.f16.f32",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32",
    "mma.sync.m16n8k32.f16.e4m3.e5m2.f16",
    "mma.sync.m8n8k4.f64.f64.f64.f64",
    "mma.sync.m16n8k64.s32.s4.u4.s32",
    "mma.sync.m16n8k256.s32.b1.b1.s32.and.popc",
    "mma.sp.m16n8k32.f16.f16.f16.f16",
    "mma.sp.m16n8k8.f32.tf32.tf32.f32",
    "mma.sp.m16n8k128.s32.s4.s4.s32",
    "wgmma.sp.m64n256k64.f32.e4m3.e5m2",
    "wgmma.m64n8k32.s32.s8.u8.rs",
]


class Tiles(FakeDevice):
    """Sums of small numbers, exactly, of operands that `moved` may have changed."""

    def __init__(self, inst: Instruction, moved: Moved = lambda a, b, c, where: None) -> None:
        super().__init__()
        self.inst, self.moved = inst, moved

    def instructions(self) -> Sequence[Instruction]:
        return [self.inst]

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return None

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        stored = request.a if request.metadata is None else written_out(inst, request.a, request.metadata)
        a, b, c = (fmt.values(x) for fmt, x in ((inst.a, stored), (inst.b, request.b), (inst.c, request.c)))
        self.moved(a, b, c, np.array(tile.cells_of(inst, len(c), placement)))
        total = ((a != b) if inst.bit_op == "xor" else a * b).sum(axis=1) + c
        return total.astype(inst.d.ml_dtype).view(inst.d.dtype)

    def placements(self, inst: Instruction) -> int:
        return tile.placements(inst)

    def lowering(self, inst: Instruction) -> Lowering | None:
        return None


@pytest.mark.parametrize("name", EACH)
def test_nothing_is_misplaced_where_all_is_where_it_belongs(name: str) -> None:
    inst = parse(name)
    assert misplaced(InstructionSubject(Tiles(inst), inst)) == ""


@pytest.mark.parametrize("name", EACH)
def test_every_element_is_one_in_every_row_and_column_and_with_every_code(name: str) -> None:
    inst = parse(name)
    asked = one_hot(inst)
    rows, columns = tile.cells_of(inst, len(asked.hot))
    of_a = asked.hot >= 0
    assert (asked.request.a[of_a] != 0).sum(axis=1).tolist() == [1] * int(of_a.sum())
    stored = set(range(inst.stored.k))
    for row in range(inst.m):
        assert set(asked.hot[of_a & (rows == row)].tolist()) == stored
    for column in range(inst.n):
        assert len(set(asked.hot[of_a & (columns == column)].tolist())) >= min(len(stored), inst.m)
    assert {*zip(rows[~of_a].tolist(), columns[~of_a].tolist(), strict=True)} == {
        (row, column) for row in range(inst.m) for column in range(inst.n)
    }
    if asked.request.metadata is None:
        return
    patterns = patterns_of(inst)
    half = len(next(iter(patterns.values())))
    code = asked.request.metadata[np.flatnonzero(of_a), asked.hot[of_a] // half]
    met = {*zip(rows[of_a].tolist(), asked.hot[of_a].tolist(), code.tolist(), strict=True)}
    assert len(met) == inst.m * inst.stored.k * len(patterns)


def swap_in_row(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray) -> None:
    in_row = where[0] == 3
    a[np.ix_(in_row, [5, 7])] = a[np.ix_(in_row, [7, 5])]


def lose_in_column(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray) -> None:
    b[where[1] == 6, 2] = 0


def lose_addend(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray) -> None:
    c[(where[0] == 1) & (where[1] == 4)] = 0


def swap_positions(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray) -> None:
    a[:, [2, 3]] = a[:, [3, 2]]


@pytest.mark.parametrize("apart", [1, 4, 8, 16, 32])
@pytest.mark.parametrize(
    "name", ["wgmma.m64n256k8.f32.tf32.tf32", "wgmma.m64n256k16.f32.f16.f16", "wgmma.m64n256k32.s32.s8.s8"]
)
def test_rows_that_are_exchanged_are_told(name: str, apart: int) -> None:
    inst = parse(name)

    def exchange_rows(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray) -> None:
        tiles = np.arange(len(a)) // tile.problems(inst)
        at = {place: i for i, place in enumerate(zip(tiles.tolist(), where[0].tolist(), strict=True))}
        a[:] = a[[at.get((of, row ^ apart), i) for (of, row), i in at.items()]]

    assert "of A meets" in misplaced(InstructionSubject(Tiles(inst, exchange_rows), inst))


@pytest.mark.parametrize(
    ("name", "moved", "told"),
    [
        ("mma.sync.m16n8k16.f32.f16.f16.f32", swap_in_row, "element 7 of row 3 of A meets 5 of column 4 of B, not 7"),
        ("mma.sync.m16n8k32.s32.s8.s8.s32", lose_in_column, "element 2 of row 4 of A meets nothing of column 6 of B, not 2"),
        ("wgmma.m64n8k16.f32.f16.f16", lose_addend, "C of row 1, column 4 does not reach D there"),
        (
            "mma.sp.m16n8k32.f32.f16.f16.f32",
            swap_positions,
            "stored element 1 of row 0 of A with metadata 0b1000 meets 3 of column 1 of B, not 2",
        ),
    ],
)
def test_the_first_wrong_position_is_told(name: str, moved: Moved, told: str) -> None:
    inst = parse(name)
    assert told in misplaced(InstructionSubject(Tiles(inst, moved), inst))
    (row,) = survey(Tiles(inst, moved)).instructions
    assert row.status == "unverified"
    assert told in row.reason
    assert row.model is None


def test_a_fault_after_another_dot_product_is_no_wrong_place() -> None:
    """It comes again beside the same dot products, and not beside others."""
    inst = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
    before = one_hot(inst).request[[40]]

    class After(Tiles):
        def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
            d = super().dot(inst, request, placement)
            after = np.roll((request.a == before.a).all(axis=1) & (request.c == before.c), 1)
            return np.where(after, d.dtype.type(0), d)

    assert misplaced(InstructionSubject(After(inst), inst)) == ""
