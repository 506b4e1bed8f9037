"""Functions of numpy arrays, planted products and planted attention as matmul callables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from planted_products import Planted
from planted_sums import Array

from accprobe.callables.operands import unit_scales
from accprobe.callables.spec import Spec
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import FORMATS, Bits

Multiply = Callable[..., Array]


@dataclass(frozen=True)
class FunctionBox:
    """A function of a [M, K], b [K, N] and, if the product has scales, both of them: arrays of numpy and ml_dtypes."""

    spec: Spec
    function: Multiply

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = a.view(self.spec.a.ml_dtype), np.ascontiguousarray(b.view(self.spec.b.ml_dtype).T)
        words = () if self.spec.scale is None else scales or unit_scales(self.spec)
        return np.ascontiguousarray(self.function(x, y, *words)).view(self.spec.out.dtype)


def spec_of(plan: Planted) -> Spec:
    return Spec(*plan.shape, *(FORMATS[name] for name in (plan.a, plan.b, plan.out)), plan.scales)


def box_of(plan: Planted) -> FunctionBox:
    return FunctionBox(spec_of(plan), plan)


def planted_attention(plan: Planted, other: Planted | None = None, since: int = 0) -> FunctionBox:
    """Return attention of M queries, N columns and K keys with Q = 0: V times weights of 1, divided by their sum at the end.

    plan: of the sums in f32, for any M and format of D. other: plan of the queries from `since` on.
    """

    def query(plan: Planted, v: Array) -> Array:
        sums = replace(plan, m=1, out="f32")(np.ones((1, plan.k), v.dtype), v)
        return np.asarray((sums / np.float32(plan.k)).astype(v.dtype))

    def attend(a: Array, v: Array) -> Array:
        assert (a.astype(np.float32) * plan.k == 1).all()
        d = np.repeat(query(plan, v), plan.m, axis=0)
        if other is not None:
            d[since:] = query(other, v)
        return d

    return FunctionBox(replace(spec_of(replace(plan, out=plan.a)), a_exponent=1 - plan.k.bit_length()), attend)


def chain(a: Array, b: Array, step: int = 1) -> Array:
    """Return the product by f32 multiplies and adds, one k after the other; a negative step begins with the last k."""
    a, b, d = a.T[:, :, None].astype(np.float32), b.astype(np.float32), np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for x, y in zip(a[::step], b[::step], strict=True):
            d += x * y
    return d
