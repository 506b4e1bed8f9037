"""`accprobe sweep`: whole commands on published models, what they write, and what they say of bad input."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from compiled import needs

from accprobe.records.sweeps import SweepRecord
from accprobe.report.report import Report

pytest.importorskip("triton")
needs("nvdisasm")

SMALL = ("--device", "sim:h100", "--k", "512")


sweep = partial(invoke, "sweep", columns=130)


def recorded(**wanted: object) -> list[SweepRecord]:
    """Sweeps in the report of the H200."""
    every = (each for each in Report.load("h200").sweeps if each.promote_every is None)
    return [each for each in every if all(getattr(each, key) == value for key, value in wanted.items())]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """e4m3 at one block-K, as `accprobe sweep --device sim:h100` has it."""
    path = tmp_path_factory.mktemp("sweep") / "report.json"
    result = sweep("--device", "sim:h100", "--block-k", "128", "--num-warps", "4", "-o", str(path))
    assert (result.exit_code, result.stderr) == (0, "")
    return Report.load(path)


def test_simulation_concludes_what_the_h200_showed(simulated: Report) -> None:
    assert simulated.device.kind == "simulated"
    assert len(simulated.sweeps) == 2
    for each in simulated.sweeps:
        (measured,) = recorded(dtype="e4m3", operands=each.operands, block_k=each.block_k, num_warps=each.num_warps)
        assert (each.opcodes, each.lowering) == (measured.opcodes, measured.lowering)
        assert each.effective_bits is not None
        assert each.effective_bits == measured.effective_bits
        assert each.relative_error == pytest.approx(measured.relative_error, rel=0.25)


def test_recorded_sweeps_are_as_predicted() -> None:
    found = [each.prediction for each in Report.load("h200").sweeps if each.prediction]
    assert len(found) > 150
    assert {each.differ for each in found} == {0}
    full = [each for each in recorded(operands="full-width") if each.prediction]
    assert len(full) > 70
    assert all(each.prediction and each.effective_bits == each.prediction.effective_bits for each in full)


def test_whole_output_says_simulated_and_has_no_empty_column() -> None:
    result = sweep(*SMALL, "--block-k", "32,128", "--num-warps", "2,4")
    assert (result.exit_code, result.stderr) == (0, "")
    text = re.sub(r"Triton [\d.]+", "Triton N", result.stdout)
    assert text.startswith("SIMULATED: these are published models, nothing was measured\n")
    shown = [line.rstrip() for line in text[text.index("Truncation") :].splitlines()]
    assert "Bits kept by partial sums of a Triton GEMM: e4m3: QGMMA 13 (e8m13), HMMA 23 (f32)" in text
    assert shown[: shown.index("") + 8] == [
        "Truncation-mask sweep: m 64, n 64, k 512, blocks of 64 × 64; Triton N",
        "",
        "operand                            bits kept,  bits kept,   relative",
        "type     warps  block-K  ran as    normal      full-width      error",
        "─" * 68,
        "e4m3         2       32  32×HMMA   ≥21         23 (f32)    3.7e-07 %",
        "             2      128  128×HMMA  ≥23         23 (f32)    3.7e-07 %",
        "             4       32  1×QGMMA   13 (e8m13)  13 (e8m13)   0.0044 %",
        "             4      128  4×QGMMA   13 (e8m13)  13 (e8m13)    0.013 %",
    ]


def test_report_keeps_other_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for block_k in ("32", "64", "64"):
        arguments = ("--block-k", block_k, "--num-warps", "4", "-o", str(path))
        assert sweep(*SMALL, *arguments).exit_code == 0
    assert [each.block_k for each in Report.load(path).sweeps] == [32, 32, 64, 64]
    assert Path(f"{path}~").is_file()
    shown = invoke("show", str(path), columns=130)
    assert shown.exit_code == 0
    assert "SIMULATED" in shown.stdout
    assert "13 (e8m13)" in shown.stdout
    markdown = invoke("show", str(path), "--all", "--format", "markdown").stdout
    assert "| e4m3 | 4 | 64 | 2×QGMMA |" in markdown
    assert "SIMULATED" in markdown


def test_interruption_prints_the_rows_so_far(simulated: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Iterator[SweepRecord]:
        yield simulated.sweeps[0]
        raise KeyboardInterrupt

    monkeypatch.setattr("accprobe.sweep.sweeper.Sweeper.records", stopped)
    result = sweep(*SMALL)
    assert (result.exit_code, "e4m3: QGMMA 13 (e8m13)" in result.stdout) == (130, True)


def test_without_triton_the_line_that_installs_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError("No module named 'triton'", name="triton")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    result = sweep("--device", "sim:h100")
    told = (
        "Triton, for the sweep's kernel, cannot be imported (No module named 'triton'): python3 -m pip install -e '.[sweep]' in"
    )
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"accprobe: {told} accprobe's checkout\n")


def test_a_triton_that_fails_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", "ptxas")

    monkeypatch.setattr("triton.compiler.compile", compile)
    result = sweep("--device", "sim:h100", "--num-warps", "4", "--block-k", "64")
    assert result.exit_code == 2
    assert result.stderr.startswith("accprobe: none of the configurations can be swept here: Triton ")
