"""Replays of recordings, and the content of reports to compare with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accprobe.devices.recording import ReplayDevice
from accprobe.errors import NotRecorded
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.report.report import Report


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


def content(report: Report) -> dict[str, Any]:
    """Return the content of a report, except times, the kind of device, and `explains`, which no recording has."""
    data = json.loads(report.dumps())
    data["device"].pop("kind")
    data["run"] = data["run"]["selected"]
    data.pop("sweeps", None)
    for row in data["claims"]:
        row.pop("seconds", None)
        row.pop("explains", None)
    return data
