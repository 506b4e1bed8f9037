"""Arithmetics that no chip is known to have: those of models are found, others are not confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from departures import Packing, Wide
from inferred import assert_true, outcome
from judge import judged
from plants import Plant, instruction

from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.model.tree import (
    Addend,
    AlignmentRounding,
    DotModel,
    FloatArithmetic,
    FusedSum,
    Product,
    Rounding,
    chain,
)

F32, F16 = FORMATS["f32"], FORMATS["f16"]


def planted(formats: str, k: int, size: int, sums: FloatArithmetic) -> Plant:
    """A chain of sums of so many products, C in the first of them."""
    operand, result = formats.split()
    groups = [range(i, i + size) for i in range(0, k, size)]
    return Plant(instruction(k, result, operand, operand, result), DotModel(chain(groups, sums)))


LIKE_H100 = {
    "fp8": planted("e4m3 f32", 32, 32, FloatArithmetic(F32, 13, "RZ", 13, min_exponent=-133)),
    "f16": planted("f16 f32", 16, 16, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "tf32": planted("tf32 f32", 8, 4, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "f16 result": planted("f16 f16", 16, 16, FloatArithmetic(F16, 10, "RNE", 25, nan=0x7FFF)),
}


OF_EACH = [pytest.param(name, marks=() if name == "fp8" else pytest.mark.slow) for name in LIKE_H100]


def changed(name: str, **fields: object) -> Plant:
    usual = LIKE_H100[name]
    return replace(usual, model=usual.model.with_arithmetic(lambda sums: replace(sums, **fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OF_EACH)
@pytest.mark.parametrize(
    ("field", "word"),
    [("result_rounding", word) for word in get_args(Rounding)[4:]]
    + [("alignment_rounding", word) for word in get_args(AlignmentRounding)[4:]],
)
def test_roundings(name: str, field: str, word: str) -> None:
    device = changed(name, **{field: word})
    findings = outcome(device)
    assert_true(findings, device)
    assert (findings[field].value, findings[field].bound) == (word, "exact")


# Arithmetics that no model describes: an instruction, changes of its usual sums, and the departure from them.
QGMMA, HMMA, IMMA = "wgmma.m64n8k32.f32.e4m3.e4m3", "mma.sync.m16n8k16.f16.f16.f16.f16", "mma.sync.m16n8k32.s32.s8.s8.s32"
BEYOND: dict[str, tuple[str, dict[str, object], Wide]] = {
    "accumulators that wrap": (QGMMA, {}, Wide(accumulator=("wrap", 4))),
    "accumulators that saturate": (QGMMA, {}, Wide(accumulator=("saturate", 4))),
    "products of fewer bits": (QGMMA, {}, Wide(product_bits=5)),
    "C of fewer bits": (QGMMA, {}, Wide(addend_bits=9)),
    "sums rounded twice": (HMMA, {"result_rounding": "RNE"}, Wide(packing=Packing(first_bits=2))),
    "overflow before rounding": (HMMA, {}, Wide(packing=Packing(overflow="before"))),
    "integers that wrap in groups": (IMMA, {}, Wide(integers=("wrap", 17, 8))),
    "integers that saturate in groups": (IMMA, {}, Wide(integers=("saturate", 17, 8))),
}


IN_SECONDS = ("integers that wrap in groups",)


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in IN_SECONDS else pytest.mark.slow) for each in BEYOND])
def test_an_arithmetic_that_no_model_describes_is_not_confirmed(name: str) -> None:
    instruction_name, changes, wide = BEYOND[name]
    inst = parse(instruction_name)
    model = known_models("h100")[inst].model.with_arithmetic(lambda sums: replace(sums, **changes))  # type: ignore[arg-type]
    judgement = judged(Plant(inst, model, wide))
    assert judgement.visible
    assert (judgement.verdict, judgement.false_exact) == ("not confirmed", [])


def test_tininess_before_rounding() -> None:
    device = changed("f16 result", subnormal_results="flushed", tininess_detected="before rounding")
    findings = outcome(device)
    assert_true(findings, device)
    assert findings["tininess_detected"].value == "before rounding"


def test_f64_products_that_are_rounded_before_they_are_added() -> None:
    f64 = FORMATS["f64"]
    sums = FloatArithmetic(f64, 52, "RNE", None, zero_sign="ieee", nan=0xFFF8 << 48)
    root: Addend | FusedSum = Addend()
    for k in range(4):
        root = FusedSum((root, FusedSum((Product(k),), sums)), sums)
    assert isinstance(root, FusedSum)
    device = Plant(instruction(4, "f64", "f64", "f64", "f64"), DotModel(root))
    findings = outcome(device)
    assert_true(findings, device)
    assert findings["result_rounding"].value == findings["add_result_rounding"].value == "RNE"
