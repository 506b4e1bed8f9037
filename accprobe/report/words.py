"""What a report says of an instruction, in words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterable

from accprobe.infer.findings import Finding
from accprobe.isa.formats import Format
from accprobe.report.rows import Row
from accprobe.sass import opcodes
from accprobe.sass.lowering import is_ordinary


def so_many(count: int, noun: str) -> str:
    """ "1 instruction", "2,000 instructions"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def ran_as(row: Row) -> str:
    """The lowering without modifiers: "F2FP + 2×HMMA + FADD"."""
    return lowered(row.lowering)


def lowered(sequence: Iterable[tuple[str, int]]) -> str:
    """(opcode, count) without modifiers; counts of matrix opcodes alone, others go by registers."""
    counts: dict[str, int] = {}
    for opcode, count in sequence:
        counts[opcodes.stem(opcode)] = counts.get(opcodes.stem(opcode), 0) + count
    return " + ".join(f"{count}×{stem}" if opcodes.family(stem) and count > 1 else stem for stem, count in counts.items())


def effective_bits(row: Row) -> str:
    """ "13 (e8m13)": fraction bits of the running sum, and the float that has as many; "32 wrap" for an integer."""
    d = row.instruction.d
    if d.is_integer:
        return " ".join(filter(None, (found(row, "result_bits"), found(row, "overflow"))))
    bits = row.findings.get("effective_bits")
    return f"{value(bits)} ({register(d, bits.value)})" if bits and isinstance(bits.value, int) else ""


def register(d: Format, bits: int) -> str:
    """The float with the exponent of `d` and that many fraction bits: "f32" for 23, "e8m13" for 13."""
    return d.name if bits == d.mantissa_bits else f"e{d.exponent_bits}m{bits}"


FROM_ORDER = ("products_per_sum", "addend")
"""Features that are the order in other words."""


def found(row: Row, feature: str) -> str:
    """The value of a finding, "" where there is none. What follows from the order is open where several orders are left."""
    if feature not in row.findings:
        return ""
    finding = row.findings[feature]
    if is_unknown(row, finding) or (feature in FROM_ORDER and row.findings["order"].candidates):
        return f"{word(finding.value, feature)}?"
    return value(finding, feature)


def is_unknown(row: Row, finding: Finding) -> bool:
    """Undetermined, and nothing lists what it may be. Of integers all values give the same bits; of floats others may not."""
    return finding.bound == "undetermined" and not finding.candidates and not row.instruction.is_integer


def value(finding: Finding, feature: str = "") -> str:
    """ "13", "≥24" for a lower bound, "13?" where other values explain everything as well, "any" where every value does,
    "~13" for what is only suggested.
    """
    text = word(finding.value, feature)
    if finding.bound == "at_least":
        return f"≥{text}"
    if finding.bound == "undetermined":
        return f"{text}?" if finding.candidates else "any"
    if finding.bound == "suggested":
        return f"~{text}"
    if finding.bound == "equivalent":
        return " or ".join([word(x, feature) for x in finding.candidates[:2]] + ["others"] * (len(finding.candidates) > 2))
    return text


def word(plain: int | str | None, feature: str = "") -> str:
    """One value in words: no alignment bits are an exact sum."""
    if plain is None:
        return "exact" if feature.endswith("alignment_bits") else "none"
    return str(plain)


def is_narrow(row: Row) -> bool:
    """Whether the running sum is known to keep fewer bits than the result has: of a device that was measured, or simulated."""
    bits, d = row.findings.get("effective_bits"), row.instruction.d
    proved = row.verification is not None and not row.verification.mismatches and row.status in ("confirmed", "simulated")
    if bits is None or not proved:
        return False
    return bits.bound == "exact" and isinstance(bits.value, int) and bits.value < d.mantissa_bits


def detour(row: Row) -> str:
    """What did the work where no unit of the operands' own format did; "" where one did."""
    if is_ordinary(row.lowering):
        return "no matrix unit: ordinary instructions multiplied and added"
    if any(opcodes.relation(row.instruction, opcode) == "converted" for opcode in row.opcodes):
        return "a unit of other formats: the operands were converted for it"
    return ""
