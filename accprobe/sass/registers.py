"""General registers that lines of SASS write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from accprobe.sass.opcodes import is_matrix, parse
from accprobe.sass.reading import Line

_REGISTER = re.compile(r"[-|~!]*R(\d+|Z)(?!\w)")
_FIRST = re.compile(r"^(?:R(\d+)\b)?.*", re.MULTILINE)
"""The number of the register with which a line of operands begins, "" where it begins with something else."""
_SECOND = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "MATCH"})
"""Opcodes whose first operand is a predicate and whose second is the register that they write."""
_PAIRS = frozenset({"DADD", "DFMA", "DMUL", "FADD2", "FFMA2", "FMUL2"})
_WIDE = {"64": 2, "128": 4, "WIDE": 2, "x2": 2, "x4": 4, "x8": 8, "x16": 16, "x32": 32, "x64": 64, "x128": 128}


def split_operands(line: Line) -> list[str]:
    """The operands of a line, from the register that it writes on, if it writes one."""
    found = [operand.strip() for operand in line.operands.split(",")]
    return found[1:] if _is_second(line.opcode) and found[0].startswith(("P", "!P")) else found


def register_number(operand: str) -> int | None:
    """The number of a general register, None for RZ and for anything else."""
    found = _REGISTER.match(operand)
    return int(found[1]) if found and found[1] != "Z" else None


def first_written(lines: Sequence[Line]) -> list[int]:
    """The first register that each line writes, -1 where it writes none."""
    firsts = _FIRST.findall("\n".join([line.operands for line in lines])) if lines else []
    found = [int(first) if first else -1 for first in firsts]
    for index, line in enumerate(lines):
        if not firsts[index] and _is_second(line.opcode):
            second = register_number(split_operands(line)[0])
            found[index] = -1 if second is None else second
    return found


@cache
def count_written(opcode: str) -> int:
    """How many registers the opcode writes."""
    stem, *modifiers = opcode.split(".")
    if is_matrix(opcode):
        return parse(opcode).accumulator_registers
    if stem in _PAIRS:
        return 2
    if stem == "CS2R":
        return 1 if "32" in modifiers else 2
    if stem == "LDSM":
        return int(modifiers[-1]) if modifiers[-1].isdecimal() else 1
    return max((_WIDE.get(modifier, 1) for modifier in modifiers), default=1)


@cache
def _is_second(opcode: str) -> bool:
    return opcode.partition(".")[0] in _SECOND
