"""Promotion, read off the SASS: how many matrix instructions accumulate before their sum is added to other registers.

Along the control flow each register is known to hold a partial sum of a matrix unit, and of how many instructions, at least and
at most. An instruction that takes RZ, a zero or a false scale-d predicate for C begins a sum; one that takes a partial sum goes
on with it. Where a partial sum is added (FADD, FFMA, HADD2, …) to another partial sum or to a sum of such, elementwise, it is
promoted. What is multiplied (a softmax that rescales its output) stays the unit's partial sum; what is added to anything else
(a bias) is no promotion.

What cannot be seen: sums that leave the registers (split K through memory, or by atomics).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from accprobe.sass.flow import Domain, Flow, solve
from accprobe.sass.opcodes import MATRIX, MatrixOpcode, parse
from accprobe.sass.reading import Function, Line

UNBOUNDED = 1 << 30
"""Instead of a count that has no bound: it depends on how often a loop runs."""

Verdict = Literal["promoted", "never", "whole", "unknown"]


@dataclass(frozen=True)
class Chain:
    """Matrix instructions of a function that hand one accumulator on, and what becomes of its sum.

    promoted: added to other registers after `least` to `most` instructions, by `by` ("FADD"); never: one sum for as long as the
    loop runs; whole: `most` instructions are all there is, no loop; unknown: `reason` says why it cannot be told.
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
    makers: the lines of the matrix instructions that wrote it last, or wrote what has been added up in it; cells: which
    registers of their tiles that is, so that what adds up a row is told from what adds two tiles.
    """

    least: int
    most: int
    added: bool
    makers: frozenset[int]
    cells: frozenset[int]


class Use(NamedTuple):
    """What a line does to registers.

    target: the first that it writes; width: how many. sources: registers that it reads, None for what is no register; of what
    it adds, zeros are left out.
    """

    action: Literal["matrix", "copy", "scale", "add", "lose"]
    target: int
    width: int
    sources: tuple[int | None, ...]
    fresh: Literal["no", "yes", "run time"] = "no"


def chains(function: Function) -> tuple[Chain, ...]:
    """Every chain of floating-point matrix instructions, in the order of the text. Integer sums are exact: there are none."""
    wanted = [i for i, line in enumerate(function.lines) if _is_float_matrix(line)]
    if not wanted:
        return ()
    flow = Flow(function)
    tensor = [i for i in wanted if not parse(function.lines[i].opcode).accumulator_registers]
    found = [_in_tensor_memory(function, flow, tensor)] if tensor else []
    if len(tensor) < len(wanted):
        found += _Analysis(function, flow).chains()
    return tuple(dict.fromkeys(found))


def _is_float_matrix(line: Line) -> bool:
    return MATRIX.match(line.opcode) is not None and not parse(line.opcode).is_integer


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

    def __init__(self, function: Function, flow: Flow) -> None:
        self._function, self._flow = function, flow
        self._uses = [_use(line) for line in function.lines]
        self._groups = _Groups()
        self._lengths: dict[int, tuple[int, int]] = {}
        self._promotions: dict[tuple[int, int], Partial] = {}
        self._recording = False

    def chains(self) -> list[Chain]:
        entered = solve(self._flow, Domain(self._step, _join, _widen))
        self._recording = True
        for block, state in zip(self._flow.blocks, entered, strict=True):
            current = dict(state)
            for index in range(block.start, block.stop):
                self._step(current, index)
        return [self._chain(members) for members in self._groups.sorted()]

    def _step(self, state: dict[int, Partial], index: int) -> None:
        use = self._uses[index]
        if use is None:
            return
        values: list[Partial | None]
        if use.action == "matrix":
            made = self._multiply(state, index, use)
            values = [made._replace(cells=frozenset([i])) for i in range(use.width)]
        elif use.action == "add":
            values = [self._add(state, index, use, i) for i in range(use.width)]
        elif use.action == "lose":
            values = [None] * use.width
        else:
            values = [_moved(state, use, i) for i in range(use.width)]
        for register, value in enumerate(values, use.target):
            kept = _join(state.get(register), value) if self._function.lines[index].guard else value
            if kept is None:
                state.pop(register, None)
            else:
                state[register] = kept

    def _multiply(self, state: dict[int, Partial], index: int, use: Use) -> Partial:
        before = state.get(use.sources[0]) if use.sources[0] is not None else None
        least, most, makers = (before.least, before.most, before.makers) if before else (0, 0, frozenset[int]())
        if use.fresh == "yes":
            least, most, makers = 0, 0, frozenset()
        elif use.fresh == "run time":
            least = 0
        made = Partial(least + 1, min(most + 1, UNBOUNDED), False, frozenset([index]), frozenset())
        if self._recording:
            self._groups.join(index, makers)
            self._lengths[index] = (made.least, made.most)
        return made

    def _add(self, state: dict[int, Partial], index: int, use: Use, i: int) -> Partial | None:
        """A sum of up to two values that are partial sums or sums of those: a product counts as its factors do."""
        read = {r + i: value for r in use.sources if r is not None and (value := state.get(r + i))}
        values = list(read.values())
        if not values or len(use.sources) == 1:
            return values[0] if values else None
        if self._recording:
            for register, value in read.items():
                others = [other for other in values if other is not value and other.cells == value.cells]
                if not value.added and any(other.added or not other.makers & value.makers for other in others):
                    self._promotions[index, register] = value
        least, most = sum(v.least for v in values), min(sum(v.most for v in values), UNBOUNDED)
        makers, cells = (frozenset[int]().union(*sets) for sets in zip(*((v.makers, v.cells) for v in values), strict=True))
        return Partial(least, most, True, makers, cells)

    def _chain(self, members: list[int]) -> Chain:
        function, flow = self._function, self._flow
        counted = _counted(function, members)
        sizes = {parse(opcode).k for opcode, _ in counted}
        k = sizes.pop() if len(sizes) == 1 else 0
        longest = max(self._lengths[i][1] for i in members)
        ended = {at: value for at, value in self._promotions.items() if value.makers & set(members)}
        if not flow.complete:
            return Chain(counted, "unknown", 1, UNBOUNDED, k, reason=_NO_FLOW)
        inside = {at: value for at, value in ended.items() if self._same_loop(at[0], value, members)}
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

    def _same_loop(self, index: int, value: Partial, members: list[int]) -> bool:
        loop = self._flow.cycle_of(index)
        return loop >= 0 and any(self._flow.cycle_of(i) == loop for i in value.makers & set(members))

    def _why_unbounded(self, members: Iterable[int]) -> str:
        if any((use := self._uses[i]) and use.fresh == "run time" for i in members):
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
    return Partial(least, most, a.added or b.added, a.makers | b.makers, a.cells | b.cells)


def _widen(old: Partial | None, new: Partial | None) -> Partial | None:
    joined = _join(old, new)
    return joined._replace(most=UNBOUNDED) if joined and old and joined.most > old.most else joined


def _moved(state: dict[int, Partial], use: Use, i: int) -> Partial | None:
    """A copy, a choice between sources, or a product with something else."""
    value: Partial | None = None
    for position, source in enumerate(use.sources):
        held = state.get(source + i) if source is not None else None
        value = held if position == 0 or (use.action == "scale" and value is None) else _chosen(use, value, held)
    return value


def _chosen(use: Use, a: Partial | None, b: Partial | None) -> Partial | None:
    return (a if b is None else _join(a, b)) if use.action == "scale" else _join(a, b)


_REGISTER = re.compile(r"[-|~!]*R(\d+|Z)(?![\w])")
_ADDS = {"FADD": 1, "HADD2": 1, "DADD": 2, "FADD2": 2}
_FMAS = {"FFMA": 1, "HFMA2": 1, "DFMA": 2, "FFMA2": 2}
_SCALES = {"FMUL": 1, "HMUL2": 1, "DMUL": 2, "FMUL2": 2}
_SECOND = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "MATCH"})
"""Opcodes whose first operand is a predicate and whose second is the register that they write."""
_WIDE = {"64": 2, "128": 4, "WIDE": 2, "x2": 2, "x4": 4, "x8": 8, "x16": 16, "x32": 32, "x64": 64, "x128": 128}


def _use(line: Line) -> Use | None:
    """What a line does to general registers; None where it writes none."""
    if MATRIX.match(line.opcode):
        return _matrix_use(line, parse(line.opcode))
    operands = [operand.strip() for operand in line.operands.split(",")]
    if line.stem in _SECOND and operands[0].startswith(("P", "!P")):
        operands = operands[1:]
    target = _register(operands[0])
    if target is None:
        return None
    sources = tuple(_register(operand) for operand in operands[1:])
    stem, modifiers = line.stem, line.opcode.split(".")[1:]
    if width := _ADDS.get(stem):
        return Use("add", target, width, _without_zeros(operands[1:3]))
    if width := _FMAS.get(stem):
        return _fma(target, width, operands[1:4])
    if width := _SCALES.get(stem):
        return Use("scale", target, width, sources[:2])
    if stem == "MOV" or (stem == "IMAD" and "MOV" in modifiers):
        return Use("copy", target, 1, sources[-1:])
    if stem in ("SEL", "FSEL"):
        return Use("copy", target, 1, sources[:2])
    return Use("lose", target, _width(stem, modifiers), ())


def _fma(target: int, width: int, operands: list[str]) -> Use:
    """A product plus an addend; a product plus zero is a product."""
    factors = [_register(operand) for operand in operands[:2]]
    addend = _without_zeros(operands[2:])
    if not addend:
        return Use("scale", target, width, tuple(factors))
    return Use("add", target, width, (*factors, *addend))


def _without_zeros(operands: Iterable[str]) -> tuple[int | None, ...]:
    return tuple(_register(operand) for operand in operands if not operand.lstrip("-+").startswith("RZ"))


def _matrix_use(line: Line, opcode: MatrixOpcode) -> Use | None:
    """D, A, B, C, …; a warpgroup's: D, [A,] descriptor, C[, scale-d], …"""
    if not opcode.accumulator_registers:
        return None
    operands = [operand.strip() for operand in line.operands.split(",")]
    target = _register(operands[0])
    if target is None:
        return None
    if opcode.is_integer:
        return Use("lose", target, opcode.accumulator_registers, ())
    at = 1 + max((i for i, operand in enumerate(operands) if operand.startswith("gdesc")), default=2)
    c = _register(operands[at]) if at < len(operands) else None
    scale = operands[at + 1] if at + 1 < len(operands) and opcode.family.adds_to_d else ""
    fresh: Literal["no", "yes", "run time"] = "yes" if scale == "!UPT" or c is None else "no"
    if fresh == "no" and re.match(r"!?UP\d", scale):
        fresh = "run time"
    return Use("matrix", target, opcode.accumulator_registers, (c,), fresh)


def _width(stem: str, modifiers: list[str]) -> int:
    if stem == "CS2R":
        return 1 if "32" in modifiers else 2
    if stem == "LDSM":
        return int(modifiers[-1]) if modifiers[-1].isdecimal() else 1
    return max((_WIDE.get(modifier, 1) for modifier in modifiers), default=1)


def _register(operand: str) -> int | None:
    """The number of a general register, None for RZ and for anything else."""
    found = _REGISTER.match(operand.strip())
    return int(found[1]) if found and found[1] != "Z" else None


def _counted(function: Function, lines: Iterable[int]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for i in lines:
        opcode = function.lines[i].opcode
        counts[opcode] = counts.get(opcode, 0) + 1
    return tuple(counts.items())
