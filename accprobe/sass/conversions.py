"""Conversions in a kernel, and which of them feed a matrix instruction.

An operand is fed by a conversion where the converted register reaches it unchanged but for moves, permutations and selections.
Through memory (registers to shared memory, and back by LDSM) nothing is followed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from accprobe.sass.flow import Domain, Flow, solve
from accprobe.sass.opcodes import MATRIX, MatrixOpcode, parse
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


def conversions(function: Function) -> tuple[Conversion, ...]:
    """Every conversion opcode of a function that has matrix opcodes, in order of first appearance."""
    counts = Counter(line.opcode for line in function.lines if line.stem in CONVERSIONS)
    if not counts:
        return ()
    feeds: dict[str, dict[str, None]] = {opcode: {} for opcode in counts}
    flow = Flow(function)
    steps = [_step_of(line) for line in function.lines]

    def step(state: dict[int, frozenset[str]], index: int) -> None:
        if found := steps[index]:
            made, target, width, sources = found
            held = frozenset(made) if made else frozenset().union(*(state.get(r, frozenset()) for r in sources))
            for register in range(target, target + width):
                state[register] = held

    entered = solve(flow, Domain(step, _union, _union))
    for block, state in zip(flow.blocks, entered, strict=True):
        for index in range(block.start, block.stop):
            line = function.lines[index]
            if MATRIX.match(line.opcode):
                for register in _operand_registers(line, parse(line.opcode)):
                    for opcode in state.get(register, ()):
                        feeds[opcode][line.stem] = None
            step(state, index)
    return tuple(Conversion(opcode, count, tuple(feeds[opcode])) for opcode, count in counts.items())


def _union(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    return (a or frozenset()) | (b or frozenset()) or None


def _step_of(line: Line) -> tuple[tuple[str, ...], int, int, tuple[int, ...]] | None:
    """(conversions made, first register written, how many, registers that are handed on); None where none is written."""
    first, _, rest = line.operands.partition(",")
    target = re.match(r"R(\d+)", first)
    if target is None:
        return None
    if line.stem in CONVERSIONS:
        return (line.opcode,), int(target[1]), 1, ()
    sources = tuple(int(register) for register in _REGISTER.findall(rest)) if line.stem in _MOVES else ()
    return (), int(target[1]), parse(line.opcode).accumulator_registers if MATRIX.match(line.opcode) else 1, sources


def _operand_registers(line: Line, opcode: MatrixOpcode) -> list[int]:
    """Registers of A and of B, where they are in registers."""
    operands = [operand.strip() for operand in line.operands.split(",")][1:3]
    widths = (opcode.a_registers, opcode.b_registers * ("b" in opcode.family.in_registers))
    found = [(re.match(r"R(\d+)", operand), width) for operand, width in zip(operands, widths, strict=False)]
    return [int(register[1]) + i for register, width in found if register for i in range(width)]
