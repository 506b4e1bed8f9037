"""The measurement of one instruction: characterised, challenged by rivals, verified against fresh random operands; its row."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from accprobe.devices.protocol import Device
from accprobe.devices.recording import Exchanges, RecordedDevice
from accprobe.devices.stored import StoredProducts, dense
from accprobe.errors import AccprobeError, DeviceError, NotRecorded
from accprobe.infer.findings import Characterisation, Finding
from accprobe.infer.left_out import LEFT_OUT, PLAYS_NO_PART, left_out
from accprobe.infer.query_log import QueryLog
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request
from accprobe.report.rows import Alternatives, Row
from accprobe.sass.lowering import Lowering
from accprobe.survey.pipeline import instability, measured
from accprobe.survey.status import verdict, with_status
from accprobe.verify.left_out import as_asked
from accprobe.verify.onehot import misplaced

# A row, and where the run is recorded every exchange that led to it.
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
        """The row of `inst`, `unverified` where it fails.

        Raises DeviceError where what worked before fails too, NotRecorded where a replay does not go on.
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
                self._ask_again(self._worked, e)
            row = Row(name=inst.name, status="unverified", reason=str(e))
        except Exception as e:  # a defect that one instruction shows must not cost the others their rows
            row = Row(name=inst.name, status="unverified", reason=_defect(e))
        return copied(row, inst, lowering).model_copy(update={"seconds": round(time.perf_counter() - started, 3)})

    def _row(self, inst: Instruction, dots: int, seed: int) -> Row:
        asked = dense(self._device, inst)
        stored = asked if isinstance(asked, StoredProducts) else None
        log = QueryLog(asked, inst.stored)
        if wrong := misplaced(log.tests, inst):
            return Row(name=inst.name, status="unverified", reason=wrong)
        beside = left_out(log.tests, inst) if inst.sparse else None
        if beside and beside.value != PLAYS_NO_PART:
            reason = f"what a sparse A leaves out of B takes part: {beside.value}"
            return Row(name=inst.name, status="unverified", reason=reason, **_known(Characterisation(inst, {LEFT_OUT: beside})))
        result, falsification, verification = measured(log, dots, seed, stored)
        if beside and stored:
            result = _as_asked(stored, beside, result)
            verification = verification and as_asked(stored, verification)
        if verification is None:
            reason = "no model explains what the device answered"
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

    def _ask_again(self, worked: Instruction, error: DeviceError) -> None:
        try:
            self._device.dot(worked, Request.zeros(worked, 1))
        except DeviceError:
            raise DeviceError(f"{self._device.name} stopped working: {error}") from error


def _as_asked(asked: StoredProducts, beside: Finding, result: Characterisation) -> Characterisation:
    """Findings of the stored products with the evidence as it was asked, and that of what is left out."""
    findings = {
        name: replace(finding, evidence=tuple(map(asked.asked, finding.evidence))) for name, finding in result.findings.items()
    }
    return replace(result, findings=findings | {LEFT_OUT: beside})


def _defect(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"a defect of accprobe, please report it: {type(error).__name__}: {error} ({place})"


def copied(row: Row, inst: Instruction, lowering: Lowering | None) -> Row:
    """The row of an instruction that is computed as `row` says, and became `lowering`."""
    changes: dict[str, object] = {"name": inst.name, **_witness(lowering)}
    if row.model is not None:
        changes["status"], changes["reason"] = verdict(inst, row, lowering)
    return with_status(row.model_copy(update=changes))


def counted(row: Row, executed: Lowering) -> Row:
    """The row with the profiler's word for what ran; it is not verified where the disassembly says otherwise."""
    if sorted(executed.sequence) == sorted(row.lowering):
        return row.model_copy(update={"opcode_source": executed.source})
    counted, read = (", ".join(f"{count}×{opcode}" for opcode, count in seen) for seen in (executed.sequence, row.lowering))
    reason = f"the profiler counted {counted or 'nothing'}, the disassembly has {read or 'nothing'}"
    return with_status(row.model_copy(update={"status": "unverified", "reason": reason}))


def _witness(lowering: Lowering | None) -> dict[str, object]:
    if lowering is None:
        return {}
    return {
        "opcodes": lowering.matrix,
        "lowering": lowering.sequence,
        "opcode_source": lowering.source,
        "cubin_sha256": lowering.cubin_sha256,
    }


def witnessed(row: Row) -> Lowering | None:
    """What a row tells of its lowering."""
    if row.opcode_source is None:
        return None
    return Lowering(row.opcodes, row.lowering, row.opcode_source, row.cubin_sha256)


def _known(result: Characterisation) -> dict[str, Any]:
    """Findings, and their evidence beside them."""
    findings = {name: replace(finding, evidence=()) for name, finding in result.findings.items()}
    evidence = {name: finding.evidence for name, finding in result.findings.items() if finding.evidence}
    return {"findings": findings, "evidence": evidence}
