"""Reports: the table at each width, details, products in words; what was not confirmed is nowhere stated as a fact."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from fakes import HMMA_OF_FP8, fake_report, float_row, simulated_report
from hypothesis import given
from hypothesis import strategies as st
from product_rows import TAIL, dropped, product_data, product_model, product_row, suggested, two_regions
from shown import details_of, in_markdown, on_terminal, page_of, page_of_diff, table_of

from accprobe.compare.diff import diff, headline
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import catalog
from accprobe.model.product import multiply_add
from accprobe.model.tree import DotModel
from accprobe.records.rows import Row
from accprobe.records.verification import TileCoverage, Verification
from accprobe.render.data import diff_json
from accprobe.render.document import on_one_line, text_of
from accprobe.render.subjects import products
from accprobe.render.subjects.comparison import diff_blocks
from accprobe.render.subjects.instruction import excluded_faults
from accprobe.render.subjects.report import COLUMNS, TableLine, report_blocks, rows_blocks
from accprobe.report.report import Report
from accprobe.report.words import brace_patterns

NAMES = [inst.name for inst in catalog("sm_90a")]
NAME = "wgmma.m64n8k32.f32.e4m3.e4m3"
FP8_MMA = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"
FACT = "The running sum keeps 13 (e8m13)"
COVERAGE: dict[str, Any] = {
    "results": 48_213,
    "contradicting": 17,
    "tile": {"covered": 69, "total": 512, "differing": "row 3"},
    "events": {"hit": 410, "possible": 412, "impossible": {"no operand is subnormal": 3}, "missing": ["tie up", "carry 5"]},
}
QUERIES = {"count": 412, "smallest": 1, "largest": 65_537}
AGREEING = COVERAGE | {"contradicting": 0, "tile": {"covered": 69, "total": 512}, "queries": QUERIES}
"""Nothing contradicts the model, and not all of it was covered."""
NOT_CONFIRMED = pytest.mark.parametrize("status", ["inferred", "unstable", "unverified"])


def expand(pattern: str) -> list[str]:
    pieces = [piece[1:-1].split(",") if piece[:1] == "{" else [piece] for piece in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(choice) for choice in itertools.product(*pieces)]


@given(st.sets(st.sampled_from(NAMES)))
def test_patterns_expand_to_just_the_names(names: set[str]) -> None:
    found = [name for pattern in brace_patterns(sorted(names)) for name in expand(pattern)]
    assert sorted(found) == sorted(names)


def row_of(changes: dict[str, Any] | None = None, bits: int = 13, **finding: object) -> Row:
    """The row of `NAME`, with some findings of its own."""
    data = float_row(NAME, bits, {"QGMMA": 1})
    data["findings"] |= finding
    return fake_report(data | (changes or {})).instructions[0]


def not_confirmed(status: str = "inferred", **changes: Any) -> dict[str, Any]:
    row = float_row(NAME, 13, {"QGMMA": 1}, status=status, reason="17 answers differ")
    row["findings"] = {name: finding | {"bound": "suggested"} for name, finding in row["findings"].items()}
    row["verification"] |= COVERAGE
    return row | changes


def agreeing() -> dict[str, Any]:
    return not_confirmed(verification=not_confirmed()["verification"] | AGREEING)


def cell(row: Row, header: str) -> str:
    (column,) = (column for column in COLUMNS if on_one_line(column.header) == header)
    return text_of(column.cell(TableLine(row.name, row)))


def every_form(report: Report) -> list[str]:
    return [table_of(report, 400), in_markdown(report_blocks(report)), page_of(report)]


def in_full(row: dict[str, Any]) -> list[str]:
    report = fake_report(row)
    return [details_of(report.instructions[0], 400), in_markdown(rows_blocks(report))]


@pytest.mark.parametrize("width", [80, 120, 160, 300])
@pytest.mark.parametrize("all_of_them", [False, True])
def test_every_width_shows_opcode_bits_and_rounding(width: int, all_of_them: bool) -> None:
    shown = table_of(fake_report(), width, all_of_them)
    assert max(map(len, shown.splitlines())) <= width
    lines = [line for line in shown.splitlines() if "QGMMA" in line]
    assert len(lines) == (2 if all_of_them else 1)
    assert all("13 (e8m13)" in line and " RZ" in line for line in lines)
    assert "status (confirmed everywhere)" in " ".join(shown.split()) or "  confirmed" in lines[0]


def test_a_status_that_differs_is_never_left_out() -> None:
    rows = [float_row(NAME, 13, {"QGMMA": 1}), float_row(FP8_MMA, 23, HMMA_OF_FP8, status="inferred", reason="x")]
    (line,) = (line for line in table_of(fake_report(*rows), 80).splitlines() if "F2FP" in line)
    assert line.endswith("inferred")


@pytest.mark.parametrize(
    ("feature", "header", "finding", "shown"),
    [
        ("effective_bits", "effective bits", {"value": 13, "bound": "at_least"}, "≥13 (e8m13)"),
        ("alignment_bits", "align. bits F", {"value": None, "bound": "exact"}, "exact"),
        ("alignment_rounding", "alignment rounding", {"value": "x", "bound": "undetermined", "candidates": ["x", "y"]}, "x?"),
        ("products_per_sum", "products per fused sum", {"value": 32, "bound": "undetermined"}, "32?"),
    ],
)
def test_a_cell_marks_how_well_a_value_is_known(feature: str, header: str, finding: dict[str, object], shown: str) -> None:
    assert cell(row_of(None, **{feature: finding}), header) == shown


def test_details_of_a_counterexample() -> None:
    exchange = float_row(NAME, 13, {"QGMMA": 1})["evidence"]["alignment_bits"][0]
    wrong = {"kind": "tiny", "exchange": exchange, "expected": "3f800001"}
    done = {"compared": 9, "mismatches": 1, "seed": 0, "counterexample": wrong}
    shown = details_of(row_of({"status": "inferred", "reason": "1 of 9 differ", "verification": done}))
    assert "1 of 9 dot products differ from the model, seed 0" in shown
    assert "the first mismatch, tiny: k 0: 0x38 (1) × 0x38 (1); C 0x00000000 (0) → 0x3f800000 (1)" in shown
    assert "expected 0x3f800001 (1.00000012)" in shown


@NOT_CONFIRMED
def test_no_form_states_what_is_suggested_as_a_fact(status: str) -> None:
    for shown in every_form(fake_report(not_confirmed(status))):
        assert FACT not in shown
        assert "~13 (e8m13)" in shown
        assert "~: suggested" in shown
        assert f"{status}: 17 answers differ" in shown
    assert FACT in every_form(fake_report())[0]


def test_in_full_every_suggested_value_has_its_mark() -> None:
    for shown in in_full(not_confirmed()):
        assert "The findings are suggestions" in shown
        assert "~13 (e8m13)" in shown
        assert "~sum of" in shown
        assert shown.split("Findings")[1].split("Verification")[0].count("suggested") >= 8


@pytest.mark.parametrize("form", [0, 1, 2])
def test_what_no_hardware_computed_is_called_simulated(form: int) -> None:
    for report in (simulated_report(float_row(NAME, 13, {"QGMMA": 1})), simulated_report()):
        shown = every_form(report)[form]
        assert f"Simulated: t{FACT[1:]}" in shown
        assert FACT not in shown
        assert "SIMULATED: these are published models, nothing was measured" in shown
        assert "measured in" not in shown
    assert "no GPU found (there is no driver); these" in every_form(simulated_report(reason="there is no driver"))[form]


def test_why_a_simulated_row_would_not_be_confirmed_is_told_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    simulated_report(float_row(NAME, 13, {"QGMMA": 1}, reason="17 answers differ")).save(path)
    for rows in ([], [NAME]):
        assert "simulated: 17 answers differ" in invoke("show", str(path), *rows).stdout


def test_details_say_what_was_covered() -> None:
    for shown in in_full(not_confirmed()):
        assert "17 of 48,213 results contradict the model" in shown
        assert "69 of 512 tile elements covered; mismatches: row 3" in shown
        assert "coverage does not count: results contradict the model" in shown
        assert "excluded" not in shown
    for shown in in_full(agreeing()):
        assert "412 calls of the device, with 1 to 65,537 dot products each" in shown
        assert "410 of 412 events covered; missing: tie up, carry 5; 3 others not reached: no operand is subnormal" in shown
    excluded = "no mismatch in 10,000,000: faults in more than 3 in 10,000,000 of such operands are excluded at 95 %"
    assert excluded in details_of(fake_report().instructions[1])


@pytest.mark.parametrize(
    "done",
    [
        Verification(10, 1, 0),
        Verification(10, 0, 0, results=20, contradicting=1),
        Verification(10, 0, 0, tile=TileCoverage(1, 1, "row 3")),
        Verification(3, 0, 0),
    ],
)
def test_nothing_is_excluded_where_anything_differs_or_few_were_tried(done: Verification) -> None:
    assert excluded_faults(done) == ""
    assert excluded_faults(Verification(10, 0, 0)) == "faults in more than 3 in 10 of such operands are excluded at 95 %"


def test_a_comparison_decides_nothing_from_what_is_suggested() -> None:
    wide = fake_report(float_row(NAME, 23, {"QGMMA": 1}))
    found = diff(fake_report(not_confirmed()), wide)
    assert found.pairs[0].verdict == "changed"
    assert [d.field for d in found.pairs[0].differences if d.verdict == "changed"] == ["status"]
    assert "13" not in headline(found)
    assert found.pairs[0].marks == ("A inferred",)
    forms = [on_terminal(diff_blocks(found), 400), in_markdown(diff_blocks(found)), page_of_diff(found), diff_json(found)]
    assert all("inferred" in shown for shown in forms)
    simulated = simulated_report(float_row(NAME, 13, {"QGMMA": 1}))
    assert diff(simulated, wide).pairs[0].marks == ("A simulated",)


def said(data: dict[str, Any]) -> dict[str, str]:
    return {label: said.text for label, said in products.lines(product_row(data))}


NOTHING = {"compared": 0, "mismatches": 0, "seed": 0}


@pytest.mark.parametrize(
    ("data", "label", "words"),
    [
        (dropped(), "every k", f"NOT a[i, k]·b[k, j] once: {TAIL}"),
        (suggested(), "fused sums", "~32 products, ~13 fraction bits, ~RZ"),
        (
            product_data(
                scale="128x128", findings={"scales": {"value": "sa, then sb", "bound": "undetermined", "candidates": ["x"]}}
            ),
            "scales",
            "one per block of 128 x 128: sa, then sb?",
        ),
        (two_regions(), "everywhere", "2 plans: 96 elements alike"),
        (
            product_data(findings={"depends_on": {"value": "whole tensor", "bound": "exact", "note": "row 3 changes others"}}),
            "depends on",
            "whole tensor: row 3 changes others",
        ),
        (
            suggested() | {"verification": {**NOTHING, "results": 40, "contradicting": 3}},
            "verified",
            "nothing: results contradict the plan; 3 of 40 results contradict the plan;"
            " 26 of 26 alternative plans contradicted",
        ),
    ],
)
def test_line_says(data: dict[str, Any], label: str, words: str) -> None:
    assert said(data)[label] == words


def test_sums_in_any_order_are_confirmed_up_to_it() -> None:
    found = {"reduction_order": {"value": "unordered", "bound": "exact"}}
    shown = text_of(products.status_spans(product_row(product_data(product_model(slices=4), findings=found))))
    assert shown == "confirmed up to the order of atomics"


ROUNDED_FIRST = {"product_bits": {"value": None, "bound": "undetermined", "candidates": [None, 23]}}
"""An alternative rounds products first, which leaves it open whether they are fused."""


@pytest.mark.parametrize(
    ("a", "of", "found", "words"),
    [
        ("f32", multiply_add(), {}, "fused multiply-adds"),
        ("f32", multiply_add(), ROUNDED_FIRST, "fused multiply-adds?"),
        ("f64", multiply_add(FORMATS["f64"]), {}, "fused multiply-adds"),
        ("f16", multiply_add(), {}, "multiply-adds (fused or not: products are exact)"),
        ("bf16", multiply_add(fused=False), {}, "each rounded to 23 bits first"),
    ],
)
def test_multiply_adds_are_fused_where_that_shows(a: str, of: DotModel, found: dict[str, Any], words: str) -> None:
    assert said(product_data(product_model(a=a, of=of), findings=found))["fused sums"].split(", ")[1] == words


def test_what_is_wrong_comes_first() -> None:
    twice = dropped()
    twice["regions"][0]["findings"]["each_product_once"]["note"] = "1 counted more than once: k = 5"
    assert next(products.alarms(product_row(twice))).text.startswith("DOUBLED PRODUCTS: 1 counted")
    reason = "block 3 has the scales of block 2; too far off"
    misplaced = product_row(product_data(scale="128x128", name="torch:misplaced", status="inferred", reason=reason))
    assert [alarm.text for alarm in products.alarms(misplaced)] == ["WRONG SCALES: block 3 has the scales of block 2"]
    assert products.wrong_first([product_row(product_data()), misplaced])[0] is misplaced
