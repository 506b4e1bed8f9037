import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import heed_ctrl_c, invoke, time_limit_can_end
from fakes import DENSE, FakeDevice, fake_report
from planted_processor import planted

from accprobe.devices import open_device
from accprobe.errors import DeviceError
from accprobe.infer.falsification import Falsification
from accprobe.isa.instructions import parse
from accprobe.model.tree import DotModel, IntegerArithmetic, chain
from accprobe.report.report import Report
from accprobe.report.words import so_many
from accprobe.survey import row as rows
from accprobe.survey import run as survey_run


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """The device that `cuda:0` is."""
    fake = FakeDevice()
    monkeypatch.setattr(survey_run, "open_device", lambda name: fake)
    monkeypatch.setattr(rows, "falsify", lambda *_: Falsification(7, ()))
    return fake


run = partial(invoke, "run", "--device", "cuda:0", "--jobs", "1", "--dots", "300")


def test_a_run_of_confirmed_rows_ends_with_status_0(device: FakeDevice) -> None:
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Fake GPU: 2 of 2 instructions confirmed\n")
    assert "\n176 of 176 events covered (not counted: 2 for which no operands were found, 0 that" in result.stdout


def test_json_on_standard_output_is_the_report(device: FakeDevice) -> None:
    result = run("--format", "json")
    assert result.exit_code == 0
    assert [row.status for row in Report.model_validate_json(result.stdout).measured] == ["confirmed", "confirmed"]


@pytest.mark.parametrize(
    ("rows", "kept"),
    [(2, "{path} has 1 row"), (1, "nothing was measured yet"), (None, "nothing was measured yet")],
)
def test_a_time_limit_keeps_the_rows_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int | None, kept: str
) -> None:
    whole, path = fake_report(), tmp_path / "r.json"

    def stopped(device: str, select: Any, dots: int, seed: int, jobs: int, on_row: Any, *_: Any) -> None:
        if rows:
            on_row(whole.with_claims(whole.claims[:rows]), [])
        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(survey_run, "survey", stopped)
    with time_limit_can_end():
        result = run("--time-limit", "100", "-o", str(path))
    sentence = f"accprobe: stopped after 100 s (--time-limit): {kept.format(path=path)}\n"
    assert (result.exit_code, result.stderr) == (1, sentence)
    assert path.exists() == (rows is not None)
    if rows:
        assert f"The run stopped early: {4 - rows} of 3 instructions not measured" in result.stdout
        assert len(Report.load(path).instructions) == rows


def test_row_that_is_not_confirmed_gives_status_1(device: FakeDevice) -> None:
    device.opcodes = None
    result = run()
    assert result.exit_code == 1
    assert "unverified: which opcode ran is not known: see `accprobe doctor`" in result.stdout


def test_selecting_only_what_is_skipped_gives_status_2(device: FakeDevice) -> None:
    result = run("--select", "mma.sp*")
    assert result.exit_code == 2
    assert result.stderr == "accprobe: the selected instruction cannot be measured here: no probe\n"


def test_dying_device_gives_status_2_and_keeps_what_was_measured(device: FakeDevice, tmp_path: Path) -> None:
    def spoil(inst: object, d: object) -> object:
        if str(inst) != DENSE or dead:
            dead.append(True)
            raise DeviceError("illegal address")
        return d

    dead: list[bool] = []
    path = tmp_path / "r.json"
    device.spoil = spoil
    result = run("-o", str(path))
    assert (result.exit_code, result.stderr) == (2, "accprobe: Fake GPU stopped working: illegal address\n")
    assert [row.name for row in Report.load(path).measured] == [DENSE]


def test_interruption_in_this_process_keeps_what_was_measured(device: FakeDevice, tmp_path: Path) -> None:
    def spoil(inst: object, d: object) -> object:
        if str(inst) != DENSE:
            raise KeyboardInterrupt
        return d

    path = tmp_path / "r.json"
    device.spoil = spoil
    result = run("-o", str(path))
    assert (result.exit_code, result.stderr) == (130, f"accprobe: interrupted: {path} has 1 row\n")
    assert [row.name for row in Report.load(path).measured] == [DENSE]
    result = run()
    assert (result.exit_code, result.stderr) == (
        130,
        "accprobe: interrupted: 1 row measured; use -o FILE to keep the results\n",
    )
    assert "The run stopped early: 1 of 2 instructions not measured" in result.stdout


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.build.driver.gpus", lambda: (0, "there is no NVIDIA driver"))
    monkeypatch.setattr("accprobe.build.processor.explain_missing_instructions", lambda: "Old has no avx512_vnni")


