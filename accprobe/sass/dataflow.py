"""Values in the registers of a function, as far as matrix instructions are concerned.

One pass over the lines numbers these values and records the inputs of each. Most lines produce `UNKNOWN_VALUE`, as do lines
that read only unknown values, except matrix instructions. A `Solution` then evaluates the wanted values and
their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from accprobe.sass.effects import Action, addend, addition_effect, effect, first_written, register_number
from accprobe.sass.flow import START, Flow
from accprobe.sass.reading import Function

PATIENCE = 4
"""Number of changes of a value at a merge of control flow, after which growing bounds are replaced by no bound
(`Solution`).
"""

UNKNOWN_VALUE = 0
"""The number of a value about which nothing is known."""

_SHIFT, _MASK = 8, 255
"""A value's number: from this bit on, 1 + the line that makes it, and below it the position among the registers that the line
writes; for a register at the start of a block, -1 - the block, and below it the register.
"""

T = TypeVar("T")


def line_of(value: int) -> int:
    """Return the line that makes a value."""
    return (value >> _SHIFT) - 1


def first_value(line: int) -> int:
    """Return the value of the first register that a line writes."""
    return line + 1 << _SHIFT


class _Block:
    """The values of registers in a block: those that it has written, and those at its start."""

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
    order of the operands; with a predicate, the previous value of the register is the last input. The only input of a matrix
    instruction is the accumulator of its run; a register at the start of a block has one input for each preceding block. sums:
    values of additions of two or more known values, the previous one of a predicated register included. runs: by matrix
    instruction, the first of its run (instructions of a block that pass one accumulator on) and how many precede it. undecided:
    matrix instructions for which a predicate decides whether they add C.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.flow = Flow(function)
        self.actions: dict[int, Action] = {}
        self.inputs: dict[int, tuple[int, ...]] = {}
        self.sums: list[int] = []
        self.runs: dict[int, tuple[int, int]] = {}
        self.undecided: set[int] = set()
        self._targets = first_written(function)
        self._blocks = [self._number(block) for block in range(len(self.flow.blocks))]
        self._writers: dict[int, list[int]] = {}
        for number, block in enumerate(self._blocks):
            for register in block.written:
                self._writers.setdefault(register, []).append(number)
        self._meetings: dict[int, set[int]] = {}
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
                inputs = [self._accumulated(index, operands, block)] * width
            else:
                read = [register_number(operand) for operand in operands[sources]]
                if action == "add" and None in read:
                    action, read = addition_effect(operands[sources])
                inputs = [block.values(read, place) for place in range(width)]
            if line.guard:
                inputs = [(*before, block.value(register)) for register, before in enumerate(inputs, target)]
            self._write(index, action, inputs, block)
        return block

    def _accumulated(self, index: int, operands: list[str], block: _Block) -> tuple[int, ...]:
        """Record the run of matrix instructions to which a line belongs; return the value to which the run adds."""
        line = self.function.lines[index]
        c, undecided = addend(line.opcode, operands)
        value = UNKNOWN_VALUE if c is None else block.value(c)
        head, count = self.runs.get(line_of(value), (-1, -1))
        if head < 0 or line.guard or undecided or head in self.undecided or self.function.lines[head].guard:
            head, count = index, -1
        self.runs[index] = head, count + 1
        if undecided:
            self.undecided.add(index)
        return (value,) if head == index else self.inputs[first_value(head)][:1]

    def _write(self, index: int, action: Action, inputs: list[tuple[int, ...]], block: _Block) -> None:
        """Number the values that a line writes, one for each tuple of inputs."""
        for place, made_from in enumerate(inputs):
            value = UNKNOWN_VALUE
            if action == "matrix" or any(made_from):
                value = first_value(index) + place
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
        """Return the value itself, or for a value at the start of a block the one that reaches the block: the value of a line,
        or one at the start of another block at which several values merge.
        """
        if value >= 0:
            return value
        if value not in self._origins:
            self._origins[value] = self._reaching(-1 - (value >> _SHIFT), value & _MASK)
        return self._origins[value]

    def _reaching(self, block: int, register: int) -> int:
        meetings = self._meetings_of(register)
        while block not in meetings:
            block = self.flow.dominators[block]
            if block == START:
                return UNKNOWN_VALUE
            if register in self._blocks[block].written:
                return self._blocks[block].written[register]
        value = -1 - block << _SHIFT | register
        if value not in self.inputs:
            ways = self.flow.before[block]
            self.inputs[value] = tuple([UNKNOWN_VALUE if way == START else self._blocks[way].value(register) for way in ways])
        return value

    def _meetings_of(self, register: int) -> set[int]:
        """Return the blocks at whose start several values of a register merge."""
        if register not in self._meetings:
            found: set[int] = set()
            waiting = list(self._writers.get(register, ()))
            while waiting:
                new = self.flow.frontiers[waiting.pop()] - found
                found |= new
                waiting += new
            self._meetings[register] = found
        return self._meetings[register]


class Solution(Generic[T]):
    """The facts about the wanted values, evaluated until nothing changes; None: nothing is known.

    make: from a line, a position among the registers that it writes, and the facts about its inputs. join: of the values of two
    paths; widen: as join, of an old and a newer value that may grow without a bound.
    """

    def __init__(
        self,
        values: RegisterValues,
        make: Callable[[int, int, list[T | None]], T | None],
        join: Callable[[T | None, T | None], T | None],
        widen: Callable[[T | None, T | None], T | None],
        wanted: Iterable[int],
    ) -> None:
        self._values, self._make, self._join, self._widen = values, make, join, widen
        self._inputs: dict[int, tuple[int, ...]] = {}
        self._known: dict[int, T | None] = {UNKNOWN_VALUE: None}
        self._changes: dict[int, int] = {}
        order = self._ordered(wanted)
        late = [value for value in order if not self._evaluate(value)]
        if late:
            self._iterate(order, late)

    def get(self, value: int) -> T | None:
        return self._known.get(self._values.origin(value))

    def _ordered(self, wanted: Iterable[int]) -> list[int]:
        """Return every wanted value and its inputs, each after its inputs except in loops."""
        origin, inputs = self._values.origin, self._inputs
        ordered: list[int] = []
        waiting: list[int | None] = list(map(origin, wanted))
        while waiting:
            value = waiting.pop()
            if value is None:  # the inputs of the next one have been ordered
                ordered.append(waiting.pop() or UNKNOWN_VALUE)
            elif value != UNKNOWN_VALUE and value not in inputs:
                inputs[value] = tuple(map(origin, self._values.inputs[value]))
                waiting += (value, None, *inputs[value])
        return ordered

    def _evaluate(self, value: int) -> bool:
        """Evaluate a value from the inputs that have been evaluated; return whether all have been."""
        inputs = [self._known[before] for before in self._inputs[value] if before in self._known]
        complete = len(inputs) == len(self._inputs[value])
        if value > 0 and complete:
            self._known[value] = self._make(line_of(value), value & _MASK, inputs)
        elif value < 0 and inputs:
            self._known[value] = self._merged(value, inputs)
        return complete

    def _merged(self, value: int, inputs: list[T | None]) -> T | None:
        new = inputs[0] if all(other is inputs[0] for other in inputs) else reduce(self._join, inputs)
        old = self._known.get(value, new)
        if old is new:
            return new
        changes = self._changes.get(value, 0)
        merged = (self._join if changes < PATIENCE else self._widen)(old, new)
        self._changes[value] = changes + (merged != old)
        return merged

    def _iterate(self, order: list[int], late: list[int]) -> None:
        """Evaluate again the values that were evaluated before their inputs, and the values that depend on them."""
        place = {value: i for i, value in enumerate(order)}
        readers: dict[int, list[int]] = {value: [] for value in (UNKNOWN_VALUE, *order)}
        for value in order:
            for before in self._inputs[value]:
                readers[before].append(place[value])
        waiting = [place[value] for value in late]
        heapify(waiting)
        queued = set(waiting)
        while waiting:
            i = heappop(waiting)
            queued.remove(i)
            value = order[i]
            was_known, old = value in self._known, self._known.get(value)
            self._evaluate(value)
            if value in self._known and (not was_known or self._known[value] != old):
                for reader in readers[value]:
                    if reader not in queued:
                        queued.add(reader)
                        heappush(waiting, reader)
