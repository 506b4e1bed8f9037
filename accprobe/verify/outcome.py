"""The outcome of a verification, and how it is followed while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from accprobe.operands.exchange import Counterexample

# Called as a comparison goes on, with how many more dot products were compared, and how many of them differed.
Advance = Callable[[int, int], None]


def silent(compared: int, differed: int) -> None:
    """Nobody is told."""


# The kinds of operands that are made for events, and that are every pair of codes: no random ones.
COVERING, CODE_PAIRS = "coverage", "code pairs"

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TileCoverage:
    """Tile elements whose results were compared, of all. differing: in words, which of them differ."""

    covered: Count
    total: Count
    differing: str = ""


@dataclass(frozen=True)
class Events:
    """Functional coverage: what the sums of the model can do, and how much of it the dot products asked made them do.

    impossible: why events cannot occur -> how many. missing: names of those that can and did not.
    """

    hit: Count
    possible: Count
    impossible: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Queries:
    """How many queries a device got, and how many dot products the smallest and the largest of them had."""

    count: Count
    smallest: Count
    largest: Count


@dataclass(frozen=True)
class Verification:
    """The outcome: dots compared (in all and of each operand kind), how many differed, and the first that did.

    dots, kinds: those of the kinds COVERING and CODE_PAIRS are made, all others random.
    results: all that the device ever gave in that row, those of experiments and rivals too; contradicting: how many of them
    the model does not explain. queries: None in older reports, which do not say, and of comparisons on the GPU itself.
    """

    dots: Count
    mismatches: Count
    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    results: Count = 0
    contradicting: Count = 0
    tile: TileCoverage | None = None
    events: Events | None = None
    queries: Queries | None = None

    @property
    def refuted(self) -> bool:
        """Whether some result differs from the model: what the model's sums were made to do says nothing then."""
        return bool(self.mismatches or self.contradicting or (self.tile and self.tile.differing))

    @property
    def random(self) -> int:
        """Dot products that were drawn at random, of which a rate can be told."""
        return self.dots - sum(self.kinds.get(kind, 0) for kind in (COVERING, CODE_PAIRS))
