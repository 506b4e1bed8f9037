"""The verdict on a row: its status and why, and what of its findings may be said then."""

from __future__ import annotations

from dataclasses import replace

from accprobe.devices.protocol import Device, Explains
from accprobe.infer.findings import Finding
from accprobe.isa.instructions import Instruction
from accprobe.report.published import with_open
from accprobe.report.rows import Row, Status
from accprobe.sass import opcodes
from accprobe.sass.lowering import Lowering, is_ordinary
from accprobe.verify.outcome import Verification


def verdict(inst: Instruction, row: Row, lowering: Lowering | None) -> tuple[Status, str]:
    """The status of a row that has a model, and the reason where it is not confirmed."""
    if lowering is None:
        return "unverified", "which opcode ran is not known: see `accprobe doctor`"
    known = lowering.matrix or (inst.family.converts and is_ordinary(lowering.sequence))
    if not known or any(opcodes.relation(inst, opcode) == "foreign" for opcode in lowering.matrix):
        ran = ", ".join(lowering.matrix) or "no matrix opcode"
        return "unverified", f"{ran} ran, not an opcode of {inst.family}'s unit"
    if row.unstable:
        return "unstable", row.reason
    done = row.verification
    reason = (_disproved(done) or _uncovered(done)) if done else "nothing was verified"
    return ("inferred", reason) if reason else ("confirmed", "")


def with_status(row: Row) -> Row:
    """The row with no more claimed than was seen: where it is not confirmed, its findings are suggested at most."""
    if row.status == "confirmed":
        return row
    return row.model_copy(update={"findings": {name: _suggested(finding) for name, finding in row.findings.items()}})


def with_device_status(row: Row, device: Device) -> Row:
    """The row as the report has it: of a simulated device it is `simulated`; its reason says what else is in the way.

    What no public result of the real chip pins is undetermined, however well the simulation was found again.
    """
    if device.kind != "simulated":
        return row
    changes: dict[str, object] = {"status": "simulated"}
    if isinstance(device, Explains):
        opened = {name: values for name, values in device.left(row.instruction).items() if name in row.findings}
        changes |= {"explains": device.explains(row.instruction), "findings": with_open(row.findings, opened)}
    return row.model_copy(update=changes)


def _disproved(done: Verification) -> str:
    if done.contradicting:
        return f"{done.contradicting:,} of {done.results:,} answers differ from the model"
    return f"{done.mismatches:,} of {done.dots:,} dot products differ from the model" if done.mismatches else ""


def _uncovered(done: Verification) -> str:
    if not all(done.kinds.values()):
        return f"{done.random} random dot products are not enough for every kind of operands; give more --dots"
    if done.tile and done.tile.covered < done.tile.total:
        return f"{done.tile.covered:,} of the {done.tile.total:,} cells of the tile were read; give more --dots"
    if done.events and done.events.missing:
        missing, first = len(done.events.missing), done.events.missing[0]
        return f"{missing:,} of {done.events.possible:,} events of the model were not met, the first: {first}"
    return ""


def _suggested(finding: Finding) -> Finding:
    """The finding without a claim: the values left are those of models near one that is wrong, so another may be true."""
    if finding.candidates:
        return replace(finding, bound="suggested", candidates=(), note="")
    return replace(finding, bound="suggested") if finding.bound in ("exact", "at_least") else finding
