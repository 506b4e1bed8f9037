"""Planted products: they share no code with accprobe and give the evaluator's bits; verdicts on rows are right.

`tests/evaluate` compares the evaluator with fractions, and with every named plan.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import planted_disturbances
import planted_plans
import planted_products
import planted_sums
import product_judge
import pytest
from marks import some
from planted_models import model_of
from planted_plans import HOPPER, drawn
from product_judge import contradictions, judged


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


PLAN = replace(HOPPER, m=16, n=16, k=64, slices=(32, 32))
OTHERS = {
    "bits": (replace(PLAN, alignment_bits=24), ["alignment_bits: 24, 25"]),
    "slices": (replace(PLAN, slices=(48, 16)), []),
}


def test_a_product_found_as_planted_is_right() -> None:
    judgement = judged(PLAN, elements=1 << 10)
    assert (judgement.verdict, judgement.contradicted) == ("right", 0)
    assert judgement.fresh == len(product_judge.WAYS) * PLAN.m * PLAN.n
    assert judgement.false_exact == []


@pytest.mark.parametrize("name", OTHERS)
def test_another_plan_is_wrong(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The outcome is that of another product."""
    other, false = OTHERS[name]
    real = product_judge.characterise
    box = product_judge.box_of

    def of_the_other(asked: Any, **options: Any) -> Any:
        return real(box(other), **options)

    monkeypatch.setattr(product_judge, "characterise", of_the_other)
    judgement = judged(PLAN, elements=1 << 10)
    assert judgement.verdict == "wrong"
    assert judgement.contradicted > 0
    assert set(false) <= set(judgement.false_exact)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [121, 130, 134, 3028])
def test_every_finding_is_determined(seed: int) -> None:
    """Borders between short slices, scales of a bf16 result, the order of promoted slices, scaled sums in any order."""
    judgement = judged(drawn(seed), elements=1 << 12)
    assert (judgement.verdict, judgement.false_exact, judgement.undetermined) == ("right", [], [])
