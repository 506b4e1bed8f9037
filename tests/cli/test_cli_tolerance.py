"""`accprobe tolerance`: what is told in each form, and what is refused in a sentence."""

from __future__ import annotations

import json
from functools import partial

import pytest
from commands import invoke

SMALL = ("QGMMA", "--k", "512", "--m", "8", "--n", "8", "--promote-every", "128", "--out", "bf16")


@pytest.fixture(autouse=True)
def few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.budget.tolerance.TESTS", 20)


tolerance = partial(invoke, "tolerance")


def test_json() -> None:
    result = tolerance(*SMALL, "--format", "json", "--data", "same-sign", "--atol", "0.1", "--false-alarms", "1e-6")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert 0 < found["sums_over_sum"] < found["any_operands_over_sum"] < 0.05
    assert found["atol"] > 0
    assert (found["rtol"], found["false_alarms"], found["promote_every"]) == (2.0**-8, 1e-6, 128)
    assert found["own"] == {"atol": 0.1, "rtol": 0.0}
    assert (found["m"], found["n"]) == (8, 8)
    (cut,) = (row for row in found["kill_table"] if row["mistake"] == "the result truncated, not rounded")
    assert set(cut["caught"]) == set(found["passed"]) == {"elements", "allclose", "calc_diff", "own"}
    assert not found["simulated"]


def test_terminal_has_a_test_of_the_users_and_keeps_its_width() -> None:
    result = tolerance(*SMALL, "--atol", "0.01", columns=80)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "own |got - f64 reference| <= 0.01 " in " ".join(result.stdout.split())
    assert "out=" not in tolerance(*SMALL, "--out", "f32", columns=80).stdout


def test_a_measured_product_has_its_own_k_and_result() -> None:
    name = "products-h200:torch:_scaled_mm 512x512x512 e4m3 -> bf16, scale=tensor, use_fast_accum=False"
    found = json.loads(tolerance(name, "--m", "4", "--n", "4", "--format", "json").stdout)
    assert (found["k"], found["promote_every"], found["out"]) == (512, 128, "bf16")
