"""The programs of `benchmarks/`, and their recorded results that pages show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmark import loaded, recorded

from accprobe.report.report import Report


def accuracy_lines(table: str, **values: object) -> list[dict[str, Any]]:
    """Return the lines of an accuracy table that have these values."""
    lines = recorded("accuracy/h200.json")[table]
    return [line for line in lines if all(line[name] == value for name, value in values.items())]


def check(found: Iterator[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for each, line in zip(found, expected, strict=True):
        assert each.keys() == line.keys()
        for name, value in line.items():
            assert each[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float | list) else value)


def test_accuracy_tables_are_what_the_benchmark_computes() -> None:
    """The cheap lines of each table."""
    benchmark, cheap = loaded("accuracy"), (128,)
    check(benchmark.over_k(cheap), [each for each in accuracy_lines("over_k") if each["k"] in cheap])
    check(benchmark.attention((1024,)), accuracy_lines("attention", k=1024))
    check(benchmark.integers(), accuracy_lines("integers"))
    check(benchmark.outliers(), accuracy_lines("outliers"))
    check(iter([benchmark.softmax()]), accuracy_lines("softmax"))


def test_recorded_rates_of_evaluators_are_within_the_limits() -> None:
    results = recorded("evaluators/cpu.json")["results"]
    assert not any(result["differ"] for result in results)
    limited = [result for result in results if result["limit"]]
    assert {result["instruction"] for result in limited} == {
        name for name, limit in loaded("evaluators").CASES.items() if limit
    }
    assert all(result["macs_per_second"] >= result["limit"] for result in limited)


def test_recorded_verification_is_of_every_row() -> None:
    data = recorded("verified/h200.json")
    assert [row["name"] for row in data["verified"]] == [row.name for row in Report.load("h200").measured]
    assert all(row["dots"] >= 10**9 and not row["mismatches"] for row in data["verified"])
