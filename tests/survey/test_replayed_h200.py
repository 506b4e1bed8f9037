"""A whole run on an H200, played back: every question of the inference, every rival, and verifications."""

from __future__ import annotations

from pathlib import Path

import pytest
from telling import told

from accprobe.devices.protocol import Device
from accprobe.devices.recording import Recording
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.report.report import Report
from accprobe.survey import surveyor
from accprobe.survey.run import survey
from accprobe.verify.outcome import Verification
from accprobe.verify.random import verify

FILE = Path(__file__).parents[1] / "recordings" / "h200.npz"
MOST_BYTES = 2 << 20

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE.name} is not recorded yet")


def test_file_is_small_and_of_a_gpu() -> None:
    assert FILE.stat().st_size <= MOST_BYTES
    recording = Recording.load(FILE)
    assert (recording.kind, recording.name, recording.architecture) == ("cuda", "NVIDIA H200", "sm_90a")
    assert not recording.pure
    assert all(facts.asked or facts.why_not for facts in recording.instructions.values())


def test_replay_gives_the_committed_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field for field: all but the clock, the workers, the version of accprobe, and that it was a GPU this time.

    Of instructions that are verified on the same operands against the same model, one is.
    """
    report = Report.load("h200")
    (dots,) = {row.verification.dots for row in report.measured if row.verification}
    verified: dict[object, Verification] = {}

    def once(device: Device, inst: Instruction, model: DotModel, dots: int, seed: int) -> Verification:
        alike = inst.a, inst.b, inst.c, inst.d, inst.k, model
        if alike not in verified:
            verified[alike] = verify(device, inst, model, dots, seed)
        return verified[alike]

    monkeypatch.setattr(surveyor, "verify", once)
    again = survey(f"replay:{FILE}", dots=dots, seed=report.seed, jobs=1)
    assert len(verified) > 30
    assert again.device.kind == "replay"
    found, expected = told(again), told(report)
    assert found.pop("tool") == {"version": report.tool.version} | ({"commit": again.tool.commit} if again.tool.commit else {})
    expected.pop("tool")
    for row, known in zip(found["instructions"], expected["instructions"], strict=True):
        assert row == known, known["name"]
    assert found == expected
