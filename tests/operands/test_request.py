"""Requests with metadata and scales, and exchanges: every bit of a request and its result, in hex."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from sparse_semantics import group_of

from accprobe.devices.recording import query_key
from accprobe.errors import AccprobeError
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.operands.exchange import Exchange, digits
from accprobe.operands.request import Request, joined

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


@pytest.mark.parametrize("inst", [DENSE, SPARSE, SCALED], ids=str)
def test_rows_and_parts_keep_every_column(inst: Instruction) -> None:
    whole = request(inst)
    whole.check(inst)
    assert len(whole.columns) == {DENSE: 3, SPARSE: 4, SCALED: 5}[inst]
    again = joined([whole[:2], whole[np.array([2])], whole[np.array([False, False, False, True, True])]])
    again.check(inst)
    assert all(np.array_equal(x, y) for x, y in zip(whole.columns, again.columns, strict=True))


@pytest.mark.parametrize("inst", [DENSE, SPARSE, SCALED], ids=str)
def test_every_column_is_part_of_the_question(inst: Instruction) -> None:
    asked = request(inst)
    known = query_key(inst, asked, 0)
    assert query_key(inst, request(inst), 0) == known
    for column in asked.columns:
        column.reshape(-1)[0] ^= column.dtype.type(1)
        assert query_key(inst, asked, 0) != known
        column.reshape(-1)[0] ^= column.dtype.type(1)


@pytest.mark.parametrize(
    ("inst", "changes", "reason"),
    [
        (DENSE, {"metadata": np.zeros((5, 4), np.uint8)}, "metadata is given, and the instruction has none"),
        (SPARSE, {"metadata": None}, "metadata is missing"),
        (SCALED, {"scales_b": None}, "scales_b is missing"),
        (SCALED, {"scales_a": np.zeros((5, 2), np.uint8)}, r"scales_a is uint8\[5, 2\], expected uint8\[5, 4\]"),
        (DENSE, {"a": np.zeros((5, 16), np.uint8)}, r"a is uint8\[5, 16\], expected uint16\[5, 16\]"),
        (SPARSE, {"a": np.zeros((5, 32), np.uint16)}, r"a is uint16\[5, 32\], expected uint16\[5, 16\]"),
    ],
)
def test_what_does_not_fit_is_told(inst: Instruction, changes: dict[str, np.ndarray | None], reason: str) -> None:
    with pytest.raises(AccprobeError, match=f"{inst.name.replace('.', '[.]')}: {reason}"):
        replace(request(inst), **changes).check(inst)


READER = TypeAdapter(Exchange)


@pytest.mark.parametrize("inst", [DENSE, SPARSE, SCALED, parse("mma.sync.m8n8k4.f64.f64.f64.f64")], ids=str)
def test_every_bit_comes_back(inst: Instruction) -> None:
    asked = request(inst)
    answers = np.arange(len(asked)).astype(inst.d.dtype) * inst.d.dtype.type(251)
    for row in range(len(asked)):
        seen = Exchange.of(asked, row, answers)
        assert seen.widths == digits(inst)
        again = READER.validate_json(READER.dump_json(seen))
        assert again == seen
        assert again.result(inst) == answers[row]
        one = again.request(inst)
        one.check(inst)
        assert all(np.array_equal(x[0], y[row]) for x, y in zip(one.columns, asked.columns, strict=True))


def test_digits_of_every_instruction_are_those_of_its_exchanges() -> None:
    for inst in catalog("sm_120a"):
        assert Exchange.of(request(inst, 1), 0, np.zeros(1, inst.d.dtype)).widths == digits(inst), inst.name
        assert digits(inst)[3] == inst.d.storage_bits // 4


@pytest.mark.parametrize("columns", [["00", "00", "00"], ["00", "0x", "00", "00"], ["00"] * 8, [0, 0, 0, 0], "00"])
def test_what_is_no_exchange_is_refused(columns: object) -> None:
    with pytest.raises(ValidationError):
        READER.validate_python(columns)
