"""Whole runs on an H100 and an H200, played back: every question of the inference, every rival, and verifications."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
from replaying import ContinuedReplay, content

from accprobe.devices.recording import Recording
from accprobe.report.evidence import load_with_evidence
from accprobe.report.report import Report
from accprobe.survey.run import survey

FOLDER = Path(__file__).parents[1] / "recordings"
GPUS = ("h100", "h200")
# Of all of them together.
MOST_BYTES = 2 << 20

FAMILIES = [["mma.*"], ["wgmma.*"]]
# One replay each: of the H100 and of the H200. All of it takes minutes.
SOME = [
    ["wgmma.m64n8k32.f32.e4m3.e4m3", "wgmma.m64n256k8.f32.tf32.tf32"],
    ["mma.sync.m16n8k16.f32.e5m2.e4m3.f32", "mma.sync.m8n8k16.s32.u8.s8.s32", "mma.sync.m8n8k4.f16.f16.f16.f16"],
]

# The GPUs whose recordings answer all that is asked today. A change that asks something else takes them out, knowingly, until
# somebody with such a GPU runs scripts/record; the models of the report stand in for the hardware meanwhile.
COMPLETE: tuple[str, ...] = ()

# What of a verification says how much was asked.
AMOUNTS = ("results", "dots", "events", "kinds", "queries")


class Replay(NamedTuple):
    """by_model: questions of each instruction that the recording does not answer."""

    gpu: str
    report: Report
    recorded: Report
    by_model: dict[str, int]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((gpu, family), marks=[] if i == of == 1 else [pytest.mark.slow], id=f"{gpu}-{i}")
        for of, gpu in enumerate(GPUS)
        for i, family in enumerate([*SOME, *FAMILIES])
    ],
)
def replay(request: pytest.FixtureRequest) -> Replay:
    """Some of a report again, once."""
    gpu, family = request.param
    recorded = load_with_evidence(gpu)
    (dots,) = {row.verification.random for row in recorded.measured if row.verification}
    models = {row.instruction: row.model for row in recorded.measured if row.model and row.status == "confirmed"}
    device = ContinuedReplay(FOLDER / f"{gpu}.npz", models)
    report = survey(device, family, dots, recorded.seed)
    return Replay(gpu, report, recorded, dict(device.by_model))


def test_files_are_small() -> None:
    assert sum((FOLDER / f"{gpu}.npz").stat().st_size for gpu in GPUS) <= MOST_BYTES


@pytest.mark.parametrize("gpu", GPUS)
def test_file_is_of_a_gpu(gpu: str) -> None:
    recording = Recording.load(FOLDER / f"{gpu}.npz")
    assert (recording.kind, recording.name, recording.architecture) == ("cuda", load_with_evidence(gpu).device.name, "sm_90a")
    assert not recording.pure
    assert all(facts.complete or facts.why_not for facts in recording.instructions.values())


@pytest.mark.filterwarnings("always:.*were answered by models:UserWarning")
def test_replay_gives_the_committed_report(replay: Replay) -> None:
    """Field for field: all but the clock, the workers, the version of accprobe, and that it was a GPU this time.

    Where the search asks what the recorded one did not, how many rivals and dot products it tries is no part of the comparison.
    """
    if replay.by_model:
        warnings.warn(
            f"the recording of the {replay.recorded.device.name} lacks what is asked today:"
            f" {sum(replay.by_model.values())} questions of"
            f" {len(replay.by_model)} instructions were answered by models, not by the GPU",
            stacklevel=1,
        )
    assert replay.report.device.kind == "replay"
    found, expected = content(replay.report), content(replay.recorded)
    commit = {"commit": replay.report.tool.commit} if replay.report.tool.commit else {}
    assert found.pop("tool") == {"version": replay.recorded.tool.version} | commit
    known = {row["name"]: row for row in expected.pop("instructions")}
    for row in () if replay.gpu in COMPLETE else (*found["instructions"], *known.values()):
        (row.get("alternatives") or {}).pop("tested", None)
        for amount in AMOUNTS:
            (row.get("verification") or {}).pop(amount, None)
    assert found["run"] == len(found["instructions"]) > 0
    for row in found.pop("instructions"):
        assert row == known[row["name"]], row["name"]
    assert found == {key: value for key, value in expected.items() if key != "tool"} | {"run": found["run"]}


def test_every_question_was_recorded(replay: Replay) -> None:
    """Or the list of complete recordings is behind."""
    assert (replay.by_model == {}) == (replay.gpu in COMPLETE)


@pytest.mark.parametrize("gpu", GPUS)
def test_replays_together_are_the_whole_report(gpu: str) -> None:
    assert {f"{row.name.partition('.')[0]}.*" for row in load_with_evidence(gpu).instructions} == {glob for (glob,) in FAMILIES}
