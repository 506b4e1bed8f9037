"""The evaluator of planted arithmetics: against the reference of exact fractions, and by hand where the grammar ends."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hostile import hostile
from hypothesis import given, settings
from hypothesis import strategies as st
from outside import PLAIN, Entry, Unit, Wide
from outside_numbers import Packing
from plants import Plant, float_models, integer_models
from reference import evaluate_one

from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, chain
from accprobe.operands.request import Request

F32 = FORMATS["f32"]


def assert_as_reference(inst: Instruction, model: DotModel, request: Request) -> None:
    expected = [
        evaluate_one(model, inst, a.tolist(), b.tolist(), int(c))
        for a, b, c in zip(request.a, request.b, request.c, strict=True)
    ]
    assert Unit(inst, model).dot(request).tolist() == expected


@settings(max_examples=25, deadline=None)
@given(st.one_of(float_models(), float_models(plain=True), integer_models()), st.integers(0, 2**32))
def test_models_of_the_grammar_are_computed_as_the_reference_does(planted: Plant, seed: int) -> None:
    request = hostile(planted.instruction, seed, each=3)[:40]
    assert_as_reference(planted.instruction, planted.model, request)


@pytest.mark.parametrize("name", ["mma.sync.m8n8k4.f64.f64.f64.f64", "wgmma.m64n8k32.f32.e4m3.e4m3"])
def test_models_of_hardware_are_computed_as_the_reference_does(name: str) -> None:
    inst = parse(name)
    assert_as_reference(inst, known_models("h100")[inst].model, hostile(inst, 1, each=50)[:600])


HALVES, BRAIN = "mma.sync.m16n8k8.f32.f16.f16.f32", "mma.sync.m16n8k8.f32.bf16.bf16.f32"
LARGEST = float(np.finfo(np.float32).max)


def answer(wide: Wide, factors: list[tuple[float, float]], c: float, name: str = HALVES, **rules: Any) -> int:
    """The bit pattern of the sum of products and C, aligned to 10 bits unless `rules` says otherwise."""
    inst = parse(name)
    sums = FloatArithmetic(F32, **{"result_bits": 23, "result_rounding": "RZ", "alignment_bits": 10} | rules)
    operands = []
    for fmt, place in ((inst.a, 0), (inst.b, 1)):
        values = np.zeros((1, inst.k), np.float32)
        values[0, : len(factors)] = [factor[place] for factor in factors]
        assert fmt.ml_dtype is not None
        operands.append(values.astype(fmt.ml_dtype).view(fmt.dtype))
    request = Request(*operands, np.array([c], np.float32).view(np.uint32))
    return int(Unit(inst, DotModel(chain([range(inst.k)], sums)), wide).dot(request)[0])


def single(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


# The last place of what is aligned beside 1.
UNIT = 2.0**-10


@pytest.mark.parametrize(
    ("wide", "factors", "c", "expected", "plain"),
    [
        (Wide(accumulator=("wrap", 3)), [(1.5, 1.5)] * 4, 0, -7, 9),
        (Wide(accumulator=("saturate", 3)), [(1.5, 1.5)] * 4, 0, 8 - UNIT, 9),
        (Wide(product_bits=1), [(1.25, 1.5)], 0, 1.5, 1.875),
        (Wide(product_bits=1, product_word="nearest"), [(1.25, 1.5)], 0, 2, 1.875),
        (Wide(addend_bits=2), [(1, 1)], 1.875, 2.75, 2.875),
        (Wide(led_by="products"), [(1, 1), (1, UNIT)], 4, 5 + UNIT, 5),
        (Wide(led_by="others"), [(4, 1), (1, UNIT)], 1, 5 + UNIT, 5),
        (Wide(led_by="even"), [(1, 1), (4, 1)], UNIT, 5 + UNIT, 5),
        (Wide(led_by="first half"), [(1, 1), *[(0, 0)] * 3, (4, 1)], UNIT, 5 + UNIT, 5),
        (Wide(others_lift=1), [(1, UNIT)], 1, 1, 1 + UNIT),
        (Wide(word="up"), [(UNIT, 0.25)], 1, 1 + UNIT, 1),
        (Wide(others_word="up"), [(1, 1), (UNIT, 0.25)], UNIT / 2, 1 + UNIT, 1),
        (Wide(others_short=1), [(1, 1), (1, UNIT)], UNIT, 1 + UNIT, 1 + 2 * UNIT),
        (Wide(short_at=(2, 0, 1)), [(1, UNIT)], 1, 1, 1 + UNIT),
        (Wide(short_at=(2, 1, 1)), [(1, UNIT)], 1, 1 + UNIT, 1 + UNIT),
        (Wide(pairwise=True), [(1, 1), (1, UNIT)], 0, 1, 1 + UNIT),
        (Wide(lost_carry=(3, 1)), [(1, UNIT)] * 3, 1, 1 + UNIT, 1 + 3 * UNIT),
        (Wide(lost_carry=(2, 1)), [(1, UNIT)] * 3, 1, 1 + 3 * UNIT, 1 + 3 * UNIT),
        (Wide(packing=Packing(flushed_below=1)), [], 1.5 * 2.0**-126, 0, 1.5 * 2.0**-126),
        (Wide(packing=Packing(flushed_below=-2)), [], 2.0**-129, 0, 2.0**-129),
        (Wide(packing=Packing(blind=(2, 0))), [(1, UNIT)], 4, 4, 4),
        (Wide(entry=Entry(0x3C00, 0x4000, 1 << 10)), [(1, 2), (2, 1)], 0, 4 + 2 * UNIT, 4),
        (Wide(entry=Entry(0x3C00, 0x4000, 1 << 10, k=1)), [(1, 2), (1, 1)], 0, 3, 3),
    ],
)
def test_sums_beyond_the_grammar(
    wide: Wide, factors: list[tuple[float, float]], c: float, expected: float, plain: float
) -> None:
    assert answer(wide, factors, c) == single(expected)
    assert answer(PLAIN, factors, c) == single(plain)


@pytest.mark.parametrize(
    ("packing", "rules", "products", "c", "expected", "plain"),
    [
        (Packing(first_bits=1), {"result_bits": 2, "result_rounding": "RNE"}, [], 1.3671875, 1.5, 1.25),
        (Packing(rounding="ties away"), {"result_bits": 2, "result_rounding": "RNE"}, [], 1.125, 1.25, 1),
        (Packing(blind=(2, 0)), {"result_bits": 2}, [], 1.25, 1, 1.25),
        (Packing(overflow="before"), {"alignment_bits": 25}, [(2.0**51, 2.0**51)], LARGEST, inf, LARGEST),
        (
            Packing(overflow="exponent"),
            {"alignment_bits": 25, "result_rounding": "RNE"},
            [(2.0**51, 2.0**52)],
            LARGEST,
            LARGEST,
            inf,
        ),
        (
            Packing(subnormal_before=True),
            {"alignment_bits": 25, "result_rounding": "RNE", "subnormal_results": "flushed"},
            [(-(2.0**-75), 2.0**-75)],
            2.0**-126,
            0,
            2.0**-126,
        ),
    ],
)
def test_results_beyond_the_grammar(
    packing: Packing, rules: dict[str, Any], products: list[tuple[float, float]], c: float, expected: float, plain: float
) -> None:
    assert answer(Wide(packing=packing), products, c, BRAIN, **rules) == single(expected)
    assert answer(PLAIN, products, c, BRAIN, **rules) == single(plain)


@pytest.mark.parametrize(("wide", "expected"), [(PLAIN, 2.0**-60), (Wide(separately=True), 0.0)], ids=["fused", "separately"])
def test_products_of_f64_that_are_rounded(wide: Wide, expected: float) -> None:
    inst = parse("mma.sync.m8n8k4.f64.f64.f64.f64")
    factor = np.array([[1 + 2.0**-30, 0, 0, 0]]).view(np.uint64)
    request = Request(factor, factor, np.array([-1 - 2.0**-29]).view(np.uint64))
    d = Unit(inst, known_models("h100")[inst].model, wide).dot(request)
    assert d.view(np.float64)[0] == expected


@pytest.mark.parametrize(
    ("wide", "expected"),
    [
        (PLAIN, 5 * 2**14),
        (Wide(integers=("wrap", 17, 4)), -(2**16) + 2**14),
        (Wide(integers=("saturate", 17, 4)), 2**16 - 1 + 2**14),
        (Wide(integers=("wrap", 17, 2)), 5 * 2**14),
        (Wide(lost_carry=(1, 3)), 5 * 2**14),
        (Wide(lost_carry=(0, 3)), 5 * 2**14 - 8),
        (Wide(entry=Entry(0x80, 0x80, -1, k=2)), 5 * 2**14 - 1),
    ],
)
def test_integers_beyond_the_grammar(wide: Wide, expected: int) -> None:
    """Five times -128 × -128."""
    inst = parse("mma.sync.m16n8k32.s32.s8.s8.s32")
    operand = np.zeros((1, 32), np.uint8)
    operand[0, :5] = 0x80
    model = DotModel(chain([range(32)], IntegerArithmetic(FORMATS["s32"], "wrap")))
    assert Unit(inst, model, wide).dot(Request(operand, operand, np.zeros(1, np.uint32))).view(np.int32)[0] == expected
