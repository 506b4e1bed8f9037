"""Partial results of a summation tree: sums, and the mean and M2 of Welford's method, taken term by term and merged in pairs.

M2 is Σ (x - mean)².

Sources:
- Welford, "Note on a method for calculating corrected sums of squares and products" (1962)
- Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979)
- torch 2.11, ATen/native: SharedReduceOps.h (WelfordOps), cuda/layer_norm_kernel.cu (cuWelfordCombine)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.composites.functions import SingleValues, fma
from accprobe.function.quadratic import module_of
from accprobe.model.product import Chain, Node, chains_of, folded

# Arrays [parts, rows]: (sums,) or (means, M2s).
Arrays = tuple[SingleValues, ...]
# Numbers of terms in parts, [parts, 1].
Counts = Any


class Rule(Protocol):
    """How a chain takes its term number `count`, and how two parts become one. taking: equal if only `merge` differs."""

    @property
    def taking(self) -> object: ...
    def start(self, chains: int, terms: SingleValues) -> Arrays: ...
    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays: ...
    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts) -> Arrays: ...


@dataclass(frozen=True)
class Sum:
    """Sums in float32. squares: of the terms, fused with the addition or rounded before; "": the terms are added."""

    squares: Literal["fused", "rounded", ""] = ""

    @property
    def taking(self) -> object:
        return self

    def start(self, chains: int, terms: SingleValues) -> Arrays:
        return (np.zeros_like(terms, np.float32, shape=(chains, terms.shape[1])),)

    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays:
        if self.squares == "fused":
            return (fma(terms, terms, arrays[0]),)
        return (arrays[0] + (terms * terms if self.squares else terms),)

    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts) -> Arrays:
        return (a[0] + b[0],)


# Merge parts a and b of n and m terms: (means, M2s), with a function a · b + c.
Merging = Callable[[Arrays, Counts, Arrays, Counts, Callable[[Any, Any, Any], Any]], Arrays]


def _by_share(a: Arrays, n: Counts, b: Arrays, m: Counts, add: Any) -> Arrays:
    """WelfordOps::combine."""
    delta, share = b[0] - a[0], m / (n + m)
    return add(delta, share, a[0]), add(delta * delta * n, share, a[1] + b[1])


def _by_weights(a: Arrays, n: Counts, b: Arrays, m: Counts, add: Any) -> Arrays:
    """cuWelfordCombine with a as first argument."""
    delta, inverse = a[0] - b[0], 1 / (n + m)
    return add(m * inverse, b[0], n * inverse * a[0]), add(delta * delta * m, n * inverse, b[1] + a[1])


MERGINGS: Mapping[str, Merging] = {"WelfordOps": _by_share, "cuWelfordCombine": _by_weights}


@dataclass(frozen=True)
class Welford:
    """Welford's updates of mean and M2. divided: delta is divided by n, else multiplied by 1 / n. merging: in MERGINGS."""

    merging: str
    divided: bool
    fused: bool

    def __str__(self) -> str:
        """Return "Welford in f32, mean += delta / n, fused multiply-adds, merged as WelfordOps does"."""
        step = "delta / n" if self.divided else "delta · (1 / n)"
        adds = "fused multiply-adds" if self.fused else "rounded products"
        return f"Welford in f32, mean += {step}, {adds}, merged as {self.merging} does"

    @property
    def taking(self) -> object:
        return self.divided, self.fused

    def _add(self, a: Any, b: Any, c: Any) -> Any:
        return fma(a, b, c) if self.fused else a * b + c

    def start(self, chains: int, terms: SingleValues) -> Arrays:
        zeros = np.zeros_like(terms, np.float32, shape=(chains, terms.shape[1]))
        return zeros, zeros.copy()

    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays:
        mean, m2 = arrays
        delta, n = terms - mean, np.float32(count)
        mean = mean + delta / n if self.divided else self._add(delta, 1 / n, mean)
        return mean, self._add(delta, terms - mean, m2)

    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts) -> Arrays:
        return MERGINGS[self.merging](a, n.astype(np.float32), b, m.astype(np.float32), self._add)


WELFORD: Mapping[str, Welford] = {
    str(rule): rule for rule in (Welford(*each) for each in product(MERGINGS, (True, False), (True, False)))
}


