"""Judgement of a report row on a planted device, by fresh results of the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import judgements
import numpy as np
from departures import PLAIN
from faulty import STEADY, PlantedDevice, placements
from hostile import hostile, huge_cancelling
from plants import Plant

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import laid_out
from accprobe.records.findings import Finding, feature_values, irrelevant_features, order_findings
from accprobe.records.rows import Row
from accprobe.survey.run import survey

Verdict = Literal["right", "wrong", "excluded", "not begun", "not confirmed", "crashed", "too late"]
"""right: confirmed, and nothing contradicts it. wrong: confirmed, and the device contradicts it. excluded: confirmed, and the
contradictions are no more frequent than the row says. not begun: confirmed, and the fault begins later. crashed, too late:
there is no row."""

AT_95_PERCENT = 3
"""No mismatch in n excludes, at 95 %, faults in more than this many of n (the rule of three)."""

DEFECT = "a defect of accprobe"
"""Beginning of the reason of a row that raised an exception."""

SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 17, 90, 600, 5001, 9000, 20_001, 50_001)
"""Sizes of further queries of a device whose fault depends on the query."""

BATCHES = (7, 64, 333, 1489, 4096, 12288)
"""Sizes of queries of a faulty device, after every element of its tile was covered."""


@dataclass(frozen=True, kw_only=True)
class Judgement(judgements.Judgement):
    """Judgement of a device; status, reason, seconds: of its row.

    kind, family, instruction: of the plant. visible: fresh dot products on which the departure from the grammar shows.
    """

    kind: str
    family: str
    instruction: str
    verdict: Verdict
    visible: int = 0


def judged(plant: Plant, dots: int | None = None) -> Judgement:
    """Judge a plant. dots: of the verification; by default those of a run."""
    device, inst = plant.device(), plant.instruction
    started = time.process_time()
    (row,) = survey(device, [inst.name], **({} if dots is None else {"dots": dots})).instructions
    seconds = time.process_time() - started
    acted, begun = device.acted, device.begun()
    request = laid_out(inst, hostile(inst.stored, plant.seed))
    if plant.fault and plant.fault.when == "huge cancels":
        request = joined([request, huge_cancelling(inst, plant.seed)])
    visible = 0 if plant.wide == PLAIN else plant.shows(request)
    fresh, contradicted = _contradictions(plant, device, request, row.model)
    verdict: Verdict = "crashed" if row.reason.startswith(DEFECT) else "not confirmed"
    if row.status == "confirmed":
        verdict = _verdict(plant, row, acted, begun, fresh, contradicted)
    exact = [name for name, finding in row.findings.items() if finding.bound == "exact"]
    if visible:
        false = [] if row.status == "confirmed" else [f"{name}: {row.findings[name].value}, of no model" for name in exact]
    else:
        false = list(_false(plant, row, exact, request))
    return Judgement(
        seed=plant.seed,
        kind=plant.kind,
        family=plant.family,
        instruction=inst.name,
        parameters=plant.parameters(),
        verdict=verdict,
        status=row.status,
        reason=row.reason,
        seconds=round(seconds, 2),
        visible=visible,
        fresh=fresh,
        contradicted=contradicted,
        false_exact=false,
    )


def excluded(row: Row) -> float:
    """Return the share of faulty results that the row excludes."""
    dots = row.verification.random if row.verification else 0
    return AT_95_PERCENT / dots if dots else 1.0


def _verdict(plant: Plant, row: Row, acted: int, begun: bool, fresh: int, contradicted: int) -> Verdict:
    """Return the verdict on a confirmed row. If the fault changed a result that accprobe got, no rate excuses it."""
    if acted:
        return "wrong"
    if not contradicted:
        return "right"
    if not begun:
        return "not begun"
    if plant.fault and plant.fault.when not in STEADY:
        rate = plant.fault.rate(plant.instruction)
        return "excluded" if (contradicted / fresh if rate is None else rate) <= excluded(row) else "wrong"
    return "wrong"


def _of(model: DotModel, inst: Instruction, request: Request) -> Any:
    with np.errstate(all="ignore"):
        return evaluate(model, inst, request)


def _contradictions(plant: Plant, device: PlantedDevice, request: Request, model: DotModel | None) -> tuple[int, int]:
    """Return the numbers of dot products and of mismatches; a faulty device is queried at every tile element, twice."""
    inst = plant.instruction
    if model is None:
        return 0, 0
    expected = _of(model, inst, request)
    if plant.fault is None:
        return len(request), int((plant.unit.dot(request) != expected).sum())
    asked = wrong = 0
    for placement, start, size in _rounds(inst, len(request), SIZES if plant.family == "query" else ()):
        rows = slice(start, start + size)
        for _ in range(2):
            d = device.dot(inst, request[rows], placement)
            asked, wrong = asked + len(d), wrong + int((d != expected[rows]).sum())
    return asked, wrong


def _rounds(inst: Instruction, n: int, more: tuple[int, ...] = ()) -> list[tuple[int, int, int]]:
    """Return placement, first dot product and size of each query."""
    each = placements(inst)
    share = n // each
    every_cell = [(placement, placement * share, share) for placement in range(each)]
    return every_cell + [(i % each, 0, size) for i, size in enumerate((*BATCHES, *more))]


def _false(plant: Plant, row: Row, exact: list[str], request: Request) -> Iterator[str]:
    """Yield exact findings that differ from the plant's model, in the grammar's words.

    Also if the row's model gives the same results: exact means that every alternative with another value was contradicted.
    Orders that are the same function are not alternatives, nor are sums that keep every bit and those that keep enough.
    """
    truth = feature_values(plant.model) | {"carries": "kept"}
    beside = irrelevant_features(plant.model)
    if row.model and np.array_equal(plant.base.dot(request), _of(row.model, plant.instruction, request)):
        beside |= {name for name, finding in row.findings.items() if name.endswith("alignment_bits") and finding.value is None}
    else:
        truth |= {name: finding.value for name, finding in order_findings(plant.model, Finding(plant.model.order)).items()}
    for name in exact:
        if name in truth and name not in beside and row.findings[name].value != truth[name]:
            yield f"{name}: {row.findings[name].value}, {truth[name]}"