SOME = ("--select", "mma.sync.m8n8k16.s32.s8.s8.s32")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_simulation_is_loud_and_confirms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result = invoke("run", *SOME, "-o", str(path))
    assert result.stderr == (
        "accprobe: SIMULATED: no GPU found (there is no NVIDIA driver); using simulated H100\n"
        "accprobe: the processor is not measured: Old has no avx512_vnni\n"
    )
    told = json.loads(path.read_text())
    assert (told["device"]["kind"], told["device"]["reason"]) == ("simulated", "there is no NVIDIA driver")
    assert [(row["status"], row.get("reason", "")) for row in told["claims"]] == [("simulated", "")]
    assert result.exit_code == 0
    for form in ("terminal", "markdown", "csv", "json"):
        shown = invoke("show", str(path), "--format", form).stdout
        assert "simulated" in shown
        assert "confirmed" not in result.stdout + shown


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "command",
    ["run --device gpu", "verify h200 --device gpu", "sweep --device cuda:0", "health", "health --device cuda:0", "function"],
)
def test_a_missing_gpu_is_named_alike(command: str) -> None:
    result = invoke(*command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    without = "a CALLABLE such as numpy:exp needs none" if command == "function" else "--device sim:NAME "
    assert result.stderr.startswith(
        f"accprobe: no GPU found (there is no NVIDIA driver); `accprobe doctor` shows what is missing; {without}"
    )


def test_gpu_and_auto_are_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.build.driver.explain_missing_gpu", lambda: None)
    monkeypatch.setattr("accprobe.devices.cuda.CudaDevice", lambda index: f"GPU {index}")
    assert [open_device(name) for name in ("gpu", "auto", "cuda:1")] == ["GPU 0", "GPU 0", "GPU 1"]


@contextmanager
def running(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run on two workers, of a group of its own, that has rows in the file; nothing of it is left where it fails."""
    options = ["--device", "sim:h100", "--select", "*.s32.*", "--jobs", "2", "-o", str(path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "accprobe", "run", *options]
    with subprocess.Popen(command, **pipes, start_new_session=True, preexec_fn=heed_ctrl_c) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (path.exists() and Report.load(path).measured):
                time.sleep(0.05)
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def test_ctrl_c_again_and_again_ends_the_workers_and_keeps_what_was_measured(tmp_path: Path) -> None:
    """SIGTERM and a signal to the parent alone are in test_interrupts.py."""
    path = tmp_path / "r.json"
    with running(path) as process:
        for _ in range(3):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.03)
        stdout, stderr = process.communicate(timeout=30)
    kept = Report.load(path)
    assert len(kept.measured) > 0
    assert len(kept.instructions) < kept.run.selected
    known = so_many(len(kept.measured), "row")
    assert stderr == f"accprobe: interrupted: {path} has {known}\n"
    assert (process.returncode, stdout) == (130, "")
    assert not alive_in_group(process.pid)


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with running(path) as process:
        process.kill()
        process.wait()
        alive = alive_in_group(process.pid)
        if alive:
            os.killpg(process.pid, signal.SIGKILL)
    assert not alive
    assert Report.load(path).measured


def alive_in_group(group: int, patience: float = 5) -> bool:
    """Whether a process of the group outlives the others for long."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_processor_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inst = parse("VPDPBUSDS")
    monkeypatch.setattr("accprobe.build.processor.explain_missing_instructions", lambda: None)
    planted(monkeypatch, {"VPDPBUSDS": DotModel(chain([range(inst.k)], IntegerArithmetic(inst.d, "saturate")))})
    path = tmp_path / "r.json"
    result = invoke("run", "--jobs", "1", "-o", str(path), columns=160)
    assert result.exit_code == 0
    assert result.stderr.startswith("accprobe: no GPU found (there is no NVIDIA driver); measuring the processor, ")
    assert result.output.count("no GPU found") == 1
    assert "VPDPBUSDS" in result.stdout
    report = Report.load(path)
    assert (report.device.kind, report.device.reason) == ("cpu", "there is no NVIDIA driver")
    assert [row.status for row in report.measured] == ["confirmed"]


def test_a_file_that_is_no_report_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text("{}")
    result = invoke("run", "--device", "sim:h100", "--select", "QGMMA", "-o", str(file))
    assert (result.exit_code, result.stderr) == (
        2,
        f"accprobe: -o {file} exists and is not a report of this accprobe; give another name\n",
    )
    assert [path.read_text() for path in tmp_path.iterdir()] == ["{}"]
