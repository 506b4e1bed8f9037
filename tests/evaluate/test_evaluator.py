"""The evaluators against the slow reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plants import Plant, float_models, instruction, integer_models
from reference import evaluate_one

from accprobe.errors import AccprobeError
from accprobe.evaluate import evaluator
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, NanPayload, Rounding, chain
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request

E4M3 = instruction(32, "f32", "e4m3", "e4m3", "f32")
HOPPER_FP8 = DotModel(chain([range(32)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 13, min_exponent=-133)))


def assert_agrees(planted: Plant, operands: Request) -> None:
    inst, model = planted.instruction, planted.model
    d = evaluator.with_numpy(model, inst, operands)
    for i in range(len(operands.c)):
        a, b, c = operands.a[i].tolist(), operands.b[i].tolist(), int(operands.c[i])
        slow = evaluate_one(model, inst, a, b, c)
        assert slow == d[i], f"{model.order} a={a} b={b} c={c:#x}: {int(d[i]):#x}, reference {slow:#x}"


@settings(max_examples=30, deadline=None)
@given(float_models(), st.integers(0, 2**32 - 1))
def test_any_float_model_on_every_kind_of_operands(planted: Plant, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kind in kinds(planted.instruction):
        assert_agrees(planted, draw(kind, planted.instruction, rng, 3))


@settings(max_examples=40, deadline=None)
@given(integer_models(), st.integers(0, 2**32 - 1))
def test_any_integer_model(planted: Plant, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kind in kinds(planted.instruction):
        assert_agrees(planted, draw(kind, planted.instruction, rng, 5))


@pytest.mark.parametrize("payload", get_args(NanPayload))
def test_nan_payloads(payload: str) -> None:
    inst = instruction(4, "f64", "f64", "f64", "f64")
    arithmetic = FloatArithmetic(FORMATS["f64"], 52, "RNE", None, nan=0xFFF8 << 48, nan_payload=payload)
    planted = Plant(inst, DotModel(chain([[0], [1], [2], [3]], arithmetic)))
    assert_agrees(planted, draw("special", inst, np.random.default_rng(2), 300))


@pytest.mark.parametrize("rounding", get_args(Rounding))
@pytest.mark.parametrize(
    ("operand", "result"), [("f64", "f64"), ("f16", "f32"), ("bf16", "f32"), ("e5m2", "f16"), ("tf32", "f32")]
)
@pytest.mark.parametrize("size", [1, 4])
def test_exact_sums(operand: str, result: str, rounding: str, size: int) -> None:
    """FMA chains, and sums of five terms that are exact before the one rounding."""
    inst = instruction(4, result, operand, operand, result)
    fmt = FORMATS[result]
    arithmetic = FloatArithmetic(fmt, fmt.mantissa_bits, rounding, None, zero_sign="ieee", nan=fmt.infinity + 1)
    planted = Plant(inst, DotModel(chain([list(range(i, i + size)) for i in range(0, 4, size)], arithmetic)))
    rng = np.random.default_rng(1)
    for kind in kinds(inst):
        assert_agrees(planted, draw(kind, inst, rng, 10))


def test_all_pairs_of_8_bit_codes() -> None:
    """All 65,536 products of two e4m3 codes, each beside C = 1."""
    a, b = (x.reshape(-1).astype(np.uint8) for x in np.meshgrid(np.arange(256), np.arange(256)))
    operands = Request(*(np.zeros((len(a), 32), np.uint8) for _ in range(2)), np.full(len(a), 0x3F800000, np.uint32))
    operands.a[:, 5], operands.b[:, 5] = a, b
    d = evaluate(HOPPER_FP8, E4M3, operands)
    values = FORMATS["e4m3"].values(a) * FORMATS["e4m3"].values(b)
    unit = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(np.abs(values), 2.0**-30))), 0) - 13)
    exponents = FORMATS["e4m3"].fields(a).exponent + FORMATS["e4m3"].fields(b).exponent
    unit = 2.0 ** (np.where(values == 0, 0, np.maximum(exponents, 0)) - 13)
    total = np.trunc(values / unit) * unit + np.trunc(1 / unit) * unit
    finite = np.isfinite(total)
    leading = 2.0 ** np.floor(np.log2(np.abs(np.where(finite & (total != 0), total, 1))))
    expected = np.trunc(total / (leading * 2.0**-13)) * leading * 2.0**-13
    assert np.array_equal(d.view(np.float32)[finite], expected[finite].astype(np.float32))
    assert (d[~finite] == 0x7FFFFFFF).all()


def test_published_example() -> None:
    zero = np.zeros((1, 32), np.uint8)
    assert evaluate(HOPPER_FP8, E4M3, Request(zero, zero, np.array([0x404073FF], np.uint32)))[0] == 0x40407000


def test_a_model_of_another_k() -> None:
    short = DotModel(chain([range(16)], IntegerArithmetic(FORMATS["s32"], "wrap")))
    inst = instruction(32, "s32", "s8", "s8", "s32")
    with pytest.raises(AccprobeError, match="has 32 products, the model 16"):
        evaluate(short, inst, draw("uniform", inst, np.random.default_rng(0), 1))


@pytest.mark.parametrize("ks", [range(1, 33), [0] * 32, [*range(31), 99]], ids=["shifted", "one again and again", "far"])
def test_every_product_is_in_a_model_once(ks: Sequence[int]) -> None:
    inst = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    model = DotModel(chain([list(ks)], FloatArithmetic(FORMATS["f32"], 13, "RZ", 13)))
    zeros = np.zeros((1, 32), np.uint8)
    with pytest.raises(AccprobeError, match="products 0 to 31, each once"):
        evaluate(model, inst, Request(zeros, zeros, np.zeros(1, np.uint32)))
