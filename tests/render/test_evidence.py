"""The evidence of a row in words: what the finding needs, and a legend of its signs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accprobe.evaluate.evaluator import evaluate
from accprobe.model.notation import parse_order
from accprobe.operands.exchange import Counterexample
from accprobe.render.content import evidence
from accprobe.render.content.phrases import unglued
from accprobe.render.content.verification import mismatch
from accprobe.report.evidence import load_with_evidence
from accprobe.report.rows import Row


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in load_with_evidence("h200").instructions}


def told(row: Row, feature: str) -> list[str]:
    (group,) = (each for each in evidence.shown_for(row) if feature in each.heading.partition(":")[0].split(", "))
    return list(map(unglued, group.exchanges))


def test_of_a_sparse_row_only_products_are_told(rows: dict[str, Row]) -> None:
    row = rows["mma.sp.m16n8k16.f32.f16.f16.f32"]
    assert told(row, "result_bits") == [
        "k 0: 0x7800 (2^15) × 0x7800 (2^15); C 0x43000000 (2^7) → 0x4e800001 (1.07374195e+09)",
        "k 0: 0x7800 (2^15) × 0x7800 (2^15); C 0x42800000 (2^6) → 0x4e800000 (2^30)",
    ]


def test_what_is_left_out_is_told_where_it_alone_differs(rows: dict[str, Row]) -> None:
    assert told(rows["mma.sp.m16n8k16.f32.f16.f16.f32"], "left_out") == [
        "8 products, C 0xfd246e53 (-1.36603892e+37); elsewhere 0x0000 (0) → 0xfd246e53 (-1.36603892e+37)",
        "the same; elsewhere 0x7c01 (nan), 0xfc01 (nan), 0x7e00 (nan) and 3 more → 0xfd246e53 (-1.36603892e+37)",
    ]
    for row in rows.values():
        if row.instruction.sparse:
            zero, others = told(row, "left_out")
            assert zero.startswith(f"{row.instruction.stored.k} products, C 0x")
            assert others.startswith("the same; elsewhere 0x")
            assert zero.partition(" → ")[2] == others.partition(" → ")[2]


def test_a_counterexample_has_all_of_the_question(rows: dict[str, Row]) -> None:
    row = rows["mma.sp.m16n8k16.f32.f16.f16.f32"]
    shown = row.evidence["left_out"][1]
    wrong = mismatch(row.instruction, Counterexample(shown, shown.d, "special"))
    assert "; stored at 0-1, 5, 7, 9-10, 14-15; left out of B 0x7c01 (nan), " in wrong


def test_the_legend_has_the_signs_that_the_evidence_has(rows: dict[str, Row]) -> None:
    names = ("mma.sp.m16n8k16.f32.f16.f16.f32", "wgmma.m64n8k32.f32.e4m3.e4m3")
    sparse, dense = (evidence.legend(rows[name]) for name in names)
    assert sparse.startswith("k: place among the products that A stores; ")
    assert "elsewhere: " in sparse
    assert "elsewhere: " not in dense
    assert dense.startswith("k: place along K; ")
    assert "M: a number so large" in dense
    few = rows["wgmma.m64n8k32.f32.e4m3.e4m3"].model_copy(update={"evidence": {}})
    assert "M: " not in evidence.legend(few)


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
    asked = [(shown.request(inst), shown.answer(inst)) for shown in row.evidence["order"]]
    assert all(evaluate(model, inst, request) == d for request, d in asked)
    assert any(evaluate(alternative, inst, request) != d for request, d in asked)
