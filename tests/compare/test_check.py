"""Requirements on instructions, functions and products, and products of two reports."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import assert_refused, invoke
from fakes import SPARSE, fake_report, float_row
from product_rows import dropped, product_data, product_model, product_report, product_row, step, suggested, two_regions

from accprobe.compare.pairs import COMPARED_FIELDS, Pair, paired
from accprobe.compare.requirements import check_requirement, parse_requirement
from accprobe.errors import RequirementError
from accprobe.model.notation import product_json
from accprobe.records.functions import FunctionRow
from accprobe.report.published import NOT_MEASURED, published
from accprobe.report.report import Report

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
QGMMA = {"QGMMA.64x8x32.F32.E4M3.E4M3": 1}


def report(bits: int = 13, finding: dict[str, Any] | None = None, **changes: Any) -> Report:
    row = float_row(WGMMA, bits, QGMMA, **changes)
    if finding:
        row["findings"]["effective_bits"] = finding
    return fake_report(row, {"name": SPARSE, "status": "skipped", "reason": "no probe"})


def found(what: Report, line: str) -> list[str]:
    """Return the values that fail the line."""
    outcome = check_requirement(what, parse_requirement(line))
    assert outcome.passed == (not outcome.failures and outcome.matched > 0)
    return list(outcome.failures)


@pytest.mark.parametrize(
    ("line", "breaches"),
    [
        ("wgmma.*.e4m3.*: effective_bits >= 13", []),
        ("wgmma.*.e4m3.*: effective_bits >= 14", ["13"]),
        ("*: result_rounding == 'RNE'", ["RZ"]),
        ("*: ran_as == HGMMA", ["QGMMA"]),
        ("*: add_result_bits >= 1", ["no value"]),
        ("*: computes == x", ["no value"]),
        ("*: result_rounding >= 3", ["RZ"]),
    ],
)
def test_lines_pass_or_fail(line: str, breaches: list[str]) -> None:
    assert found(report(), line) == breaches


@pytest.mark.parametrize(
    ("finding", "breaches"),
    [
        ({"value": 12, "bound": "at_least"}, ["≥12"]),
        ({"value": 13, "bound": "undetermined", "candidates": [13, 12]}, ["13?, candidates: 13 or 12"]),
        ({"value": 13, "bound": "undetermined"}, ["not observable"]),
    ],
)
def test_value_counts_as_it_is_known(finding: dict[str, Any], breaches: list[str]) -> None:
    assert found(report(finding=finding), "*: effective_bits >= 13") == breaches


def test_unconfirmed_values_fail() -> None:
    what = report(status="inferred", reason="3 of 100 results differ from the model")
    assert found(what, "*: effective_bits >= 13") == ["13, inferred: 3 of 100 results differ from the model"]
    assert found(what, "*: status == inferred") == []


def test_a_requirement_without_matches_fails() -> None:
    for line in ("tcgen05.*: effective_bits >= 13", "mma.sp.*: effective_bits >= 13"):
        outcome = check_requirement(report(), parse_requirement(line))
        assert (outcome.matched, outcome.failures, outcome.passed) == (0, {}, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "write it as 'GLOB: FIELD OPERATOR VALUE'"),
        ("wgmma.*: effective_bits => 13", "write it as"),
        ("wgmma.* 1x2x3: effective_bits <= 128", "write it as"),
        ("wgmma.*: efective_bits >= 13", "there is no field 'efective_bits'; did you mean effective_bits"),
        ("wgmma.*: effective_bits >= RZ", "'>=' needs a number, not 'RZ'"),
    ],
)
def test_invalid_lines_are_refused(line: str, reason: str) -> None:
    with pytest.raises(RequirementError) as caught:
        parse_requirement(line)
    assert str(caught.value).startswith(f"requirement '{line}': ")
    assert reason in str(caught.value)


run = partial(invoke, "check", columns=100)


def test_functions_meet_requirements_by_name_opcode_and_title() -> None:
    callable_row = {"name": "torch:exp", "operand": "bf16", "result": "bf16", "status": "unverified", "reason": "no model"}
    what = Report.load("functions-h200")
    what = what.with_claims([*what.claims, FunctionRow.model_validate(callable_row)])
    assert found(what, "rsqrt.*: mismatches == 0") == found(what, "MUFU.TANH: status == confirmed") == []
    assert found(what, "rsqrt.approx.ftz.*: errors_largest < 0.5") == ["1.5145"]
    assert found(what, "torch:exp bf16: status == confirmed") == ["unverified"]
    assert found(what, "torch:exp *: mismatches == 0") == ["no value"]
    assert found(what, "ex2.approx.f32: alternatives_surviving == 0") == ["no value"]
    assert found(what, "torch:exp *: computes == exp") == ["no value, unverified: no model"]


def test_lines_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "require.txt"
    path.write_text("wgmma.*.f32.e4m3.*: effective_bits >= 13\n# bits\n\n*: status == confirmed\n", encoding="utf-8-sig")
    assert run("h200", "--file", str(path)).exit_code == 0
    path.write_text("wgmma.*.f32.e4m3.*: effective_bits >= 23")
    result = run("h200", "--file", str(path))
    assert result.exit_code == 1
    assert "found 13: wgmma.m64n{8,256}k32.f32.e4m3.{e4m3,e5m2}{,.rs}" in result.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\xff", "is not text in UTF-8"),
        ("# nothing", "has no requirement: write one a line"),
        ("#\nx", "require.txt, line 2: "),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "require.txt"
    path.write_text(text, encoding="latin-1")
    result = run("h200", "--file", str(path))
    assert_refused(result, reason)


def test_published_models_are_refused_and_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    published("h100").save(path)
    line = f"{WGMMA}: effective_bits >= 13"
    assert run(str(path), "--require", line).exit_code == 2
    result = run(str(path), "--require", line, "--allow-simulated")
    assert result.exit_code == 1
    assert f"found 13, simulated: {NOT_MEASURED}: {WGMMA}" in result.stdout


Row = dict[str, Any]

SPLIT = product_data(product_model(slices=4, kept="bf16"))
OF_16 = product_data(product_model(of=step(16)))
UNDECIDED = product_data(findings={"split_k": {"value": 1, "bound": "undetermined", "candidates": [1, 4]}})
PARTS = {
    "value": "4 slices of 256, added in f32: chain of [acc 32]",
    "bound": "exact",
    "note": "promotion every 256 or split-K 4",
}
PROMOTED, SLICED = (
    product_data(
        product_model(promote=256),
        findings={
            "order": PARTS,
            "promote_every": {"value": every[0], "bound": "equivalent", "candidates": every},
            "split_k": {"value": slices[0], "bound": "equivalent", "candidates": slices},
        },
    )
    for every, slices in (([256, None], [1, 4]), ([None, 256], [4, 1]))
)
"""Structures of one class: the additions are the same."""
UNKNOWN = product_data(regions=[], status="inferred", reason="no tree", verification=None)


def pair(a: Row, b: Row, *fields: str) -> Pair:
    return paired(product_row(a), product_row(b), fields or COMPARED_FIELDS["product"])


@pytest.mark.parametrize(
    ("a", "b", "verdict", "changed"),
    [
        (product_data(), product_data(), "same", []),
        (PROMOTED, SLICED, "same", []),
        (product_data(), SLICED, "changed", ["order"]),
        (product_data(), dropped(), "changed", ["each_product_once"]),
        (product_data(), suggested(), "changed", ["status"]),
        (product_data(), UNDECIDED, "undecided", []),
        (SPLIT, UNDECIDED, "changed", ["order"]),
        (suggested(), suggested(model=product_model(promote=64)), "undecided", []),
        (
            product_data(),
            OF_16,
            "changed",
            ["order", "products_per_sum"],
        ),
        (OF_16, two_regions(), "changed", ["order", "products_per_sum", "regions", "same_everywhere"]),
    ],
)
def test_changed_fields(a: Row, b: Row, verdict: str, changed: list[str]) -> None:
    compared = pair(a, b)
    assert compared.verdict == verdict
    assert sorted(each.field for each in compared.differences if each.verdict == "changed") == sorted(changed)


def test_region_that_differs_is_named() -> None:
    other = two_regions()
    other["regions"][1]["findings"]["effective_bits"] = {"value": 20, "bound": "exact"}
    (difference,) = pair(two_regions(), other).differences
    assert difference.title == "effective bits at rows 12-15, columns 0-7"
    assert (difference.a, difference.b) == ("13", "20")


OF_F32 = product_model(a="f32", of=step(1, 23, None))
COMPOSITE = {"finish": "S", "function": "exp in f32"}
OUTER: dict[str, tuple[Row, Row]] = {
    "epilogue": ({"findings": {"epilogue": {"value": "D + bias", "bound": "exact"}}}, {}),
    "factor": ({"factor_exponent": -4}, {}),
    "result": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"finish": "2S"}}),
    "functions": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"function": "exp2 in f32"}}),
    "moments": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"moments": "Welford"}}),
    "eps": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"eps": 1e-5}}),
    "rows": (
        {"composite": COMPOSITE},
        {"composite": COMPOSITE | {"rows": {"finish": "T", "order": "a chain", "model": product_json(OF_F32)}}},
    ),
}


@pytest.mark.parametrize("field", OUTER)
def test_steps_around_the_sum_are_compared(field: str) -> None:
    a, b = (product_data(OF_F32, **changes) for changes in OUTER[field])
    assert [each.field for each in pair(a, b).changes] == [field]


def test_plan_that_one_side_does_not_know_is_undecided() -> None:
    (difference,) = pair(product_data(), UNKNOWN | {"regions": [{"where": "all", "elements": 128}]}, "split_k").differences
    assert (difference.verdict, difference.a, difference.b) == ("undecided", "1", "not known")


@pytest.mark.parametrize(
    ("data", "line", "failing"),
    [
        (UNDECIDED, "*:*: split_k == 1", ["1?, candidates: 1 or 4"]),
        (SLICED, "torch:mm: promote_every <= 256", []),
        (SLICED, "torch:mm: promote_every <= 128", ["none or 256"]),
        (UNKNOWN, "*:*: status == confirmed", ["inferred"]),
    ],
)
def test_requirements_on_products_pass_or_fail(data: Row, line: str, failing: list[str]) -> None:
    outcome = check_requirement(product_report(data), parse_requirement(line))
    assert list(outcome.failures) == failing
    assert outcome.matched == 1
