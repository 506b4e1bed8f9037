"""Combinations of steps and orders that may explain a composite, and the rows that decide between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.composites.functions import SingleValues
from accprobe.composites.partial import Rule, Schedule, Sum, Welford
from accprobe.composites.steps import Steps
from accprobe.isa.formats import Bits
from accprobe.model.product import Merged, Node, ProductModel, folded


class ProbedRows(NamedTuple):
    """Rows x, their targets (None without), the result words, and eps."""

    x: SingleValues
    targets: NDArray[np.int64] | None
    got: Bits
    eps: float | None

    def first(self, rows: int) -> ProbedRows:
        return ProbedRows(self.x[:rows], None if self.targets is None else self.targets[:rows], self.got[:rows], self.eps)


@dataclass(frozen=True)
class CompositeCandidate:
    """Steps, a rule for the terms, and a plan of the order. order: in words."""

    steps: Steps
    rule: Rule
    model: ProductModel
    order: str
    schedule: Schedule

    def same_bits(self, other: CompositeCandidate) -> bool:
        """Return whether both add the same terms in the same tree, whatever their steps and Welford updates are."""
        if isinstance(self.rule, Welford):
            return self.model.tree == other.model.tree
        numbers: dict[object, int] = {}
        return _additions(self, numbers) == _additions(other, numbers)

    def in_words(self, beside: CompositeCandidate) -> str:
        """Return the steps in words, with the rule if `beside` has another rule."""
        return str(self.steps) if self.rule == beside.rule else in_words_of(self.steps, self.rule)


def in_words_of(steps: Steps, rule: Rule) -> str:
    return f"{steps}, {rule}" if isinstance(rule, Welford) else str(steps)


def _additions(candidate: CompositeCandidate, numbers: dict[object, int]) -> int:
    """Return the number of the sum; equal sums share one. A sum of zero and a term is the term."""
    is_fused = candidate.rule == Sum("fused")

    def added(total: int, other: int) -> int:
        return numbers.setdefault(frozenset((total, other)), len(numbers))

    def number(node: Node) -> int:
        if isinstance(node, Merged):
            return folded(node.nested, [number(part) for part in node.parts], added)
        first, *others = (numbers.setdefault(("term", int(k)), len(numbers)) for k in node.taken)
        for other in others:
            first = numbers.setdefault(("fused", first, other), len(numbers)) if is_fused else added(first, other)
        return first

    return number(candidate.model.tree)


class Nearest(NamedTuple):
    """The combination of steps and an order that explains most."""

    text: str
    wrong: int
    results: int

    def __str__(self) -> str:
        return f"the nearest has {self.wrong:,} of {self.results:,} results wrong: {self.text}"
