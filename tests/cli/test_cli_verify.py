"""`accprobe verify`: against simulated devices, faulty ones among them."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commands import invoke, time_limit_can_end
from fakes import Measured

from accprobe import devices
from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.verify.coverage import Coverage

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
F16 = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
MODELS = {inst: known_models("h100")[inst].model for inst in (FP8, F16)}


verify = partial(invoke, "verify")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimulatedDevice]:
    """The device that is opened, under "device"."""
    opened: dict[str, SimulatedDevice] = {"device": Measured(MODELS)}
    monkeypatch.setattr(devices, "open_device", lambda name: opened["device"])
    return opened


def fewer_bits(inst: Instruction) -> DotModel:
    return MODELS[inst].with_arithmetic(lambda has: replace(has, alignment_bits=has.alignment_bits - 1))


WHOLE = """
0 mismatches: 2 instructions, 6,000 dot products; 167 instructions not verified

instruction                        dot products  mismatches    dots/s     MAC/s
──────────────────────────────────────────────────────────────────────
mma.sync.m16n8k16.f32.f16.f16.f32         3,000           0      RATE      RATE
wgmma.m64n8k32.f32.e4m3.e4m3              3,000           0      RATE      RATE

for each instruction, faults in more than 3 in 3,000 of such operands are excluded at 95 %
models of sim:h100 compared with Fake GPU, sm_90a
! 167 not verified, as the device cannot run them: LACKING
"""


def test_whole_output(gpu: dict[str, SimulatedDevice]) -> None:
    result = verify("sim:h100", "--device", "cuda:0", "--dots", "3e3")
    first, *_ = (inst for inst in known_models("h100") if inst not in MODELS)
    lacking = f"{first} and {len(known_models('h100')) - 3} others"
    shown = re.sub(r" +\d(\.\d)?e\+\d\d", "      RATE", result.stdout).replace(lacking, "LACKING")
    shown = re.sub("─+", "─" * 70, re.sub(" +dots/s +MAC/s", "    dots/s     MAC/s", shown))  # as wide as their numbers
    assert [line.rstrip() for line in shown.splitlines()] == WHOLE.strip("\n").splitlines()
    assert (result.exit_code, result.stderr) == (0, "")


def test_planted_fault_is_found_and_shrunk(gpu: dict[str, SimulatedDevice]) -> None:
    gpu["device"] = Measured({FP8: fewer_bits(FP8), F16: MODELS[F16]})
    result = verify("h200", "--device", "cuda:0", "--dots", "4000", "--format", "json")
    assert result.exit_code == 1
    right, wrong = json.loads(result.stdout)["verified"]
    assert (right["name"], right["mismatches"]) == (F16.name, 0)
    assert (wrong["name"], wrong["seed"], wrong["compared"]) == (FP8.name, 0, 4000)
    assert 0 < wrong["mismatches"] < 4000
    a, b, c, d = wrong["counterexample"]["exchange"]
    patterns = [np.array([[int(x[i : i + 2], 16) for i in range(0, 64, 2)]], np.uint8) for x in (a, b)]
    operands = Request(*patterns, np.array([int(c, 16)], np.uint32))
    assert evaluate(fewer_bits(FP8), FP8, operands)[0] == int(d, 16)
    assert evaluate(MODELS[FP8], FP8, operands)[0] == int(wrong["counterexample"]["expected"], 16) != int(d, 16)
    products = int(((patterns[0] != 0) | (patterns[1] != 0)).sum())
    assert products + (int(c, 16) != 0) <= 3
    shown = verify("h200", "--device", "cuda:0", "--dots", "4000")
    assert shown.exit_code == 1
    line = next(line for line in shown.stdout.replace("\n", " ").split("! ") if line.startswith(FP8.name))
    assert re.search(r"C 0x[0-9a-f]{8} \(\S+\) → 0x[0-9a-f]{8} \(\S+\), expected 0x[0-9a-f]{8} +\(\S+\)", line)
    assert f"{wrong['mismatches']:,} mismatches: 2 instructions, 8,000 dot products" in shown.stdout


def test_a_mismatch_that_does_not_come_back_is_told(gpu: dict[str, SimulatedDevice]) -> None:
    class Once(Measured):
        asked = 0

        def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
            self.asked += 1
            return super().dot(inst, request) ^ inst.d.dtype.type(self.asked == 1)

    gpu["device"] = Once({F16: MODELS[F16]})
    result = verify("sim:h100", "--device", "cuda:0", "--dots", "500")
    assert result.exit_code == 1
    assert "a repetition did not differ" in " ".join(result.stdout.split())


def test_the_outcome_is_kept_in_a_file(
    gpu: dict[str, SimulatedDevice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu["device"] = Measured({F16: fewer_bits(F16)})
    file = tmp_path / "verified.json"
    arguments = ("h200", "--device", "cuda:0", "--dots", "4000")
    result = verify(*arguments, "-o", str(file))
    assert (result.exit_code, "mismatches: 1 instruction" in result.stdout) == (1, True)
    assert [row["name"] for row in json.loads(file.read_text())["verified"]] == [F16.name]
    assert json.loads(verify(*arguments, "-o", "-").stdout)["models"] == "h200"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("accprobe.build.atomic.save", full)
    assert verify(*arguments, "-o", str(file)).exit_code == 1
    gpu["device"] = Measured({F16: MODELS[F16]})
    right = verify(*arguments, "-o", str(file))
    assert (right.exit_code, right.stderr) == (2, f"accprobe: {file} cannot be written: No space left on device\n")


def test_an_event_that_is_missed_is_no_success(gpu: dict[str, SimulatedDevice], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coverage, "directed", lambda self: iter(()))
    result = verify("sim:h100", "--device", "cuda:0", "--dots", "2000", "--coverage")
    assert result.exit_code == 1
    assert "missing: " in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("at", "number", "status", "said"),
    [
        (FP8, signal.SIGALRM, 1, "stopped after 100 s (--time-limit): 1 of 2 instructions verified, 500 dot products"),
        (F16, signal.SIGALRM, 1, "stopped after 100 s (--time-limit): 0 of 2 instructions verified, 0 dot products"),
        (FP8, signal.SIGINT, 130, "interrupted: 1 of 2 instructions verified, 500 dot products"),
    ],
)
def test_a_signal_keeps_what_was_compared(
    gpu: dict[str, SimulatedDevice], at: Instruction, number: int, status: int, said: str
) -> None:
    class Stopped(Measured):
        def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
            if inst == at:
                signal.raise_signal(number)
            return super().dot(inst, request)

    gpu["device"] = Stopped(MODELS)
    with time_limit_can_end():
        result = verify("sim:h100", "--device", "cuda:0", "--dots", "500", "--time-limit", "100")
    assert (result.exit_code, result.stderr) == (status, f"accprobe: {said} were compared, 0 differ\n")
    assert ("0 mismatches: 1 instruction, 500 dot products" in result.stdout) == (at == FP8)
