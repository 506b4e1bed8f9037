"""The published JSON Schema, and reports of every schema age."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_reports import BROKEN
from fakes import report_data

from accprobe.report import schema
from accprobe.report.recorded import recorded

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
    [pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == "h100" else ()) for path in RECORDED],
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
