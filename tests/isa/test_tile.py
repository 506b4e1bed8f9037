"""The elements of a tile by lane and placement; the descriptor and the columns of tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from accprobe.isa import ptx, tile
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
        (DENSE, [(EVERY, 2)], "column 2"),
        (DENSE, [(2, 4), (2, 5), (10, 4), (10, 5)], "warp 0, lane 10"),
        (DENSE, [(r, c) for r in range(8) for c in range(1, 8, 2)], "warp 0, register 1"),
        (PACKED, [(r, c) for r in range(8, 16) for c in range(8)], "warp 0, register 1 or all else"),
        (WIDE, [(r, c) for r in (18, 26) for c in range(4, 256, 8)], "warp 1, lane 10"),
        (WIDE, [(slice(16, 32), EVERY)], "warp 1"),
        (WIDE, [(EVERY, slice(128, 256))], "half of the columns 1 or all else"),
        (DENSE, [(EVERY, EVERY)], ""),
        (DENSE, [], ""),
    ],
)
def test_the_smallest_faulty_part_is_named(inst: Instruction, cells: list[Cell], words: str) -> None:
    assert tile.smallest_part(inst, marked(inst, *cells)) == words


# PTX ISA, "Instruction descriptor": (bits, field) transcribed from the three tables.
UNSCALED = {"sparse": (2, 1), "saturates": (3, 1), "d": (4, 2), "a": (7, 3), "b": (10, 3), "n": (17, 6), "m": (24, 5)}
SCALED = {
    "sparse": (2, 1),
    "id of b": (4, 2),
    "a": (7, 3),
    "b": (10, 3),
    "n": (17, 6),
    "scale": (23, 1),
    "m": (27, 2),
    "id of a": (29, 2),
    "k": (31, 1),
}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("m128n16k16.kind::f16.f32.bf16.bf16", {"d": 1, "a": 1, "b": 1, "n": 2, "m": 8}),
        ("m128n16k8.kind::tf32.f32.tf32.tf32", {"d": 1, "a": 2, "b": 2, "n": 2, "m": 8}),
        ("m128n16k32.satfinite.kind::i8.s32.s8.u8", {"saturates": 1, "d": 2, "a": 1, "n": 2, "m": 8}),
        ("m128n16k32.kind::f8f6f4.f32.e5m2.e2m1", {"d": 1, "a": 1, "b": 5, "n": 2, "m": 8}),
        ("m128n16k32.kind::f8f6f4.f16.e2m3.e3m2", {"a": 3, "b": 4, "n": 2, "m": 8}),
        ("m256n256k32.kind::f8f6f4.f32.e4m3.e4m3", {"d": 1, "n": 32, "m": 16}),
        ("sp.m128n16k32.kind::f16.f32.bf16.bf16", {"sparse": 1, "d": 1, "a": 1, "b": 1, "n": 2, "m": 8}),
        (
            "sp.m128n16k128.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0",
            {"sparse": 1, "a": 1, "b": 1, "n": 2, "scale": 1, "m": 1},
        ),
        ("m128n16k32.kind::mxf8f6f4.scale_vec::1X.f32.e4m3.e2m1.ue8m0", {"b": 5, "n": 2, "scale": 1, "m": 1}),
        ("m128n16k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3", {"a": 1, "b": 1, "n": 2, "m": 1}),
        ("m128n16k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3", {"a": 1, "b": 1, "n": 2, "m": 1, "k": 1}),
    ],
)
def test_the_instruction_descriptor_has_the_fields_of_the_tables(name: str, fields: dict[str, int]) -> None:
    inst = parse(f"tcgen05.{name}")
    places = SCALED if inst.scale else UNSCALED
    for field, value in fields.items():
        assert value < 1 << places[field][1]
    assert ptx.instruction_descriptor(inst) == sum(value << places[field][0] for field, value in fields.items())


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("m128n16k16.kind::f16.f32.f16.f16", 32),
        ("m256n256k16.kind::f16.f32.f16.f16", 256),
        ("sp.m256n256k32.kind::f16.f32.f16.f16", 512),
        ("m256n256k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0", 512),
    ],
)
def test_columns_of_tensor_memory(name: str, columns: int) -> None:
    assert ptx.columns(parse(f"tcgen05.{name}")) == columns
