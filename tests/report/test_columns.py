"""The flat forms of a report."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from click.testing import CliRunner
from fakes import SPARSE, fake_report

from accprobe.cli import main
from accprobe.report.columns import records
from accprobe.report.report import Report

REPORT = Report.load("h200")
ONE = "wgmma.m64n8k32.f32.e4m3.e4m3"


@pytest.fixture(scope="module")
def flat() -> list[dict[str, Any]]:
    return list(records(REPORT))


@pytest.mark.parametrize("name", ["h200", "products-h200", "functions-h200"])
def test_csv_has_every_row_and_the_same_values(name: str) -> None:
    result = CliRunner().invoke(main, ["show", name, "--format", "csv"])
    assert (result.exit_code, result.stderr) == (0, "")
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in records(Report.load(name))]
    assert list(csv.DictReader(io.StringIO(result.stdout))) == expected


def test_columns_are_scalars_and_the_same_for_every_report(flat: list[dict[str, Any]]) -> None:
    assert {tuple(row) for row in flat} == {tuple(next(records(fake_report())))}
    assert all(isinstance(value, int | float | str | None) for row in flat for value in row.values())
    assert {name for row in REPORT.measured for name in row.findings} <= set(flat[0])


def test_values_are_those_of_the_report(flat: list[dict[str, Any]]) -> None:
    row = next(row for row in flat if row["name"] == ONE)
    assert (row["device"], row["architecture"], row["driver"]) == ("NVIDIA H200", "sm_90a", REPORT.environment["driver"])
    assert (row["family"], row["k"], row["a"], row["ran_as"]) == ("wgmma", 32, "e4m3", "QGMMA")
    assert (row["effective_bits"], row["effective_bits_bound"], row["effective_bits_candidates"]) == (13, "exact", None)
    assert (row["overflow_bound"], row["overflow_candidates"]) == ("undetermined", "infinity | largest")
    assert (row["compared"], row["mismatches"]) == (1_003_274, 0)


def test_exact_sums_differ_from_unknown_ones(flat: list[dict[str, Any]]) -> None:
    exact = next(row for row in flat if row["name"] == "mma.sync.m8n8k4.f64.f64.f64.f64")
    skipped = next(records(fake_report({"name": SPARSE, "status": "skipped", "reason": "no probe"})))
    assert (exact["alignment_bits"], exact["alignment_bits_bound"]) == (None, "exact")
    assert (skipped["alignment_bits"], skipped["alignment_bits_bound"]) == (None, None)
