"""Partial results of a summation tree: sums, and the mean and M2 of Welford's method, taken term by term and merged in pairs.

M2 is Σ (x - mean)².

Sources:
- Welford, "Note on a method for calculating corrected sums of squares and products" (1962)
- Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979)
- torch 2.11, ATen/native: SharedReduceOps.h (WelfordOps), cuda/layer_norm_kernel.cu (cuWelfordCombine), cpu/moments_utils.h
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.composites.functions import SingleValues, fma
from accprobe.function.quadratic import module_of
from accprobe.model.product import Chain, Node, chains_of, folded

# Arrays [parts, rows]: (sums,) or (means, M2s).
Arrays = tuple[SingleValues, ...]
# Numbers of terms in parts, [parts, 1], or of one term.
Counts = Any


class Rule(Protocol):
    """How a lane takes a term, and how two parts become one. is_last: parts are lanes, not chunks of one.

    taking: equal for rules that differ in `merge` alone. of_rest: the rule for the last elements, fewer than there are lanes.
    """

    @property
    def taking(self) -> object: ...
    @property
    def of_rest(self) -> Rule: ...
    def start(self, chains: int, terms: SingleValues) -> Arrays: ...
    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays: ...
    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts, is_last: bool) -> Arrays: ...


@dataclass(frozen=True)
class Sum:
    """Sums in float32. squares: of the terms, fused with the addition or rounded before; "": the terms are added."""

    squares: Literal["fused", "rounded", ""] = ""

    @property
    def taking(self) -> object:
        return self

    @property
    def of_rest(self) -> Rule:
        return self

    def start(self, chains: int, terms: SingleValues) -> Arrays:
        return (np.zeros_like(terms, np.float32, shape=(chains, terms.shape[1])),)

    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays:
        if self.squares == "fused":
            return (fma(terms, terms, arrays[0]),)
        return (arrays[0] + (terms * terms if self.squares else terms),)

    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts, is_last: bool) -> Arrays:
        return (a[0] + b[0],)


# Merge parts a and b of n and m terms: (means, M2s), with a function a · b + c; the last: as `is_last` of `Rule`.
Merging = Callable[[Arrays, Counts, Arrays, Counts, Callable[[Any, Any, Any], Any], bool], Arrays]


def _by_share(a: Arrays, n: Counts, b: Arrays, m: Counts, add: Any, is_last: bool) -> Arrays:
    """WelfordOps::combine."""
    delta, share = b[0] - a[0], m / (n + m)
    return add(delta, share, a[0]), add(delta * delta * n, share, a[1] + b[1])


def _by_weights(a: Arrays, n: Counts, b: Arrays, m: Counts, add: Any, is_last: bool) -> Arrays:
    """cuWelfordCombine, whose first argument is a."""
    delta, inverse = a[0] - b[0], 1 / (n + m)
    return add(m * inverse, b[0], n * inverse * a[0]), add(delta * delta * m, n * inverse, b[1] + a[1])


def _by_moments(a: Arrays, n: Counts, b: Arrays, m: Counts, add: Any, is_last: bool) -> Arrays:
    """AddMoments of lanes, and AddMomentsVec inside each."""
    delta, share = b[0] - a[0], m / (n + m)
    if is_last:
        return add(share, delta, a[0]), a[1] + add(delta * delta * share, n, b[1])
    return a[0] + share * delta, add(delta * n, share * delta, a[1] + b[1])


MERGINGS: Mapping[str, Merging] = {
    "WelfordOps": _by_share,
    "cuWelfordCombine": _by_weights,
    "AddMoments": _by_moments,
}


@dataclass(frozen=True)
class Welford:
    """Welford's updates of mean and M2. divided: by n; else multiplied by 1 / n. merging: a name of MERGINGS."""

    merging: str
    divided: bool
    fused: bool
    wide: bool = False

    def __str__(self) -> str:
        """Return "Welford in f32, mean += delta / n, fused multiply-adds, merged as WelfordOps does"."""
        step = "delta / n" if self.divided else "delta · (1 / n)"
        adds = "fused multiply-adds" if self.fused else "rounded products"
        return f"Welford in {'f64' if self.wide else 'f32'}, mean += {step}, {adds}, merged as {self.merging} does"

    @property
    def taking(self) -> object:
        return self.divided, self.fused, self.wide

    @property
    def of_rest(self) -> Rule:
        """Return the scalar updates of RowwiseMoments: its vectors multiply by 1 / n, with fused multiply-adds."""
        return replace(self, divided=True, fused=False)

    @property
    def _type(self) -> Any:
        return np.float64 if self.wide else np.float32

    def _add(self, a: Any, b: Any, c: Any) -> Any:
        return fma(a, b, c) if self.fused else a * b + c

    def start(self, chains: int, terms: SingleValues) -> Arrays:
        zeros = np.zeros_like(terms, self._type, shape=(chains, terms.shape[1]))
        return zeros, zeros.copy()

    def take(self, arrays: Arrays, terms: SingleValues, count: int) -> Arrays:
        mean, m2 = arrays
        x, n = terms.astype(self._type, copy=False), self._type(count)
        delta = x - mean
        mean = mean + delta / n if self.divided else self._add(delta, 1 / n, mean)
        return mean, self._add(delta, x - mean, m2)

    def merge(self, a: Arrays, n: Counts, b: Arrays, m: Counts, is_last: bool) -> Arrays:
        return MERGINGS[self.merging](a, n.astype(self._type), b, m.astype(self._type), self._add, is_last)


