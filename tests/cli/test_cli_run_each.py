"""`accprobe run --device all`: one GPU of each kind is measured, the others of its kind are verified against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from accprobe.cli import main
from accprobe.devices.simulated import SimulatedDevice, simulated_device
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.report.report import Report

NAME = "mma.sync.m16n8k8.f32.bf16.bf16.f32"


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(main, ["run", "--select", NAME, "--dots", "2000", *arguments])


def test_one_of_each_kind_is_measured_and_the_others_are_verified(tmp_path: Path) -> None:
    result = run("--device", "sim:l40s,sim:a100,sim:ada", "-o", str(tmp_path / "report.json"))
    assert result.exit_code == 0, result.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report-simulated-a100.json", "report-simulated-l40s.json"]
    assert Report.load(tmp_path / "report-simulated-a100.json").device.name == "simulated A100"
    assert "sim:ada computes as sim:l40s does: 1 instruction, 2,000 dot products, none differs" in result.stderr


def test_one_kind_alone_has_the_name_that_was_given(tmp_path: Path) -> None:
    result = run("--device", "sim:l40s,sim:ada", "-o", str(tmp_path / "report.json"))
    assert result.exit_code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_one_that_differs_from_the_first_of_its_kind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    inst = parse(NAME)
    right = simulated_device("h100").model(inst)
    wrong = right.with_arithmetic(lambda has: replace(has, alignment_bits=20))

    def opened(name: str) -> SimulatedDevice:
        models: Mapping[Instruction, DotModel] = {inst: wrong if name == "sim:h200" else right}
        return SimulatedDevice(models, "simulated H100")

    monkeypatch.setattr("accprobe.survey.run.open_device", opened)
    monkeypatch.setattr("accprobe.devices.open_device", opened)
    result = run("--device", "sim:h100,sim:h200")
    assert result.exit_code == 1
    assert f"sim:h200 differs from sim:h100 in 1 of 1 instruction; {NAME}: k " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--device", "sim:h100,sim:a100", "--format", "json"], "these are 2 kinds of GPUs with a report each: give -o FILE"),
        (["--device", "all", "--ncu"], "--ncu, --record and --time-limit are for one device"),
        (["--device", "all"], "there is no GPU: "),
    ],
)
def test_what_cannot_be(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
