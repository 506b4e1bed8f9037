"""What compares a unit's results with the model's, and how a word that differs is looked into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from accprobe.health.outcome import SmPlace
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Counterexample


@dataclass(frozen=True)
class SeenWord:
    """A word that differed. key: what its bench needs to ask the same again; chain: how many instructions made it."""

    place: SmPlace
    found: Counterexample
    key: object
    chain: int = 1


@dataclass(frozen=True)
class Turn:
    """What one turn of a unit compared. dots, computed: as of `UnitOutcome`. sms: those that computed; None: nobody tells.

    wrong_by_sm: words that differ, by SM, "" where it is not told. seen: some of those. vanished: as of `GpuOutcome`.
    loaded_seconds, loaded_computed: as of `UnitOutcome`.
    """

    dots: int
    computed: int
    seconds: float
    sms: int | None = None
    wrong_by_sm: Mapping[str, int] = field(default_factory=dict)
    seen: tuple[SeenWord, ...] = ()
    vanished: int = 0
    loaded_seconds: float | None = None
    loaded_computed: int = 0


class UnitBench(Protocol):
    """One unit of one GPU. inst: what computes; chain: how many of them, at most, make a result that is compared."""

    inst: Instruction
    chain: int

    def prepare(self) -> Turn:
        """Compares a little, so that nothing has to be compiled or loaded in a turn; takes no time. Raises DeviceError."""

    def turn(self, seconds: float) -> Turn:
        """Computes and compares for about so long. Raises DeviceError."""

    def again(self, seen: SeenWord, times: int) -> int:
        """How often the same operands differ when they are asked there again. Raises DeviceError."""

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        """The fewest operands that differ there; None where it does not come back. Raises DeviceError."""
