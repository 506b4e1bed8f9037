"""Scales that are applied before the product, or otherwise than to its sum, are told; no plan is suggested that is far off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from long_tail import some
from planted_plans import FMAS, HOPPER
from planted_products import Planted
from planted_sums import TYPES, Array

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import status
from accprobe.gemm.operands import unit_scales
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ScaleOf

M, N, K = 8, 8, 32
Combine = Callable[[Planted, Array, Array, Array, Array], Array]


@dataclass(frozen=True)
class ScaledBox:
    """A product of e4m3 operands, f32 here, and their scales, sa [M or 1, K or 1] and sb [K or 1, N or 1]."""

    plan: Planted
    combine: Combine
    scale: ScaleOf = "row"

    @property
    def spec(self) -> Spec:
        return Spec(M, N, K, FORMATS["e4m3"], FORMATS["e4m3"], FORMATS[self.plan.out], self.scale)

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = (each.view(TYPES["e4m3"].dtype).astype(np.float32) for each in (a, b.T))
        sa, sb = scales or unit_scales(self.spec)
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(self.combine(self.plan, x, y, sa, sb)).view(self.spec.out.dtype)


def rounded_to(kind: str) -> Combine:
    """A product of scaled operands that are rounded."""

    def combine(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
        dtype = TYPES[kind].dtype
        return replace(plan, a=kind, b=kind)((a * sa).astype(dtype), np.ascontiguousarray((b * sb).astype(dtype)))

    return combine


def four_times(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
    """Scales that are not 1 come with a factor of 4."""
    of_one = (sa == 1) & (sb == 1)
    return rounded_to("f32")(plan, a, b, np.ones((1, 1), np.float32), np.ones((1, 1), np.float32)) * np.where(
        of_one, np.float32(1), np.float32(4) * sa * sb
    )


SMALL = replace(HOPPER, m=M, n=N, k=K)
OF_FMAS = replace(FMAS, m=M, n=N, k=K)


@pytest.mark.parametrize(
    ("plan", "kind", "scale"),
    some([(SMALL, "bf16", "row"), (SMALL, "f16", "tensor"), (OF_FMAS, "f32", "row"), (OF_FMAS, "bf16", "tensor")], 2),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_scales_that_come_first_are_told(plan: Planted, kind: str, scale: ScaleOf) -> None:
    outcome = characterise(ScaledBox(plan, rounded_to(kind), scale), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert reason.endswith(f"scales are applied to A and B before the product, rounded to {kind}")
    assert outcome.main.plan is None


def test_of_a_narrow_result_fresh_operands_show_it() -> None:
    """Those few of its elements on which the experiments with scales agree with scales of the sum."""
    box = ScaledBox(replace(OF_FMAS, out="bf16"), rounded_to("f32"), "tensor")
    outcome = characterise(box, elements=1 << 12)
    assert outcome.verification.mismatches
    assert status(outcome)[1].endswith("before the product, rounded to f32")
    assert outcome.main.plan is None


def test_no_plan_is_suggested_that_is_far_off() -> None:
    outcome = characterise(ScaledBox(OF_FMAS, four_times), elements=1 << 8)
    found, reason = status(outcome)
    assert (found, outcome.main.plan) == ("inferred", None)
    assert "ones are scaled by another factor than the product of their scales" in reason


def test_a_plan_that_is_near_is_suggested() -> None:
    """One that rounds the scaled sum once more."""

    def rounded_again(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
        one = np.ones((1, 1), np.float32)
        d = rounded_to("f32")(plan, a, b, one, one) * (sa * sb)
        return np.where((sa == 1) & (sb == 1), d, d.astype(TYPES["bf16"].dtype).astype(np.float32))

    outcome = characterise(ScaledBox(OF_FMAS, rounded_again), elements=1 << 8)
    assert status(outcome)[0] == "inferred"
    assert outcome.main.plan is not None
