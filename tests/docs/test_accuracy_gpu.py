"""What benchmarks/accuracy_gpu.py computes, with a stand-in for the hardware; on a CPU torch adds up otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark import loaded

from accprobe import emulate
from accprobe.budget.accumulation import of_instruction
from accprobe.budget.error_report import BudgetRequest, entries

K = 256


@pytest.fixture
def benchmark_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch")
    module = loaded("accuracy_gpu")
    monkeypatch.setattr(module, "KS", (K,))
    monkeypatch.setattr(module.Gpu, "about", lambda self: {"device": "none"})
    return module


def as_measured(a: Any, b: Any, one: Any, _: Any, out_dtype: Any, use_fast_accum: bool) -> Any:
    """What an H200 has."""
    return emulate.matmul(a, b, like="h200:wgmma.m64n8k32.f32.e4m3.e4m3", promote_every=None if use_fast_accum else 128)


def run(module: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["accuracy_gpu.py", "--device", "cpu", "--side", "128", "-o", str(path)])
    status: int = module.main()
    return status


def test_its_errors_are_those_of_the_account_where_the_bits_are_equal(
    benchmark_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch._scaled_mm", as_measured)
    assert run(benchmark_gpu, tmp_path / "new" / "hardware.json", monkeypatch) == 0
    told = json.loads((tmp_path / "new" / "hardware.json").read_text())
    account = entries(of_instruction(benchmark_gpu.LIKE), BudgetRequest(ks=(K,)))
    for line, entry in zip(told["lines"], account, strict=True):
        assert (line["data"], line["k"], line["promote_every"]) == (entry.data, entry.k, entry.promote_every)
        assert (line["words"], line["differ"], line["outputs"]) == (128 * 1024, 0, entry.errors.outputs)
        assert line["relative_error"] == pytest.approx(entry.errors.relative_error, rel=1e-9)
        assert line["bias"] == pytest.approx(entry.errors.bias, rel=1e-9)


def test_every_word_that_differs_is_counted(benchmark_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of all repeated ones."""

    def wrong_once(a: Any, b: Any, one: Any, two: Any, out_dtype: Any, use_fast_accum: bool) -> Any:
        d = as_measured(a, b, one, two, out_dtype, use_fast_accum)
        d[-1, -1] += use_fast_accum
        return d

    monkeypatch.setattr("torch._scaled_mm", wrong_once)
    assert run(benchmark_gpu, tmp_path / "hardware.json", monkeypatch) == 1
    told = json.loads((tmp_path / "hardware.json").read_text())
    assert [line["differ"] for line in told["lines"]] == [1, 0, 1, 0]


def test_it_asks_torch_s_product(benchmark_gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A CPU adds up in f32: about right, and not the GPU's bits."""
    assert run(benchmark_gpu, tmp_path / "hardware.json", monkeypatch) == 1
    lines = json.loads((tmp_path / "hardware.json").read_text())["lines"]
    assert all(line["differ"] > 0.5 * line["words"] and line["relative_error"] < 1e-6 for line in lines)
