"""What explains a result, as `accprobe.gemm.explain` finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits
from accprobe.model.product import ProductModel

NEARLY = 0.9
"""A plan that explains so many of the words is the plan, and the rest is something else."""


@dataclass(frozen=True)
class Candidate:
    """A plan that may explain a result. told: findings by name."""

    name: str
    told: Mapping[str, object]
    model: ProductModel


@dataclass(frozen=True)
class Unexplained:
    """An element and its patterns."""

    row: int
    column: int
    got: int
    expected: int


@dataclass(frozen=True)
class Explanation:
    """What gives one result. plans: the first, and others that give the same bits; more: how many there are beyond these which
    a sample did not tell apart. compared: words of `words` that were held against it; wrong: those that differ. instructions:
    others with the arithmetic of the first plan. stopped: whether the search ended with an arithmetic that explains the
    words, so that some others, which may too, were not tried. held: what the first plan gives. regions: parts of the result
    that have a plan of their own; their words are not among those that differ from the first plan. unknown: what is known of a
    result that no plan explains.
    """

    words: int
    compared: int
    wrong: int
    plans: tuple[Candidate, ...]
    more: int = 0
    places: tuple[Unexplained, ...] = ()
    instructions: tuple[str, ...] = ()
    stopped: bool = False
    held: ComparedRows | None = field(default=None, compare=False, repr=False)
    regions: tuple[ExplainedRegion, ...] = ()
    unknown: Unknown | None = None

    @property
    def alike(self) -> int:
        """Other plans than the first that were not told from it."""
        return len(self.plans) - 1 + self.more

    @property
    def nearly(self) -> bool:
        """Whether the plan is the product's, whatever became of a few words."""
        return bool(self.plans) and self.wrong <= (1 - NEARLY) * self.compared


@dataclass(frozen=True)
class ExplainedRegion:
    """rows, columns: the first and the last; found: of these elements alone."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    found: Explanation


@dataclass(frozen=True)
class Unknown:
    """A result that no plan explains, against the exact sums, rounded once.

    differing: of `compared` words, those that are not these; median, largest: of their differences, in units in the last
    place. rows, columns: the first and the last that have words which the nearest plan does not give. miscounts: what least
    squares finds missing, counted twice or mispaired; explained: the share of the squared difference that this makes.
    """

    compared: int
    differing: int
    median: int
    largest: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    miscounts: tuple[str, ...] = ()
    explained: float = 0.0


class ComparedRows(NamedTuple):
    """rows [R] of the result that were compared, and what a plan gives there, [R, N]."""

    rows: NDArray[np.int64]
    expected: Bits


def differences(x: Candidate, y: Candidate) -> dict[str, tuple[object, object]]:
    """Findings that both have, in which two plans differ."""
    if x.model == y.model:
        return {}
    return {name: (value, y.told[name]) for name, value in x.told.items() if value != y.told.get(name, value)}


def differing_plans(found: Sequence[Explanation]) -> dict[str, tuple[object, object]] | None:
    """Findings in which the plans of two results differ; None where there are not two, or one has no plan."""
    if len(found) != 2 or not all(each.nearly for each in found):
        return None
    return differences(found[0].plans[0], found[1].plans[0])
