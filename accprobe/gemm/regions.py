"""Which elements of D are computed alike: what rows and columns that are all the same come to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import Asked
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints
from accprobe.isa.formats import Bits, Format

DRAWS = 6
"""Pairs of a row and a column that every element is asked."""

REPEATS = 3
"""How often each is asked."""


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
        return f"rows {_told(self.rows)}, columns {_told(self.columns)}"


@dataclass(frozen=True)
class Alike:
    """regions: the largest first. changed: elements that gave other bits when asked again; values: how many, at most."""

    regions: tuple[Region, ...]
    changed: int
    values: int


def alike(asked: Asked, seed: int = 0) -> Alike:
    """Asks every element the same; what differs is another plan, or a fault."""
    rng = np.random.default_rng(seed)
    spec = asked.spec
    classes = np.zeros((spec.m, spec.n), np.int64)
    changed = np.zeros((spec.m, spec.n), bool)
    values = 1
    for number in range(DRAWS):
        row, column = normal(spec.a, (1, spec.k), rng), normal(spec.b, (1, spec.k), rng)
        if number % 2 and spec.b.is_float:
            row, column = scattered(spec.a, row, rng), scattered(spec.b, column, rng)
            _cancel(row, column, spec.b, rng)
        row = layout_of(spec).a(row)
        a, b = np.repeat(row, spec.m, axis=0), np.repeat(column, spec.n, axis=0)
        answers = [asked.product(a, b, keep=False) for _ in range(REPEATS)]
        for other in answers[1:]:
            changed |= other != answers[0]
        values = max([values, *(len(np.unique(np.stack(answers)[:, i, j])) for i, j in _first(changed))])
        if (answers[0] == answers[0][0, 0]).all():
            continue
        _, numbers = np.unique(answers[0], return_inverse=True)
        _, classes = np.unique(classes * (numbers.max() + 1) + numbers.reshape(classes.shape), return_inverse=True)
        classes = classes.reshape(spec.m, spec.n)
    if changed.any():
        whole = Region(np.arange(spec.m), np.arange(spec.n), classes.size, changing=True)
        return Alike((whole,), int(changed.sum()), values)
    counts = np.bincount(classes.reshape(-1))
    order = np.argsort(-counts, kind="stable")
    return Alike(tuple(_region(classes == number, int(counts[number])) for number in order), 0, 1)


def _cancel(row: Bits, column: Bits, fmt: Format, rng: np.random.Generator) -> None:
    """Half of the products become the others' negatives: what is left is what sums lose, also where D has few bits."""
    first, second = np.split(rng.permutation(row.shape[1])[: row.shape[1] // 2 * 2], 2)
    row[:, second], column[:, second] = row[:, first], column[:, first] ^ fmt.dtype.type(fmt.sign_bit)


def normal(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> Bits:
    """Numbers of a normal distribution; integers of the whole range."""
    if fmt.is_integer:
        return rng.integers(0, 1 << fmt.bits, shape).astype(fmt.dtype)
    if fmt.ml_dtype is None:
        raise ValueError(f"{fmt} has no values")
    return rng.standard_normal(shape, np.float32).astype(fmt.ml_dtype).view(fmt.dtype)


def scattered(fmt: Format, patterns: Bits, rng: np.random.Generator) -> Bits:
    """Floating-point numbers times powers of two."""
    reach = 8 if fmt.exponent_bits == 8 else 3
    values = fmt.values(patterns) * np.exp2(rng.integers(-reach, reach + 1, patterns.shape))
    return np.clip(values, -(2.0**8), 2.0**8).astype(fmt.ml_dtype or np.float32).view(fmt.dtype)


def _first(changed: NDArray[np.bool_]) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in np.argwhere(changed)[:4]]


def _region(there: NDArray[np.bool_], elements: int) -> Region:
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


def _told(lines: Ints) -> str:
    """ "0-127", or the first few."""
    runs = np.split(lines, np.flatnonzero(np.diff(lines) != 1) + 1)
    told = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:4]]
    return ", ".join(told) + (", …" if len(runs) > 4 else "")
