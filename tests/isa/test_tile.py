"""The tile: all placements read every element, and the faulty part is named."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.isa import tile
from accprobe.isa.instructions import Instruction, catalog, parse

DENSE = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
WIDE = parse("wgmma.m64n256k32.f32.e4m3.e4m3")
PACKED = parse("mma.sync.m16n8k16.f16.f16.f16.f16")


@pytest.mark.parametrize("shape", sorted({(inst.m, inst.n) for target in ("sm_90a", "sm_100a") for inst in catalog(target)}))
def test_all_placements_read_every_element_once(shape: tuple[int, int]) -> None:
    inst = next(i for target in ("sm_90a", "sm_100a") for i in catalog(target) if (i.m, i.n) == shape)
    whole = tile.placements(inst) * tile.problems(inst)
    rows, columns = tile.cells_of(inst, whole, 5)
    assert whole == inst.m * inst.n == len(set(zip(rows.tolist(), columns.tolist(), strict=True)))


Cell = tuple[slice | int, slice | int]


def marked(inst: Instruction, *cells: Cell) -> tile.Marks:
    marks = np.zeros((inst.m, inst.n), bool)
    for cell in cells:
        marks[cell] = True
    return marks


EVERY = slice(None)


@pytest.mark.parametrize(
    ("inst", "cells", "words"),
    [
        (DENSE, [(3, 5)], "row 3, column 5"),
        (DENSE, [(3, EVERY)], "row 3"),
        (DENSE, [(3, 0), (3, 7)], "row 3"),
        (DENSE, [(EVERY, 2)], "column 2"),
        (DENSE, [(2, 4), (2, 5), (10, 4), (10, 5)], "warp 0, lane 10"),
        (DENSE, [(r, c) for r in range(8) for c in range(1, 8, 2)], "warp 0, register 1"),
        (PACKED, [(r, c) for r in range(8, 16) for c in range(8)], "warp 0, register 1 or all else"),
        (WIDE, [(r, c) for r in (18, 26) for c in range(4, 256, 8)], "warp 1, lane 10"),
        (WIDE, [(slice(16, 32), EVERY)], "warp 1"),
        (WIDE, [(EVERY, slice(128, 256))], "half of the columns 1 or all else"),
        (DENSE, [(EVERY, EVERY)], ""),
        (DENSE, [(0, 0), (15, 7)], ""),
        (DENSE, [], ""),
    ],
)
def test_the_smallest_faulty_part_is_named(inst: Instruction, cells: list[Cell], words: str) -> None:
    assert tile.smallest_part(inst, marked(inst, *cells)) == words
