"""Falsification: alternatives of a model, operands on which they differ, those that a device contradicts, and the others."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inferred import CONVERTED, F16, FP8, KNOWN, S32, TWO_SUMS, found, separating
from plants import Plant, float_models, instruction, integer_models

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternative import Alternative
from accprobe.infer.characterise import Characterisation
from accprobe.infer.distinguishing import Search
from accprobe.infer.falsification import MANY, Falsification, falsify, resolve_findings
from accprobe.infer.neighbours import alternatives
from accprobe.infer.query_log import LogEntry, QueryLog
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import AlignmentRounding, Arithmetic, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, chain
from accprobe.operands.directed import OF_ONE_SIGN, Target, directed
from accprobe.operands.request import Request
from accprobe.records.findings import Finding
from accprobe.survey.row import settle


def falsification(inst: Instruction, model: DotModel, asked: list[LogEntry] | None = None, **bounds: str) -> Falsification:
    """The alternatives of the model that the device computes."""
    result = Characterisation(inst, found(model, **bounds), model, queries=asked or [])
    return falsify(QueryLog(SimulatedDevice({inst: model}), inst), result)


CERTAIN = ("alignment_bits", "alignment_rounding", "result_bits", "result_rounding", "order", "product_exponent", "nan")


@pytest.mark.parametrize(
    ("inst", "model"), [(F16, KNOWN[F16]), (F16, TWO_SUMS), (FP8, KNOWN[FP8])], ids=["one sum", "two sums", "fp8"]
)
def test_alternatives_are_contradicted(inst: Instruction, model: DotModel) -> None:
    """F ± 1, each rounding, C last or by its own add, other groupings: random operands alone contradict all of them."""
    result = falsification(inst, model)
    assert result.tried > len(list(alternatives(model, found(model))))
    surviving = {alternative.field for alternative in result.surviving}
    assert not surviving & set(CERTAIN), [(alternative.field, alternative.value) for alternative in result.surviving]


def test_an_alternative_that_nothing_can_tell_apart_survives() -> None:
    """Sums of 32 products of e4m3 do not overflow f32, and C near the largest number dwarfs them."""
    result = falsification(FP8, KNOWN[FP8])
    assert [alternative.value for alternative in result.surviving if alternative.field == "overflow"] == ["largest"]
    left = resolve_findings(found(KNOWN[FP8]), result)
    assert left["overflow"].bound == "undetermined"
    assert left["overflow"].candidates == ("infinity", "largest")
    assert left["overflow"].value == "infinity"
    assert left["overflow"].note
    assert left["alignment_bits"] == found(KNOWN[FP8])["alignment_bits"]


def test_a_survivor_explains_all_that_was_asked() -> None:
    """One exchange that the experiments had is enough to contradict an alternative that all other operands leave."""
    survivor = next(alternative for alternative in falsification(FP8, KNOWN[FP8]).surviving if alternative.field == "overflow")
    operands = Request(np.zeros((1, 32), np.uint8), np.zeros((1, 32), np.uint8), np.array([1], np.uint32))
    d = evaluate(survivor.model, FP8, operands) ^ np.uint32(1)
    asked = [LogEntry(operands, d, 0)]
    assert "overflow" not in [alternative.field for alternative in falsification(FP8, KNOWN[FP8], asked).surviving]


def test_effective_bits_are_as_uncertain_as_what_they_rest_on() -> None:
    findings = {name: Finding(13) for name in ("alignment_bits", "result_bits", "effective_bits")}
    left = resolve_findings(findings, Falsification(1, (Alternative(KNOWN[FP8], (("result_bits", 12),)),)))
    assert (left["effective_bits"].value, left["effective_bits"].bound) == (12, "at_least")
    wider = resolve_findings(findings, Falsification(1, (Alternative(KNOWN[FP8], (("result_bits", 14),)),)))
    assert (wider["effective_bits"].value, wider["effective_bits"].bound) == (13, "exact"), "the alignment is the limit"
    unchanged = resolve_findings(findings, Falsification(1, (Alternative(KNOWN[FP8], (("nan", "0x7FC00000"),)),)))
    assert unchanged["effective_bits"] == findings["effective_bits"]


def test_what_no_alternative_leaves_open_is_exact() -> None:
    """An experiment that could not distinguish two values is overruled by operands that could."""
    findings = {
        "product_exponent": Finding("unnormalised", "undetermined", ("unnormalised", "normalised product")),
        "zero_terms": Finding("ignored", "undetermined", ("ignored", "aligned"), "out of reach"),
        "order": Finding(None),
    }
    left = resolve_findings(findings, Falsification(2, (Alternative(KNOWN[FP8], (("zero_terms", "aligned"),)),)), KNOWN[FP8])
    assert left["product_exponent"] == Finding("unnormalised")
    assert left["zero_terms"] == findings["zero_terms"]
    contradicted = resolve_findings(findings, Falsification(2, ()), None)
    assert contradicted == findings, "of a model that is wrong nothing follows"


def test_neighbouring_numbers_are_tried_until_one_is_contradicted() -> None:
    """Products of e4m3 in f32 end where 40 bits below the largest are as good as 46."""
    inst = instruction(4, "f32", "e4m3", "e4m3", "f32")
    arithmetic = FloatArithmetic(FORMATS["f32"], 23, "RZ", 40)
    model = DotModel(chain([range(4)], arithmetic, "separate add", replace(arithmetic, alignment_bits=None)))
    result, held = settle(QueryLog(SimulatedDevice({inst: model}), inst))
    finding = result.findings["alignment_bits"]
    assert finding.bound == "at_least"
    assert finding.value < 40
    surviving = {alternative.value for alternative in held.surviving if alternative.field == "alignment_bits"}
    assert set(range(finding.value, 40)) <= surviving


def test_the_highest_floor_that_no_operand_reaches() -> None:
    """One that is a single exponent higher is contradicted."""
    inst = instruction(2, "f32", "bf16", "bf16", "f32")
    model = DotModel(chain([range(2)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 24)))
    result, _ = settle(QueryLog(SimulatedDevice({inst: model}), inst))
    finding = result.findings["min_exponent"]
    assert finding.value is None
    none, most = finding.candidates
    assert none == "none"
    level = int(str(most).removeprefix("at most "))
    higher = model.with_arithmetic(lambda a: replace(a, min_exponent=level + 1))
    found_anew, _ = settle(QueryLog(SimulatedDevice({inst: higher}), inst))
    finding = found_anew.findings["min_exponent"]
    assert (finding.value, finding.bound) == (level + 1, "exact")


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


@settings(max_examples=8, deadline=None)
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


def test_integer_orders_that_are_the_same_function_are_not_tried() -> None:
    model = DotModel(chain([range(32)], IntegerArithmetic(S32, "wrap")))
    tried = [alternative.field for alternative in alternatives(model, found(model, order="undetermined"))]
    assert tried == ["overflow"]
    exact = [alternative for alternative in alternatives(model, found(model)) if alternative.field == "order"]
    assert exact
    assert all(next(alternative.model.root.nodes()).has_addend for alternative in exact)


E5M2 = parse("mma.sync.m16n8k32.f16.e5m2.e5m2.f16")


def changed(model: DotModel, **changes: object) -> DotModel:
    """Return the model with fields of its aligned sums changed."""

    def change(has: Arithmetic) -> Arithmetic:
        aligned = isinstance(has, FloatArithmetic) and has.alignment_bits is not None
        return replace(has, **changes) if aligned else has

    return model.with_arithmetic(change)


def model_of(inst: Instruction) -> DotModel:
    return known_models("h100")[inst].model


def test_a_model_that_is_wrong_where_an_alternative_is_right_is_no_confirmed_one() -> None:
    """The inferred model normalises operands, the device does not, and only separating operands show it."""
    right = model_of(E5M2)
    wrong = changed(right, product_exponent="normalised operands")
    result = falsify(QueryLog(SimulatedDevice({E5M2: right}), E5M2), Characterisation(E5M2, {"order": Finding("")}, wrong))
    assert result.contradictions.count >= len(result.contradictions.sample) > 0
    for one in result.contradictions.sample:
        request = one.exchange.request(E5M2)
        answers = [evaluate(model, E5M2, request)[0] for model in (right, wrong)]
        assert answers == [one.exchange.result(E5M2)[0], int(one.expected, 16)]
        assert answers[0] != answers[1]
    for seed in range(5):
        assert separating(Search(E5M2, right, seed), wrong, ["product_exponent"], MANY)


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


@pytest.mark.parametrize("changes", FIELDS, ids=str)
def test_every_field_is_found_by_what_is_made_for_it(changes: dict[str, object]) -> None:
    """Of bf16 products, which reach everything but another NaN: random operands have those."""
    inst = parse("wgmma.m64n8k16.f32.bf16.bf16")
    model = changed(model_of(inst), min_exponent=-129)
    alternative = changed(model, **changes)
    results = separating(Search(inst, model), alternative, list(changes))
    assert len(results)
    assert (results.d == evaluate(model, inst, results.operands)).all()
    assert (results.d != evaluate(alternative, inst, results.operands)).all()


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
