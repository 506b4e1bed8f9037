"""Conversions in a kernel, and which of them feed a matrix instruction.

An operand is fed by a conversion where the converted register reaches it unchanged but for moves, permutations and selections.
Through memory (registers to shared memory, and back by LDSM) nothing is followed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce

from accprobe.sass.dataflow import Definitions, Domain, Effect, solve
from accprobe.sass.opcodes import MatrixOpcode, is_matrix, parse
from accprobe.sass.reading import CONVERSIONS, Function, Line

_MOVES = frozenset({"MOV", "PRMT", "SEL", "LOP3", "SHF", "IMAD"})
_UNPACKS = re.compile(r"F2FP\.(?:.*\.)?(F16|BF16)\.(E4M3|E5M2|E3M2|E2M3|E2M1)(?:\.\w+)*\.UNPACK_B")
_REGISTER = re.compile(r"(?<![A-Z\w\[.])R(\d+)")


@dataclass(frozen=True)
class Conversion:
    """One conversion opcode: how often the text has it, and the matrix opcodes (stems) that it feeds."""

    opcode: str
    count: int
    feeds: tuple[str, ...] = ()

    @property
    def unpacked(self) -> str:
        """The narrow format that it unpacks, "e4m3", or "" where it does something else."""
        found = _UNPACKS.match(self.opcode)
        return found[2].lower() if found else ""


def conversions(function: Function, definitions: Definitions | None = None) -> tuple[Conversion, ...]:
    """Every conversion opcode of a function that has matrix opcodes, in order of first appearance."""
    counts = Counter(line.opcode for line in function.lines if _is_conversion(line.opcode))
    if not counts:
        return ()
    definitions = definitions or Definitions(function)

    def effect(index: int) -> Effect | None:
        line = function.lines[index]
        if _is_conversion(line.opcode):
            return Effect(definitions.targets[index])
        sources = _REGISTER.findall(line.operands.partition(",")[2]) if line.stem in _MOVES else ()
        return Effect(definitions.targets[index], tuple(map(int, sources)), elementwise=False) if sources else None

    def make(index: int, register: int, held: Callable[[int], frozenset[str] | None]) -> frozenset[str] | None:
        line, found = function.lines[index], effect(index)
        if found is None or not found.sources:
            return frozenset((line.opcode,))
        return reduce(_union, map(held, found.sources))

    wanted = [
        (index, register)
        for index, line in enumerate(function.lines)
        if is_matrix(line.opcode)
        for register in _operand_registers(line, parse(line.opcode))
    ]
    held = solve(definitions, Domain(effect, make, _union, _union), wanted)
    feeds: dict[str, dict[str, None]] = {opcode: {} for opcode in counts}
    for index, register in wanted:
        for opcode in held(index, register) or ():
            feeds[opcode][function.lines[index].stem] = None
    return tuple(Conversion(opcode, count, tuple(feeds[opcode])) for opcode, count in counts.items())


def _union(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return (a or frozenset()) | (b or frozenset()) or None


@cache
def _is_conversion(opcode: str) -> bool:
    return opcode.partition(".")[0] in CONVERSIONS


def _operand_registers(line: Line, opcode: MatrixOpcode) -> list[int]:
    """Registers of A and of B, where they are in registers."""
    operands = [operand.strip() for operand in line.operands.split(",")][1:3]
    widths = (opcode.a_registers, opcode.b_registers * ("b" in opcode.family.in_registers))
    found = [(re.match(r"R(\d+)", operand), width) for operand, width in zip(operands, widths, strict=False)]
    return [int(register[1]) + i for register, width in found if register for i in range(width)]
