"""Operands on which two models differ are found where there are some, and random ones do not reach them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inferred import separating
from plants import Plant, float_models

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.characterise import Characterisation
from accprobe.infer.distinguishing import Search
from accprobe.infer.falsification import MANY, falsify
from accprobe.infer.query_log import QueryLog
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import (
    AlignmentRounding,
    Arithmetic,
    DotModel,
    FloatArithmetic,
)
from accprobe.operands.directed import OF_ONE_SIGN, Target, directed
from accprobe.operands.kinds import draw_every_kind
from accprobe.records.findings import Finding

E5M2 = parse("mma.sync.m16n8k32.f16.e5m2.e5m2.f16")


def changed(model: DotModel, **fields: object) -> DotModel:
    """With fields of its aligned sums changed."""

    def change(has: Arithmetic) -> Arithmetic:
        aligned = isinstance(has, FloatArithmetic) and has.alignment_bits is not None
        return replace(has, **fields) if aligned else has

    return model.with_arithmetic(change)


def model_of(inst: Instruction) -> DotModel:
    return known_models("h100")[inst].model


@pytest.mark.parametrize("seed", range(5))
def test_what_random_operands_do_not_reach(seed: int) -> None:
    """A product of a subnormal shows its exponent in f16 results only where it cancels, and a tiny product is left."""
    model = model_of(E5M2)
    alternative = changed(model, product_exponent="normalised operands")
    usual = draw_every_kind(E5M2, np.random.default_rng(seed), 512)
    np.testing.assert_array_equal(evaluate(model, E5M2, usual), evaluate(alternative, E5M2, usual))
    found = separating(Search(E5M2, model, seed), alternative, ["product_exponent"], MANY)
    assert found is not None
    assert (found.d == evaluate(model, E5M2, found.operands)).all()
    assert (found.d != evaluate(alternative, E5M2, found.operands)).all()


def test_a_model_that_is_wrong_where_an_alternative_is_right_is_no_confirmed_one() -> None:
    """The inferred model normalises operands, the device does not, and only separating operands show it."""
    right = model_of(E5M2)
    wrong = changed(right, product_exponent="normalised operands")
    result = falsify(QueryLog(SimulatedDevice({E5M2: right}), E5M2), Characterisation(E5M2, {"order": Finding("")}, wrong))
    assert result.contradictions.count >= len(result.contradictions.sample) > 0
    for found in result.contradictions.sample:
        request = found.exchange.request(E5M2)
        answers = [evaluate(model, E5M2, request)[0] for model in (right, wrong)]
        assert answers == [found.exchange.result(E5M2)[0], int(found.expected, 16)]
        assert answers[0] != answers[1]


FIELDS = [
    {"alignment_bits": 24},
    {"alignment_bits": 26},
    *({"alignment_rounding": rule} for rule in get_args(AlignmentRounding)[1:]),
    {"result_bits": 22},
    {"result_rounding": "RNE"},
    {"product_exponent": "normalised product"},
    {"product_exponent": "normalised operands"},
    {"zero_terms": "aligned"},
    {"min_exponent": -130},
    {"subnormal_results": "flushed"},
    {"overflow": "largest"},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_every_field_is_found_by_what_is_made_for_it(fields: dict[str, object]) -> None:
    """Of bf16 products, which reach everything but another NaN: random operands have those."""
    inst = parse("wgmma.m64n8k16.f32.bf16.bf16")
    model = changed(model_of(inst), min_exponent=-129)
    alternative = changed(model, **fields)
    found = separating(Search(inst, model), alternative, list(fields))
    assert found is not None
    assert len(found)
    assert (found.d == evaluate(model, inst, found.operands)).all()
    assert (found.d != evaluate(alternative, inst, found.operands)).all()


def test_the_same_function_has_no_such_operands() -> None:
    """Products of e4m3 end nine bits above the cut: no exponent of theirs can show."""
    inst = parse("mma.sync.m16n8k32.f32.e4m3.e4m3.f32")
    model = model_of(inst)
    assert separating(Search(inst, model), changed(model, product_exponent="unnormalised"), ["product_exponent"]) is None
    assert separating(Search(inst, model), model, ["alignment_bits"]) is None


@settings(max_examples=24, deadline=None)
@given(float_models(), st.sampled_from(["anywhere", "products", "floor", "underflow", "overflow"]), st.integers(0, 99))
def test_directed_operands_fit_any_instruction(planted: Plant, name: str, seed: int) -> None:
    inst = planted.instruction
    place = Target(name, tuple(range(len(list(planted.model.root.nodes())))), (-126,))
    operands = directed(inst, planted.model, place, np.random.default_rng(seed), 50)
    assert [x.dtype for x in operands.columns] == [inst.a.dtype, inst.b.dtype, inst.c.dtype]
    assert operands.a.shape == operands.b.shape == (50, inst.k)
    crowded = ((inst.a.values(operands.a) != 0) & (inst.b.values(operands.b) != 0)).sum(axis=1) > 9
    assert crowded.sum() <= (50 // OF_ONE_SIGN[name] if name in OF_ONE_SIGN else 0)
    assert len(evaluate(planted.model, inst, operands)) == 50
