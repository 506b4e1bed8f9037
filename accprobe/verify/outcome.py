"""The outcome of a verification, and how it is followed while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from accprobe.operands.exchange import Counterexample

Advance = Callable[[int, int], None]
"""Called as a comparison goes on, with how many more dot products were compared, and how many of them differed."""


def silent(compared: int, differed: int) -> None:
    """Nobody is told."""


Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Verification:
    """The outcome: dots compared (in all and of each operand kind), how many differed, and the first that did."""

    dots: Count
    mismatches: Count
    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    counterexample: Counterexample | None = None
