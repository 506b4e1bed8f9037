"""Promotion, read from the SASS: the number of matrix instructions that accumulate before their sum is added to other
registers.

Each register has a known state along the control flow: a partial sum of a matrix unit, with bounds on its number of
instructions. An instruction with RZ, a zero or a false scale-d predicate as C begins a sum; one with a partial sum continues
it. A partial sum is promoted if it is added (FADD, FFMA, HADD2, …) elementwise to another partial sum, or to a sum of partial
sums. A sum that is multiplied (a softmax that rescales its output) stays the unit's partial sum; adding anything else is no
promotion. Not visible: sums that leave the registers (split-K through memory or by atomics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Literal, NamedTuple

from accprobe.isa.opcodes import is_matrix, parse
from accprobe.sass.dataflow import UNKNOWN_VALUE, RegisterValues, line_of, place_of
from accprobe.sass.flow import Flow
from accprobe.sass.reading import Function

UNBOUNDED = 1 << 30
"""Replaces a count without a bound, which depends on the number of iterations of a loop."""

PATIENCE = 4
"""Changes of a value at a merge of control flow, after which a growing bound is replaced by UNBOUNDED."""

PromotionVerdict = Literal["promoted", "never", "whole", "unknown"]


@dataclass(frozen=True)
class Chain:
    """Matrix instructions of a function that pass one accumulator on, and the use of its sum.

    verdict: "promoted": the sum is added to other registers after `least` to `most` instructions, by `by` ("FADD"). "never":
    one sum for all iterations of the loop. "whole": `most` instructions without a loop. "unknown": for this `reason`.
    opcodes: (opcode, static count). k: products that one instruction adds, 0 if the names do not show it or differ.
    """

    opcodes: tuple[tuple[str, int], ...]
    verdict: PromotionVerdict
    least: int
    most: int
    k: int
    by: str = ""
    reason: str = ""

    @property
    def unit(self) -> str:
        return parse(self.opcodes[0][0]).stem

    @property
    def products(self) -> int:
        """Return the products of the longest sum before a promotion; 0 if it is not known."""
        return self.most * self.k if self.most < UNBOUNDED else 0


class Partial(NamedTuple):
    """A register with a sum of a matrix unit. least, most: number of matrix instructions in the sum. added: whether it has been
    added to something outside the unit since. makers: lines of the matrix instructions that last wrote it, or a term of it.
    places: the registers of their tiles. They distinguish the sum of a row from the sum of two tiles.
    """

    least: int
    most: int
    added: bool
    makers: frozenset[int]
    places: frozenset[int]


PartialPlace = tuple[int, int]
"""A line that adds, and the number of a value that it reads."""


def chains(function: Function) -> tuple[Chain, ...]:
    """Return every chain of floating-point matrix instructions, in the order of the text. Integer sums have none."""
    opcodes = {line.opcode for line in function.lines}
    wanted = {opcode for opcode in opcodes if is_matrix(opcode) and not parse(opcode).is_integer}
    if not wanted:
        return ()
    values = RegisterValues(function)
    in_memory = {opcode for opcode in wanted if not parse(opcode).accumulator_registers}
    tensor = [i for i, line in enumerate(function.lines) if line.opcode in in_memory] if in_memory else []
    found = [_in_tensor_memory(function, values.flow, tensor)] if tensor else []
    if len(in_memory) < len(wanted):
        found += _in_registers(values)
    return tuple(dict.fromkeys(found))


def _in_tensor_memory(function: Function, flow: Flow, lines: list[int]) -> Chain:
    """Return the chain of all these fifth-generation lines. Its sums stay in tensor memory until LDTM reads them. A loop
    without LDTM promotes nothing.
    """
    counted = _counted(function, lines)
    looped = any(flow.cycle_of(i) >= 0 for i in lines)
    read_in_loop = any(line.stem == "LDTM" and flow.cycle_of(i) >= 0 for i, line in enumerate(function.lines))
    if not flow.complete:
        return Chain(counted, "unknown", 1, UNBOUNDED, 0, reason=_NO_FLOW)
    if looped and read_in_loop:
        reason = "a loop reads the sum out of tensor memory; how often, its address decides at run time"
        return Chain(counted, "unknown", 1, UNBOUNDED, 0, reason=reason)
    return Chain(counted, "never" if looped else "whole", 1, UNBOUNDED if looped else len(lines), 0)


_NO_FLOW = "the disassembler does not know where some jump leads"


class _Sums:
    """The partial sums of the wanted values and of their inputs, evaluated until nothing changes; None: not a partial sum."""

    def __init__(self, values: RegisterValues, wanted: Iterable[int]) -> None:
        self._values = values
        self._inputs: dict[int, tuple[int, ...]] = {}
        self._known: dict[int, Partial | None] = {UNKNOWN_VALUE: None}
        self._changes: dict[int, int] = {}
        order = self._ordered(wanted)
        again = False in [self._evaluate(value) for value in order]
        while again:
            before = dict(self._known)
            for value in order:
                self._evaluate(value)
            again = self._known != before

    def get(self, value: int) -> Partial | None:
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
            self._known[value] = self._make(line_of(value), place_of(value), inputs)
        elif value < 0 and inputs:
            self._known[value] = self._merged(value, inputs)
        return complete

    def _merged(self, value: int, inputs: list[Partial | None]) -> Partial | None:
        new = inputs[0] if all(other is inputs[0] for other in inputs) else reduce(_join, inputs)
        old = self._known.get(value, new)
        if old is new:
            return new
        changes = self._changes.get(value, 0)
        merged = _join(old, new)
        if changes >= PATIENCE and merged and old and merged.most > old.most:
            merged = merged._replace(most=UNBOUNDED)
        self._changes[value] = changes + (merged != old)
        return merged

    def _make(self, index: int, place: int, inputs: list[Partial | None]) -> Partial | None:
        action = self._values.actions[index]
        guarded = self._values.function.lines[index].guard
        read = inputs[:-1] if guarded else inputs
        value: Partial | None = None
        if action == "matrix":
            value = self._product(index, place, read[0])
        elif action == "add":
            value = _sum(read)
        elif action == "copy":
            value = reduce(_join, read or [None])  # a source is missing in damaged text
        elif action == "scale":
            known: list[Partial | None] = [each for each in read if each]
            value = reduce(_join, known) if known else None
        return _join(inputs[-1], value) if guarded else value

    def _product(self, index: int, place: int, before: Partial | None) -> Partial:
        least, most = (before.least, before.most) if before else (0, 0)
        if index in self._values.undecided:
            least = 0
        return Partial(least + 1, min(most + 1, UNBOUNDED), False, frozenset((index,)), frozenset((place,)))


def _in_registers(values: RegisterValues) -> list[Chain]:
    """Return chains of sums in registers, by their partial sums along the control flow."""
    groups = _Groups()
    added = {value: values.sources(value) for value in values.sums}
    known_sums = _Sums(values, chain.from_iterable((values.accumulated.values(), *added.values())))
    longest: dict[int, int] = {}
    for index, value in values.accumulated.items():
        before = known_sums.get(value)
        groups.join(index, before.makers if before else ())
        longest[index] = min((before.most if before else 0) + 1, UNBOUNDED)
    promotions: dict[int, dict[PartialPlace, Partial]] = {}
    for value, sources in added.items():
        for source, partial in _promoted({source: known for source in sources if (known := known_sums.get(source))}):
            for maker in partial.makers:
                promotions.setdefault(groups.root(maker), {})[line_of(value), source] = partial
    return [
        _chain(values, members, max(longest[index] for index in members), promotions.get(groups.root(members[0]), {}))
        for members in groups.sorted()
    ]


def _chain(values: RegisterValues, members: list[int], longest: int, ended: dict[PartialPlace, Partial]) -> Chain:
    """Return the chain of these lines. longest: its instructions, at most; ended: where its sum is added to another."""
    function, flow = values.function, values.flow
    counted = _counted(function, members)
    sizes = {parse(opcode).k for opcode, _ in counted}
    k = sizes.pop() if len(sizes) == 1 else 0
    if not flow.complete:
        return Chain(counted, "unknown", 1, UNBOUNDED, k, reason=_NO_FLOW)
    loops = {at: {flow.cycle_of(maker) for maker in partial.makers.intersection(members)} for at, partial in ended.items()}
    inside = {at: partial for at, partial in ended.items() if 0 <= flow.cycle_of(at[0]) in loops[at]}
    events = inside or (ended if longest < UNBOUNDED else {})
    if not events:
        return Chain(counted, "never", 1, longest, k) if longest == UNBOUNDED else Chain(counted, "whole", longest, longest, k)
    least, most = min(v.least for v in events.values()), max(v.most for v in events.values())
    by = ", ".join(dict.fromkeys(function.lines[at].stem for at, _ in events))
    if most < UNBOUNDED:
        return Chain(counted, "promoted", least, most, k, by)
    if values.undecided.intersection(members):
        reason = "a predicate decides at run time whether a sum begins anew"
    else:
        reason = "how often a loop without promotion runs is decided at run time"
    return Chain(counted, "unknown", max(least, 1), most, k, by, reason)


class _Groups:
    """Lines that are connected by accumulators (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def join(self, line: int, others: Iterable[int]) -> None:
        for other in (line, *others):
            self._parent[self.root(other)] = self.root(line)

    def sorted(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for line in sorted(self._parent):
            groups.setdefault(self.root(line), []).append(line)
        return list(groups.values())

    def root(self, line: int) -> int:
        while (above := self._parent.setdefault(line, line)) != line:
            line = above
        return line


def _join(a: Partial | None, b: Partial | None) -> Partial | None:
    if a is None or b is None:
        one = a or b
        return one._replace(least=0) if one else None
    if a == b:
        return a
    least, most = min(a.least, b.least), max(a.most, b.most)
    return Partial(least, most, a.added or b.added, a.makers | b.makers, a.places | b.places)


def _promoted(added: dict[int, Partial]) -> Iterator[tuple[int, Partial]]:
    """Yield the inputs of an addition that are partial sums and are added elementwise to another one."""
    for source, value in added.items():
        others = [other for place, other in added.items() if place != source and other.places == value.places]
        if not value.added and any(other.added or not other.makers & value.makers for other in others):
            yield source, value


def _sum(read: list[Partial | None]) -> Partial | None:
    """Return the sum of the values that are partial sums or sums of them. Each factor of an FFMA counts as a term."""
    values = list({id(value): value for value in read if value}.values())
    if not values or len(read) == 1:
        return values[0] if values else None
    least, most = sum([v.least for v in values]), min(sum([v.most for v in values]), UNBOUNDED)
    makers, places = (frozenset[int]().union(*sets) for sets in zip(*((v.makers, v.places) for v in values), strict=True))
    return Partial(least, most, True, makers, places)


def _counted(function: Function, lines: Iterable[int]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter([function.lines[i].opcode for i in lines]).items())
