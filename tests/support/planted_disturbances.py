"""Disturbances of planted products: operands that are read at the wrong place, and computations around the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from planted_sums import Array

# rolled: a[k] is multiplied by b[k - to], modulo K. exchanged: `count` k of B from `at` and from `to` on change places.
# columns, rows: `count` columns of D from `at` on read the columns of B from `to` on; rows likewise those of A.
Mistake = Literal["rolled", "exchanged", "columns", "rows"]


@dataclass(frozen=True)
class Mispaired:
    """One mistake of a product of [M, K] and [K, N] matrices."""

    mistake: Mistake
    at: int = 0
    to: int = 1
    count: int = 1

    def read(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return the operands as the product reads them."""
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

    def named(self, k: int) -> str:
        """Return the words with which a report names the mistake in a product of this K."""
        here, there = (_lines(start, self.count) for start in (self.at, self.to))
        match self.mistake:
            case "rolled":
                rest = k - self.to
                first = f"a[{_lines(0, self.to)}] is multiplied by b[{_lines(rest, self.to)}]"
                return f"{first}, a[{_lines(self.to, rest)}] by b[{_lines(0, rest)}]"
            case "exchanged":
                first, second = (here, there) if self.at < self.to else (there, here)
                return f"a[{first}] is multiplied by b[{second}], a[{second}] by b[{first}]"
            case "columns" | "rows":
                line, many = self.mistake.removesuffix("s"), "s" * (self.count > 1)
                of = "B" if line == "column" else "A"
                return f"{line}{many} {here} read{'' if many else 's'} {of} of {line}{many} {there}"


def _lines(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start}-{start + count - 1}"


# first calls: the first `first` calls compute another product. scaled by tensor: A is divided by its largest number and rounded
# to its format, and the result is multiplied by that number. Strassen: one level, seven products of matrices of half the size.
Kind = Literal["first calls", "scaled by tensor", "Strassen"]

Multiply = Callable[..., Array]


@dataclass(eq=False)
class Around:
    """A computation around a product."""

    kind: Kind
    first: int = 0
    calls: int = field(default=0, init=False)

    def call(self, product: Multiply, other: Multiply, half: Multiply, a: Array, b: Array) -> Array:
        self.calls += 1
        match self.kind:
            case "first calls":
                return (other if self.calls <= self.first else product)(a, b)
            case "scaled by tensor":
                return scaled(product, a, b)
            case "Strassen":
                return strassen(half, a, b)


def scaled(product: Multiply, a: Array, b: Array, axis: int | None = None) -> Array:
    """Return the product of A divided by its largest number, or each line's, and rounded to its format, times that number."""
    with np.errstate(all="ignore"):
        largest = np.abs(a.astype(np.float32)).max(axis=axis, keepdims=True)
        scale = np.where(np.isfinite(largest) & (largest > 0), largest, np.float32(1))
        d = product((a.astype(np.float32) / scale).astype(a.dtype), b)
        return np.asarray((d.astype(np.float32) * scale).astype(d.dtype))


def strassen(half: Multiply, a: Array, b: Array) -> Array:
    """Return one level of Strassen's algorithm: seven products of halves of matrices of even sizes."""
    (p, q), (r, s) = (np.split(rows, 2, axis=1) for rows in np.split(a, 2))
    (t, u), (v, w) = (np.split(rows, 2, axis=1) for rows in np.split(b, 2))
    with np.errstate(all="ignore"):
        sums = (p + s, t + w), (r + s, t), (p, u - w), (s, v - t), (p + q, w), (r - p, t + u), (q - s, v + w)
        m = [half(x, y) for x, y in sums]
        return np.block([[m[0] + m[3] - m[4] + m[6], m[2] + m[4]], [m[1] + m[3], m[0] - m[1] + m[2] + m[5]]])
