"""The row of one instruction: infer its model, test it against alternatives, and verify it on every result.

The status and its reason name what was tested; findings claim no more than that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from accprobe.build.lowerings import Lowering, is_ordinary
from accprobe.devices.recording import Exchanges, RecordedDevice
from accprobe.errors import AccprobeError, DeviceError, NotRecorded, defect
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.characterise import Characterisation, infer_model
from accprobe.infer.falsification import Falsification, falsify, resolve_findings
from accprobe.infer.left_out import LEFT_OUT, NO_EFFECT, left_out
from accprobe.infer.query_log import NONE, Contradictions, QueryLog
from accprobe.isa import opcodes, tile
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.protocol import Device
from accprobe.operands.request import Request
from accprobe.records.claims import Alternatives, Status, status_of
from accprobe.records.findings import Finding
from accprobe.records.rows import Row
from accprobe.records.verification import Queries, TileCoverage, Verification
from accprobe.report.published import with_open
from accprobe.verify.coverage import cover
from accprobe.verify.onehot import misplaced
from accprobe.verify.random import compared, predicted_batches
from accprobe.verify.shrink import shrink

RECONSIDERED = 5  # Repetitions of the inference for a model that some result contradicts, at most.


class Surveyor:
    """Measures one instruction after another on one device."""

    def __init__(self, device: Device, record: bool = False) -> None:
        self._recorded = RecordedDevice(device) if record else None
        self._device = self._recorded or device
        self._worked: Instruction | None = None

    def measured(self, inst: Instruction, dots: int, seed: int) -> tuple[Row, Exchanges]:
        """Return the row, and every exchange that led to it if the run is recorded."""
        row = self.row(inst, dots, seed)
        return row, self._recorded.take() if self._recorded else {}

    def row(self, inst: Instruction, dots: int, seed: int) -> Row:
        """Return the row of `inst`, `unverified` if it fails.

        Raises DeviceError if an instruction that worked before fails too, NotRecorded if a replay cannot continue.
        """
        started = time.perf_counter()
        lowering: Lowering | None = None
        try:
            lowering = self._device.lowering(inst)
            row = self._row(inst, dots, seed)
            self._worked = inst
        except NotRecorded:
            raise
        except AccprobeError as e:
            if isinstance(e, DeviceError) and self._worked:
                self._check_still_works(self._worked, e)
            row = Row(name=inst.name, status="unverified", reason=str(e))
        except Exception as e:  # a defect in one instruction must not cost the others their rows
            row = Row(name=inst.name, status="unverified", reason=defect(e))
        return copied(row, inst, lowering).model_copy(update={"seconds": round(time.perf_counter() - started, 3)})

    def _row(self, inst: Instruction, dots: int, seed: int) -> Row:
        log = QueryLog(self._device, inst)
        if wrong := misplaced(log):
            return Row(name=inst.name, status="unverified", reason=wrong)
        omitted = {LEFT_OUT: left_out(log)} if inst.sparse else {}
        if omitted and omitted[LEFT_OUT].value != NO_EFFECT:
            reason = f"elements of B that a sparse A leaves out change results: {omitted[LEFT_OUT].value}"
            return Row(name=inst.name, status="unverified", reason=reason, **_known(omitted))
        result, falsification, verification = measured(log, dots, seed)
        findings = {
            name: replace(finding, evidence=tuple(map(log.sparse, finding.evidence)))
            for name, finding in result.findings.items()
        } | omitted
        if verification is None:
            reason = "no model explains the device's results"
            return Row(name=inst.name, status="unverified", reason=reason, unstable=log.unstable, **_known(findings))
        surviving = tuple(map(str, falsification.surviving))
        return Row(
            name=inst.name,
            status="inferred",
            reason=instability(log),
            model=result.model,
            verification=verification,
            alternatives=Alternatives(tested=falsification.tried, surviving=surviving),
            unstable=log.unstable,
            **_known(findings),
        )

    def _check_still_works(self, worked: Instruction, error: DeviceError) -> None:
        try:
            self._device.dot(worked, Request.zeros(worked, 1))
        except DeviceError:
            raise DeviceError(f"{self._device.name} stopped working: {error}") from error


def _known(findings: dict[str, Finding]) -> dict[str, Any]:
    """Return the fields of a row for findings and their evidence."""
    evidence = {name: finding.evidence for name, finding in findings.items() if finding.evidence}
    return {"findings": {name: replace(finding, evidence=()) for name, finding in findings.items()}, "evidence": evidence}


def measured(log: QueryLog, dots: int, seed: int) -> tuple[Characterisation, Falsification, Verification | None]:
    """Infer, test against alternatives and verify; once more if only the verification contradicts the model."""
    known: list[Exchange] = []
    for again in range(2):
        result, falsification = settle(log, seed, known)
        if result.model is None:
            return result, falsification, None
        contradictions = falsification.contradictions
        done = checked(log, result.model, contradictions, dots, seed + again)
        if not done.mismatches or contradictions.count or log.unstable or not log.budget.remaining:
            break
        known = [log.dense(wrong.exchange) for wrong in log.contradictions(result.model).sample]
    return result, falsification, done


def settle(log: QueryLog, seed: int = 0, counterexamples: Sequence[Exchange] = ()) -> tuple[Characterisation, Falsification]:
    """Infer an instruction and test its model against alternatives.

    counterexamples: dot products that the model has to explain too. If any result contradicts the model, the inference is
    repeated with that result. It is not repeated on an unstable device, after the budget of the search is spent, or if it
    ended with the same model. A model that is not the last is tested against alternatives only if it explains all results.
    """
    known, contradicted = list(counterexamples), None
    for again in range(RECONSIDERED + 1):
        result = infer_model(log, known)
        last = again == RECONSIDERED or result.model == contradicted or log.unstable or not log.budget.remaining
        wrong = log.contradictions(result.model) if result.model else NONE
        if last or not wrong.count:
            falsification = falsify(log, result, seed + again)
            wrong = falsification.contradictions
        if last or not wrong.count or log.unstable:
            break
        contradicted = result.model
        known += [log.dense(found.exchange) for found in wrong.sample]
    model = None if wrong.count or log.unstable else result.model
    return replace(result, findings=resolve_findings(result.findings, falsification, model)), falsification


def checked(log: QueryLog, model: DotModel, known: Contradictions, dots: int, seed: int) -> Verification:
    """Compare the model with fresh dot products and with those that cover it, then repeat a share of all queries.

    Coverage of a simulated device is not measured: a model compared with itself shows nothing.
    """
    simulated = log.device.kind == "simulated"
    done = compared(log, predicted_batches(log.inst, model, dots, seed), seed) if simulated else cover(log, model, dots, seed)
    log.repeat(np.random.default_rng([seed, dots]))
    found = [*known.sample, *filter(None, [done.counterexample])]
    if found or log.unstable:
        log.localize_fault(found)
    covered = None
    if log.covered.size:
        covered = TileCoverage(int(log.covered.sum()), log.covered.size, tile.smallest_part(log.inst, log.differing))
    return replace(
        done,
        counterexample=_smallest(log, model, found),
        results=log.dots,
        contradicting=known.count + done.mismatches,
        tile=covered,
        queries=Queries(sum(log.sizes.values()), min(log.sizes), max(log.sizes)),
    )


def instability(log: QueryLog) -> str:
    """Return, in words, when and where results changed; "" if none did."""
    if not log.unstable:
        return ""
    part = tile.smallest_part(log.inst, log.differing)
    if part:
        where = f", in {part} of the tile"
    else:
        where = ", occasionally, at no tile element always" if log.covered.size and not log.differing.any() else ""
    return f"{log.unstable:,} dot products gave different bits when repeated, {log.first_change}{where}"


def _smallest(log: QueryLog, model: DotModel, found: list[Counterexample]) -> Counterexample | None:
    """Return the change, if results changed; otherwise a counterexample with as few products as possible."""
    if log.changed:
        return log.in_full(log.changed)
    if not found:
        return None
    few = min(found, key=lambda one: sum(digit != "0" for digit in one.exchange.a))
    inst = log.instruction(bool(few.exchange.metadata))
    return log.in_full(shrink(log.query, partial(evaluate, model, inst), inst, few) or few)


def copied(row: Row, inst: Instruction, lowering: Lowering | None) -> Row:
    """Return the row of an instruction that is computed by the function of `row` and became `lowering`."""
    changes: dict[str, object] = {"name": inst.name}
    if lowering is not None:
        changes |= {"opcodes": lowering.matrix, "lowering": lowering.sequence, "opcode_source": lowering.source}
        changes["cubin_sha256"] = lowering.cubin_sha256
    if row.model is not None:
        changes["status"], changes["reason"] = verdict(inst, row, lowering)
    return with_status(row.model_copy(update=changes))


def counted(row: Row, executed: Lowering) -> Row:
    """Return the row with the opcodes that the profiler counted; unverified if the disassembly differs."""
    if sorted(executed.sequence) == sorted(row.lowering):
        return row.model_copy(update={"opcode_source": executed.source})
    counted, read = (", ".join(f"{count}×{opcode}" for opcode, count in seen) for seen in (executed.sequence, row.lowering))
    reason = f"the profiler counted {counted or 'nothing'}, the disassembly has {read or 'nothing'}"
    return with_status(row.model_copy(update={"status": "unverified", "reason": reason}))


def verdict(inst: Instruction, row: Row, lowering: Lowering | None) -> tuple[Status, str]:
    """Return the status of a row that has a model, and the reason if it is not confirmed."""
    if lowering is None:
        contradicted = status_of(row.verification)[1]
        also = f"; {contradicted}" if contradicted else ""
        return "unverified", f"which opcode ran is not known: see `accprobe doctor`{also}"
    known = lowering.matrix or (inst.family.converts and is_ordinary(lowering.sequence))
    if not known or any(opcodes.relation(inst, opcode) == "foreign" for opcode in lowering.matrix):
        ran = ", ".join(lowering.matrix) or "no matrix opcode"
        return "unverified", f"{ran} ran, not an opcode of {inst.family}'s unit"
    if row.unstable:
        return "unstable", row.reason
    return status_of(row.verification)


def with_status(row: Row) -> Row:
    """Return the row with findings that claim what was tested: unless it is confirmed, they are only suggested."""
    if row.status == "confirmed":
        return row
    return row.model_copy(update={"findings": {name: _suggested(finding) for name, finding in row.findings.items()}})


def with_device_status(row: Row, device: Device) -> Row:
    """Return the row as the report has it: `simulated` on a simulated device; its reason says what else prevents confirmation.

    A feature that no public result of the real chip determines is undetermined, even if it was found for the simulation.
    """
    if device.kind != "simulated":
        return row
    undetermined = {name: values for name, values in device.candidates(row.instruction).items() if name in row.findings}
    findings, explains = with_open(row.findings, undetermined), device.explains(row.instruction)
    return row.model_copy(update={"status": "simulated", "explains": explains, "findings": findings})


def _suggested(finding: Finding) -> Finding:
    """Return the finding without a claim. Its candidates come from models near a wrong one, so another value may be true."""
    if finding.candidates:
        return replace(finding, bound="suggested", candidates=(), note="")
    return replace(finding, bound="suggested") if finding.bound in ("exact", "at_least") else finding
