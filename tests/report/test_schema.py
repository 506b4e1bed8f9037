"""The published JSON Schema, and reports of every schema age."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_reports import BROKEN
from click.testing import CliRunner
from fakes import SIMULATED, report_data

from accprobe.cli import main
from accprobe.errors import ReportError
from accprobe.report import schema, schema_1
from accprobe.report.recorded import recorded
from accprobe.report.report import SCHEMA, Report

AGES = sorted((Path(__file__).parents[1] / "reports").glob("schema-*.json"))
ROOT = Path(__file__).parents[2]
WRITE = "write it again: python tests/support/golden.py"
RECORDED = [ROOT / "reports" / f"{name}.json" for name in recorded()]


@pytest.fixture(scope="module")
def validator() -> Any:
    published = json.loads(schema.FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_file_is_as_the_reader_has_it() -> None:
    assert json.loads(schema.FILE.read_text(encoding="utf-8")) == schema.schema(), (
        "write it again: python tests/support/golden.py"
    )


def test_it_is_no_recorded_report() -> None:
    assert "report.schema" not in recorded()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == "h100" else ())
        for path in [*AGES[-1:], *RECORDED]
    ],
)
def test_real_reports_are_valid(validator: Any, path: Path) -> None:
    validator.validate(json.loads(path.read_text(encoding="utf-8")))


def test_what_the_reader_refuses_by_name_type_or_range_is_not_valid(validator: Any) -> None:
    only_the_reader_tells = {
        "unknown instruction",
        "an instruction twice",
        "confirmed by no hardware",
        "simulated on hardware",
        "no model",
        "nothing verified",
        "nothing found",
        "confirmed, and a reason why not",
        "no rivals",
        "none of the rivals tried",
        "an opcode that did not run",
        "an opcode of no lowering",
        "evidence too short",
        "bytes",
        "truncated",
        "empty",
        "binary",
        "nested too deeply",
    }
    for what, (text, _) in BROKEN.items():
        if what not in only_the_reader_tells:
            assert not validator.is_valid(json.loads(text)), what
    assert validator.is_valid(report_data())


def test_there_is_a_report_of_every_age() -> None:
    assert [path.stem for path in AGES] == [f"schema-{age}" for age in range(1, SCHEMA + 1)]


def test_rivals_of_schema_1_keep_every_word() -> None:
    """Text that named the sum and further fields becomes values."""
    old = {
        "field": "result_bits",
        "value": "12 in the sum with product 8 and alignment_rounding floor and min_exponent none",
    }
    data = report_data() | {"schema": 1}
    row = next(row for row in data["instructions"] if "rivals" in row)
    row["rivals"] = {"tried": 3, "survived": [old, {"field": "order", "value": "[[c 0-15] 16-31]"}]}
    report = Report.model_validate_json(schema_1.converted(json.dumps(data).encode()))
    one, other = next(each.alternatives for each in report.instructions if each.name == row["name"]).surviving
    assert one.changes == (("result_bits", 12), ("alignment_rounding", "floor"), ("min_exponent", None))
    assert one.where == "the sum with product 8"
    assert str(one) == f"{old['field']} {old['value']}"
    assert (other.changes, other.where) == ((("order", "[[c 0-15] 16-31]"),), "")


def test_simulated_rows_of_schema_1_were_confirmed() -> None:
    data = report_data(device=SIMULATED) | {"schema": 1}
    data["instructions"][2] |= {"status": "inferred", "reason": "3 differ"}
    report = Report.model_validate_json(schema_1.converted(json.dumps(data).encode()))
    told = [(row.status, row.reason) for row in report.instructions]
    assert told == [("skipped", "no probe"), ("simulated", ""), ("simulated", "3 differ"), ("simulated", "")]


def test_an_older_schema_is_read_and_said_to_be(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["show", str(AGES[0])])
    assert shown.exit_code == 0
    assert shown.stderr.startswith(f"accprobe: {AGES[0]} is of schema 1, read as schema {SCHEMA}: `accprobe show ")
    again = tmp_path / "again.json"
    again.write_text(CliRunner().invoke(main, ["show", str(AGES[0]), "--format", "json"]).stdout, encoding="utf-8")
    assert CliRunner().invoke(main, ["show", str(again)]).stderr == ""
    assert Report.read(again) == (Report.load(AGES[0]), SCHEMA)


@pytest.mark.parametrize("damage", [{"instructions": 3}, {"instructions": [{"name": "x", "rivals": {"survived": 4}}]}])
def test_a_damaged_report_of_schema_1_is_told_by_its_key(tmp_path: Path, damage: dict[str, object]) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(report_data() | {"schema": 1} | damage), encoding="utf-8")
    with pytest.raises(ReportError, match=r"old\.json: instructions"):
        Report.load(path)


@pytest.mark.parametrize("path", AGES, ids=lambda path: path.stem)
def test_report_of_that_age_loads_and_shows_what_it_has(path: Path) -> None:
    loaded = Report.load(path)
    by_name = {row.name: row for row in loaded.instructions}
    wgmma = by_name["wgmma.m64n8k32.f32.e4m3.e4m3"]
    assert (wgmma.findings["effective_bits"].value, wgmma.opcodes) == (13, ("QGMMA.64x8x32.F32.E4M3.E4M3",))
    assert wgmma.evidence
    assert wgmma.model is not None
    assert {row.status for row in loaded.instructions} == {"confirmed", "skipped"}
    for form in ("terminal", "markdown", "html", "json", "jsonl", "csv"):
        assert CliRunner().invoke(main, ["show", str(path), "--format", form]).exit_code == 0
    assert CliRunner().invoke(main, ["diff", str(path), str(path)]).exit_code == 0


COMMANDS = {
    "show": ["show", "{}"],
    "show as html": ["show", "{}", "--format", "html", "--no-plots"],
    "diff": ["diff", "{}", "sim:h100"],
    "diff, the other side": ["diff", "sim:h100", "{}"],
    "check": ["check", "{}", "--require", "*: status == confirmed"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_every_command_tells_file_key_and_reason_of_a_broken_report(
    tmp_path: Path, text: str, reason: str, command: list[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, [word.replace("{}", str(path)) for word in command])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"accprobe: {path}: {reason}")
    assert result.stderr.count("\n") == 1
