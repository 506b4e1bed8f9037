"""Which values reach the registers of a function, found where they are wanted and nowhere else.

A value that a register holds is known by the line that wrote it, or, where several ways meet, by the block in which they do.
From the registers that are wanted these are followed back, each once, and evaluated until nothing changes: lines that no wanted
value comes through cost nothing, however long the function is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from accprobe.sass.flow import START, Flow
from accprobe.sass.reading import Function
from accprobe.sass.registers import count_written, first_written

PATIENCE = 4
"""Times that the value where ways meet changes before bounds that still grow are given up (`widen`)."""

T = TypeVar("T")


class Effect(NamedTuple):
    """The effect of a line on the registers that it writes, from `target` on.

    sources: registers whose values it hands on; elementwise: of target + i, those of source + i. keeps: it runs under a
    predicate, so that the old value may stay. None of either: it makes values itself.
    """

    target: int
    sources: tuple[int, ...] = ()
    elementwise: bool = True
    keeps: bool = False

    def reads(self, register: int) -> tuple[int, ...]:
        """Registers on which the new value of one depends."""
        shift = register - self.target if self.elementwise else 0
        found = tuple([source + shift for source in self.sources]) if shift else self.sources
        return (*found, register) if self.keeps else found


@dataclass(frozen=True)
class Domain(Generic[T]):
    """Known values of registers; None: unknown.

    effect: of a line, None where nothing is known of what it writes. make: the value that a line gives a register, from those
    that registers held before it. join: of the values on two ways to one place; widen: as join, of an old and a newer value
    that may grow for ever.
    """

    effect: Callable[[int], Effect | None]
    make: Callable[[int, int, Callable[[int], T | None]], T | None]
    join: Callable[[T | None, T | None], T | None]
    widen: Callable[[T | None, T | None], T | None]


Origin = tuple[int, int]
"""(line, register) of a line that writes it, (-1 - block, register) where ways meet at the start of a block."""


class Definitions:
    """The lines of a function that write its registers, and its flow."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._found: dict[int, tuple[dict[int, int], set[int]]] = {}

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.function)

    @cached_property
    def targets(self) -> list[int]:
        """By line the first register that it writes, -1 where it writes none."""
        return first_written(self.function.lines)

    @cached_property
    def _lines(self) -> dict[int, list[int]]:
        """By register the lines that write it."""
        found: dict[int, list[int]] = {}
        for index, (target, line) in enumerate(zip(self.targets, self.function.lines, strict=True)):
            if target >= 0:
                for register in range(target, target + count_written(line.opcode)):
                    found.setdefault(register, []).append(index)
        return found

    def _of_blocks(self, register: int) -> tuple[dict[int, int], set[int]]:
        """By block the last line in it that writes a register, and the blocks where several such values meet."""
        if register not in self._found:
            last = {self.flow.block_of(index): index for index in self._lines.get(register, ())}
            met: set[int] = set()
            waiting = list(last)
            while waiting:
                new = self.flow.frontiers[waiting.pop()] - met
                met |= new
                waiting += new
            self._found[register] = last, met
        return self._found[register]

    def reaching(self, block: int, index: int, register: int) -> Origin | None:
        """Where the value comes from that a register holds before a line of a block, or before its end; None: from nowhere."""
        last, met = self._of_blocks(register)
        if block in last:
            lines = self._lines[register]
            place = bisect_left(lines, index) - 1
            if place >= 0 and lines[place] >= self.flow.blocks[block].start:
                return lines[place], register
        while block not in met:
            block = self.flow.dominators[block]
            if block == START:
                return None
            if block in last:
                return last[block], register
        return -1 - block, register


def solve(definitions: Definitions, domain: Domain[T], wanted: Iterable[Origin]) -> Callable[[int, int], T | None]:
    """Return the value of a register before a line, for each wanted (line, register)."""
    return _Solution(definitions, domain, wanted).held


class _Unreached:
    """Stands for the value at a place that has not been evaluated yet."""


_UNREACHED = _Unreached()


