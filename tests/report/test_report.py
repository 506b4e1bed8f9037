"""Reports as files: written, read, refused, and as their JSON Schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_reports import BROKEN
from fakes import fake_report, float_row, report_data

from accprobe.errors import ReportError
from accprobe.report import recorded
from accprobe.report.report import SCHEMA_FILE, Report, schema

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"


def test_saved_report_loads_as_it_was_and_saving_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    fake_report().save(path)
    first = path.read_bytes()
    assert Report.load(path) == fake_report()
    Report.load(path).save(path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]
    path.write_bytes(b"\xef\xbb\xbf" + first)
    assert Report.load(path) == fake_report()


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_report_is_refused_with_file_key_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReportError) as caught:
        Report.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {reason}")
    assert ("newer" in message) == ("newer" in reason)
    assert "\n" not in message


def test_other_bytes_folders_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_bytes(b'{"schema": "\xff\xfe"}')
    with pytest.raises(ReportError, match="not JSON"):
        Report.load(tmp_path / "broken.json")
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        Report.load(tmp_path)
    with pytest.raises(ReportError, match="sim:h100 is a device; `accprobe run --device sim:h100 -o FILE` makes a report"):
        Report.load("sim:h100")


def test_recorded_report_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    fake_report().save(tmp_path / "reports" / "mine.json")
    monkeypatch.setattr(recorded, "data_folder", lambda name: tmp_path / name)
    assert recorded.recorded() == ["mine"]
    assert Report.load("mine") == fake_report()
    with pytest.raises(ReportError, match=r"no recorded report 'min'; did you mean mine\?"):
        Report.load("min")


@pytest.mark.parametrize(
    ("against", "words"),
    [
        ({"contradicting": 7, "results": 9}, "and 7 contradict it"),
        ({"results": 9}, "no events were counted"),
        (
            {"events": {"hit": 3, "possible": 4, "missing": ["tie"]}},
            "3 of 4 events of the model were covered; not covered: tie",
        ),
        ({"events": {"hit": 5, "possible": 4}}, "5 of 4 events of the model were covered"),
        ({"tile": {"covered": 3, "total": 512}}, "3 of the 512 tile elements were covered"),
        ({"tile": {"covered": 512, "total": 512, "differing": "row 3"}}, "tile elements differ: row 3"),
    ],
)
def test_a_confirmed_row_that_its_verification_contradicts_is_refused(against: dict[str, object], words: str) -> None:
    row = float_row(WGMMA, 13, {"QGMMA": 1})
    row["verification"] |= against
    with pytest.raises(ValueError, match=words):
        fake_report(row)


@pytest.fixture(scope="module")
def validator() -> Any:
    published = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_is_the_reader_s() -> None:
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == schema(), "write it: python tests/support/golden.py"


@pytest.mark.parametrize("name", [name for name in recorded.recorded() if "h100" not in name])
def test_recorded_reports_are_valid(validator: Any, name: str) -> None:
    """Every twentieth claim: the reader, whose schema it is, checks all."""
    data = json.loads(recorded.find(name).read_text(encoding="utf-8"))
    validator.validate(data | {"claims": data["claims"][::20]})


ONLY_THE_READER = {
    "unknown instruction",
    "an instruction twice",
    "confirmed by no hardware",
    "simulated on hardware",
    "no model",
    "nothing verified",
    "nothing found",
    "confirmed, and a reason why not",
    "no alternatives",
    "an opcode that did not run",
    "an opcode of no lowering",
    "evidence too short",
    "truncated",
    "empty",
    "nested too deeply",
}
"""What the schema cannot express."""


@pytest.mark.parametrize("what", [name for name in BROKEN if name not in ONLY_THE_READER])
def test_the_schema_refuses_wrong_names_types_and_ranges(validator: Any, what: str) -> None:
    assert not validator.is_valid(json.loads(BROKEN[what][0]))
    assert validator.is_valid(report_data())