# Numbers of parts that are merged in pairs a and b, which do not depend on each other. They become the next parts.
_Level = tuple[NDArray[np.intp], NDArray[np.intp]]


def _levels(merges: list[tuple[int, int, int]], chains: int) -> list[_Level]:
    """Return merges (height, a, b) by height; parts are numbered anew in that order."""
    if not merges:
        return []
    table = np.array(merges)
    order = np.argsort(table[:, 0], kind="stable")
    place = np.arange(chains + len(table))
    place[chains + order] = chains + np.arange(len(table))
    table = table[order]
    parts = np.split(table, np.flatnonzero(np.diff(table[:, 0])) + 1)
    return [(place[part[:, 1]], place[part[:, 2]]) for part in parts]


@lru_cache(maxsize=512)
def _shared(chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
    """Return the same tuple for equal chains, so that it is known by its id, without their hashes."""
    return chains


class Schedule:
    """The chains of a tree, which are the first parts, and its merges level by level; the last part is the result."""

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self.chains = _shared(tuple(chains_of(tree)))
        merges: list[tuple[int, int, int]] = []  # height, a, b; it makes part len(chains) + its number
        heights = [0] * len(self.chains)
        chains = iter(range(len(self.chains)))

        def number(node: Node) -> int:
            return next(chains) if isinstance(node, Chain) else folded(node.nested, [*map(number, node.parts)], merged)

        def merged(a: int, b: int) -> int:
            height = 1 + max(heights[a], heights[b])
            merges.append((height, a, b))
            heights.append(height)
            return len(heights) - 1

        number(tree)
        self.levels = _levels(merges, len(self.chains))
        self.counts = np.array([len(chain.taken) for chain in self.chains])
        for a, b in self.levels:
            self.counts = np.concatenate([self.counts, self.counts[a] + self.counts[b]])

    def of_chains(self, rule: Rule, terms: SingleValues) -> Arrays:
        """Return the parts of the chains for terms [K, rows]."""
        lengths = self.counts[: len(self.chains)]
        places = np.zeros((len(self.chains), lengths.max()), np.intp)
        for chain, place in zip(self.chains, places, strict=True):
            place[: len(chain.taken)] = chain.taken
        arrays, xp = rule.start(len(self.chains), terms), module_of(terms)
        with np.errstate(all="ignore"):
            for count, turn in enumerate(places.T, 1):
                there = lengths >= count
                if there.all():
                    arrays = rule.take(arrays, terms[xp.asarray(turn)], count)
                    continue
                left, turn = xp.asarray(np.flatnonzero(there)), xp.asarray(turn[there])
                some = rule.take(tuple(each[left] for each in arrays), terms[turn], count)
                for each, taken in zip(arrays, some, strict=True):
                    each[left] = taken
        return arrays

    def result(self, rule: Rule, terms: SingleValues, chains: Arrays | None = None) -> Arrays:
        """Return the result [rows] for terms [K, rows] of numpy or cupy. chains: the parts of the chains, if known."""
        arrays = self.of_chains(rule, terms) if chains is None else chains
        made, xp = len(self.chains), module_of(terms)
        parts = tuple(np.empty_like(each, shape=(len(self.counts), each.shape[1])) for each in arrays)
        for part, each in zip(parts, arrays, strict=True):
            part[:made] = each
        counts = xp.asarray(self.counts[:, None])
        with np.errstate(all="ignore"):
            for level in self.levels:
                a, b = map(xp.asarray, level)
                sides = tuple(part[a] for part in parts), counts[a], tuple(part[b] for part in parts), counts[b]
                for part, each in zip(parts, rule.merge(*sides), strict=True):
                    part[made : made + len(a)] = each
                made += len(a)
        return tuple(part[-1] for part in parts)


class RowSums:
    """The results of rules and schedules for the same terms [K, rows]. Schedules with the same chains share their parts."""

    def __init__(self, terms: SingleValues) -> None:
        self._terms = terms
        self._chains: dict[object, Arrays] = {}
        self._results: dict[object, Arrays] = {}

    def result(self, rule: Rule, schedule: Schedule) -> Arrays:
        if (key := (rule, schedule)) not in self._results:
            if (taken := (rule.taking, id(schedule.chains))) not in self._chains:
                self._chains[taken] = schedule.of_chains(rule, self._terms)
            self._results[key] = schedule.result(rule, self._terms, self._chains[taken])
        return self._results[key]
