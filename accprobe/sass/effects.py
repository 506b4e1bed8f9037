"""Effects of lines of SASS on general registers: the registers that they write, and the sources of the values."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from accprobe.sass.opcodes import is_matrix, parse
from accprobe.sass.reading import Function

Action = Literal["matrix", "add", "scale", "copy", "lose"]
"""The operation of a line on its sources. matrix: a matrix unit adds products of floats. add, scale, copy: elementwise; scale
multiplies. lose: any other opcode, whose result is not followed.
"""

_REGISTER = re.compile(r"\s*[-+|~!]*R(\d+|Z)(?!\w)")
_FIRST = re.compile(r"^(?:R(\d+)\b)?.*", re.MULTILINE)
"""The number of the register at the start of the operands, "" if they start with something else."""
_SECOND = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "MATCH"})
"""Opcodes whose first operand is a predicate, and whose second is the register that they write."""
_PAIRS = frozenset({"DADD", "DFMA", "DMUL", "FADD2", "FFMA2", "FMUL2"})
_WIDE = {"64": 2, "128": 4, "WIDE": 2, "x2": 2, "x4": 4, "x8": 8, "x16": 16, "x32": 32, "x64": 64, "x128": 128}

_FIRST_TWO, _FIRST_THREE, _LAST, _NONE = slice(1, 3), slice(1, 4), slice(-1, None), slice(0)
_BY_STEM: dict[str, tuple[Action, slice]] = {
    **dict.fromkeys(("FADD", "HADD2", "DADD", "FADD2"), ("add", _FIRST_TWO)),
    **dict.fromkeys(("FFMA", "HFMA2", "DFMA", "FFMA2"), ("add", _FIRST_THREE)),
    **dict.fromkeys(("FMUL", "HMUL2", "DMUL", "FMUL2"), ("scale", _FIRST_TWO)),
    **dict.fromkeys(("SEL", "FSEL"), ("copy", _FIRST_TWO)),
    "MOV": ("copy", _LAST),
}


class Effect(NamedTuple):
    """width: number of registers that an opcode writes. sources: the operands from which its values are made."""

    action: Action
    width: int
    sources: slice


@cache
def effect(opcode: str) -> Effect:
    """Return the effect of an opcode."""
    stem, *modifiers = opcode.split(".")
    if is_matrix(opcode):
        matrix = parse(opcode)
        return Effect("lose" if matrix.is_integer else "matrix", matrix.accumulator_registers, _NONE)
    action, sources = ("copy", _LAST) if stem == "IMAD" and "MOV" in modifiers else _BY_STEM.get(stem, ("lose", _NONE))
    return Effect(action, _width(stem, modifiers), sources)


def _width(stem: str, modifiers: list[str]) -> int:
    if stem in _PAIRS:
        return 2
    if stem == "CS2R":
        return 1 if "32" in modifiers else 2
    if stem == "LDSM":
        return int(modifiers[-1]) if modifiers[-1].isdecimal() else 1
    return max((_WIDE.get(modifier, 1) for modifier in modifiers), default=1)


def first_written(function: Function) -> list[int]:
    """Return the first register that each line writes, -1 if it writes none."""
    firsts = _FIRST.findall("\n".join([line.operands for line in function.lines])) if function.lines else []
    found = [int(first) if first else -1 for first in firsts]
    for index, line in enumerate(function.lines):
        if not firsts[index] and line.stem in _SECOND:
            second = register_number(line.operands.split(",")[line.operands.startswith(("P", "!P"))])
            found[index] = -1 if second is None else second
    return found


@lru_cache(1 << 14)
def register_number(operand: str) -> int | None:
    """Return the number of a general register, None for RZ and anything else."""
    found = _REGISTER.match(operand)
    return int(found[1]) if found and found[1] != "Z" else None


def addition_effect(operands: list[str]) -> tuple[Action, list[int | None]]:
    """Return the action of an FADD or FFMA and its sources, without an addend RZ: FFMA with RZ only scales."""
    factors, addends = (operands[:2], operands[2:]) if len(operands) > 2 else ([], operands)
    kept = [operand for operand in addends if not operand.lstrip(" -+").startswith("RZ")]
    return "add" if kept or not factors else "scale", [register_number(operand) for operand in (*factors, *kept)]


def addend(opcode: str, operands: list[str]) -> tuple[int | None, bool]:
    """Return the first register of C (None if D is overwritten), and whether a predicate decides at run time if C is added.

    Operands are D, A, B, C, …; a warpgroup's: D, [A,] descriptor, C[, scale-d], …
    """
    if not _adds_to_d(opcode):
        return register_number(operands[3]), False
    at = 1 + max((i for i, operand in enumerate(operands) if "gdesc" in operand), default=2)
    c, scale = (*operands[at:], "", "")[:2]
    if scale.strip() == "!UPT":
        return None, False
    number = register_number(c)
    return number, number is not None and re.match(r"\s*!?UP\d", scale) is not None


@cache
def _adds_to_d(opcode: str) -> bool:
    return parse(opcode).family.adds_to_d
