"""The status of a row, its reason, and what its findings claim at that status."""

from __future__ import annotations

from dataclasses import replace

from accprobe.devices.protocol import Device
from accprobe.infer.findings import Finding
from accprobe.isa.instructions import Instruction
from accprobe.report.published import with_open
from accprobe.report.rows import Row, Status
from accprobe.sass import opcodes
from accprobe.sass.lowering import Lowering, is_ordinary
from accprobe.verify.outcome import Verification


def verdict(inst: Instruction, row: Row, lowering: Lowering | None) -> tuple[Status, str]:
    """Return the status of a row that has a model, and the reason if it is not confirmed."""
    if lowering is None:
        return "unverified", "which opcode ran is not known: see `accprobe doctor`"
    known = lowering.matrix or (inst.family.converts and is_ordinary(lowering.sequence))
    if not known or any(opcodes.relation(inst, opcode) == "foreign" for opcode in lowering.matrix):
        ran = ", ".join(lowering.matrix) or "no matrix opcode"
        return "unverified", f"{ran} ran, not an opcode of {inst.family}'s unit"
    if row.unstable:
        return "unstable", row.reason
    done = row.verification
    reason = (_contradicted(done) or _uncovered(done)) if done else "nothing was verified"
    return ("inferred", reason) if reason else ("confirmed", "")


def with_status(row: Row) -> Row:
    """Return the row with findings that claim what was tested: unless it is confirmed, they are only suggested."""
    if row.status == "confirmed":
        return row
    return row.model_copy(update={"findings": {name: _suggested(finding) for name, finding in row.findings.items()}})


def with_device_status(row: Row, device: Device) -> Row:
    """Return the row as the report has it: `simulated` on a simulated device; its reason says what else prevents confirmation.

    A feature that no public result of the real chip determines is undetermined, even if that of the simulation was found.
    """
    if device.kind != "simulated":
        return row
    undetermined = {name: values for name, values in device.candidates(row.instruction).items() if name in row.findings}
    findings, explains = with_open(row.findings, undetermined), device.explains(row.instruction)
    return row.model_copy(update={"status": "simulated", "explains": explains, "findings": findings})


def _contradicted(done: Verification) -> str:
    if done.contradicting:
        return f"{done.contradicting:,} of {done.results:,} results differ from the model"
    return f"{done.mismatches:,} of {done.dots:,} dot products differ from the model" if done.mismatches else ""


def _uncovered(done: Verification) -> str:
    if not all(done.kinds.values()):
        return f"{done.random} random dot products are not enough for every kind of operands; give more --dots"
    if done.tile and done.tile.covered < done.tile.total:
        return f"{done.tile.covered:,} of the {done.tile.total:,} tile elements were covered; give more --dots"
    if done.events and done.events.missing:
        missing, first = len(done.events.missing), done.events.missing[0]
        return f"{missing:,} of {done.events.possible:,} events of the model were not covered, the first: {first}"
    return ""


def _suggested(finding: Finding) -> Finding:
    """Return the finding without a claim: its candidates are those of models near a wrong one, so another may be true."""
    if finding.candidates:
        return replace(finding, bound="suggested", candidates=(), note="")
    return replace(finding, bound="suggested") if finding.bound in ("exact", "at_least") else finding
