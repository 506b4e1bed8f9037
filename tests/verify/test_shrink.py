"""A counterexample is made as small as it can be, and stays one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plants import Plant, float_models, instruction

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, chain
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.verify.shrink import shrink

BF16 = instruction(16, "f32", "bf16", "bf16", "f32")
MODEL = DotModel(chain([range(16)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 25)))


def first_difference(inst: Instruction, one: DotModel, other: DotModel, seed: int = 0) -> Counterexample | None:
    """What `one` answers where `other` expects something else."""
    rng = np.random.default_rng(seed)
    operands = joined([draw(kind, inst, rng, 200) for kind in kinds(inst)])
    got, expected = evaluate(one, inst, operands), evaluate(other, inst, operands)
    wrong = np.flatnonzero(got != expected)
    return Counterexample.of(operands, int(wrong[0]), got, expected, "any") if len(wrong) else None


def assert_minimal(inst: Instruction, device: DotModel, model: DotModel, small: Counterexample) -> int:
    """It is a counterexample, and without any of its products it is none. Gives the number of products."""
    a, b, c = small.exchange.request(inst).columns
    assert evaluate(device, inst, Request(a, b, c))[0] == int(small.exchange.d, 16)
    assert evaluate(model, inst, Request(a, b, c))[0] == int(small.expected, 16)
    assert small.expected != small.exchange.d
    products = np.flatnonzero((a[0] != 0) | (b[0] != 0))
    for k in products:
        fewer = [np.where(np.arange(inst.k) == k, x.dtype.type(0), x) for x in (a, b)]
        assert evaluate(device, inst, Request(*fewer, c)) == evaluate(model, inst, Request(*fewer, c))
    return len(products)


@settings(max_examples=10, deadline=None)
@given(float_models(), st.sampled_from(["alignment_bits", "result_bits", "result_rounding", "nan"]), st.integers(0, 99))
def test_any_planted_fault_is_shrunk(planted: Plant, field: str, seed: int) -> None:
    values: dict[str, object] = {"alignment_bits": 4, "result_bits": 5, "result_rounding": "RNE", "nan": 0x7C01}

    def changed(arithmetic: Arithmetic) -> Arithmetic:
        return arithmetic if getattr(arithmetic, field, None) is None else replace(arithmetic, **{field: values[field]})

    inst, device = planted.instruction, planted.model.with_arithmetic(changed)
    found = first_difference(inst, device, planted.model, seed)
    assume(found is not None)
    assert found is not None
    small = shrink(partial(evaluate, device, inst), partial(evaluate, planted.model, inst), inst, found)
    assert small is not None
    assert_minimal(inst, device, planted.model, small)


@pytest.mark.parametrize(
    "fields", [{"alignment_bits": 24}, {"result_rounding": "RNE"}, {"result_bits": 22}, {"nan": 0x7FC00000}], ids=str
)
def test_no_choice_of_fewer_products_shows_it(fields: dict[str, object]) -> None:
    """All 2^17 choices of the 16 products and C are tried."""
    device = MODEL.with_arithmetic(lambda has: replace(has, **fields))
    found = first_difference(BF16, device, MODEL)
    assert found is not None
    small = shrink(partial(evaluate, device, BF16), partial(evaluate, MODEL, BF16), BF16, found)
    assert small is not None
    choices = np.arange(1 << 17)
    bits = (choices[:, None] >> np.arange(17)) & 1 == 1
    asked = found.exchange.request(BF16)
    a, b = (np.where(bits[:, :16], x, np.uint16(0)) for x in (asked.a, asked.b))
    c = np.where(bits[:, 16], asked.c, np.uint32(0))
    wrong = evaluate(device, BF16, Request(a, b, c)) != evaluate(MODEL, BF16, Request(a, b, c))
    fewest = ((a != 0) | (b != 0)).sum(axis=1)[wrong].min()
    assert assert_minimal(BF16, device, MODEL, small) == fewest
