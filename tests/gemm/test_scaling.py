"""The way scales are applied: to a sum, to blocks, or to the operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pytest
from marks import some
from planted_boxes import FunctionBox
from planted_models import model_of
from planted_plans import FMAS, HOPPER, NAMED
from planted_products import Planted
from planted_sums import TYPES, Array

from accprobe.callables.spec import Spec
from accprobe.evaluate.product import ScaleWords, product
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import status
from accprobe.gemm.scaling import Scaled, infer_scales, scaling_in_words
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ProductModel, ScaleOf, Scales, Scaling


@dataclass(frozen=True)
class ModelBox:
    """A black box of a model."""

    spec: Spec
    model: ProductModel

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        return product(self.model, a, b, scales=scales)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", get_args(Scaling))
def test_ways_to_scale_blocks_are_distinguished_in_few_calls(how: Scaling, fused: bool) -> None:
    """D is bf16 and has few elements."""
    found, calls = of_blocks(Scales("128x128", how, fused), 256)
    assert scaling_in_words(found.plan.scales) == scaling_in_words(Scales("128x128", how, fused))
    assert (found.mismatches, found.others) == (0, ())
    assert calls < 12


@pytest.mark.parametrize("of", ["tensor", "row"])
@pytest.mark.parametrize("how", get_args(Scaling))
def test_ways_to_scale_the_result_are_distinguished_in_few_calls(how: Scaling, of: ScaleOf) -> None:
    """D is bf16, and one scale for each call shows few numbers."""
    scales = Scales(of, how)
    model = replace(model_of(NAMED["tensor scales"]), scales=scales)
    spec = Spec(64, 64, model.k, model.a, model.b, model.result, of)
    subject, every = RecordedCallable(ModelBox(spec, model)), np.arange(64)
    found = infer_scales(subject, replace(model, scales=None), every, every)
    assert found.plan.scales == scales
    assert (found.mismatches, found.others) == (0, ())
    assert subject.calls < 12


def of_blocks(scales: Scales, k: int, out: str = "bf16") -> tuple[Scaled, int]:
    """Return the inferred scales of blocks, and the number of calls."""
    model = replace(model_of(replace(NAMED["block scales"], k=k, out=out)), scales=scales)
    spec = Spec(24, 24, k, model.a, model.b, model.result, scales.of)
    subject, every = RecordedCallable(ModelBox(spec, model)), np.arange(24)
    return infer_scales(subject, replace(model, scales=None), every, every), subject.calls


M, N, K = 8, 8, 32
Combine = Callable[[Planted, Array, Array, Array, Array], Array]


def scaled_box(plan: Planted, combine: Combine, scale: ScaleOf = "row") -> FunctionBox:
    """Return a product of e4m3 operands, f32 in `combine`, and their scales [M or 1, 1] and [1, N or 1]."""

    def function(a: Array, b: Array, sa: Array, sb: Array) -> Array:
        with np.errstate(all="ignore"):
            return combine(plan, a.astype(np.float32), b.astype(np.float32), sa, sb)

    return FunctionBox(Spec(M, N, K, FORMATS["e4m3"], FORMATS["e4m3"], FORMATS[plan.out], scale), function)


def rounded_to(kind: str) -> Combine:
    """Return a product of scaled and rounded operands."""

    def combine(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
        dtype = TYPES[kind].dtype
        return replace(plan, a=kind, b=kind)((a * sa).astype(dtype), np.ascontiguousarray((b * sb).astype(dtype)))

    return combine


SMALL = replace(HOPPER, m=M, n=N, k=K)
OF_FMAS = replace(FMAS, m=M, n=N, k=K)


@pytest.mark.parametrize(
    ("plan", "kind", "scale"),
    some([(SMALL, "bf16", "row"), (SMALL, "f16", "tensor"), (OF_FMAS, "f32", "row"), (OF_FMAS, "bf16", "tensor")]),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_scales_that_are_applied_first_are_named(plan: Planted, kind: str, scale: ScaleOf) -> None:
    outcome = characterise(scaled_box(plan, rounded_to(kind), scale), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert reason.endswith(f"scales are applied to A and B before the product, rounded to {kind}")
    assert outcome.main.plan is None


def with_scales(rounded: Callable[[Array], Array]) -> Combine:
    """Return a product whose scales are rounded, then applied after the sum."""

    def combine(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
        one = np.ones((1, 1), np.float32)
        return rounded_to("f32")(plan, a, b, one, one) * rounded(sa) * rounded(sb)

    return combine


def test_scales_that_are_rounded_first_are_named() -> None:
    outcome = characterise(scaled_box(OF_FMAS, with_scales(lambda x: np.exp2(np.ceil(np.log2(x))))), elements=1 << 8)
    assert status(outcome)[0] == "inferred"
    assert "the scales are rounded to powers of two, upward, before they are applied" in status(outcome)[1]
    assert outcome.main.plan is None


def test_cancelling_operands_show_it_in_a_narrow_result() -> None:
    """The elements of other experiments with scales agree with scales of the sum."""
    box = scaled_box(replace(OF_FMAS, out="bf16"), rounded_to("f32"), "tensor")
    outcome = characterise(box, elements=1 << 12)
    assert status(outcome)[1].endswith("before the product, rounded to f32")
    assert outcome.main.plan is None


def test_a_plan_that_is_near_is_suggested() -> None:
    """The callable rounds the scaled sum once more."""

    def rounded_again(plan: Planted, a: Array, b: Array, sa: Array, sb: Array) -> Array:
        one = np.ones((1, 1), np.float32)
        d = rounded_to("f32")(plan, a, b, one, one) * (sa * sb)
        return np.where((sa == 1) & (sb == 1), d, d.astype(TYPES["bf16"].dtype).astype(np.float32))

    outcome = characterise(scaled_box(OF_FMAS, rounded_again), elements=1 << 8)
    assert status(outcome)[0] == "inferred"
    assert outcome.main.plan is not None
