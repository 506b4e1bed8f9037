"""The explanation of a given result: plans that give its bits, or facts about a result that no plan explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.verification import ElementMismatch
from accprobe.isa.formats import Bits
from accprobe.model.product import ProductModel

# A plan that explains this share of the results is the product's plan; the rest has another cause.
_NEARLY = 0.9


@dataclass(frozen=True)
class Candidate:
    """A plan that may explain a result. findings: by name."""

    name: str
    findings: Mapping[str, object]
    model: ProductModel


@dataclass(frozen=True)
class Explanation:
    """The plans that explain one result.

    plans: the first, and others that give the same bits; more: the number of further plans that a sample did not distinguish.
    compared: of `words`; mismatches: of the compared ones. instructions: others with the arithmetic of the first plan. stopped:
    the search ended at an arithmetic that explains the result, so some others were not tried. rows: the numbers [R] of the
    compared rows, and the first plan's results there, [R, N]. regions: parts of the result with another plan, whose words are
    not among the mismatches. unknown: facts about a result that no plan explains.
    """

    words: int
    compared: int
    mismatches: int
    plans: tuple[Candidate, ...]
    more: int = 0
    places: tuple[ElementMismatch, ...] = ()
    instructions: tuple[str, ...] = ()
    stopped: bool = False
    rows: tuple[NDArray[np.int64], Bits] | None = field(default=None, compare=False, repr=False)
    regions: tuple[ExplainedRegion, ...] = ()
    unknown: Unknown | None = None

    @property
    def alike(self) -> int:
        """Return the number of other plans that were not distinguished from the first."""
        return len(self.plans) - 1 + self.more

    @property
    def nearly(self) -> bool:
        """Return whether the plan explains nearly all words."""
        return bool(self.plans) and self.mismatches <= (1 - _NEARLY) * self.compared


@dataclass(frozen=True)
class ExplainedRegion:
    """rows, columns: the first and the last; found: the explanation of these elements alone."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    found: Explanation

    def holds(self, row: int, column: int) -> bool:
        return self.rows[0] <= row <= self.rows[1] and self.columns[0] <= column <= self.columns[1]


@dataclass(frozen=True)
class Unknown:
    """A result that no plan explains, compared with the exact sums rounded once.

    differing_from_exact: of `compared` words; median_ulp, largest_ulp: difference in units in the last place. rows, columns:
    the first and the last with mismatches of the nearest plan. miscounts: missing, repeated or mispaired products by least
    squares; miscounts_explain: their share of the squared difference.
    """

    compared: int
    differing_from_exact: int
    median_ulp: int
    largest_ulp: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    miscounts: tuple[str, ...] = ()
    miscounts_explain: float = 0.0


def differences(x: Candidate, y: Candidate) -> dict[str, tuple[object, object]]:
    """Return the findings in which two plans differ."""
    if x.model == y.model:
        return {}
    return {name: (value, y.findings[name]) for name, value in x.findings.items() if value != y.findings.get(name, value)}


def differing_plans(found: Sequence[Explanation]) -> dict[str, tuple[object, object]] | None:
    """Return the findings in which the plans of two results differ; None without two explained results."""
    if len(found) != 2 or not all(each.nearly for each in found):
        return None
    return differences(found[0].plans[0], found[1].plans[0])
