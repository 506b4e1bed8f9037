"""Values in the registers of a function, as far as matrix instructions are concerned.

The effect of a line is the registers that it writes, and the sources of their values. One pass over the lines numbers these
values and records the inputs of each. Most lines produce `UNKNOWN_VALUE`, as do lines that read only unknown values, except
matrix instructions.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from accprobe.isa.opcodes import is_matrix, parse
from accprobe.sass.flow import START, Flow
from accprobe.sass.reading import Function

Action = Literal["matrix", "add", "scale", "copy", "lose"]
"""The operation of a line on its sources. matrix: a matrix unit adds products of floats. add, scale, copy: elementwise; scale
multiplies. lose: any other opcode; its result is not followed.
"""

_REGISTER = re.compile(r"\s*[-+|~!]*R(\d+|Z)(?!\w)")
_FIRST = re.compile(r"^(?:R(\d+)\b)?.*", re.MULTILINE)
"""The number of the register at the start of the operands, "" if they start with something else."""
_SECOND = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "MATCH"})
"""Opcodes with a predicate as first operand, and the register that they write as second."""
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
    """Return the first register of C (None if it is RZ or left out), and whether a predicate decides at run time if C is added.

    Operands are D, A, B, C, …; a warpgroup's: D, [A,] descriptor, C[, scale-d], …
    """
    if not parse(opcode).family.adds_to_d:
        return register_number(operands[3]), False
    at = 1 + max((i for i, operand in enumerate(operands) if "gdesc" in operand), default=2)
    c, scale = (*operands[at:], "", "")[:2]
    if scale.strip() == "!UPT":
        return None, False
    number = register_number(c)
    return number, number is not None and re.match(r"\s*!?UP\d", scale) is not None


UNKNOWN_VALUE = 0
"""The number of a value about which nothing is known."""

_SHIFT, _MASK = 8, 255
"""A value's number. If a line makes it: 1 + the line from bit `_SHIFT` on, below it the position among the registers that the
line writes. For a register at the start of a block: -1 - the block from bit `_SHIFT` on, below it the register.
"""


def line_of(value: int) -> int:
    return (value >> _SHIFT) - 1


def place_of(value: int) -> int:
    """Return the position of a value of a line among the registers that the line writes."""
    return value & _MASK


class _Block:
    """The values of registers in a block: written in it, or present at its start."""

    def __init__(self, number: int) -> None:
        self.written: dict[int, int] = {}
        self._begun = -1 - number << _SHIFT

    def value(self, register: int) -> int:
        return self.written.get(register, self._begun | register)

    def values(self, registers: list[int | None], shift: int) -> tuple[int, ...]:
        """Return the values of registers, each `shift` registers higher."""
        written, begun = self.written, self._begun
        return tuple([UNKNOWN_VALUE if r is None else written.get(r + shift, begun | r + shift) for r in registers])


class RegisterValues:
    """The numbered values of a function. actions: by line, of lines that make known values. inputs: by value, its inputs in the
    order of the operands; with a predicate, the previous value of the register is the last input. A matrix instruction has one
    operand as input, the first register of C; a register at the start of a block has one input for each preceding block.
    sums: values of additions of two or more known values, the previous one of a predicated register included.
    accumulated: by matrix instruction, the value of the first register of C. undecided: matrix instructions for which a
    predicate decides whether they add C.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.flow = Flow(function)
        self.actions: dict[int, Action] = {}
        self.inputs: dict[int, tuple[int, ...]] = {}
        self.sums: list[int] = []
        self.accumulated: dict[int, int] = {}
        self.undecided: set[int] = set()
        self._targets = first_written(function)
        self._blocks = [self._number(block) for block in range(len(self.flow.blocks))]
        self._origins: dict[int, int] = {}

    def _number(self, number: int) -> _Block:
        """Number the values that the lines of a block make."""
        block = _Block(number)
        lines, targets = self.function.lines, self._targets
        for index in range(self.flow.blocks[number].start, self.flow.blocks[number].stop):
            line, target = lines[index], targets[index]
            action, width, sources = effect(line.opcode)
            if action == "lose" and width == 1 and not line.guard:
                if target >= 0:
                    block.written[target] = UNKNOWN_VALUE
                continue
            operands = line.operands.split(",")
            if target < 0:
                continue
            if action == "matrix":
                c, undecided = addend(line.opcode, operands)
                if undecided:
                    self.undecided.add(index)
                inputs = [block.values([c], 0)] * width
                self.accumulated[index] = inputs[0][0]
            else:
                read = [register_number(operand) for operand in operands[sources]]
                if action == "add" and None in read:
                    action, read = addition_effect(operands[sources])
                inputs = [block.values(read, place) for place in range(width)]
            if line.guard:
                inputs = [(*before, block.value(register)) for register, before in enumerate(inputs, target)]
            self._write(index, action, inputs, block)
        return block

    def _write(self, index: int, action: Action, inputs: list[tuple[int, ...]], block: _Block) -> None:
        """Number the values that a line writes, one for each tuple of inputs."""
        for place, made_from in enumerate(inputs):
            value = UNKNOWN_VALUE
            if action == "matrix" or any(made_from):
                value = (index + 1 << _SHIFT) + place
                self.inputs[value] = made_from
                self.actions[index] = action
                if action == "add" and len(made_from) - made_from.count(UNKNOWN_VALUE) > 1:
                    self.sums.append(value)
            block.written[self._targets[index] + place] = value

    def sources(self, value: int) -> tuple[int, ...]:
        """Return the inputs of a value, without the previous value of the register."""
        inputs = self.inputs[value]
        return inputs[:-1] if self.function.lines[line_of(value)].guard else inputs

    def origin(self, value: int) -> int:
        """Return the value itself, or for a value at the start of a block the value that reaches the block.

        A line made that value, or it has an input for each of several blocks before. Such merges are made on demand, also where
        all inputs are one value (Braun et al., "Simple and Efficient Construction of Static Single Assignment Form").
        """
        if value >= 0:
            return value
        if value not in self._origins:
            self._origins[value] = self._reaching(-1 - (value >> _SHIFT), value & _MASK)
        return self._origins[value]

    def _reaching(self, block: int, register: int) -> int:
        while len(ways := self.flow.before[block]) == 1:
            (block,) = ways
            if block == START:
                return UNKNOWN_VALUE
            if register in self._blocks[block].written:
                return self._blocks[block].written[register]
        value = -1 - block << _SHIFT | register
        if value not in self.inputs:
            self.inputs[value] = tuple([UNKNOWN_VALUE if way == START else self._blocks[way].value(register) for way in ways])
        return value
