"""Planted products and accprobe's evaluator give the same bits, and share no code.

`tests/evaluate` compares the evaluator with fractions, and with every named plan.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import planted_disturbances
import planted_plans
import planted_products
import planted_sums
import pytest
from marks import some
from planted_models import model_of
from planted_plans import HOPPER, NAMED, drawn, operands
from planted_products import Planted
from planted_sums import TYPES, Array
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


def product(plan: Planted, *pairs: tuple[float, float]) -> Array:
    """The one output of a row and a column."""
    a, b = zip(*pairs, strict=True)
    dtype = TYPES[plan.a].dtype
    return np.asarray(plan(np.array([a]).astype(dtype), np.array(b)[:, None].astype(dtype))[0, 0])


@pytest.mark.parametrize("alignment_bits", [None, 25])
@pytest.mark.parametrize("products", [1, 2])
def test_what_is_too_large_becomes_an_infinity_and_stays_one(products: int, alignment_bits: int | None) -> None:
    plan = replace(HOPPER, products_per_sum=products, alignment_bits=alignment_bits)
    huge = 2.0**100
    assert product(plan, (-huge, huge), (1, 1), (huge, huge), (2.0**-60, 2.0**-60)) == -np.inf
    slices = replace(plan, k=4, slices=(2, 2))
    assert np.isnan(product(slices, (-huge, huge), (0, 0), (huge, huge), (0, 0)))


@pytest.mark.parametrize("alignment_bits", [None, 25])
def test_the_sign_of_zero(alignment_bits: int | None) -> None:
    """-2^-150 becomes -0; then -0 is added to it, by FMAs or in one sum of two."""
    plan = replace(HOPPER, products_per_sum=2, alignment_bits=alignment_bits)
    asked = (-(2.0**-75), 2.0**-75), (-0.0, 1), (-0.0, 1), (-0.0, 1)
    assert np.signbit(product(plan, *asked[:2]))
    assert not np.signbit(product(plan, *asked))
    assert np.signbit(product(replace(plan, products_per_sum=1, alignment_bits=None), *asked))
