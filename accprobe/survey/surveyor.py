"""The row of one instruction: what the pipeline finds, and the opcodes that ran."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from accprobe.devices.protocol import Device, StoredProducts, dense
from accprobe.devices.recording import Exchanges, RecordedDevice
from accprobe.errors import AccprobeError, DeviceError, NotRecorded
from accprobe.infer.findings import Characterisation, Finding
from accprobe.infer.left_out import LEFT_OUT, NO_EFFECT, left_out
from accprobe.infer.query_log import QueryLog
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request
from accprobe.report.rows import Alternatives, Row
from accprobe.sass.lowering import Lowering
from accprobe.survey.pipeline import instability, measured
from accprobe.survey.status import verdict, with_status
from accprobe.verify.coverage.layouts import of_sparse
from accprobe.verify.onehot import misplaced

# A row, and every exchange that led to it if the run is recorded.
RowAndExchanges = tuple[Row, Exchanges]


class Surveyor:
    """Measures one instruction after another on one device."""

    def __init__(self, device: Device, record: bool = False) -> None:
        self._recorded = RecordedDevice(device) if record else None
        self._device = self._recorded or device
        self._worked: Instruction | None = None

    def measured(self, inst: Instruction, dots: int, seed: int) -> RowAndExchanges:
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
            row = Row(name=inst.name, status="unverified", reason=_defect(e))
        return copied(row, inst, lowering).model_copy(update={"seconds": round(time.perf_counter() - started, 3)})

    def _row(self, inst: Instruction, dots: int, seed: int) -> Row:
        device = dense(self._device, inst)
        stored = device if isinstance(device, StoredProducts) else None
        log = QueryLog(device, inst.stored)
        if wrong := misplaced(log.tests, inst):
            return Row(name=inst.name, status="unverified", reason=wrong)
        omitted = left_out(log.tests, inst) if inst.sparse else None
        if omitted and omitted.value != NO_EFFECT:
            reason = f"elements of B that a sparse A leaves out change results: {omitted.value}"
            return Row(
                name=inst.name, status="unverified", reason=reason, **_known(Characterisation(inst, {LEFT_OUT: omitted}))
            )
        result, falsification, verification = measured(log, dots, seed, stored)
        if omitted and stored:
            result = _with_sparse_evidence(stored, omitted, result)
            verification = verification and of_sparse(stored, verification)
        if verification is None:
            reason = "no model explains the device's results"
            return Row(name=inst.name, status="unverified", reason=reason, unstable=log.unstable, **_known(result))
        return Row(
            name=inst.name,
            status="inferred",
            reason=instability(log),
            model=result.model,
            verification=verification,
            alternatives=Alternatives(
                tested=falsification.tried, surviving=tuple(alternative.deviation for alternative in falsification.surviving)
            ),
            unstable=log.unstable,
            **_known(result),
        )

    def _check_still_works(self, worked: Instruction, error: DeviceError) -> None:
        try:
            self._device.dot(worked, Request.zeros(worked, 1))
        except DeviceError:
            raise DeviceError(f"{self._device.name} stopped working: {error}") from error


def _with_sparse_evidence(device: StoredProducts, omitted: Finding, result: Characterisation) -> Characterisation:
    """Return the findings with their evidence as exchanges of the sparse instruction, and the one on what is left out."""
    findings = {
        name: replace(finding, evidence=tuple(map(device.sparse, finding.evidence)))
        for name, finding in result.findings.items()
    }
    return replace(result, findings=findings | {LEFT_OUT: omitted})


def _defect(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"a defect of accprobe, please report it: {type(error).__name__}: {error} ({place})"


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


def lowering_of(row: Row) -> Lowering | None:
    """Return the lowering that a row reports."""
    if row.opcode_source is None:
        return None
    return Lowering(row.opcodes, row.lowering, row.opcode_source, row.cubin_sha256)


def _known(result: Characterisation) -> dict[str, Any]:
    """Return the fields of a row for findings and their evidence."""
    findings = {name: replace(finding, evidence=()) for name, finding in result.findings.items()}
    evidence = {name: finding.evidence for name, finding in result.findings.items() if finding.evidence}
    return {"findings": findings, "evidence": evidence}
