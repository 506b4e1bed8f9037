"""The published JSON Schema, and reports of every schema age."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_reports import BROKEN
from click.testing import CliRunner
from fakes import report_data

from accprobe.cli import main
from accprobe.report import report, schema
from accprobe.report.report import SCHEMA, Report, recorded

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
    assert "report.schema" not in report.recorded()


@pytest.mark.parametrize(
    "path", [*AGES, *(ROOT / "reports" / f"{name}.json" for name in recorded())], ids=lambda path: path.stem
)
def test_real_reports_are_valid(validator: Any, path: Path) -> None:
    validator.validate(json.loads(path.read_text(encoding="utf-8")))


def test_what_the_reader_refuses_by_name_type_or_range_is_not_valid(validator: Any) -> None:
    only_the_reader_tells = {
        "unknown instruction",
        "an instruction twice",
        "no model",
        "nothing verified",
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
