"""The outcome of a verification, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from accprobe.operands.exchange import Counterexample

# Called as a comparison goes on, with how many more dot products were compared, and how many of them differed.
Advance = Callable[[int, int], None]


def silent(compared: int, differed: int) -> None:
    """Report no progress."""


# The kinds of operands that are not random: made for events, and every pair of codes.
COVERING, CODE_PAIRS = "coverage", "code pairs"

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TileCoverage:
    """Tile elements with compared results, of all. differing: those that differ, in words."""

    covered: Count
    total: Count
    differing: str = ""


NOT_FOUND = "no operands were found"
"""Start of the reason of an event for which the search found no operands, though nothing shows that it cannot occur."""


@dataclass(frozen=True)
class Events:
    """Functional coverage: how many events the dot products reached, of those that are possible.

    impossible: reason -> number of events that are not counted: they cannot occur, or no operands were found for them. missing:
    names of possible events that were not reached.
    """

    hit: Count
    possible: Count
    impossible: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def not_found(self) -> int:
        """Return how many of the events in `impossible` may be possible: no operands were found for them."""
        return sum(count for why, count in self.impossible.items() if why.startswith(NOT_FOUND))


@dataclass(frozen=True)
class Queries:
    """How many queries a device got, and how many dot products the smallest and the largest of them had."""

    count: Count
    smallest: Count
    largest: Count


@dataclass(frozen=True)
class Verification:
    """The comparison of a model with fresh results: dot products, elements of a product, or results of a function.

    compared: in all, and of each kind of operands; of: how many there are, where all can be listed. counterexample: a mismatch
    of a device, or a result that changed; mismatch: the first of a callable or function, in words. results: all that the
    subject ever gave, in experiments too; contradicting: how many of them the model does not explain. queries: None in older
    reports, of callables and functions, and of comparisons on the GPU itself.
    """

    compared: Count
    mismatches: Count
    seed: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    mismatch: str = ""
    results: Count = 0
    contradicting: Count = 0
    of: Count = 0
    tile: TileCoverage | None = None
    events: Events | None = None
    queries: Queries | None = None

    @property
    def refuted(self) -> bool:
        """Return whether some result contradicts the model; its coverage is then meaningless."""
        return bool(self.mismatches or self.contradicting or (self.tile and self.tile.differing))

    @property
    def contradiction(self) -> str:
        """Return "3 of 100 results differ from the model"; "" if none does."""
        if self.contradicting:
            return f"{self.contradicting:,} of {self.results:,} results differ from the model"
        return f"{self.mismatches:,} of {self.compared:,} results differ from the model" if self.mismatches else ""

    @property
    def uncovered(self) -> str:
        """Name the operands, tile elements or events that were not covered; "" if all were, as far as they were counted."""
        if not all(self.kinds.values()):
            return f"{self.random} random dot products are not enough for every kind of operands; give more --dots"
        if self.tile and self.tile.covered != self.tile.total:
            return f"{self.tile.covered:,} of the {self.tile.total:,} tile elements were covered; give more --dots"
        if self.events and (self.events.missing or self.events.hit != self.events.possible):
            first = f"; not covered: {self.events.missing[0]}" if self.events.missing else ""
            return f"{self.events.hit:,} of {self.events.possible:,} events of the model were covered{first}"
        return ""

    @property
    def random(self) -> int:
        """Return the number of random dot products, from which a fault rate follows."""
        return self.compared - sum(self.kinds.get(kind, 0) for kind in (COVERING, CODE_PAIRS))


@dataclass
class ComparisonCounts:
    """A comparison while it goes on: compared dot products of each kind, mismatches in all, and the first one."""

    kinds: dict[str, int]
    mismatches: int = 0
    first: Counterexample | None = None

    def count(self, kind: str, compared: int, mismatches: int) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + compared
        self.mismatches += mismatches

    def verification(self, seed: int) -> Verification:
        return Verification(sum(self.kinds.values()), self.mismatches, seed, self.kinds, self.first)