def _welford_rules() -> Iterator[Welford]:
    for merging, divided, fused in product(MERGINGS, (True, False), (True, False)):
        yield Welford(merging, divided, fused)
    yield Welford("WelfordOps", True, False, wide=True)


WELFORD: Mapping[str, Welford] = {str(rule): rule for rule in _welford_rules()}


class _Level(NamedTuple):
    """Merges of parts a and b, by number, that do not depend on each other. They become the next parts."""

    a: NDArray[np.intp]
    b: NDArray[np.intp]
    is_last: bool


def _levels(merges: list[tuple[int, bool, int, int]], chains: int) -> list[_Level]:
    """Return merges (height, is_last, a, b) by height; parts are numbered anew in that order."""
    if not merges:
        return []
    table = np.array(merges)
    order = np.lexsort((table[:, 1], table[:, 0]))
    place = np.arange(chains + len(table))
    place[chains + order] = chains + np.arange(len(table))
    table = table[order]
    borders = np.flatnonzero(np.any(np.diff(table[:, :2], axis=0), axis=1)) + 1
    return [_Level(place[part[:, 2]], place[part[:, 3]], bool(part[0, 1])) for part in np.split(table, borders)]


@lru_cache(maxsize=512)
def _shared(chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
    """Return the same tuple for equal chains, so that it is known by its id, without their hashes."""
    return chains


class Schedule:
    """The chains of a tree, which are the first parts, and its merges level by level; the last part is the result."""

    def __init__(self, tree: Node) -> None:
        self.chains = _shared(tuple(chains_of(tree)))
        merges: list[tuple[int, bool, int, int]] = []  # height, is_last, a, b; it makes part len(chains) + its number
        heights = [0] * len(self.chains)
        chains = iter(range(len(self.chains)))

        def number(node: Node, is_last: bool) -> int:
            if isinstance(node, Chain):
                return next(chains)
            parts = [number(part, False) for part in node.parts]
            return folded(node.nested, parts, lambda a, b: merged(a, b, is_last))

        def merged(a: int, b: int, is_last: bool) -> int:
            height = 1 + max(heights[a], heights[b])
            merges.append((height, is_last, a, b))
            heights.append(height)
            return len(heights) - 1

        number(tree, True)
        self.levels = _levels(merges, len(self.chains))
        self.counts = np.array([len(chain.taken) for chain in self.chains])
        for level in self.levels:
            self.counts = np.concatenate([self.counts, self.counts[level.a] + self.counts[level.b]])

    def of_chains(self, rule: Rule, terms: SingleValues) -> Arrays:
        """Return the parts of the chains for terms [K, rows]. A first chain of adjacent elements beside others is the rest."""
        if len(self.chains) == 1 or self.chains[0].period > 1:
            return self._taken(rule, terms, 0, len(self.chains))
        groups = self._taken(rule.of_rest, terms, 0, 1), self._taken(rule, terms, 1, len(self.chains))
        return tuple(np.concatenate(each) for each in zip(*groups, strict=True))

    def _taken(self, rule: Rule, terms: SingleValues, first: int, end: int) -> Arrays:
        chains, lengths = self.chains[first:end], self.counts[first:end]
        places = np.zeros((len(chains), lengths.max()), np.intp)
        for chain, place in zip(chains, places, strict=True):
            place[: len(chain.taken)] = chain.taken
        arrays, xp = rule.start(len(chains), terms), module_of(terms)
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
                (a, b), is_last = map(xp.asarray, level[:2]), level.is_last
                sides = tuple(part[a] for part in parts), counts[a], tuple(part[b] for part in parts), counts[b]
                for part, each in zip(parts, rule.merge(*sides, is_last), strict=True):
                    part[made : made + len(a)] = each
                made += len(a)
        return tuple(part[-1] for part in parts)
