"""What no chip is known to do, planted beside what chips do: it is found, or said to be open, and nothing false is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from inferred import assert_true, outcome
from planted import Planted, instruction

from accprobe.isa.formats import FORMATS
from accprobe.model.tree import AlignmentRounding, DotModel, FloatArithmetic, Rounding, chain

F32, F16 = FORMATS["f32"], FORMATS["f16"]


def planted(formats: str, k: int, size: int, sums: FloatArithmetic) -> Planted:
    """A chain of sums of so many products, C in the first of them."""
    operand, result = formats.split()
    groups = [range(i, i + size) for i in range(0, k, size)]
    return Planted(instruction(k, result, operand, operand, result), DotModel(chain(groups, sums)))


LIKE_H100 = {
    "fp8": planted("e4m3 f32", 32, 32, FloatArithmetic(F32, 13, "RZ", 13, min_exponent=-133)),
    "f16": planted("f16 f32", 16, 16, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "tf32": planted("tf32 f32", 8, 4, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "f16 result": planted("f16 f16", 16, 16, FloatArithmetic(F16, 10, "RNE", 25, nan=0x7FFF)),
}


def changed(name: str, **fields: object) -> Planted:
    usual = LIKE_H100[name]
    return replace(usual, model=usual.model.with_arithmetic(lambda sums: replace(sums, **fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LIKE_H100)
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
