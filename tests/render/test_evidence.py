"""The evidence of a row in words: what the finding needs, and a legend of its signs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accprobe.evaluate.evaluator import evaluate
from accprobe.model.notation import parse_order
from accprobe.operands.exchange import Counterexample
from accprobe.render.subjects.instruction import mismatch
from accprobe.report.evidence import load_with_evidence
from accprobe.report.rows import Row


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in load_with_evidence("h200").instructions}


def test_a_counterexample_has_all_of_the_question(rows: dict[str, Row]) -> None:
    row = rows["mma.sp.m16n8k16.f32.f16.f16.f32"]
    shown = row.evidence["left_out"][1]
    wrong = mismatch(row.instruction, Counterexample(shown, shown.d, "special"))
    assert "; stored at 0-1, 5, 7, 9-10, 14-15; left out of B 0x7c01 (nan), " in wrong


@pytest.mark.parametrize(
    "other",
    [
        "[[[[0-1]@0 [2-3]@0]@0 c]@0]@1",
        "[[[[2-3]@0 c]@0 [0-1]@0]@0]@1",
        "[[[2-3]@0 c]@0 [0-1]@0]@1",
        "[[[0-1]@0 [[2-3]@0 c]@0]@0]@1",
        "[[[[[0]@0 c]@0 1]@0 [2-3]@0]@0]@1",
        "[[[[[0-1]@0 c]@0 2]@0 3]@0]@1",
    ],
)
def test_the_evidence_of_an_order_whose_inner_sums_are_wider_refutes_others(rows: dict[str, Row], other: str) -> None:
    row = rows["mma.sync.m8n8k4.f16.f16.f16.f16"]
    inst, model = row.instruction, row.model
    assert model is not None
    assert model.order == "[[[[0-1]@0 c]@0 [2-3]@0]@0]@1"
    alternative = replace(model, root=parse_order(other, model.arithmetics))
    asked = [(shown.request(inst), shown.result(inst)) for shown in row.evidence["order"]]
    assert all(evaluate(model, inst, request) == d for request, d in asked)
    assert any(evaluate(alternative, inst, request) != d for request, d in asked)
