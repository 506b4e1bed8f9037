"""Promotion, read off the SASS: how many matrix instructions accumulate before their sum is added to other registers.

Along the control flow each register is known to hold a partial sum of a matrix unit, and of how many instructions, at least and
at most. An instruction that takes RZ, a zero or a false scale-d predicate for C begins a sum; one that takes a partial sum goes
on with it. Where a partial sum is added (FADD, FFMA, HADD2, …) to another partial sum or to a sum of such, elementwise, it is
promoted. A sum that is multiplied (a softmax that rescales its output) stays the unit's partial sum; to add anything else
is no promotion.

Not visible: sums that leave the registers (split K through memory, or by atomics).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple

from accprobe.sass.dataflow import Definitions, Domain, Effect, solve
from accprobe.sass.flow import Flow
from accprobe.sass.opcodes import MatrixOpcode, is_matrix, parse
from accprobe.sass.reading import Function, Line
from accprobe.sass.registers import count_written, register_number, split_operands

UNBOUNDED = 1 << 30
"""Instead of a count that has no bound: it depends on how often a loop runs."""

Verdict = Literal["promoted", "never", "whole", "unknown"]
Action = Literal["matrix", "copy", "scale", "add", "lose"]


@dataclass(frozen=True)
class Chain:
    """Matrix instructions of a function that hand one accumulator on, and what becomes of its sum.

    promoted: added to other registers after `least` to `most` instructions, by `by` ("FADD"); never: one sum for as long as the
    loop runs; whole: `most` instructions are all there is, no loop; unknown: for this `reason`.
    opcodes: (opcode, static count); k: products that one instruction adds, 0 where its name does not say, or
    they differ.
    """

    opcodes: tuple[tuple[str, int], ...]
    verdict: Verdict
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
        """Products in the longest sum that the unit makes before it is promoted; 0 where that is not known."""
        return self.most * self.k if self.most < UNBOUNDED else 0


class Partial(NamedTuple):
    """A register that holds a sum of a matrix unit.

    least, most: matrix instructions that it has come through. added: it has been added to something outside the unit since.
    makers: the lines of the matrix instructions that wrote it last, or wrote what was added to it; places: which
    registers of their tiles that is, to distinguish the sum of a row from the sum of two tiles.
    """

    least: int
    most: int
    added: bool
    makers: frozenset[int]
    places: frozenset[int]


Holding = Callable[[int], Partial | None]
"""The value of a register before a line."""


class Use(NamedTuple):
    """The effect of a line on registers.

    target: the first that it writes; width: how many. sources: registers that it reads, None for what is no register; of what
    it adds, zeros are left out.
    """

    action: Action
    target: int
    width: int
    sources: tuple[int | None, ...]
    fresh: Literal["no", "yes", "run time"] = "no"


def chains(function: Function, definitions: Definitions | None = None) -> tuple[Chain, ...]:
    """Every chain of floating-point matrix instructions, in the order of the text. Integer sums are exact: there are none."""
    wanted = [i for i, line in enumerate(function.lines) if _is_float_matrix(line)]
    if not wanted:
        return ()
    definitions = definitions or Definitions(function)
    flow = definitions.flow
    tensor = [i for i in wanted if not parse(function.lines[i].opcode).accumulator_registers]
    found = [_in_tensor_memory(function, flow, tensor)] if tensor else []
    if len(tensor) < len(wanted):
        found += _Analysis(definitions).chains()
    return tuple(dict.fromkeys(found))


def _is_float_matrix(line: Line) -> bool:
    return is_matrix(line.opcode) and not parse(line.opcode).is_integer


def _in_tensor_memory(function: Function, flow: Flow, lines: list[int]) -> Chain:
    """Sums of the fifth generation stay in tensor memory; LDTM reads them. A loop without LDTM promotes nothing."""
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


class _Analysis:
    """The registers of one function along its control flow."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._function, self._flow, self._targets = definitions.function, definitions.flow, definitions.targets
        self._uses = _uses(definitions)
        self._groups = _Groups()
        self._lengths: dict[int, tuple[int, int]] = {}
        self._promotions: dict[tuple[int, int], Partial] = {}

    def chains(self) -> list[Chain]:
        wanted = [(index, register) for index, use in self._uses.items() for register in _decisive(use)]
        solution = solve(self._definitions, Domain(self._effect, self._make, _join, _widen), wanted)
        for index, use in self._uses.items():
            held = partial(solution, index)
            if use.action == "matrix":
                before, made = _continued(held, use), _product(held, index, use)
                self._groups.join(index, before.makers if before else ())
                self._lengths[index] = (made.least, made.most)
            elif use.action == "add" and len(use.sources) > 1:
                for i in range(use.width):
                    self._promote(held, index, use, i)
        return [self._chain(members) for members in self._groups.sorted()]

    def _effect(self, index: int) -> Effect | None:
        use, keeps = self._uses.get(index), bool(self._function.lines[index].guard)
        if use is None:
            return Effect(self._targets[index], keeps=True) if keeps else None
        sources = () if use.fresh == "yes" else tuple([source for source in use.sources if source is not None])
        return Effect(use.target, sources, elementwise=use.action != "matrix", keeps=keeps)

    def _make(self, index: int, register: int, held: Holding) -> Partial | None:
        use = self._uses.get(index)
        i = register - self._targets[index]
        value: Partial | None
        if use is None:
            value = None
        elif use.action == "matrix":
            value = _product(held, index, use)._replace(places=frozenset([i]))
        elif use.action == "add":
            value = _sum(held, use, i)
        else:
            value = _moved(held, use, i)
        return _join(held(register), value) if self._function.lines[index].guard else value

    def _promote(self, held: Holding, index: int, use: Use, i: int) -> None:
        """Notes a partial sum that is added to another one, elementwise."""
        read = _added(held, use, i)
        for at, value in read.items():
            others = [other for place, other in read.items() if place != at and other.places == value.places]
            if not value.added and any(other.added or not other.makers & value.makers for other in others):
                self._promotions[index, at] = value

    def _chain(self, members: list[int]) -> Chain:
        function, flow = self._function, self._flow
        counted = _counted(function, members)
        sizes = {parse(opcode).k for opcode, _ in counted}
        k = sizes.pop() if len(sizes) == 1 else 0
        longest = max(self._lengths[i][1] for i in members)
        among = frozenset(members)
        ended = {at: value for at, value in self._promotions.items() if value.makers & among}
        if not flow.complete:
            return Chain(counted, "unknown", 1, UNBOUNDED, k, reason=_NO_FLOW)
        inside = {at: value for at, value in ended.items() if self._same_loop(at[0], value.makers & among)}
        events = inside or (ended if longest < UNBOUNDED else {})
        if not events:
            if longest == UNBOUNDED:
                return Chain(counted, "never", 1, longest, k)
            return Chain(counted, "whole", longest, longest, k)
        least, most = min(v.least for v in events.values()), max(v.most for v in events.values())
        by = ", ".join(dict.fromkeys(function.lines[at].stem for at, _ in events))
        if most == UNBOUNDED:
            return Chain(counted, "unknown", max(least, 1), most, k, by, self._why_unbounded(members))
        return Chain(counted, "promoted", least, most, k, by)

    def _same_loop(self, index: int, makers: Iterable[int]) -> bool:
        loop = self._flow.cycle_of(index)
        return loop >= 0 and any(self._flow.cycle_of(i) == loop for i in makers)

    def _why_unbounded(self, members: Iterable[int]) -> str:
        if any(self._uses[i].fresh == "run time" for i in members):
            return "a predicate decides at run time whether a sum begins anew"
        return "how often a loop without promotion runs is decided at run time"


