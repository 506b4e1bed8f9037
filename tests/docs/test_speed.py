"""docs/speed.md and the benchmarks that fill it: what they conclude, and what of them is recorded. None is run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benchmark import loaded
from block_forms import RESULTS, ROOT

from accprobe.isa.instructions import parse
from accprobe.report.report import Report

SPEED = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
TIMED = sorted(RESULTS.glob("*.json"))


@pytest.fixture
def commands() -> ModuleType:
    return loaded("commands")


def test_a_gpu_is_measured_with_an_empty_cache_and_again_with_that_cache(
    commands: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty: list[bool] = []

    def seconds(arguments: str, **environment: str) -> float:
        if arguments.startswith("gemm"):
            assert "4096x4096x4096" in arguments
            return 6.0
        assert arguments == "run --device sim:h100"
        folder = Path(environment["ACCPROBE_CACHE_DIR"])
        empty.append(not any(folder.iterdir()))
        (folder / "cubin").touch()
        return 20.0 if empty[-1] else 5.0

    monkeypatch.setattr(commands, "seconds", seconds)
    monkeypatch.setattr("sys.argv", ["commands.py", "--device", "sim:h100", "-o", str(tmp_path / "new" / "r.json")])
    assert commands.main() == 0
    assert empty == [True, False]
    data = json.loads((tmp_path / "new" / "r.json").read_text())
    assert data["host"]["cpu_cores"] == len(os.sched_getaffinity(0))
    assert data["host"]["architecture"] == "sm_90a"
    assert [(r["state"], r["seconds"], r["limit"]) for r in data["results"]] == [
        ("empty cache", 20.0, 60.0),
        ("warm cache", 5.0, 15.0),
        *[("every output", 6.0, 15.0)] * 2,
    ]
    assert "limit  60.0 s  ratio 0.33" in capsys.readouterr().out


def test_slower_than_the_limit_is_a_failure(commands: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "seconds", lambda arguments, **_: 11.0)
    monkeypatch.setattr("sys.argv", ["commands.py", "--repeat", "1"])
    assert commands.main() == 1


def test_recorded_rates_of_evaluators_are_within_the_limits() -> None:
    data = json.loads((RESULTS / "evaluators" / "cpu.json").read_text(encoding="utf-8"))
    limited = [result for result in data["results"] if result["limit"]]
    limits = {result["instruction"]: result["limit"] for result in limited}
    assert limits == {name: limit for name, limit in loaded("evaluators").CASES.items() if limit}
    assert all(result["macs_per_second"] >= result["limit"] and result["cores"] == 1 for result in limited)
    assert data["host"]["cpu_cores"] == 2
    assert not any(result["differ"] for result in data["results"])


def test_recorded_rates_of_evaluators_on_a_gpu_are_within_the_limits() -> None:
    data = json.loads((RESULTS / "evaluators" / "h200.json").read_text(encoding="utf-8"))
    assert data["host"]["device"] == "NVIDIA H200"
    assert loaded("evaluators_gpu").failures(data) == []
    assert all(row["dots"] >= 10**9 for row in data["verified"])
    assert len(data["chains"]) == len(data["dots"]) == 12


def test_recorded_verification_is_of_a_gpu_and_of_every_row() -> None:
    path = RESULTS / "verified" / "h200.json"
    if not path.exists():
        pytest.skip("not recorded")
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["device"] == {"kind": "cuda", "name": "NVIDIA H200", "architecture": "sm_90a"}
    assert [row["name"] for row in data["verified"]] == [row.name for row in Report.load("h200").measured]
    assert all(row["dots"] >= 10**9 and not row["mismatches"] for row in data["verified"])


def test_what_a_gpu_falls_short_of_is_told() -> None:
    benchmark = loaded("evaluators_gpu")
    path = RESULTS / "evaluators" / "h200.json"
    for key, change, sentence in (
        ("chains", {"differ": 3}, "wgmma.m64n256k32.f32.e4m3.e4m3: 3 differ"),
        ("chains", {"macs_per_second": 6e12}, "wgmma.m64n256k32.f32.e4m3.e4m3: not above 6.6e+12 MAC/s"),
        ("on_matrix_units", {"differ": 2}, "wgmma.m64n256k32.f32.e4m3.e4m3: 2 differ"),
        ("verified", {"mismatches": 1}, "wgmma.m64n256k32.f32.e4m3.e4m3: 1 mismatches"),
    ):
        data = json.loads(path.read_text(encoding="utf-8"))
        data[key][0].update(change)
        assert benchmark.failures(data) == [sentence]


@pytest.mark.parametrize(
    ("limit", "differ", "status"), [(1.0, 0, 0), (1e15, 0, 1), (1.0, 3, 1)], ids=["right", "too slow", "wrong"]
)
def test_evaluators_are_held_against_each_other(
    limit: float, differ: int, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file is written; what differs from numpy's answers, or is too slow, fails."""
    evaluators = loaded("evaluators")
    right, other = np.zeros((4, 4), np.uint32), np.zeros((4, 4), np.uint32)
    other[0, :differ] = 1
    ways = [evaluators.Way("numpy", 1, lambda: right), evaluators.Way("tiles", 1, lambda: other)]
    monkeypatch.setattr(evaluators, "own", lambda *_: ways)
    monkeypatch.setattr(evaluators, "CASES", {"mma.sync.m16n8k32.f32.e4m3.e4m3.f32": limit})
    monkeypatch.setattr("sys.argv", ["evaluators.py", "--repeat", "1", "-o", str(tmp_path / "r.json")])
    assert evaluators.main() == status
    numpy, tiles = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (numpy["with"], numpy["differ"], numpy["limit"]) == ("numpy", 0, None)
    assert (tiles["with"], tiles["differ"], tiles["limit"]) == ("tiles", differ, limit)


def test_a_slow_peer_gets_the_first_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """MMA-Sim as its source has it: one tile of the instruction at a time. Here both sum exactly, and round once."""
    pytest.importorskip("torch")
    calls = []

    class Unit:
        def __init__(self, architecture: str, name: str) -> None:
            assert (architecture, name) == ("Hopper", "m64n8k32.f32.e4m3.e4m3")

        def __call__(self, a: Any, b: Any, c: object) -> object:
            calls.append(1)
            return (a.double() @ b.double()).float()

    for name in ("mmasim", "mmasim.nv_ptx", "mmasim.nv_ptx.sim"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["mmasim.nv_ptx.sim"].WGMMA = Unit  # type: ignore[attr-defined]
    evaluators = loaded("evaluators")

    def own(inst: object, model: object, a: np.ndarray, b: np.ndarray) -> list[object]:
        exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
        return [evaluators.Way("numpy", 1, lambda: exact.view(np.uint32))]

    monkeypatch.setattr(evaluators, "own", own)
    monkeypatch.setattr(evaluators, "PRODUCTS", 32)
    results = list(evaluators.measured(parse("wgmma.m64n8k32.f32.e4m3.e4m3"), 1))
    (peer,) = [result for result in results if result["with"] == "MMA-Sim"]
    assert peer["differ"] == 0
    assert len(calls) == 2 * evaluators.SLOW_COLUMNS // 8


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.name)
def test_recorded_results_above_a_limit_are_told(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["results"]
    (told,) = (" ".join(each.split()) for each in SPEED.split("\n\n") if each.startswith("Above its limit"))
    place = f", on an {data['host']['device']}" if "device" in data["host"] else ""
    named = [result for result in data["results"] if f"`{result['command']}`, {result['state'] or 'no GPU'}{place}" in told]
    assert named == [result for result in data["results"] if result["seconds"] > result["limit"]]
