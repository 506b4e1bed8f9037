from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import assert_refused, invoke
from fakes import SPARSE, fake_report, float_row

from accprobe.compare.requirements import check_requirements, parse_requirement
from accprobe.errors import RequirementError
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
    (outcome,) = check_requirements(what, [parse_requirement(line)])
    assert outcome.passed == (not outcome.failures and outcome.matched > 0)
    return list(outcome.failures)


@pytest.mark.parametrize(
    ("line", "breaches"),
    [
        ("wgmma.*.e4m3.*: effective_bits >= 13", []),
        ("wgmma.*.e4m3.*: effective_bits >= 14", ["13"]),
        ("*: effective_bits != 13", ["13"]),
        ("*: effective_bits < 13", ["13"]),
        ("*: result_rounding == 'RNE'", ["RZ"]),
        ("*: ran_as == HGMMA", ["QGMMA"]),
        ("*: status == confirmed", []),
        ("*: compared >= 1000000", []),
        ("*: mismatches == 0", []),
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
        ({"value": 13, "bound": "at_least"}, []),
        ({"value": 12, "bound": "at_least"}, ["≥12"]),
        ({"value": 13, "bound": "undetermined", "candidates": [13, 14]}, []),
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
        (outcome,) = check_requirements(report(), [parse_requirement(line)])
        assert (outcome.matched, outcome.failures, outcome.passed) == (0, {}, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "write it as 'GLOB: FIELD OPERATOR VALUE'"),
        ("wgmma.*: effective_bits", "write it as"),
        ("wgmma.*: effective_bits => 13", "write it as"),
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
    path.write_text("# bits\nwgmma.*.f32.e4m3.*: effective_bits >= 13\n\n*: status == confirmed\n")
    assert run("h200", "--file", str(path)).exit_code == 0
    path.write_text("wgmma.*.f32.e4m3.*: effective_bits >= 23")
    result = run("h200", "--file", str(path))
    assert result.exit_code == 1
    assert "found 13: wgmma.m64n{8,256}k32.f32.e4m3.{e4m3,e5m2}{,.rs}" in result.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [("\xff", "it is not text"), ("# nothing", "has no requirement: write one a line"), ("x", "requirement 'x': a field")],
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
