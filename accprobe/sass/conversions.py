"""Conversions in a kernel, and those that feed a matrix instruction.

A conversion feeds an operand if its register reaches the operand through moves, permutations and selections only. Values that
go through memory (to shared memory, and back by LDSM) are not followed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import reduce

from accprobe.sass.dataflow import Domain, RegisterValues, Solution
from accprobe.sass.effects import effect
from accprobe.sass.opcodes import stem
from accprobe.sass.reading import Function

_UNPACKS = re.compile(r"F2FP\.(?:.*\.)?(F16|BF16)\.(E4M3|E5M2|E3M2|E2M3|E2M1)(?:\.\w+)*\.UNPACK_B")


@dataclass(frozen=True)
class Conversion:
    """One conversion opcode: its count in the text, and the matrix opcodes (stems) that it feeds."""

    opcode: str
    count: int
    feeds: tuple[str, ...] = ()

    @property
    def unpacked(self) -> str:
        """Return the narrow format that it unpacks, "e4m3"; "" if it does something else."""
        found = _UNPACKS.match(self.opcode)
        return found[2].lower() if found else ""


def conversions(function: Function, values: RegisterValues | None = None) -> tuple[Conversion, ...]:
    """Return every conversion opcode of a function that has matrix opcodes, in order of first appearance."""
    counts = {o: n for o, n in Counter([line.opcode for line in function.lines]).items() if effect(o).action == "convert"}
    if not counts:
        return ()
    values = values or RegisterValues(function)
    actions, lines = values.actions, function.lines

    def make(line: int, _: int, inputs: list[frozenset[str] | None]) -> frozenset[str] | None:
        action = actions[line]
        if action == "convert":
            return frozenset((lines[line].opcode,))
        read = inputs[:-1] if lines[line].guard else inputs
        return reduce(_union, read) if action in ("copy", "permute") and lines[line].stem != "FSEL" else None

    solution = Solution(values, Domain(make, _union, _union), (value for value, _ in values.operands))
    feeds: dict[str, dict[str, None]] = {opcode: {} for opcode in counts}
    for value, matrix in values.operands:
        for opcode in solution.get(value) or ():
            feeds[opcode][stem(matrix)] = None
    return tuple(Conversion(opcode, count, tuple(feeds[opcode])) for opcode, count in counts.items())


def _union(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return (a or frozenset()) | (b or frozenset()) or None
