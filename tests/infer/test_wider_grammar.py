"""What no chip is known to do, planted beside what chips do: it is found, or said to be open, and nothing false is exact."""

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
    IntegerArithmetic,
    IntegerOverflow,
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


@pytest.mark.parametrize("name", OF_EACH)
@pytest.mark.parametrize("overflow", get_args(IntegerOverflow))
@pytest.mark.parametrize("short", [1, 3])
def test_accumulators(name: str, overflow: str, short: int) -> None:
    """So many bits short of the largest sum."""
    usual = LIKE_H100[name]
    sums = usual.model.root.arithmetic
    assert isinstance(sums, FloatArithmetic)
    enough = {"fp8": 8, "f16": 8, "tf32": 6, "f16 result": 8}[name]
    device = changed(name, accumulator_bits=enough - short, accumulator_overflow=overflow)
    findings = outcome(device)
    assert_true(findings, device)
    assert (findings["accumulator_bits"].value, findings["accumulator_bits"].bound) == (enough - short, "exact")
    assert (findings["accumulator_overflow"].value, findings["accumulator_overflow"].bound) == (overflow, "exact")
    assert findings["carries"].value == "lost"


def assert_found(device: Plant, **fields: object) -> None:
    findings = outcome(device)
    assert_true(findings, device)
    for field, value in fields.items():
        finding = findings[field]
        assert value in ((finding.value, *finding.candidates)), (field, finding)
        assert finding.value == value or finding.bound != "exact"


@pytest.mark.parametrize("name", OF_EACH)
@pytest.mark.parametrize("rounding", get_args(Rounding))
def test_products(name: str, rounding: str) -> None:
    fields = {"product_bits": 5, "product_rounding": rounding}
    assert_found(changed(name, **fields), **fields)


@pytest.mark.parametrize("name", OF_EACH)
@pytest.mark.parametrize("bits", [5, 9])
def test_addends(name: str, bits: int) -> None:
    usual = LIKE_H100[name]
    assert_found(replace(usual, model=replace(usual.model, addend_bits=bits)), addend_bits=bits)


@pytest.mark.parametrize(
    ("name", "result", "bits", "rounding"),
    [
        pytest.param(*sums, rounding, marks=() if rounding == ("RZ" if sums[0] == "fp8" else "RNE") else pytest.mark.slow)
        for sums in (("f16 result", "RNE", 23), ("f16 result", "RZ", 12), ("fp8", "RNE", 16), ("f16", "RNE", 25))
        for rounding in get_args(Rounding)
    ],
)
def test_sums_rounded_twice(name: str, result: str, bits: int, rounding: str) -> None:
    fields = {"first_bits": bits, "first_rounding": rounding}
    assert_true(outcome(device := changed(name, result_rounding=result, **fields)), device)


@pytest.mark.parametrize("name", ["f16 result", "tf32"])
def test_overflow_before_rounding(name: str) -> None:
    assert_found(changed(name, overflow_detected="before rounding"), overflow_detected="before rounding")


def test_tininess_before_rounding() -> None:
    fields = {"result_rounding": "RNE", "subnormal_results": "flushed", "tininess_detected": "before rounding"}
    assert_found(changed("f16 result", **fields), **fields)


@pytest.mark.parametrize("operands", ["s8", "u8"])
@pytest.mark.parametrize("inner", get_args(IntegerOverflow))
@pytest.mark.parametrize("outer", get_args(IntegerOverflow))
@pytest.mark.parametrize("size", [4, 16])
def test_integers_that_are_added_in_groups(operands: str, inner: str, outer: str, size: int) -> None:
    """One bit short of what a group's largest sum takes."""
    enough = {"s8": 18, "u8": 19}[operands] + {4: 0, 16: 2}[size]
    whole = IntegerArithmetic(FORMATS["s32"], outer)  # type: ignore[arg-type]
    narrow = replace(whole, overflow=inner, accumulator_bits=enough - 1)  # type: ignore[arg-type]
    groups = (FusedSum(tuple(map(Product, range(i, i + size))), narrow) for i in range(0, 16, size))
    device = Plant(instruction(16, "s32", operands, operands, "s32"), DotModel(FusedSum((*groups, Addend()), whole)))
    findings = outcome(device)
    assert_true(findings, device)
    assert (findings["accumulator_bits"].value, findings["overflow"].value) == (enough - 1, inner)


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
