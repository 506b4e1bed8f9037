"""Operands that a product reads at the wrong place: the commonest indexing mistakes, and how they are to be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from planted_sums import Array

Mistake = Literal["rolled", "exchanged", "columns", "rows"]
"""rolled: a[k] is multiplied by b[k - to], modulo K. exchanged: `count` k of B from `at` and from `to` on change places.
columns, rows: `count` columns of D from `at` on read those of B from `to` on; rows those of A.
"""


@dataclass(frozen=True)
class Mispaired:
    """One mistake of a product of [M, K] and [K, N] matrices."""

    mistake: Mistake
    at: int = 0
    to: int = 1
    count: int = 1

    def read(self, a: Array, b: Array) -> tuple[Array, Array]:
        """The operands as the product reads them."""
        (m, k), n = a.shape, b.shape[1]
        rows, ks, columns = np.arange(m), np.arange(k), np.arange(n)
        here, there = (slice(start, start + self.count) for start in (self.at, self.to))
        match self.mistake:
            case "rolled":
                ks = np.roll(ks, self.to)
            case "exchanged":
                ks[here], ks[there] = ks[there].copy(), ks[here].copy()
            case "columns":
                columns[here] = columns[there]
            case "rows":
                rows[here] = rows[there]
        return np.ascontiguousarray(a[rows]), np.ascontiguousarray(b[np.ix_(ks, columns)])

    @property
    def named(self) -> str:
        """Words that a report of it has."""
        here, there = (_lines(start, self.count) for start in (self.at, self.to))
        match self.mistake:
            case "rolled":
                return f"a[k] is multiplied by b[k - {self.to}]"
            case "exchanged":
                return f"k {min(here, there, key=_first)} and {max(here, there, key=_first)} of B are exchanged"
            case "columns" | "rows":
                line, many = self.mistake.removesuffix("s"), "s" * (self.count > 1)
                of = "B" if line == "column" else "A"
                return f"{line}{many} {here} read{'' if many else 's'} {of} of {line}{many} {there}"


def drawn_mistake(rng: np.random.Generator, m: int, n: int, k: int) -> Mispaired:
    """Any of them, somewhere."""
    mistake: Mistake = rng.choice(["rolled", "exchanged", "columns", "rows"]).item()
    if mistake == "rolled":
        return Mispaired(mistake, to=int(rng.choice([1, 2, 16])))
    lines = {"exchanged": k, "columns": n, "rows": m}[mistake]
    count = int(rng.choice([1, 4, 16] if lines > 32 else [1, 4]))
    at, to = (int(x) * count for x in rng.permutation(lines // count)[:2])
    return Mispaired(mistake, at, to, count)


def _lines(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start}-{start + count - 1}"


def _first(lines: str) -> int:
    return int(lines.partition("-")[0])
