"""Control flow of a function of SASS: basic blocks, cycles, and what holds at the start of each block.

Blocks and edges are those of the disassembler: it prints a label at every place that something jumps to, and the label with
every jump, those through a register too (`BRX … (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)`). Where it could not find the targets of a
jump, `complete` is false and nothing that depends on the whole flow may be said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from accprobe.sass.reading import Function, Line

_INDIRECT = frozenset({"BRX", "JMX", "BRXU", "JMXU"})
_JUMPS = _INDIRECT | {"BRA", "JMP"}
_ENDS = frozenset({"EXIT", "RET", "KILL", "BPT", "RTT"})
_LABEL = re.compile(r"\.L\w+")
_PLACE = re.compile(r"\.L\w+|(?<![\w.])0x[0-9a-f]+")
"""Profilers print addresses in place of labels."""

PATIENCE = 4
"""Times that a block is visited before bounds that still grow are given up (`widen`)."""

T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """Lines start … stop - 1, which run one after another, and the blocks that may follow."""

    start: int
    stop: int
    successors: tuple[int, ...]


class Flow:
    """The blocks of a function. complete: whether the targets of every jump are known."""

    def __init__(self, function: Function) -> None:
        lines = function.lines
        places = {f"0x{line.offset:x}": index for index, line in enumerate(lines)} | function.labels
        targets = [_targets(line, places) for line in lines]
        self.complete = all(to is not None and all(index < len(lines) for index in to) for to in targets)
        starts = {0, *(index for to in targets for index in to or () if index < len(lines))}
        starts |= {i + 1 for i, line in enumerate(lines[:-1]) if _leaves(line) or targets[i]}
        ordered = sorted(starts) if lines else []
        number = {start: block for block, start in enumerate(ordered)}
        self.blocks: list[Block] = []
        for start, stop in zip(ordered, [*ordered[1:], len(lines)], strict=False):
            last = lines[stop - 1]
            after = [number[index] for index in targets[stop - 1] or () if index in number]
            if stop < len(lines) and not (_leaves(last) and _always(last)):
                after.append(number[stop])
            self.blocks.append(Block(start, stop, tuple(dict.fromkeys(after))))

    @cached_property
    def cycles(self) -> list[int]:
        """Per block the number of the loop (strongly connected blocks) that it is in, -1 where it is in none."""
        return _components([block.successors for block in self.blocks])

    def block_of(self, index: int) -> int:
        """The block that a line is in."""
        low, high = 0, len(self.blocks)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.blocks[middle].start <= index else (low, middle)
        return low

    def cycle_of(self, index: int) -> int:
        """The loop that a line is in, -1 where it is in none."""
        return self.cycles[self.block_of(index)]


@dataclass(frozen=True)
class Domain(Generic[T]):
    """What is known of registers. step: changes the state as a line does; join: of what holds on two ways to one place,
    None where nothing is known of the register there; widen: as join, of an old and a newer value that may grow for ever."""

    step: Callable[[dict[int, T], int], None]
    join: Callable[[T | None, T | None], T | None]
    widen: Callable[[T | None, T | None], T | None]


def solve(flow: Flow, domain: Domain[T]) -> list[dict[int, T]]:
    """What holds at the start of each block: register -> value. Blocks that nothing leads to start with nothing known."""
    blocks = flow.blocks
    entered: list[dict[int, T] | None] = [None] * len(blocks)
    visits = [0] * len(blocks)
    entries = set(range(len(blocks))) - {after for block in blocks for after in block.successors} | {0}
    waiting = sorted(entries) if blocks else []
    for block in waiting:
        entered[block] = {}
    while waiting:
        current = waiting.pop(0)
        state = dict(entered[current] or {})
        visits[current] += 1
        for index in range(blocks[current].start, blocks[current].stop):
            domain.step(state, index)
        for after in blocks[current].successors:
            merge = domain.join if visits[after] < PATIENCE else domain.widen
            merged = _merged(entered[after], state, merge)
            if merged != entered[after]:
                entered[after] = merged
                if after not in waiting:
                    waiting.append(after)
    return [state or {} for state in entered]


def _merged(old: Mapping[int, T] | None, new: Mapping[int, T], join: Callable[[T | None, T | None], T | None]) -> dict[int, T]:
    if old is None:
        return dict(new)
    joined = {register: join(old.get(register), new.get(register)) for register in old.keys() | new.keys()}
    return {register: value for register, value in joined.items() if value is not None}


def _targets(line: Line, places: Mapping[str, int]) -> tuple[int, ...] | None:
    """Lines that this one may jump to; None where that is not known."""
    if line.stem not in _JUMPS:
        return ()
    named = (_LABEL if line.stem in _INDIRECT else _PLACE).findall(line.operands)
    found = [places[label] for label in named if label in places]
    return tuple(found) or None


def _leaves(line: Line) -> bool:
    return line.stem in _JUMPS or line.stem in _ENDS


def _always(line: Line) -> bool:
    """Whether the jump is taken whenever the line is reached: no predicate stands before the opcode or among the operands, and
    it is none that only a warp in disagreement takes."""
    conditional = re.match(r"!?U?P[\dT]", line.operands) or {"DIV", "CONV"} & set(line.opcode.split("."))
    return not line.guard and not conditional


def _components(successors: Sequence[Sequence[int]]) -> list[int]:
    """Tarjan's strongly connected components, without recursion: component numbers, -1 for a node that is in no cycle."""
    count = len(successors)
    order, low = [-1] * count, [0] * count
    on_stack = [False] * count
    component = [-1] * count
    stack: list[int] = []
    clock = numbered = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, i = work.pop()
            if i == 0:
                order[node] = low[node] = clock
                clock += 1
                stack.append(node)
                on_stack[node] = True
            if i < len(successors[node]):
                after = successors[node][i]
                work.append((node, i + 1))
                if order[after] < 0:
                    work.append((after, 0))
                elif on_stack[after]:
                    low[node] = min(low[node], order[after])
                continue
            for after in successors[node]:
                if on_stack[after]:
                    low[node] = min(low[node], low[after])
            if low[node] == order[node]:
                members: list[int] = []
                while not members or members[-1] != node:
                    members.append(stack.pop())
                    on_stack[members[-1]] = False
                if len(members) > 1 or node in successors[node]:
                    for member in members:
                        component[member] = numbered
                    numbered += 1
    return component
