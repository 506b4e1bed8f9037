"""Sparse questions made of dense ones: which products are stored, and what stands where none is."""

from dataclasses import replace

import numpy as np
import pytest
from sparse_semantics import group_of, kept, patterns_of

from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import LAYOUTS, defined, laid_out, layouts, own_layouts, stored_products

SPARSE = [inst for inst in catalog("sm_90a") if inst.sparse and inst.n == 8 and not inst.satfinite and not inst.a_registers]
NAMES = [inst.name for inst in SPARSE]


@pytest.mark.parametrize("inst", SPARSE, ids=NAMES)
def test_codes_and_places_are_those_of_the_ptx_isa(inst: Instruction) -> None:
    assert inst.sparsity is not None
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


@pytest.mark.parametrize("inst", SPARSE, ids=NAMES)
def test_a_dense_question_comes_back_from_the_sparse_one(inst: Instruction) -> None:
    rng = np.random.default_rng(1)
    dense = joined([draw(kind, inst.stored, rng, 50) for kind in kinds(inst.stored)])
    asked = laid_out(inst, dense)
    asked.check(inst)
    back = stored_products(inst, asked)
    back.check(inst.stored)
    for column, known in zip(back.columns, dense.columns, strict=True):
        np.testing.assert_array_equal(column, known)
    assert asked.metadata is not None
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


@pytest.mark.parametrize("inst", SPARSE, ids=NAMES)
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
