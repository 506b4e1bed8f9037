"""Planted features are found again, on devices that have nothing published about them, also features of no known chip."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import Phase, given, settings
from inferred import assert_includes, assert_true, outcome, plant
from plants import Plant, float_models, instruction, integer_models

from accprobe.devices.simulated import SimulatedDevice
from accprobe.infer.characterise import characterise
from accprobe.infer.query_log import QueryLog
from accprobe.isa.formats import FORMATS
from accprobe.model.tree import Addend, AlignmentRounding, DotModel, FloatArithmetic, FusedSum, Product, Rounding, chain
from accprobe.survey.row import settle

# Draws that are always the same; with `--hypothesis-profile=fresh`, others each time.
FEW = settings(max_examples=16, deadline=None, phases=[Phase.generate])


# Of the eighty draws of the two tests below, those that were needed to find what was broken on purpose: no neighbours that
# differ in several fields; floors and pairs of fields not tried; no refinement; a floor that seems alike not looked at again;
# what contradicts a model not known to the next one; ladders of one rung, and the wrong end of what they leave.
FOUND = {
    "an alignment that zeros and C show together": plant(
        *("e5m2 f32", 8, "[[[[[[[[c 0] 1] 2] 3] 4] 5] 6] 7]", "12 RZ 31 sticky", "flushed kept"),
        {"zero_terms": "aligned", "underflow_sign": "positive", "overflow": "largest", "nan": 0x7FFFFFFF},
    ),
    "a floor that no operand shows": plant(
        *("e5m2 f16", 16, "[[[[0-3]@0 [4-7]@0]@1 [[8-11]@0 [12-15]@0]@1]@1 c]@1", "8 RU 8 sticky", "flushed kept"),
        {"product_exponent": "normalised operands", "min_exponent": -31, "underflow_sign": "positive"}
        | {"subnormal_results": "flushed", "nan": 0x7FFF},
    ),
    "a floor that few operands show": plant(
        *("e5m2 f32", 32, "[c 0-31]", "6 RNE 20 nearest", "kept flushed"),
        {"zero_terms": "aligned", "zero_sign": "ieee", "underflow_sign": "positive", "overflow": "largest"}
        | {"nan": 0x7FFFFFFF},
    ),
    "a draft that alternatives' operands contradict": plant(
        "e4m3 f16", 4, "[[[[c 0] 1] 2] 3]", "7 RU 12 sticky", "kept kept", {"nan": 0x7FFF}
    ),
}


# As long as all others together, each.
LONG = (
    "an alignment that zeros and C show together",
    "a draft that alternatives' operands contradict",
    "a floor that no operand shows",
)


@pytest.mark.parametrize(
    "planted", [pytest.param(found, id=name, marks=pytest.mark.slow if name in LONG else ()) for name, found in FOUND.items()]
)
def test_planted_models_that_have_found_something(planted: Plant) -> None:
    assert_true(outcome(planted), planted)


@pytest.mark.slow
@FEW
@given(float_models())
def test_any_features(planted: Plant) -> None:
    """The rules of exponents, zeros, subnormals and overflow too."""
    assert_true(outcome(planted), planted)


@pytest.mark.parametrize("field", ["alignment_bits", "result_bits", "result_rounding", "alignment_rounding"])
def test_another_value_is_another_answer(field: str) -> None:
    """Each rule of inference answers differently when the planted feature changes: nothing published is typed in."""
    inst = instruction(32, "f32", "e4m3", "e4m3", "f32")
    hopper = FloatArithmetic(FORMATS["f32"], 13, "RZ", 13)
    values = {
        "alignment_bits": [9, 14, 25],
        "result_bits": [7, 10, 13],
        "result_rounding": list(get_args(Rounding)),
        "alignment_rounding": list(get_args(AlignmentRounding)),
    }
    for value in values[field]:
        model = DotModel(chain([range(32)], replace(hopper, **{field: value})))
        assert characterise(SimulatedDevice({inst: model}), inst).findings[field].value == value


@FEW
@given(integer_models())
def test_integers(planted: Plant) -> None:
    findings = outcome(planted)
    assert findings["overflow"].value == planted.model.root.arithmetic.overflow
    assert findings["result_bits"].value == 32


def test_results_that_only_c_can_reach_limit_nothing() -> None:
    """Sums that flush subnormals, and a separate add of C that keeps them: products show less than C does."""
    inst = instruction(16, "f16", "e5m2", "e5m2", "f16")
    nan = 0x7FFF
    flushing = FloatArithmetic(FORMATS["f16"], 6, "RD", 36, "nearest", subnormal_results="flushed", nan=nan)
    add = FloatArithmetic(FORMATS["f16"], 10, "RNE", None, zero_sign="ieee", nan=nan)
    planted = Plant(inst, DotModel(chain([range(8), range(8, 16)], flushing, "separate add", add)))
    findings = characterise(SimulatedDevice({inst: planted.model}), inst).findings
    assert_includes("alignment_bits", findings["alignment_bits"], 36)


F32, F16 = FORMATS["f32"], FORMATS["f16"]


def in_groups(formats: str, k: int, size: int, sums: FloatArithmetic) -> Plant:
    """A chain of sums of so many products, C in the first of them."""
    operand, result = formats.split()
    groups = [range(i, i + size) for i in range(0, k, size)]
    return Plant(instruction(k, result, operand, operand, result), DotModel(chain(groups, sums)))


LIKE_H100 = {
    "fp8": in_groups("e4m3 f32", 32, 32, FloatArithmetic(F32, 13, "RZ", 13, min_exponent=-133)),
    "f16": in_groups("f16 f32", 16, 16, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "tf32": in_groups("tf32 f32", 8, 4, FloatArithmetic(F32, 23, "RZ", 25, min_exponent=-133)),
    "f16 result": in_groups("f16 f16", 16, 16, FloatArithmetic(F16, 10, "RNE", 25, nan=0x7FFF)),
}


OF_EACH = [pytest.param(name, marks=() if name == "fp8" else pytest.mark.slow) for name in LIKE_H100]


def changed(name: str, **fields: object) -> Plant:
    usual = LIKE_H100[name]
    return replace(usual, model=usual.model.with_arithmetic(lambda sums: replace(sums, **fields)))


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


@pytest.mark.parametrize("fused", [False, True])
def test_f64_products_that_are_rounded_before_they_are_added_or_not(fused: bool) -> None:
    f64 = FORMATS["f64"]
    sums = FloatArithmetic(f64, 52, "RNE", None, zero_sign="ieee", nan=0xFFF8 << 48)
    root: Addend | FusedSum = Addend()
    for k in range(4):
        root = FusedSum((root, Product(k) if fused else FusedSum((Product(k),), sums)), sums)
    device = Plant(instruction(4, "f64", "f64", "f64", "f64"), DotModel(root))
    findings = outcome(device)
    assert_true(findings, device)
    roundings = {name: finding.value for name, finding in findings.items() if name.endswith("result_rounding")}
    assert roundings == dict.fromkeys(("result_rounding", "add_result_rounding")[: 2 - fused], "RNE")
    assert findings["order"].value == device.model.order


def test_chains_that_round_their_first_products_alone() -> None:
    """As AMX adds bf16 products. Other fields that are tried before other beginnings lead to a model that is contradicted."""
    first = FloatArithmetic(F32, 23, "RNE", None, subnormal_results="flushed", nan=0xFFC00000, nan_payload="c b a")
    rest = replace(first, zero_sign="ieee", underflow_sign="positive")
    odd, even = FusedSum((Product(1),), first), FusedSum((Product(0),), first)
    for k in (2, 4, 6):
        odd, even = FusedSum((odd, Product(k + 1)), rest), FusedSum((even, Product(k)), rest)
    inst, root = instruction(8, "f32", "bf16", "bf16", "f32"), FusedSum((FusedSum((odd, even), rest), Addend()), rest)
    planted = DotModel(root, "kept", "flushed")
    result, falsification = settle(QueryLog(SimulatedDevice({inst: planted}), inst))
    assert (result.model, falsification.contradictions.count) == (planted, 0)
