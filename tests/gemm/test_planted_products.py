"""Planted products and accprobe's evaluator give the same bits, and share no code.

`tests/evaluate` compares the evaluator with fractions, and with every named plan.
"""

from __future__ import annotations

import ast
import inspect
import sys
from types import ModuleType

import planted_disturbances
import planted_plans
import planted_products
import planted_sums
import pytest
from marks import some
from planted_models import model_of
from planted_plans import NAMED, drawn, operands
from product_judge import contradictions


@pytest.mark.parametrize("seed", some(range(20)))
def test_drawn_plans_are_computed_as_by_the_evaluator(seed: int) -> None:
    plan = drawn(seed)
    fresh, wrong = contradictions(plan, model_of(plan))
    assert (fresh > 0, wrong) == (True, 0)


def test_an_unordered_merge_is_not_always_the_same() -> None:
    plan = NAMED["5 even slices, unordered"]
    given = operands(plan, 3)
    assert len({plan(*given).tobytes() for _ in range(12)}) == 12


@pytest.mark.parametrize("module", [planted_disturbances, planted_plans, planted_products, planted_sums])
def test_nothing_of_accprobe_is_imported(module: ModuleType) -> None:
    planted = {"planted_disturbances", "planted_products", "planted_sums"}
    allowed = {"ml_dtypes", "numpy", *planted, *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] in allowed
        elif isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= allowed