class _Solution(Generic[T]):
    """Values at places, evaluated until nothing changes. Places are numbered; number -1 is where nothing is known."""

    def __init__(self, definitions: Definitions, domain: Domain[T], wanted: Iterable[Origin]) -> None:
        self._definitions, self._domain = definitions, domain
        self._effects: dict[int, Effect | None] = {}
        self._wanted = {(index, register): self._reaching(index, register) for index, register in wanted}
        self._inputs: dict[Origin, list[Origin | None]] = {}
        self._places = self._ordered(place for place in self._wanted.values() if place)
        self._number: dict[Origin | None, int] = {place: i for i, place in enumerate(self._places)}
        self._number[None] = -1
        self._from = [[self._number[before] for before in self._inputs[place]] for place in self._places]
        self._values: list[T | _Unreached | None] = [*[_UNREACHED] * len(self._places), None]
        self._changes = [0] * len(self._places)
        self._evaluate()

    def held(self, index: int, register: int) -> T | None:
        """Return the known value of a wanted register."""
        value = self._values[self._number[self._wanted[index, register]]]
        return None if isinstance(value, _Unreached) else value

    def _reaching(self, index: int, register: int, block: int = -1) -> Origin | None:
        """None where nothing can be known: no line writes the register before, or one that loses what is known."""
        block = self._definitions.flow.block_of(index) if block < 0 else block
        place = self._definitions.reaching(block, index, register)
        if place is None or place[0] < 0:
            return place
        line = place[0]
        if line not in self._effects:
            self._effects[line] = self._domain.effect(line)
        return place if self._effects[line] else None

    def _inputs_of(self, place: Origin) -> list[Origin | None]:
        """The places from which the value at a place is made."""
        line, register = place
        if line >= 0:
            effect = self._effects[line]
            return [self._reaching(line, source) for source in effect.reads(register)] if effect else []
        flow = self._definitions.flow
        return [
            None if way == START else self._reaching(flow.blocks[way].stop, register, way) for way in flow.before[-1 - line]
        ]

    def _ordered(self, roots: Iterable[Origin]) -> list[Origin]:
        """Every place that the roots depend on, those before which others depend on, but for loops."""
        ordered: list[Origin] = []
        waiting = [(root, False) for root in roots]
        while waiting:
            place, seen = waiting.pop()
            if seen:
                ordered.append(place)
            elif place not in self._inputs:
                self._inputs[place] = self._inputs_of(place)
                waiting.append((place, True))
                waiting += [(before, False) for before in self._inputs[place] if before and before not in self._inputs]
        return ordered

    def _evaluate(self) -> None:
        after: list[list[int]] = [[] for _ in self._places]
        for i, inputs in enumerate(self._from):
            for before in inputs:
                if before >= 0:
                    after[before].append(i)
        waiting = list(range(len(self._places)))
        queued = [True] * len(self._places)
        while waiting:
            i = heappop(waiting)
            queued[i] = False
            value = self._updated(i)
            if value is not self._values[i] and value != self._values[i]:
                self._values[i] = value
                for later in after[i]:
                    if not queued[later]:
                        queued[later] = True
                        heappush(waiting, later)

    def _updated(self, i: int) -> T | _Unreached | None:
        """The value at a place, from those that are known now."""
        line, register = self._places[i]
        inputs = [self._values[before] for before in self._from[i]]
        known = [value for value in inputs if not isinstance(value, _Unreached)]
        if line < 0:
            return self._merged(i, known) if known else _UNREACHED
        effect = self._effects[line]
        if effect is None or len(known) < len(inputs):
            return _UNREACHED
        return self._domain.make(line, register, dict(zip(effect.reads(register), known, strict=True)).get)

    def _merged(self, i: int, values: list[T | None]) -> T | None:
        first, old = values[0], self._values[i]
        value = first if all(other is first for other in values) else reduce(self._domain.join, values)
        if isinstance(old, _Unreached) or value is old:
            return value
        merge = self._domain.join if self._changes[i] < PATIENCE else self._domain.widen
        merged = merge(old, value)
        self._changes[i] += merged != old
        return merged
