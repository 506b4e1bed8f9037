"""Alternatives: every model but one respect, and which of them a device contradicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given, settings
from inferred import CONVERTED, F16, FP8, KNOWN, S32, TWO_SUMS, found
from plants import Plant, float_models, integer_models

from accprobe.infer.alternatives.alternative import Alternative
from accprobe.infer.alternatives.neighbours import alternatives, pairs
from accprobe.infer.experiments.nonstandard import nonstandard_alternatives
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import SUM_BITS, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, chain


def differences(one: FusedSum, other: FusedSum) -> set[str]:
    """Fields that differ in any two sums in the same place; "order" where the trees differ."""
    shapes = [[(node.products, node.has_addend, len(node.terms)) for node in root.nodes()] for root in (one, other)]
    if shapes[0] != shapes[1]:
        return {"order"}
    changed: set[str] = set()
    for x, y in zip(one.nodes(), other.nodes(), strict=True):
        assert type(x.arithmetic) is type(y.arithmetic)
        changed |= {f.name for f in fields(x.arithmetic) if getattr(x.arithmetic, f.name) != getattr(y.arithmetic, f.name)}
    return changed


@settings(max_examples=60, deadline=None)
@given(float_models() | integer_models())
def test_none_twice_and_never_the_model(planted: Plant) -> None:
    model = planted.model
    every = list(alternatives(model, found(model)))
    assert model not in [alternative.model for alternative in every]
    assert len({alternative.model for alternative in every}) == len(every)
    assert all(alternative.model.products == model.products for alternative in every)


@pytest.mark.parametrize("inst", [FP8, F16], ids=str)
def test_an_alternative_differs_in_the_one_respect_that_it_names(inst: Instruction) -> None:
    model = KNOWN[inst]
    for alternative in alternatives(model, found(model)):
        operands = {
            name
            for name in ("subnormal_operands", "subnormal_addend")
            if getattr(alternative.model, name) != getattr(model, name)
        }
        sums = differences(alternative.model.root, model.root)
        assert operands | sums == {alternative.field}


def test_fields_and_values_that_are_tried() -> None:
    tried = Counter(alternative.field for alternative in alternatives(KNOWN[FP8], found(KNOWN[FP8])))
    rare = {name for alternative in nonstandard_alternatives(FP8, KNOWN[FP8]) for name, _ in alternative.changes}
    counted = {f.name for f in fields(FloatArithmetic)} - {"result"}
    of_model = {"order", "subnormal_operands", "subnormal_addend", "addend_bits"}
    cannot_show = {"nan_payload", "min_exponent", "overflow_detected", "tininess_detected", "scaled_products"}
    assert set(tried) | rare | cannot_show == counted | of_model
    values = {field: {r.value for r in alternatives(KNOWN[FP8], found(KNOWN[FP8])) if r.field == field} for field in tried}
    assert values["alignment_bits"] == {12, 14}
    assert values["result_bits"] == {12, 14}
    assert values["result_rounding"] == {"RNE", "RU", "RD", "RNA"}
    assert values["alignment_rounding"] == {"floor", "nearest", "sticky", "nearest away", "away", "ceiling"}
    assert values["product_exponent"] == {"normalised operands", "normalised product"}
    assert values["nan"] == {"0xFFFFFFFF", "0x7FC00000"}
    assert {"[[0-31] c]"} <= {order.replace("@0", "").replace("@1", "") for order in values["order"]}
    assert {"[[c 0-15] 16-31]", f"[[c {' '.join(map(str, range(0, 32, 2)))}] {' '.join(map(str, range(1, 32, 2)))}]"} <= values[
        "order"
    ]


def test_each_sum_is_changed_alone_too() -> None:
    alone = [r for r in alternatives(TWO_SUMS, found(TWO_SUMS)) if r.where]
    assert {r.field for r in alone} == {"alignment_bits", "alignment_rounding", "result_bits", "result_rounding"}
    for alternative in alone:
        first, second = alternative.model.root.nodes()
        assert first.arithmetic != second.arithmetic
        changed = first if first.arithmetic != TWO_SUMS.root.arithmetic else second
        assert str(alternative.deviation).endswith(f"in the sum with product {changed.products[0]}")


def test_the_separate_add_is_changed_by_itself() -> None:
    model = KNOWN[CONVERTED]
    *halves, add = model.root.nodes()
    by_field: dict[str, list[Alternative]] = {}
    for alternative in alternatives(model, found(model)):
        by_field.setdefault(alternative.field, []).append(alternative)
    for alternative in by_field["add_result_rounding"]:
        assert differences(alternative.model.root, model.root) == {"result_rounding"}
        assert alternative.model.root.children[0] == add.children[0]
    for alternative in by_field["alignment_bits"]:
        assert alternative.model.root.arithmetic == add.arithmetic
        assert halves[0].arithmetic.alignment_bits == 25
    assert "add_alignment_bits" not in by_field, "an exact sum has no alignment to change"
    assert "add_product_exponent" not in by_field


def test_orders_whose_sums_would_not_be_exact_are_left_out() -> None:
    """Sixty-six terms of 45 bits do not fit in a float64, thirty-four do."""
    arithmetic = FloatArithmetic(FORMATS["f32"], 23, "RZ", SUM_BITS - 2 - 6)
    model = DotModel(chain([range(i, i + 16) for i in range(0, 64, 16)], arithmetic))
    orders = [alternative.model for alternative in alternatives(model, found(model)) if alternative.field == "order"]
    assert max(len(node.products) for order in orders for node in order.root.nodes()) == 32


def test_integer_orders_that_are_the_same_function_are_not_tried() -> None:
    model = DotModel(chain([range(32)], IntegerArithmetic(S32, "wrap")))
    tried = [alternative.field for alternative in alternatives(model, found(model, order="undetermined"))]
    assert tried == ["overflow"]
    exact = [alternative for alternative in alternatives(model, found(model)) if alternative.field == "order"]
    assert exact
    assert all(next(alternative.model.root.nodes()).has_addend for alternative in exact)


def test_what_cuts_terms_at_the_same_place_is_tried_together() -> None:
    """One bit more or fewer, with a lowest alignment as much higher or lower, or rounded instead of cut."""
    arithmetic = KNOWN[FP8].root.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    bits, level = arithmetic.alignment_bits, arithmetic.min_exponent
    assert bits is not None
    assert level is not None
    tried = {alternative.changes for alternative in pairs(KNOWN[FP8])}
    for step in (-1, 1):
        assert (("min_exponent", level + step), ("alignment_bits", bits + step)) in tried
        assert (("alignment_bits", bits + step), ("alignment_rounding", "nearest away")) in tried
