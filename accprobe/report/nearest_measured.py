"""What answers for an instruction that was not measured: one that was and differs in n alone.

Of the n that a wgmma may have two are measured, unless one asks for all. No part of the arithmetic is known to depend on n;
that it does not is not measured either, so who is answered is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accprobe.isa.instructions import Instruction, alike_but_n


@dataclass(frozen=True)
class NearestShape:
    """measured: the instructions that differ from `asked` in n alone, the nearest first."""

    asked: Instruction
    measured: tuple[Instruction, ...]

    @property
    def nearest(self) -> Instruction:
        return self.measured[0]

    def sentence(self, source: str) -> str:
        """Who answers, and why. source: where the measured ones are, as the user named it."""
        known = " and ".join(map(str, sorted(inst.n for inst in self.measured)))
        return f"{source} has {self.asked} at n = {known}, not at {self.asked.n}: {self.nearest}, the nearest, answers"


def nearest_measured(asked: Instruction, among: Iterable[Instruction]) -> NearestShape | None:
    """None where nothing but n would have to be the same."""
    alike = tuple(alike_but_n(asked, among))
    return NearestShape(asked, alike) if alike else None
