"""Control flow of a function of SASS: basic blocks and loops.

Blocks and edges come from the disassembler. It prints a label at every target of a jump, and the labels with every jump that it
can follow, also through a register (`BRX … (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)`). If it could not find the targets of a jump,
`complete` is false, and no result may depend on the whole flow.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from accprobe.isa.opcodes import stem
from accprobe.sass.reading import Function, Line

_JUMPS = frozenset({"BRA", "JMP", "BRX", "JMX", "BRXU", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL", "BPT", "RTT"})
_LABEL = re.compile(r"\.L\w+")


START = -1
"""The predecessor of a block with which execution begins."""


@dataclass(frozen=True)
class Block:
    """Lines start … stop - 1, which run one after another, and the successors."""

    start: int
    stop: int
    successors: tuple[int, ...]


class Flow:
    """The blocks of a function. complete: whether the targets of every jump are known."""

    def __init__(self, function: Function) -> None:
        lines = function.lines
        leaving = [i for i, line in enumerate(lines) if _leaves(line.opcode)]
        targets = {i: _targets(lines[i], function.labels) for i in leaving}
        self.complete = all(to is not None and all(index < len(lines) for index in to) for to in targets.values())
        starts = {0, *(index for to in targets.values() for index in to or () if index < len(lines))}
        starts |= {i + 1 for i in leaving if i + 1 < len(lines)}
        self._starts = sorted(starts) if lines else []
        number = {start: block for block, start in enumerate(self._starts)}
        self.blocks: list[Block] = []
        for start, stop in zip(self._starts, [*self._starts[1:], len(lines)], strict=False):
            last = lines[stop - 1]
            after = [number[index] for index in targets.get(stop - 1) or () if index in number]
            if stop < len(lines) and not (_leaves(last.opcode) and _always(last)):
                after.append(number[stop])
            self.blocks.append(Block(start, stop, tuple(dict.fromkeys(after))))

    @cached_property
    def _entries(self) -> list[int]:
        """Return block 0, and each block that no jump and no preceding block leads to."""
        led_to = {after for block in self.blocks for after in block.successors}
        return [i for i in range(len(self.blocks)) if i == 0 or i not in led_to]

    @cached_property
    def _order(self) -> list[int]:
        """Return the reachable blocks in reverse postorder: each before its successors, except along back edges."""
        finished: list[int] = []
        seen: set[int] = set()
        waiting = [(block, False) for block in self._entries]
        while waiting:
            block, done = waiting.pop()
            if done:
                finished.append(block)
            elif block not in seen:
                seen.add(block)
                waiting.append((block, True))
                waiting += [(after, False) for after in self.blocks[block].successors if after not in seen]
        return finished[::-1]

    @cached_property
    def before(self) -> list[list[int]]:
        """Return the reachable predecessors of each block, START for an entry and for a block that is never reached."""
        before: list[list[int]] = [[] for _ in self.blocks]
        for entry in self._entries:
            before[entry].append(START)
        for block in self._order:
            for after in self.blocks[block].successors:
                before[after].append(block)
        return [ways or [START] for ways in before]

    @cached_property
    def cycles(self) -> list[int]:
        """Return by block the number of its loop (strongly connected blocks, by Kosaraju).

        -1: outside of loops, or unreachable.
        """
        component = [-1] * len(self.blocks)
        seen: set[int] = {START}
        for root in self._order:
            members, waiting = list[int](), [root]
            while waiting:
                block = waiting.pop()
                if block not in seen:
                    seen.add(block)
                    members.append(block)
                    waiting += self.before[block]
            if len(members) > 1 or root in self.before[root]:
                for member in members:
                    component[member] = root
        return component

    def block_of(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1

    def cycle_of(self, index: int) -> int:
        """Return the loop of a line, -1 outside of loops."""
        return self.cycles[self.block_of(index)]


def _targets(line: Line, labels: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the lines that one line may jump to; None if they are not known."""
    if line.stem not in _JUMPS:
        return ()
    return tuple(labels[label] for label in _LABEL.findall(line.operands) if label in labels) or None


@cache
def _leaves(opcode: str) -> bool:
    return stem(opcode) in _JUMPS or stem(opcode) in _ENDS


def _always(line: Line) -> bool:
    """Return whether the jump is always taken: without a predicate before the opcode or among the operands, and not only by a
    diverged (DIV) or converged (CONV) warp."""
    conditional = re.match(r"!?U?P[\dT]", line.operands) or {"DIV", "CONV"} & set(line.opcode.split("."))
    return not line.guard and not conditional
