"""Roles of instructions: operand and result formats. Each generation offers a different instruction for the same role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accprobe.isa.instructions import Instruction
from accprobe.report.rows import Row

# Operand formats with a common name.
CLASSES = {
    "FP8": ("e4m3", "e5m2"),
    "FP6": ("e3m2", "e2m3"),
    "FP4": ("e2m1",),
    "INT8": ("s8", "u8"),
    "INT4": ("s4", "u4"),
}


@dataclass(frozen=True)
class InstructionRole:
    """Formats of the operands and the result, and other properties of the sum except the shape."""

    a: str
    b: str
    c: str
    d: str
    satfinite: bool
    sparse: bool
    scaling: str
    bit_op: str

    @property
    def operands(self) -> str:
        """Return "FP8", "F16", "FP8 × FP4"."""
        return " × ".join(dict.fromkeys((_class(self.a), _class(self.b))))

    def __str__(self) -> str:
        """Return "FP8 → f32", "sparse INT8 → s32 saturating"."""
        addend = f"+ {self.c}" if self.c != self.d else ""
        operands = ("sparse" * self.sparse, self.scaling, self.operands, self.bit_op, addend)
        words = (*operands, "→", self.d, "saturating" * self.satfinite)
        return " ".join(filter(None, words))


def role_of(inst: Instruction) -> InstructionRole:
    scaling = f"{inst.kind} {inst.scale_block} × {inst.scale}" if inst.scale else ""
    return InstructionRole(
        inst.a.name, inst.b.name, inst.c.name, inst.d.name, inst.satfinite, inst.sparse, scaling, inst.bit_op or ""
    )


def offered(rows: Iterable[Row]) -> dict[InstructionRole, list[Row]]:
    """Return the rows of the newest family that has each role."""
    found: dict[InstructionRole, list[Row]] = {}
    for row in rows:
        found.setdefault(role_of(row.instruction), []).append(row)
    return {wanted: _newest(alike) for wanted, alike in found.items()}


def nearest_shape(inst: Instruction, rows: Iterable[Row]) -> Row:
    """Return the row with the nearest shape: first k, then n, m, and the place of A."""

    def distance(row: Row) -> tuple[int, int, int, bool]:
        other = row.instruction
        registers = inst.a_registers != other.a_registers
        return abs(inst.k - other.k), abs(inst.n - other.n), abs(inst.m - other.m), registers

    return min(rows, key=distance)


def _newest(rows: Sequence[Row]) -> list[Row]:
    family = max((row.instruction.family for row in rows), key=lambda family: family.since)
    return [row for row in rows if row.instruction.family is family]


def _class(name: str) -> str:
    return next((known for known, members in CLASSES.items() if name in members), name.upper())
