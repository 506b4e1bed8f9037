"""Planted products, planted attention and functions of numpy arrays as matmul callables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from planted_products import BLOCK, Planted
from planted_products import Scales as Planted_scales
from planted_sums import TYPES

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import Spec
from accprobe.gemm.operands import unit_scales
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ScaleOf

Array = NDArray[Any]
SCALE_OF: dict[Planted_scales | None, ScaleOf | None] = {
    None: None,
    "tensor": "tensor",
    "row": "row",
    "1x128 and 128x128": "128x128",
}


@dataclass(frozen=True)
class PlantedBox:
    """A planted product at its own shape, or with other rows."""

    plan: Planted
    rows: int | None = None

    @cached_property
    def spec(self) -> Spec:
        plan = self.plan
        formats = (FORMATS[name] for name in (plan.a, plan.b, plan.out))
        return Spec(self.rows or plan.m, plan.n, plan.k, *formats, SCALE_OF[plan.scales])

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = a.view(TYPES[self.plan.a].dtype), np.ascontiguousarray(b.view(TYPES[self.plan.b].dtype).T)
        d = self.plan(x, y, *self._scales(scales))
        return np.ascontiguousarray(d).view(self.spec.out.dtype)

    def _scales(self, scales: ScaleWords | None) -> list[Array]:
        if self.plan.scales is None:
            return []
        of_a, of_b = (each.astype(np.float32) for each in scales or unit_scales(self.spec))
        match self.plan.scales:
            case "tensor":
                return [of_a[0, 0], of_b[0, 0]]
            case "row":
                return [of_a[:, 0], of_b[0]]
            case _:
                return [of_a, of_b[:, ::BLOCK]]


@dataclass(frozen=True)
class FunctionBox:
    """A function of a [M, K] and b [K, N], arrays of the formats' types in numpy and ml_dtypes."""

    spec: Spec
    function: Callable[[Array, Array], Array]

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = a.view(self.spec.a.ml_dtype), np.ascontiguousarray(b.view(self.spec.b.ml_dtype).T)
        return np.ascontiguousarray(self.function(x, y)).view(self.spec.out.dtype)


@dataclass(frozen=True)
class PlantedAttention:
    """Attention of M queries, N columns and K keys with Q = 0: V times weights of 1, divided by their sum at the end.

    plan: of the sums in f32, for any M and format of D. other: plan of the queries from `since` on.
    """

    plan: Planted
    other: Planted | None = None
    since: int = 0

    @cached_property
    def spec(self) -> Spec:
        plan = self.plan
        a, b, out = (FORMATS[name] for name in (plan.a, plan.b, plan.a))
        return Spec(plan.m, plan.n, plan.k, a, b, out, a_exponent=1 - plan.k.bit_length())

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        assert (self.spec.a.values(a) * self.plan.k == 1).all()
        v = np.ascontiguousarray(b.view(TYPES[self.plan.b].dtype).T)
        d = np.repeat(self._query(self.plan, v), self.plan.m, axis=0)
        if self.other is not None:
            d[self.since :] = self._query(self.other, v)
        return d.view(self.spec.out.dtype)

    def _query(self, plan: Planted, v: Array) -> Array:
        ones = np.ones((1, plan.k), v.dtype)
        sums = replace(plan, m=1, out="f32")(ones, v)
        return np.asarray((sums / np.float32(plan.k)).astype(v.dtype))


Multiply = Callable[[Array, Array], Array]


def chain(a: Array, b: Array, step: int = 1) -> Array:
    """Return the product by f32 multiplies and adds, one k after the other; a negative step begins with the last k."""
    a, b, d = a.T[:, :, None].astype(np.float32), b.astype(np.float32), np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for x, y in zip(a[::step], b[::step], strict=True):
            d += x * y
    return d
