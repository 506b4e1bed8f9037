"""The outcome of a verification, and how it is followed while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from accprobe.infer.findings import Counterexample

Advance = Callable[[int, int], None]
"""Called as a comparison goes on, with how many more dot products were compared, and how many of them differed."""


def silent(compared: int, differed: int) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Verification:
    """The outcome: dots compared (in all and of each operand kind), how many differed, and the first that did."""

    dots: int
    mismatches: int
    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    counterexample: Counterexample | None = None