class _Groups:
    """Lines that are connected by the accumulators that they hand on (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def join(self, line: int, others: Iterable[int]) -> None:
        for other in (line, *others):
            self._parent[self._root(other)] = self._root(line)

    def sorted(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for line in sorted(self._parent):
            groups.setdefault(self._root(line), []).append(line)
        return list(groups.values())

    def _root(self, line: int) -> int:
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


def _widen(old: Partial | None, new: Partial | None) -> Partial | None:
    joined = _join(old, new)
    return joined._replace(most=UNBOUNDED) if joined and old and joined.most > old.most else joined


def _decisive(use: Use) -> list[int]:
    """Registers that decide what is found of a line: the accumulator, and what may be a promotion."""
    sources = [source for source in use.sources if source is not None]
    if use.action == "add" and len(use.sources) > 1:
        return [source + i for source in sources for i in range(use.width)]
    return sources if use.action == "matrix" and use.fresh != "yes" else []


def _continued(held: Holding, use: Use) -> Partial | None:
    """The partial sum with which a matrix instruction goes on."""
    return None if use.fresh == "yes" or use.sources[0] is None else held(use.sources[0])


def _product(held: Holding, index: int, use: Use) -> Partial:
    before = _continued(held, use)
    least, most = (before.least, before.most) if before else (0, 0)
    least = 0 if use.fresh == "run time" else least
    return Partial(least + 1, min(most + 1, UNBOUNDED), False, frozenset([index]), frozenset())


def _added(held: Holding, use: Use, i: int) -> dict[int, Partial]:
    """Return the partial sums that an addition reads, by register."""
    return {source + i: value for source in use.sources if source is not None and (value := held(source + i))}


def _sum(held: Holding, use: Use, i: int) -> Partial | None:
    """A sum of up to two values that are partial sums or sums of those: a product counts as its factors do."""
    values = list(_added(held, use, i).values())
    if not values or len(use.sources) == 1:
        return values[0] if values else None
    least, most = sum(v.least for v in values), min(sum(v.most for v in values), UNBOUNDED)
    makers, places = (frozenset[int]().union(*sets) for sets in zip(*((v.makers, v.places) for v in values), strict=True))
    return Partial(least, most, True, makers, places)


def _moved(held: Holding, use: Use, i: int) -> Partial | None:
    """A copy, a choice between sources, or a product with something else."""
    value: Partial | None = None
    for position, source in enumerate(use.sources):
        read = held(source + i) if source is not None else None
        value = read if position == 0 or (use.action == "scale" and value is None) else _chosen(use, value, read)
    return value


def _chosen(use: Use, a: Partial | None, b: Partial | None) -> Partial | None:
    return (a if b is None else _join(a, b)) if use.action == "scale" else _join(a, b)


_ADDS = frozenset({"FADD", "HADD2", "DADD", "FADD2"})
_FMAS = frozenset({"FFMA", "HFMA2", "DFMA", "FFMA2"})
_SCALES = frozenset({"FMUL", "HMUL2", "DMUL", "FMUL2"})


def _uses(definitions: Definitions) -> dict[int, Use]:
    """Return the effect on partial sums of each line that sums of a matrix unit can reach, in any order of execution."""
    lines, targets = definitions.function.lines, definitions.targets
    found = {i: _use(line, targets[i]) for i, line in enumerate(lines) if targets[i] >= 0 and _action(line.opcode) != "lose"}
    after: dict[int, set[int]] = {}
    reached: set[int] = set()
    for use in found.values():
        if use.action == "matrix":
            reached.update(range(use.target, use.target + use.width))
            continue
        for source in use.sources:
            if source is not None:
                for i in range(use.width):
                    after.setdefault(source + i, set()).add(use.target + i)
    waiting = list(reached)
    while waiting:
        new = after.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return {index: use for index, use in found.items() if use.action == "matrix" or _reads_one_of(use, reached)}


def _reads_one_of(use: Use, registers: set[int]) -> bool:
    return any(source is not None and source + i in registers for source in use.sources for i in range(use.width))


def _use(line: Line, target: int) -> Use:
    """Return the effect of a line on general registers."""
    action = _action(line.opcode)
    if action == "matrix":
        return _matrix_use(line, parse(line.opcode), target)
    rest = split_operands(line)[1:]
    if action == "add" and line.stem in _FMAS:
        return _fma(target, count_written(line.opcode), rest[:3])
    if action == "add":
        return Use(action, target, count_written(line.opcode), _without_zeros(rest[:2]))
    sources = tuple(map(register_number, rest))
    return Use(action, target, count_written(line.opcode), sources[-1:] if line.stem in ("MOV", "IMAD") else sources[:2])


@cache
def _action(opcode: str) -> Action:
    stem, *modifiers = opcode.split(".")
    if is_matrix(opcode):
        return "lose" if parse(opcode).is_integer else "matrix"
    if stem in _ADDS or stem in _FMAS:
        return "add"
    if stem in _SCALES:
        return "scale"
    return "copy" if stem in ("MOV", "SEL", "FSEL") or (stem == "IMAD" and "MOV" in modifiers) else "lose"


def _fma(target: int, count: int, operands: list[str]) -> Use:
    """A product plus an addend; a product plus zero is a product."""
    factors = [register_number(operand) for operand in operands[:2]]
    addend = _without_zeros(operands[2:])
    if not addend:
        return Use("scale", target, count, tuple(factors))
    return Use("add", target, count, (*factors, *addend))


def _without_zeros(operands: Iterable[str]) -> tuple[int | None, ...]:
    return tuple(register_number(operand) for operand in operands if not operand.lstrip("-+").startswith("RZ"))


def _matrix_use(line: Line, opcode: MatrixOpcode, target: int) -> Use:
    """D, A, B, C, …; a warpgroup's: D, [A,] descriptor, C[, scale-d], …"""
    named = split_operands(line)
    at = 1 + max((i for i, operand in enumerate(named) if operand.startswith("gdesc")), default=2)
    c = register_number(named[at]) if at < len(named) else None
    scale = named[at + 1] if at + 1 < len(named) and opcode.family.adds_to_d else ""
    fresh: Literal["no", "yes", "run time"] = "yes" if scale == "!UPT" or c is None else "no"
    if fresh == "no" and re.match(r"!?UP\d", scale):
        fresh = "run time"
    return Use("matrix", target, count_written(line.opcode), (c,), fresh)


def _counted(function: Function, lines: Iterable[int]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for i in lines:
        opcode = function.lines[i].opcode
        counts[opcode] = counts.get(opcode, 0) + 1
    return tuple(counts.items())
