"""Requests and exchanges: metadata, scales and every bit in hex; sparse requests made of dense ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from sparse_semantics import group_of, kept, patterns_of

from accprobe.devices.recording import query_key
from accprobe.errors import AccprobeError
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.operands.exchange import Exchange, digits
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import LAYOUTS, defined, laid_out, layouts, own_layouts, stored_products

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


SPARSES = [inst for inst in catalog("sm_90a") if inst.sparse and inst.n == 8 and not inst.satfinite and not inst.a_registers]
NAMES_OF_SPARSE = [inst.name for inst in SPARSES]


@pytest.mark.parametrize("inst", SPARSES, ids=NAMES_OF_SPARSE)
def test_codes_and_places_are_those_of_the_ptx_isa(inst: Instruction) -> None:
    assert inst.sparsity.group == group_of(inst)
    assert inst.sparsity.places == patterns_of(inst)
    codes = np.array([list(patterns_of(inst))[:1] * (inst.k // group_of(inst))], np.uint8)
    for group in range(codes.shape[1]):
        for code in patterns_of(inst):
            codes[0, group] = code
            assert inst.sparsity.stored(codes)[0].tolist() == kept(inst, codes)[0].tolist()
    last = np.repeat(codes, 16, axis=0)
    last[:, -1] = range(16)
    asked = replace(Request.zeros(inst, 16), metadata=last)
    assert np.flatnonzero(defined(inst, asked)).tolist() == sorted(patterns_of(inst))


@pytest.mark.parametrize("inst", SPARSES, ids=NAMES_OF_SPARSE)
def test_a_dense_question_comes_back_from_the_sparse_one(inst: Instruction) -> None:
    rng = np.random.default_rng(1)
    dense = joined([draw(kind, inst.stored, rng, 50) for kind in kinds(inst.stored)])
    asked = laid_out(inst, dense)
    asked.check(inst)
    back = stored_products(inst, asked)
    back.check(inst.stored)
    for column, known in zip(back.columns, dense.columns, strict=True):
        np.testing.assert_array_equal(column, known)
    for row in range(0, len(asked), 97):
        np.testing.assert_array_equal(asked.b[row, kept(inst, asked.metadata)[row]], dense.b[row])


def test_a_row_is_laid_out_by_its_own_bits_alone() -> None:
    inst = parse("mma.sp.m16n8k32.f32.f16.f16.f32")
    dense = draw("uniform", inst.stored, np.random.default_rng(2), 500)
    mixed = np.random.default_rng(3).permutation(500)
    which = own_layouts(dense)
    np.testing.assert_array_equal(own_layouts(dense[mixed]), which[mixed])
    assert len(set(which.tolist())) > 350
    for name in ("a", "b", "c"):
        changed = {"a": dense.a.copy(), "b": dense.b.copy(), "c": dense.c.copy()}
        changed[name][..., -1] ^= 1
        others = own_layouts(Request(**changed)) if name != "c" else own_layouts(Request(dense.a, dense.b, dense.c ^ 1))
        assert (others != which).mean() > 0.9


@pytest.mark.parametrize("inst", SPARSES, ids=NAMES_OF_SPARSE)
def test_every_code_and_every_class_is_among_the_layouts(inst: Instruction) -> None:
    every = layouts(inst)
    assert every.metadata.shape == (LAYOUTS, inst.k // group_of(inst))
    for group in every.metadata.T:
        assert set(group.tolist()) == set(patterns_of(inst))
    values = inst.b.values(every.b)
    for k in range(inst.k):
        left = every.left_out[:, k]
        assert set(left[left >= 0].tolist()) == set(range(len(every.classes)))
        for number, name in enumerate(every.classes):
            there = values[left == number, k]
            assert {
                "zero": lambda x: (x == 0).all(),
                "subnormal": lambda x: ((x != 0) & (abs(x) < 2.0**inst.b.min_exponent)).all(),
                "normal": lambda x: np.isfinite(x).all(),
                "smallest": lambda x: len(set(x.tolist())) == 1,
                "largest": lambda x: (abs(x) == inst.b.values(np.array([inst.b.largest], inst.b.dtype))[0]).all(),
                "infinity": lambda x: np.isinf(x).all(),
                "NaN": lambda x: np.isnan(x).all(),
            }[name](there), name
    assert (every.left_out >= 0).sum() == LAYOUTS * inst.k // 2
