"""What a check of a GPU is to do: how long, how much of it, against which models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HealthLevel = Literal["quick", "standard", "soak"]

SECONDS: dict[HealthLevel, float] = {"quick": 20.0, "standard": 300.0, "soak": 3600.0}
"""How long a level takes where nothing else is asked for. quick: what a job's prologue can wait for."""

HANG_SECONDS = 120.0
"""Seconds past the plan's after which a GPU that has not ended counts as one that hangs: kernels may have to be compiled."""

UNHURRIED = 5.0
"""Seconds that a unit runs before the next one has its turn; less where the whole check is too short for three turns each."""


@dataclass(frozen=True)
class CheckPlan:
    """How one GPU is checked.

    seconds: wall time, starting up included, unless that leaves a unit less than `least`. like: whose models say what is right
    ("h200", "sim:h100", a report's file); None: the recorded report of that GPU kind. again: how often the operands of a
    mismatch are asked again on its SM. serial: whether the outcome has the board's serial number.
    """

    seconds: float = SECONDS["standard"]
    seed: int = 0
    like: str | None = None
    again: int = 1000
    serial: bool = False

    def turn(self, units: int) -> float:
        """Seconds that one of so many units runs before the next one has its turn."""
        return min(UNHURRIED, self.seconds / (3 * max(units, 1)))

    def least(self, units: int) -> float:
        """Seconds that each unit gets however long starting up and compiling took: three quarters of its share."""
        return 0.75 * self.seconds / max(units, 1)
