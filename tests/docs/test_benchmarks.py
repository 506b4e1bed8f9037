"""The programs of `benchmarks/`, and their recorded results that pages show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark import accuracy_lines, loaded, recorded

from accprobe import emulate
from accprobe.budget.accumulation import of_named
from accprobe.budget.error_report import BudgetRequest, entries
from accprobe.report.report import Report


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


def test_errors_on_hardware_are_those_of_the_model_and_mismatches_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in for torch's product has the bits of an H200, except in one element where the sums are never promoted."""
    pytest.importorskip("torch")

    def as_measured(a: Any, b: Any, one: Any, two: Any, out_dtype: Any, use_fast_accum: bool) -> Any:
        d = emulate.predict("h200:wgmma.m64n8k32.f32.e4m3.e4m3", a, b, promote_every=None if use_fast_accum else 128)
        d[-1, -1] += use_fast_accum
        return d

    benchmark = loaded("accuracy_gpu")
    monkeypatch.setattr(benchmark, "KS", (256,))
    monkeypatch.setattr(benchmark.Gpu, "about", lambda self: {"device": "none"})
    monkeypatch.setattr("torch._scaled_mm", as_measured)
    monkeypatch.setattr("sys.argv", ["accuracy_gpu.py", "--device", "cpu", "--side", "128", "-o", str(tmp_path / "r.json")])
    assert benchmark.main() == 1
    found = json.loads((tmp_path / "r.json").read_text())["lines"]
    assert [line["differ"] for line in found] == [1, 0, 1, 0]
    for line, entry in zip(found, entries(of_named(benchmark.LIKE), BudgetRequest(ks=(256,))), strict=True):
        assert line["differ"] or line["relative_error"] == pytest.approx(entry.errors.relative_error, rel=1e-9)


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
