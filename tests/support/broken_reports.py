"""Reports that cannot be read, and the error message of each."""

from __future__ import annotations

import json
from typing import Any

from fakes import report_data


def changed(path: str, value: Any) -> str:
    """Return a report with another value at a dotted path; None removes the key."""
    data = report_data()
    *parents, last = path.split(".")
    place: Any = data
    for key in parents:
        place = place[int(key)] if key.isdecimal() else place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


BROKEN = {
    "truncated": (json.dumps(report_data())[:300], "it is not JSON, or cut short (EOF while parsing"),
    "nested too deeply": ("[" * 100_000, "it is not an accprobe report: it is nested too deeply"),
    "no object": ("[1, 2]", "it is not an accprobe report"),
    "another tool's": ('{"devices": [], "version": "1"}', "it is not an accprobe report, but another JSON file"),
    "newer schema": (
        changed("schema", 6),
        "schema: this accprobe reads schema 5, the file has 6; a newer accprobe may read it",
    ),
    "schema true": (changed("schema", True), "schema: this accprobe reads schema 5, the file has True"),
    "field missing": (changed("device.name", None), "device.name: the key is missing"),
    "unknown key": (changed("device.host", "me"), "device.host: there is no such key in schema 5"),
    "wrong type": (changed("seed", "0"), "seed: input should be a valid integer; it is '0'"),
    "unknown status": (changed("claims.1.status", "ok"), "claims.1.instruction.status: input should be 'confirmed'"),
    "unknown instruction": (changed("claims.1.name", "wgmma.m64n8k33.f32"), "claims.1.instruction: name: unknown instruction"),
    "an instruction twice": (
        changed("claims.2.name", "wgmma.m64n8k32.f32.e4m3.e4m3.rs"),
        "claims.3: wgmma.m64n8k32.f32.e4m3.e4m3.rs is there twice",
    ),
    "nothing verified": (
        changed("claims.1.verification.compared", 0),
        "claims.1.instruction: status: 'confirmed', yet nothing was compared with the model",
    ),
    "confirmed, and a reason why not": (
        changed("claims.1.reason", "3 differ"),
        "claims.1.instruction: status: 'confirmed', yet there is a reason against it: 3 differ",
    ),
    "nothing found": (changed("claims.1.findings", {}), "claims.1.instruction: status: 'confirmed', yet there are no findings"),
    "no alternatives": (
        changed("claims.1.alternatives", None),
        "claims.1.instruction: status: 'confirmed', yet no alternatives were tested",
    ),
    "an opcode that did not run": (
        changed("claims.1.opcodes", ["QMMA.16832.F32"]),
        "claims.1.instruction: opcodes: QMMA.16832.F32, yet the matrix opcodes of the lowering are HMMA.16816.F32",
    ),
    "confirmed by no hardware": (
        changed("device.kind", "simulated"),
        "claims.1.status: 'confirmed', yet the device's kind is 'simulated'",
    ),
    "simulated on hardware": (
        changed("claims.2.status", "simulated"),
        "claims.2.status: 'simulated', yet the device's kind is 'cuda'",
    ),
    "no model": (changed("claims.1.model", None), "claims.1.instruction: status: 'confirmed', yet there is no model"),
    "broken model": (changed("claims.1.model.order", "[c 0-"), "claims.1.instruction.model: order"),
    "model of another kind": (changed("claims.1.model.arithmetics", 3), "claims.1.instruction.model.arithmetics"),
    "evidence in a finding": (
        changed("claims.1.findings.alignment_bits.evidence", [["00", "00", "00", "00"]]),
        "claims.1.instruction: findings.alignment_bits.evidence: evidence has its own key",
    ),
    "evidence is no hex": (
        changed("claims.1.evidence.alignment_bits", [["zz", "00", "00", "00"]]),
        "claims.1.instruction.evidence.alignment_bits.0.0: ",
    ),
    "evidence too short": (
        changed("claims.1.evidence.alignment_bits", [["00", "00", "00", "00"]]),
        "claims.1.instruction: evidence.alignment_bits.0: it has 2, 2, 2, 2 hex digits, and an exchange of"
        " mma.sync.m16n8k32.f32.e4m3.e4m3.f32 has 64, 64, 8, 8",
    ),
}
