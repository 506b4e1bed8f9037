"""Planted products, which share no code with accprobe: found as planted, their faults named, the verdicts on them right."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import replace
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any

import numpy as np
import planted_disturbances
import planted_plans
import planted_products
import planted_sums
import product_judge
import pytest
from marks import some
from planted_boxes import FunctionBox, box_of, spec_of
from planted_models import model_of
from planted_plans import BLOCKS, HOPPER, NAMED, drawn
from planted_products import Planted
from planted_sums import Array, OperandRounding
from product_judge import contradictions, false_findings, is_planted_order, judged

from accprobe.callables.spec import Spec
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import ProductOutcome, RegionOutcome, findings, plan_findings, row, status
from accprobe.gemm.plans import alternative_plans, draft
from accprobe.gemm.tree.decomposition import forward, reordered
from accprobe.gemm.tree.slices import slice_readings
from accprobe.isa.formats import FORMATS
from accprobe.model.product import OPERAND_ROUNDINGS, Chain, Merged, Nested, Node, nested
from accprobe.records.findings import Finding
from accprobe.report.words import misscaled

ELEMENTS = 1 << 10
NOT_ONCE = {"int8, dropped tail": "40 missing: k = 512-551", "doubled k": "1 counted more than once: k = 255"}
# `benchmarks/products.py` draws thousands of others.
FOUND = ("promoted every 128", "results f16, RZ", "int8, dropped tail")

LONG_TAIL = ("3 even slices, backward", "block scales, one block", "doubled k")


def outcome_of(plan: Planted) -> ProductOutcome:
    return characterise(box_of(plan), elements=ELEMENTS)


def hold_as_planted(plan: Planted, outcome: ProductOutcome, found: RegionOutcome | None = None) -> None:
    """Assert that the model of a confirmed region is the planted one, and that its findings name it."""
    found = found or outcome.main
    by_name = {name: finding.value for name, finding in findings(outcome, found).items()}
    fresh, wrong = contradictions(plan, found.plan)
    assert (fresh > 0, wrong, is_planted_order(plan, found)) == (True, 0, True)
    assert list(false_findings(plan, outcome, found)) == []
    if plan.scales is not None:
        where = "applied once after the sum" if plan.scales in ("tensor", "row") else "applied to each 128 products"
        assert by_name["scales"] == f"RNE(sa·sb), {where}"
    if plan.promote_every is not None and plan.promote_every < plan.k and not plan.slices:
        assert by_name["promote_every"] == plan.promote_every


@pytest.mark.parametrize("name", [*FOUND, *(pytest.param(each, marks=pytest.mark.slow) for each in LONG_TAIL)])
def test_planted_product_is_found_as_planted(name: str) -> None:
    plan = NAMED[name]
    outcome = outcome_of(plan)
    assert status(outcome) == ("confirmed", "")
    assert (outcome.verification.mismatches, outcome.kept.contradicting) == (0, 0)
    assert outcome.verification.elements >= ELEMENTS
    hold_as_planted(plan, outcome)
    by_name = findings(outcome)
    assert by_name["same_everywhere"].value == "yes"
    assert by_name["repeatable"].value == "yes"
    once = by_name["each_product_once"]
    assert (once.value, once.note) == (("no", NOT_ONCE[name]) if name in NOT_ONCE else ("yes", f"{plan.k} of {plan.k}"))


@pytest.mark.parametrize("bits", [13, pytest.param(14, marks=pytest.mark.slow)])
def test_bits_that_only_ties_of_the_result_show_are_exact(bits: int) -> None:
    outcome = outcome_of(replace(NAMED["tensor scales"], result_bits=bits))
    assert status(outcome) == ("confirmed", "")
    assert findings(outcome)["result_bits"] == Finding(bits)


@pytest.mark.parametrize("rounding", some(OPERAND_ROUNDINGS))
def test_the_only_operand_with_wide_words_is_rounded(rounding: OperandRounding) -> None:
    """bf16 words are not rounded. The first probes of low bits contradict other roundings of the tf32 words."""
    plan = replace(NAMED["chain of 8, tf32"], b="bf16", m=16, n=16, k=64, out="bf16", operand_rounding=rounding)
    outcome = outcome_of(plan)
    assert status(outcome) == ("confirmed", "")
    by_name = findings(outcome)["operand_rounding"]
    assert (by_name.value, by_name.bound) == (rounding, "exact")


def findings_of(tree: Node) -> dict[str, Finding]:
    spec = Spec(16, 16, 1024, *[FORMATS["f32"]] * 3)
    return dict(plan_findings(spec, draft(spec, tree, 1)))


def tree_of(sizes: tuple[int, ...], order: Nested) -> Merged:
    """Return chains of one product per sum."""
    return reordered([Chain(low, high, (0,)) for low, high in pairwise([0, *accumulate(sizes)])], order)


OTHERS = "larger slices of several of them"
READINGS: dict[str, tuple[Merged, int | None, int, str]] = {
    "even, forward": (tree_of((256,) * 4, nested("forward", 4)), 256, 1, "promotion every 256 or split-K 4"),
    "even but the last": (tree_of((96,) * 4 + (32,), nested("forward", 5)), 96, 1, "promotion every 96 or split-K 5"),
    "uneven, forward": (tree_of((96, 128, 96), nested("forward", 3)), None, 3, ""),
    "even and long": (tree_of((1024,) * 3, nested("forward", 3)), None, 3, "split-K 3 or promotion every 1024"),
    "backward": (tree_of((256,) * 4, nested("backward", 4)), None, 4, f"split-K 4 or {OTHERS}"),
    "butterfly": (tree_of((128,) * 8, nested("butterfly", 8)), None, 8, f"split-K 8 or {OTHERS}"),
    "slices of chunks": (
        tree_of((128,) * 6, ((((0, 1), 2), ((3, 4), 5)))),
        128,
        2,
        "split-K 2, each with promotion every 128 or split-K 6",
    ),
    "slices of chunks, backward": (
        tree_of((128,) * 6, ((((4, 5), (2, 3)), (0, 1)))),
        128,
        3,
        "split-K 3, each with promotion every 128 or split-K 6",
    ),
}


@pytest.mark.parametrize("name", READINGS)
def test_structures_of_the_same_bits_are_one_class(name: str) -> None:
    tree, every, slices, also = READINGS[name]
    by_name = findings_of(next(iter(slice_readings(tree))))
    assert (by_name["promote_every"].value, by_name["split_k"].value) == (every, slices)
    assert by_name["order"].note == also
    bounds = {by_name[each].bound for each in ("promote_every", "split_k")}
    assert bounds == ({"equivalent"} if also else {"exact"})
    assert name != "butterfly" or by_name["reduction_order"].value == name


def test_a_product_that_two_chunks_share_is_named() -> None:
    by_name = findings_of(forward([Chain(0, 256, (0,)), Chain(256, 512, (0,)), Chain(511, 768, (0,))]))
    assert by_name["promote_every"].value == 256
    assert by_name["promote_every"].note == "k = 511 in two of them"


def test_undetermined_findings_have_the_surviving_values() -> None:
    outcome = outcome_of(replace(HOPPER, m=16, n=16, k=48, slices=(32, 16), partial_format="bf16"))
    plan, spec = outcome.main.plan, outcome.spec
    assert status(outcome) == ("confirmed", "")
    assert findings(outcome)["partial_format"] == Finding("bf16")
    names = ("partial_format", "alignment_rounding")
    outcome.main.surviving = [each for each in alternative_plans(spec, plan) if each.property in names]
    by_name = findings(outcome)
    assert (by_name["partial_format"].bound, by_name["partial_format"].candidates) == ("undetermined", ("bf16", "f32", "f16"))
    assert by_name["alignment_rounding"].bound == "undetermined"
    assert {by_name["alignment_rounding"].value, "floor", "ceiling"} <= set(by_name["alignment_rounding"].candidates)


def test_a_faulty_output_is_named_and_not_confirmed() -> None:
    """The last bit of one output is always set."""
    plan, fault = replace(HOPPER, k=64), np.zeros((32, 32), np.uint32)
    fault[5, 11] = 1
    outcome = characterise(FunctionBox(spec_of(plan), lambda a, b: plan(a, b).view(np.uint32) | fault), elements=ELEMENTS)
    place, by_name = "row 5, column 11", findings(outcome)
    assert status(outcome) == ("inferred", f"elements with other bits than the rest were not probed: {place}")
    assert by_name["same_everywhere"].value == "no"
    assert by_name["same_everywhere"].note == f"2 plans: 1023 at {outcome.regions[0]}; 1 at {place}"
    assert (by_name["order"].bound, by_name["effective_bits"].bound) == ("exact", "exact")


@pytest.mark.slow
def test_a_wrong_block_scale_is_named_and_not_confirmed() -> None:
    def function(a: Array, b: Array, sa: Array, sb: Array) -> Array:
        blocks = [0, 1, 2, 2, 4]
        return BLOCKS(a, b, sa[:, blocks], sb[blocks])

    outcome = characterise(FunctionBox(spec_of(BLOCKS), function), elements=ELEMENTS)
    found, reason = status(outcome)
    assert found == "inferred"
    assert list(misscaled(row(outcome, "mine.py:f"))) == ["block 3 has the scales of block 2"]
    assert reason.endswith("too far off to be suggested")
    assert "scales" not in findings(outcome)


@pytest.mark.parametrize("seed", some(range(20)))
def test_drawn_plans_are_computed_as_by_the_evaluator(seed: int) -> None:
    plan = drawn(seed)
    fresh, wrong = contradictions(plan, model_of(plan))
    assert (fresh > 0, wrong) == (True, 0)


@pytest.mark.parametrize("module", [planted_disturbances, planted_plans, planted_products, planted_sums])
def test_nothing_of_accprobe_is_imported(module: ModuleType) -> None:
    planted = {"planted_disturbances", "planted_products", "planted_sums"}
    allowed = {"ml_dtypes", "numpy", *planted, *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] in allowed
        elif isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= allowed


JUDGED = replace(HOPPER, m=16, n=16, k=64, slices=(32, 32))
OTHER_PLANS = {
    "bits": (replace(JUDGED, alignment_bits=24), ["alignment_bits: 24, 25"]),
    "slices": (replace(JUDGED, slices=(48, 16)), []),
}


def test_a_product_found_as_planted_is_right() -> None:
    judgement = judged(JUDGED, elements=1 << 10)
    assert (judgement.verdict, judgement.contradicted) == ("right", 0)
    assert judgement.fresh == len(product_judge.WAYS) * JUDGED.m * JUDGED.n
    assert judgement.false_exact == []


@pytest.mark.parametrize("name", OTHER_PLANS)
def test_another_plan_is_wrong(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The outcome is that of another product."""
    other, false = OTHER_PLANS[name]
    real = product_judge.characterise
    box = product_judge.box_of

    def of_the_other(asked: Any, **options: Any) -> Any:
        return real(box(other), **options)

    monkeypatch.setattr(product_judge, "characterise", of_the_other)
    judgement = judged(JUDGED, elements=1 << 10)
    assert judgement.verdict == "wrong"
    assert judgement.contradicted > 0
    assert set(false) <= set(judgement.false_exact)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [121, 130, 134, 3028])
def test_every_finding_is_determined(seed: int) -> None:
    """Borders between short slices, scales of a bf16 result, the order of promoted slices, scaled sums in any order."""
    judgement = judged(drawn(seed), elements=1 << 12)
    assert (judgement.verdict, judgement.false_exact, judgement.undetermined) == ("right", [], [])
