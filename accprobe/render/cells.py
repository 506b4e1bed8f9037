"""What a report says about an instruction, in words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from accprobe import units
from accprobe.formats import Format
from accprobe.render.patterns import patterns
from accprobe.report import Finding, Report, Row, Status


class Cells(NamedTuple):
    """The outcome of one instruction; instructions with equal cells differ in nothing that a table shows."""

    ran_as: str
    effective_bits: str
    alignment_bits: str
    alignment_rounding: str
    result_rounding: str
    products_per_sum: str
    addend: str
    dots: str
    rivals: str
    status: Status


MEASURES = ("dots", "rivals")
"""Cells that say how hard an instruction was tried, not what it does: like instructions share a line although these differ."""


class Line(NamedTuple):
    """One line of a table: a pattern of instructions that are alike, one of them, and the cells of all."""

    pattern: str
    row: Row
    cells: Cells


def cells(row: Row) -> Cells:
    """The cells of a row that is not skipped; "" where nothing is known."""
    return Cells(
        ran_as(row),
        effective_bits(row),
        found(row, "alignment_bits"),
        found(row, "alignment_rounding"),
        found(row, "result_rounding"),
        found(row, "products_per_sum"),
        found(row, "addend"),
        _dots(row),
        f"{len(row.rivals.survived)}/{row.rivals.tried}" if row.rivals else "",
        row.status,
    )


def lines(rows: Sequence[Row], columns: Sequence[str], collapse: bool = True) -> list[Line]:
    """The rows as lines, in the order of their first rows.

    `collapse`: those of one family that are equal in the columns shown, but for how hard they were tried, become as few
    lines as patterns allow.
    """
    if not collapse:
        return [Line(row.name, row, cells(row)) for row in rows]
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        shown = cells(row)
        key = (getattr(shown, column) for column in columns if column not in MEASURES)
        alike.setdefault((row.instruction.family, *key), []).append(row)
    return [
        Line(pattern, group[0], _together(group)) for group in alike.values() for pattern in patterns(row.name for row in group)
    ]


def _together(group: Sequence[Row]) -> Cells:
    """The cells of rows that are alike: how hard they were tried as ranges."""
    done = [row.verification for row in group if row.verification]
    tried = [row.rivals for row in group if row.rivals]
    first = cells(group[0])
    if len(done) == len(group) and not any(verification.mismatches for verification in done):
        first = first._replace(dots=_range([verification.dots for verification in done]))
    if len(tried) == len(group):
        left = _range([len(rivals.survived) for rivals in tried])
        first = first._replace(rivals=f"{left}/{_range([rivals.tried for rivals in tried])}")
    return first


def _range(counts: Sequence[int]) -> str:
    low, high = compact(min(counts)), compact(max(counts))
    return low if low == high else f"{low}-{high}"


def ran_as(row: Row) -> str:
    """The lowering without modifiers: "F2FP + 2×HMMA + FADD"."""
    return lowered(row.lowering)


def lowered(sequence: Iterable[tuple[str, int]]) -> str:
    """(opcode, count) without modifiers; counts of matrix opcodes alone, others go by registers."""
    counts: dict[str, int] = {}
    for opcode, count in sequence:
        counts[units.stem(opcode)] = counts.get(units.stem(opcode), 0) + count
    return " + ".join(f"{count}×{stem}" if units.family(stem) and count > 1 else stem for stem, count in counts.items())


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


def found(row: Row, feature: str) -> str:
    """The value of a finding, "" where there is none."""
    return value(row.findings[feature], feature) if feature in row.findings else ""


def value(finding: Finding, feature: str = "") -> str:
    """ "13", "≥24" for a lower bound, "13?" where other values explain everything as well, "any" where every value does."""
    text = word(finding.value, feature)
    if finding.bound == "at_least":
        return f"≥{text}"
    if finding.bound == "undetermined":
        return f"{text}?" if finding.left else "any"
    return text


def word(plain: int | str | None, feature: str = "") -> str:
    """One value in words: no alignment bits are an exact sum."""
    if plain is None:
        return "exact" if feature.endswith("alignment_bits") else "none"
    return str(plain)


def is_narrow(row: Row) -> bool:
    """Whether the running sum is known, and confirmed by a model that predicts it, to keep fewer bits than the result has."""
    bits, d = row.findings.get("effective_bits"), row.instruction.d
    if bits is None or row.verification is None or row.verification.mismatches:
        return False
    return bits.bound == "exact" and isinstance(bits.value, int) and bits.value < d.mantissa_bits


def is_converted(row: Row) -> bool:
    """Whether a unit of other formats did the work."""
    return any(units.relation(row.instruction, opcode) == "converted" for opcode in row.opcodes)


def meanings(report: Report) -> list[str]:
    """What a reader must not miss, one sentence each."""
    narrow: dict[str, list[str]] = {}
    converted: dict[str, list[str]] = {}
    for row in report.measured:
        inst = row.instruction
        if is_narrow(row):
            sentence = f"The running sum keeps {effective_bits(row)} of the {inst.d.mantissa_bits} fraction bits of {inst.d}"
            narrow.setdefault(sentence, []).append(row.name)
        if is_converted(row):
            matrix = " and ".join(dict.fromkeys(map(units.stem, row.opcodes)))
            sentence = f"Computed by {matrix} on converted operands, not by a unit of their own format"
            converted.setdefault(sentence, []).append(row.name)
    return [f"{sentence}: {', '.join(patterns(names))}." for sentence, names in (narrow | converted).items()]


def _dots(row: Row) -> str:
    if row.verification is None:
        return ""
    wrong = row.verification.mismatches
    return f"{compact(row.verification.dots)}, {compact(wrong)} wrong" if wrong else compact(row.verification.dots)


def compact(count: int) -> str:
    """ "512", "16k", "1.5M": two digits where it is rounded."""
    for size, suffix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2g}{suffix}" if count < 100 * size else f"{count // size}{suffix}"
    return str(count)
