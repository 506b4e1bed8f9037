"""The accumulator of a matrix opcode on an architecture: from recorded reports, else from published models, else unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from accprobe.errors import UnknownName
from accprobe.isa import architectures, opcodes
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction
from accprobe.isa.opcodes import Kind
from accprobe.model import published
from accprobe.records.findings import Findings, findings_of
from accprobe.records.rows import Row
from accprobe.report.published import recorded_of
from accprobe.report.words import register


@dataclass(frozen=True)
class Accumulator:
    """Precision of a running sum. bits: its fraction bits, None for integers. bound: "exact" or "at_least".

    format: of the result. alignment_bits: F, None for exact sums. source: "measured on an NVIDIA H100 (report h100)", or the
    publication. sizes: every n that was measured. wider: the accumulator with a wider result format, if the opcode's name does
    not show the format (fifth generation).
    """

    bits: int | None
    bound: str
    format: str
    alignment_bits: int | None
    source: str
    sizes: frozenset[int] = frozenset()
    wider: Accumulator | None = None

    @property
    def text(self) -> str:
        """Return "13 (e8m13)", "≥13 (e8m13)", "s32, exact" or "23 (f32) or 10 (f16)"."""
        if self.bits is None:
            return f"{self.format}, exact"
        either = f"{self.wider.text} or " if self.wider else ""
        bound = "≥" if self.bound == "at_least" else ""
        return f"{either}{bound}{self.bits} ({register(FORMATS[self.format], self.bits)})"


_EXACT = "integers are added exactly, modulo 2^32"
_EXACT_SATURATED = "integers are added exactly, and the sum is clamped"


def accumulator(opcode: str, architecture: str) -> Accumulator | None:
    """Return the accumulator of a matrix opcode, None if it is unknown. architecture: "sm_90" or "sm_90a"."""
    matrix = opcodes.parse(opcode)
    if matrix.is_integer:
        return Accumulator(None, "exact", "s32", None, _EXACT_SATURATED if matrix.saturates else _EXACT)
    if matrix.scaled:
        return None
    try:
        name = architectures.get(architecture).name
    except UnknownName:
        return None
    known = _measured(name).get(matrix.kind) or _published(name).get(matrix.kind)
    if known is None or not known.sizes or not matrix.n or matrix.n in known.sizes:
        return known
    sizes = " and ".join(map(str, sorted(known.sizes)))
    return replace(known, source=f"{known.source}, at n = {sizes}, not at {matrix.n}")


@cache
def _measured(architecture: str) -> dict[Kind, Accumulator]:
    """Return accumulators from recorded reports of GPUs of this architecture. Confirmed rows count if the expected unit ran."""
    reports = recorded_of(architectures.get(architecture).target)
    rows: dict[Kind, list[tuple[str, Row]]] = {}
    for name, report in reports.items():
        for row in report.measured:
            native = [opcodes.relation(row.instruction, opcode) == "native" for opcode in row.opcodes]
            if row.status == "confirmed" and native == [True]:
                rows.setdefault(opcodes.parse(row.opcodes[0]).kind, []).append((name, row))
    found: dict[Kind, Accumulator] = {}
    for kind, named in rows.items():
        devices = {name: f"{published.article(reports[name].device.name)} {reports[name].device.name}" for name, _ in named}
        source = f"measured on {' and '.join(devices.values())} (report{'s' * (len(devices) > 1)} {', '.join(devices)})"
        if known := [each for _, row in named if (each := _read_findings(row.instruction, row.findings, source))]:
            found[kind] = replace(_narrowest(known), sizes=frozenset(row.instruction.n for _, row in named))
    return found


@cache
def _published(architecture: str) -> dict[Kind, Accumulator]:
    """Return accumulators of the published models of chips of this architecture."""
    found: dict[Kind, list[Accumulator]] = {}
    for name in (name for name, chip in published.CHIPS.items() if architectures.get(chip.architecture).name == architecture):
        for inst, model in published.known_models(name).items():
            source = f"published: {model.source.removesuffix(f'; {published.MEASURED}')}"
            known = _read_findings(inst, findings_of(inst, model.model), source)
            if known and {opcodes.relation(inst, opcode) for opcode in model.lowering.matrix} == {"native"}:
                found.setdefault(opcodes.kind_of(inst), []).append(known)
    return {kind: _narrowest(known) for kind, known in found.items()}


def _read_findings(inst: Instruction, findings: Findings, source: str) -> Accumulator | None:
    """Return the accumulator that findings describe; None of integers, or where its bits are not known."""
    bits, f = findings.get("effective_bits"), findings.get("alignment_bits")
    if bits is None or not isinstance(bits.value, int):
        return None
    alignment = f.value if f is not None and isinstance(f.value, int) else None
    return Accumulator(bits.value, "exact" if bits.bound == "exact" else "at_least", inst.d.name, alignment, source)


def _narrowest(known: Sequence[Accumulator]) -> Accumulator:
    """Return the accumulator with the fewest bits, and one of another result format as the wider one."""
    fewest = min(known, key=lambda each: each.bits or 0)
    return replace(fewest, wider=next((each for each in known if each.format != fewest.format), None))
