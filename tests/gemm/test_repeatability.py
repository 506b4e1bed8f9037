"""Identical calls, and calls in which other rows, columns or zero products change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox
from planted_functions import Multiply, Warming, chain, scaled_by_row, scaled_by_tensor, strassen, wrong_tile

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.contract import find_dependence
from accprobe.gemm.checks.repeatability import FIRST, QUIET, compare_at_end, first_operands, repeat_first
from accprobe.gemm.findings import findings, status
from accprobe.gemm.outcome import ProductOutcome
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS

SPEC = Spec(16, 16, 32, *[FORMATS["f32"]] * 3)


def outcome_of(function: Multiply, k: int = 32) -> ProductOutcome:
    return characterise(FunctionBox(replace(SPEC, k=k), function), elements=1 << 12)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (chain, "own row and column"),
        (strassen, "other rows and columns"),
        (wrong_tile, "other columns"),
        (lambda a, b: wrong_tile(b.T, a.T).T, "other rows"),
        (scaled_by_tensor, "whole tensor"),
        (lambda a, b: scaled_by_tensor(b.T, a.T).T, "whole tensor"),
        (scaled_by_row, "whole row of A"),
        (lambda a, b: scaled_by_row(b.T, a.T).T, "whole column of B"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_an_output_depends_on(function: Multiply, value: str, seed: int) -> None:
    assert find_dependence(RecordedCallable(FunctionBox(SPEC, function)), seed).value == value


@pytest.mark.parametrize("name", ["bf16", "e4m3", "s8"])
def test_a_product_depends_on_its_own_row_and_column(name: str) -> None:
    fmt, out = FORMATS[name], FORMATS["s32" if name == "s8" else "f32"]
    multiply = chain if name != "s8" else lambda a, b: a.astype(np.int32) @ b.astype(np.int32)
    for k in (1, 2, 7):
        box = FunctionBox(Spec(5, 3, k, fmt, fmt, out), multiply)
        assert find_dependence(RecordedCallable(box)).value == "own row and column"


@pytest.mark.parametrize("function", [strassen, wrong_tile, scaled_by_tensor, scaled_by_row])
def test_a_deterministic_function_is_not_unstable(function: Multiply) -> None:
    outcome = outcome_of(function, 8)
    found, reason = status(outcome)
    by_name = findings(outcome)
    assert found == "inferred"
    assert by_name["repeatable"].value == "yes"
    assert by_name["depends_on"].value != "own row and column"
    if outcome.depends is not None and outcome.depends.is_on_others:
        of_tile = "columns 8-15 read B of columns 0-7"
        assert (of_tile if function is wrong_tile else str(outcome.depends)) in reason


def test_one_row_that_changes_all_others_is_named() -> None:
    outcome = outcome_of(scaled_by_tensor)
    note = findings(outcome)["depends_on"].note
    assert note.endswith("changes 15 of the 15 other rows")
    assert note in status(outcome)[1]


@pytest.mark.parametrize("first", [1, 3])
def test_first_calls_that_give_other_bits_are_counted(first: int) -> None:
    outcome = outcome_of(Warming(first))
    found, reason = status(outcome)
    calls = "call gives" if first == 1 else f"{first} calls give"
    assert (found, reason.partition(":")[0]) == ("unstable", f"the first {calls} other bits than later ones")
    by_name = findings(outcome)
    assert by_name["first_calls"].value == "other bits"
    assert by_name["first_calls"].note == reason
    assert by_name["repeatable"].value == "no"


def test_first_calls_are_held_against_the_last() -> None:
    """Results that change after more calls than are repeated at the beginning."""
    recorded = RecordedCallable(FunctionBox(SPEC, Warming(FIRST + 2)))
    first = repeat_first(recorded)
    assert (first.calls, first.other, first.changed) == (FIRST, 0, 0)
    for _ in range(3):
        recorded.product(*first_operands(SPEC))
    last = compare_at_end(recorded, first)
    assert (last.other, last.changed) == (FIRST, 0)
    assert last.elements > 0


def test_calls_before_the_first_are_counted() -> None:
    function = Warming(2)
    box = FunctionBox(SPEC, function)
    before = [box.product(*first_operands(SPEC)) for _ in range(2)]
    outcome = characterise(box, elements=1 << 12, before=before)
    assert outcome.first.other == 2
    assert outcome.calls == function.calls


def test_values_are_counted_until_no_new_one_comes() -> None:
    """A result that has one of four values at random."""
    rng = np.random.default_rng(0)

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return chain(a, b) + rng.integers(4, size=(16, 16)).astype(np.float32)

    first = repeat_first(RecordedCallable(FunctionBox(SPEC, function)))
    assert (first.changed, first.values) == (256, 4)
    assert first.calls > QUIET + 4
