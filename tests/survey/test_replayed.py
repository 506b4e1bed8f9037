"""Replays of whole runs on an H100, an H200 and a Zen 4: inference, falsification and verification."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from fakes import content

from accprobe.devices.recording import ReplayDevice
from accprobe.errors import NotRecorded
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.report.evidence import load_with_evidence
from accprobe.report.report import Report
from accprobe.survey.run import survey

FOLDER = Path(__file__).parents[1] / "recordings"
GPUS = ("h100", "h200")

FAMILIES = [["mma.*"], ["wgmma.*"]]
# One replay each: of the H100 and of the H200. All of it takes minutes.
SOME = [
    ["wgmma.m64n8k32.f32.e4m3.e4m3", "wgmma.m64n256k8.f32.tf32.tf32"],
    ["mma.sync.m16n8k16.f32.e5m2.e4m3.f32", "mma.sync.m8n8k16.s32.u8.s8.s32", "mma.sync.m8n8k4.f16.f16.f16.f16"],
]

# GPUs whose recordings have all results that today's run needs. A change of the queries removes them, knowingly, until
# scripts/record has run on such a GPU; meanwhile the models of the report replace the hardware.
COMPLETE: tuple[str, ...] = ("h200",)

# Fields of a verification that depend on the number of queries.
AMOUNTS = ("results", "compared", "events", "kinds", "queries")


class ContinuedReplay(ReplayDevice):
    """A replay that evaluates the confirmed models for queries that the recording does not have.

    by_model: number of such queries of each instruction. A finding that depends on one is not a measurement.
    """

    def __init__(self, path: Path, models: Mapping[Instruction, DotModel]) -> None:
        super().__init__(path)
        self.by_model: Counter[str] = Counter()
        self._models = models

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        try:
            return super().dot(inst, request, placement)
        except NotRecorded:
            return self._by_model(inst, request)

    def dot_expecting(self, inst: Instruction, request: Request, expected: Bits, placement: int = 0) -> Bits:
        try:
            return super().dot_expecting(inst, request, expected, placement)
        except NotRecorded:
            return self._by_model(inst, request)

    def _by_model(self, inst: Instruction, request: Request) -> Bits:
        self.by_model[inst.name] += 1
        return evaluate(self._models[inst], inst, request)


class Replay(NamedTuple):
    """by_model: queries of each instruction that the recording does not have."""

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
    """Some rows of a report, measured again."""
    gpu, family = request.param
    recorded = load_with_evidence(gpu)
    (dots,) = {row.verification.random for row in recorded.measured if row.verification}
    models = {row.instruction: row.model for row in recorded.measured if row.model and row.status == "confirmed"}
    device = ContinuedReplay(FOLDER / f"{gpu}.npz", models)
    report = survey(device, family, dots, recorded.seed)
    return Replay(gpu, report, recorded, dict(device.by_model))


@pytest.mark.filterwarnings("always:.*were answered by models:UserWarning")
def test_replay_gives_the_committed_report(replay: Replay) -> None:
    """Field for field, except times, workers, the version of accprobe, the kind of device, and events that nothing reached.

    If the recording is incomplete, the numbers of alternatives and dot products are not compared either.
    """
    assert (replay.by_model == {}) == (replay.gpu in COMPLETE), "COMPLETE is out of date"
    if replay.by_model:
        count = sum(replay.by_model.values())
        warnings.warn(f"{count} queries of the {replay.recorded.device.name} were answered by models", stacklevel=1)
    assert replay.report.device.kind == "replay"
    found, expected = content(replay.report), content(replay.recorded)
    commit = {"commit": replay.report.tool.commit} if replay.report.tool.commit else {}
    assert found.pop("tool") == {"version": replay.recorded.tool.version} | commit
    known = {row["name"]: row for row in expected.pop("claims")}
    for row in () if replay.gpu in COMPLETE else (*found["claims"], *known.values()):
        (row.get("alternatives") or {}).pop("tested", None)
        for amount in AMOUNTS:
            (row.get("verification") or {}).pop(amount, None)
    for row in (*found["claims"], *known.values()):
        ((row.get("verification") or {}).get("events") or {}).pop("impossible", None)
    assert found["run"] == len(found["claims"]) > 0
    for row in found.pop("claims"):
        assert row == known[row["name"]], row["name"]
    assert found == {key: value for key, value in expected.items() if key != "tool"} | {"run": found["run"]}


def test_replay_of_a_processor_gives_the_committed_report() -> None:
    """On machines without such instructions, too."""
    recorded = load_with_evidence("cpu-zen4")
    models = {row.instruction: row.model for row in recorded.measured if row.model}
    report = survey(ContinuedReplay(FOLDER / "cpu-zen4.npz", models), ["avx512.m1n16k4.s32.*"])
    assert report.device.kind == "replay"
    assert [(row.status, row.reason, row.unstable) for row in report.instructions] == [("confirmed", "", 0)]
    known = {row.name: (row.model, row.findings, row.opcodes) for row in recorded.measured}
    assert all(known[row.name] == (row.model, row.findings, row.opcodes) for row in report.measured)
