"""Which elements of D are computed alike: what rows and columns that are all the same come to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.distributions import random_lines
from accprobe.gemm.layout import Layout, layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.repeatability import FirstCalls
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import LARGEST, LEAST
from accprobe.isa.formats import Bits

PRODUCTS_REPEATED = 6
"""Pairs of a row and a column that every element is asked."""

REPEATS = 3
"""How often each is asked."""

_CANCELLING, _SMALL = (1, 1, 6), 4
"""Pairs of large products that cancel, in turn, and how many exponents the others, and they, have. One pair leaves slices that
have no large one.
"""


@dataclass(frozen=True)
class Region:
    """Elements that gave the same bits for every pair: rows × columns of them, and how many elements there are in all.

    changing: whether the same question has several answers there.
    """

    rows: Ints
    columns: Ints
    elements: int
    changing: bool = False

    def __str__(self) -> str:
        return f"rows {ranges(self.rows)}, columns {ranges(self.columns)}"


@dataclass(frozen=True)
class Alike:
    """regions: the largest first. changed: elements that gave other bits when asked again; values: how many, at most."""

    regions: tuple[Region, ...]
    changed: int
    values: int


def alike(asked: RecordedCallable, seed: int = 0, first: FirstCalls | None = None) -> Alike:
    """Asks every element the same; what differs is another plan, or a fault. first: identical calls before; where these change,
    nothing more is asked.
    """
    rng = np.random.default_rng(seed)
    spec = asked.spec
    if first is not None and first.changed:
        return _changing(spec, first.changed, first.values)
    classes = np.zeros((spec.m, spec.n), np.int64)
    changed = np.zeros((spec.m, spec.n), bool)
    values = 1
    for draw in range(PRODUCTS_REPEATED):
        a, b = same_for_all(spec, draw, rng)
        answers = [asked.product(a, b, keep=False) for _ in range(REPEATS)]
        for other in answers[1:]:
            changed |= other != answers[0]
        values = max([values, *(len(np.unique(np.stack(answers)[:, i, j])) for i, j in _first(changed))])
        if changed.any() or (answers[0] == answers[0][0, 0]).all():
            continue
        _, numbers = np.unique(answers[0], return_inverse=True)
        _, classes = np.unique(classes * (numbers.max() + 1) + numbers.reshape(classes.shape), return_inverse=True)
        classes = classes.reshape(spec.m, spec.n)
    if changed.any():
        return _changing(spec, int(changed.sum()), values)
    counts = np.bincount(classes.reshape(-1))
    order = np.argsort(-counts, kind="stable")
    return Alike(tuple(region_of(classes == number, int(counts[number])) for number in order), 0, 1)


def _changing(spec: Spec, changed: int, values: int) -> Alike:
    """All elements as one region."""
    return Alike((Region(np.arange(spec.m), np.arange(spec.n), spec.m * spec.n, changing=True),), changed, values)


def same_for_all(spec: Spec, draw: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """A [M, K] of one row and B [N, K] of one column: in turn of random elements, and of those that tell the order."""
    layout = layout_of(spec)
    if draw % 2 and spec.a.is_float:
        row, column = _spread(layout, _CANCELLING[draw // 2 % len(_CANCELLING)], rng)
    else:
        row, column = (random_lines(fmt, (1, spec.k), "normal", rng) for fmt in (spec.a, spec.b))
        row = layout.a(row)
    return np.repeat(row, spec.m, axis=0), np.repeat(column, spec.n, axis=0)


def _spread(layout: Layout, pairs: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """A row and a column of small products and a few large ones that cancel: what is left of the small tells the order."""
    spec, (low, high) = layout.spec, layout.exponents()
    low, high = max(low, LEAST), min(high, LARGEST - pairs.bit_length())
    exponents = rng.integers(low, low + _SMALL, spec.k)
    first, second = rng.permutation(spec.k)[: min(pairs, spec.k // 2) * 2].reshape(2, -1)
    exponents[first] = exponents[second] = high - rng.integers(0, _SMALL if pairs > 1 else 1, len(first))
    words = np.array([layout.power(exponent) for exponent in range(low, high + 1)])[exponents - low]
    row, column = words[None, :, 0].astype(spec.a.dtype), words[None, :, 1].astype(spec.b.dtype)
    negative = rng.random(spec.k) < 0.5
    negative[second] = ~negative[first]
    column[0, negative] |= spec.b.dtype.type(spec.b.sign_bit)
    return row, column


def _first(changed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in np.argwhere(changed)[:4]]


def region_of(there: NDArray[np.bool_], elements: int) -> Region:
    """Rows and columns that have nothing else in them: what spoils most is left out first."""
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    while True:
        others = ~there[np.ix_(rows, columns)]
        if not others.any():
            return Region(rows, columns, elements)
        of_rows, of_columns = others.mean(axis=1), others.mean(axis=0)
        if of_rows.max() >= of_columns.max():
            rows = np.delete(rows, int(of_rows.argmax()))
        else:
            columns = np.delete(columns, int(of_columns.argmax()))


def without(region: Region, there: NDArray[np.bool_]) -> Region | None:
    """The region less the elements that are there, [M, N]; None where nothing is left."""
    left = np.zeros_like(there)
    left[np.ix_(region.rows, region.columns)] = True
    taken = int((left & there).sum())
    left &= ~there
    return replace(region_of(left, region.elements - taken), changing=region.changing) if left.any() else None


def ranges(lines: Ints) -> str:
    """ "0-127", or the first few."""
    runs = np.split(lines, np.flatnonzero(np.diff(lines) != 1) + 1)
    told = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:4]]
    return ", ".join(told) + (", …" if len(runs) > 4 else "")
