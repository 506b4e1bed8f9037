"""What is done around a planted product: other first calls, and outputs that depend on other rows and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from planted_sums import Array

Kind = Literal["first calls", "scaled by tensor", "Strassen"]
"""first calls: so many of the first are `other` products. scaled by tensor: A is divided by its largest number, rounded to its
format, and the result multiplied by it. Strassen: one level of it, seven `half` products of matrices of even sizes.
"""

Multiply = Callable[..., Array]


@dataclass(eq=False)
class Around:
    kind: Kind
    first: int = 0
    calls: int = field(default=0, init=False)

    def call(self, product: Multiply, other: Multiply, half: Multiply, a: Array, b: Array) -> Array:
        self.calls += 1
        match self.kind:
            case "first calls":
                return (other if self.calls <= self.first else product)(a, b)
            case "scaled by tensor":
                return _scaled(product, a, b)
            case "Strassen":
                return strassen(half, a, b)


def _scaled(product: Multiply, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        largest = np.abs(a.astype(np.float32)).max()
        scale = largest if np.isfinite(largest) and largest > 0 else np.float32(1)
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
