"""Elimination: of several candidate models, those that predict every answer of the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.findings import Finding
from accprobe.infer.workbench import Row, Workbench
from accprobe.isa.formats import Bits
from accprobe.model.record import Value
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Exchange
from accprobe.operands.request import Request

EVIDENCE = 4


def eliminate(bench: Workbench, candidates: Mapping[Value, DotModel], operands: Request, note: str = "") -> Finding:
    """The candidate that explains the device's answers to `operands`.

    Several left: undetermined among them, the first is the value. None left: undetermined, value None, and the note says
    that no candidate explains the answers. The evidence are rows on which the candidates differ.
    """
    d = bench.query(operands)
    predictions = {value: evaluate(model, bench.inst, operands) for value, model in candidates.items()}
    left = tuple(value for value, predicted in predictions.items() if np.array_equal(predicted, d))
    evidence = _telling(bench, operands, d, list(predictions.values()))
    if len(left) == 1:
        return Finding(left[0], evidence=evidence)
    if left:
        return Finding(left[0], "undetermined", left, note or "these give the same bits on every operand tried", evidence)
    closest = min(predictions, key=lambda value: int((predictions[value] != d).sum()))
    return Finding(closest, "undetermined", note="no value explains every answer; this one explains most", evidence=evidence)


def fitting(bench: Workbench, rows: Iterable[Row]) -> Request:
    """Operands of those rows whose values the formats hold."""
    return bench.rows([row for row in rows if bench.fits(row)])


def _telling(bench: Workbench, operands: Request, d: Bits, predictions: list[Bits]) -> tuple[Exchange, ...]:
    if not len(d):
        return ()
    stacked = np.stack(predictions)
    differ = np.flatnonzero((stacked != stacked[0]).any(axis=0))
    return bench.exchanges(operands, d, differ[:EVIDENCE])
