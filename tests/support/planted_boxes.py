"""Planted products, and functions of numpy arrays, as the inference asks them: bit patterns in, bit patterns out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from planted_products import BLOCK, Planted
from planted_products import Scales as Planted_scales
from planted_sums import TYPES

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.spec import Spec
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
        spec = self.spec
        blocks = -(-spec.k // BLOCK)
        match self.plan.scales:
            case None:
                return []
            case "tensor":
                of_a, of_b = (np.ones((1, 1)),) * 2 if scales is None else (scales.a, scales.b)
                return [np.float32(of_a[0, 0]), np.float32(of_b[0, 0])]
            case "row":
                of_a, of_b = (np.ones((spec.m, 1)), np.ones((1, spec.n))) if scales is None else (scales.a, scales.b)
                return [of_a[:, 0].astype(np.float32), of_b[0].astype(np.float32)]
            case _:
                of_a, of_b = (np.ones((spec.m, blocks)), np.ones((blocks, spec.n))) if scales is None else (scales.a, scales.b)
                return [of_a.astype(np.float32), of_b[:, ::BLOCK].astype(np.float32)]


@dataclass(frozen=True)
class FunctionBox:
    """A function of a [M, K] and b [K, N], arrays of the formats' types in numpy and ml_dtypes."""

    spec: Spec
    function: Callable[[Array, Array], Array]

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = a.view(self.spec.a.ml_dtype), np.ascontiguousarray(b.view(self.spec.b.ml_dtype).T)
        return np.ascontiguousarray(self.function(x, y)).view(self.spec.out.dtype)
