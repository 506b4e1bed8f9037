"""The evidence of a row in words: what the finding needs, and a legend of its signs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accprobe.evaluate.evaluator import evaluate
from accprobe.model.notation import parse_order
from accprobe.records.rows import Row
from accprobe.report.evidence import load_with_evidence


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in load_with_evidence("h200").instructions}


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
