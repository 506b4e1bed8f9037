"""Evidence beside a report."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fakes import fake_report

from accprobe.errors import ReportError
from accprobe.report.evidence import load_with_evidence, split
from accprobe.report.report import Report


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A report that is split in two files."""
    fake_report().save(tmp_path / "r.json")
    split(tmp_path / "r.json")
    return tmp_path / "r.json"


def test_a_split_report_is_the_same_with_its_evidence(path: Path) -> None:
    assert load_with_evidence(path) == fake_report()
    assert not any(row.evidence for row in Report.load(path).instructions)
    split(path)
    assert load_with_evidence(path) == fake_report()


def test_evidence_in_the_report_counts(path: Path) -> None:
    fake_report().save(path)
    path.with_name("r.evidence.json.gz").write_bytes(gzip.compress(b"{}"))
    assert load_with_evidence(path) == fake_report()


NAME = fake_report().measured[0].name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not gzip", "r.evidence.json.gz cannot be read: Not a gzipped file"),
        (gzip.compress(b'{"a": 1}'), "r.evidence.json.gz: a: input should be an object"),
        (
            gzip.compress(json.dumps({NAME: {"order": [["00", "00", "00", "00"]]}}).encode()),
            "r.evidence.json.gz: evidence.order.0: it has 2, 2, 2, 2 hex digits",
        ),
    ],
    ids=["no gzip", "another form", "of another instruction"],
)
def test_a_broken_file_is_named_with_the_reason(path: Path, content: bytes, reason: str) -> None:
    path.with_name("r.evidence.json.gz").write_bytes(content)
    with pytest.raises(ReportError) as error:
        load_with_evidence(path)
    assert str(error.value).startswith(reason)
