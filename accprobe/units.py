"""Matrix units: which unit an opcode belongs to, and which operand formats that unit takes as they are.

An opcode's stem is [UTC] LETTER [G] MMA: the letter is the unit, G a warpgroup's, UTC the fifth generation's, as in HMMA,
QGMMA, UTCQMMA. A unit that is given operands of another's formats gets them converted first, then adds as it adds its own.
"""

from __future__ import annotations

import re
from typing import Literal

from accprobe.instructions import Family, Instruction

_STEM = re.compile(r"(UTC)?([BDHIOQ])(G)?MMA(?![A-Z])")

_NATIVE: dict[str, frozenset[str]] = {
    "B": frozenset({"b1"}),
    "D": frozenset({"f64"}),
    "H": frozenset({"f16", "bf16", "tf32"}),
    "I": frozenset({"s8", "u8", "s4", "u4"}),
    "O": frozenset({"e2m1"}),
    "Q": frozenset({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}),
}

_FAMILIES: dict[tuple[bool, bool], Family] = {(False, False): "mma.sync", (False, True): "wgmma", (True, False): "tcgen05"}


def letter(formats: set[str]) -> str:
    """The letter of the first unit that takes all of these operand formats as they are."""
    return next(letter for letter, native in _NATIVE.items() if formats <= native)


def stem(opcode: str) -> str:
    """The opcode without modifiers: "HMMA" of "HMMA.16816.F32"."""
    return opcode.partition(".")[0]


def family(opcode: str) -> Family | None:
    """The PTX family whose unit the matrix opcode is, None where it is no matrix opcode."""
    found = _STEM.match(opcode)
    return _FAMILIES.get((found[1] is not None, found[3] is not None)) if found else None


def relation(inst: Instruction, opcode: str) -> Literal["native", "converted", "foreign"]:
    """How the unit of a matrix opcode relates to the instruction that became it.

    "native": the unit takes the operand formats; "converted": a unit of the instruction's family, but of other formats;
    "foreign": a unit of another family, or no matrix unit.
    """
    found = _STEM.match(opcode)
    if not found or family(opcode) != inst.family:
        return "foreign"
    return "native" if {inst.a.name, inst.b.name} <= _NATIVE[found[2]] else "converted"
