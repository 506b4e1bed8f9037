"""Attention whose arithmetic we chose, with Q = 0: weights of 1 times V, summed as planted, divided by their sum at the end.

Its sums are those of `planted_products`, which shares no code with what is to find them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from planted_products import Planted
from planted_sums import TYPES, Array

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits


@dataclass(frozen=True)
class PlantedAttention:
    """A black box of M queries, N columns and K keys.

    plan: of the sums, into f32, whatever its M and D's format. off: by how much of itself the sum of the weights is too small.
    other: plan of the queries from `since` on.
    """

    plan: Planted
    off: float = 0.0
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
        return np.asarray((sums / np.float32(plan.k * (1 - self.off))).astype(v.dtype))
