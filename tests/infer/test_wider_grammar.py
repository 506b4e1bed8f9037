"""Arithmetics that no chip is known to have, but that a model describes, are found."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from inferred import assert_true, outcome
from plants import Plant, instruction

from accprobe.isa.formats import FORMATS
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
    return replace(usual, model=usual.model.with_arithmetic(lambda sums: replace(sums, **fields)))  # type: ignore[arg-type]  # fields by name


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
