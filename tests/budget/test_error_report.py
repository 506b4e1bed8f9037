"""Every plan with every kind of data, and what it means."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from accprobe.budget.accumulation import Accumulation, of_named
from accprobe.budget.advice import MARGIN, Advice, advice, own_rounding, sentences, weighed
from accprobe.budget.data import draw_values, quantise
from accprobe.budget.error_report import BudgetRequest, entries, plans_of
from accprobe.isa.formats import FORMATS

QGMMA = of_named("QGMMA")
SMALL = BudgetRequest(ks=(512, 2048), outputs=256)


def test_a_measured_product_has_its_own_plan_by_default() -> None:
    name = "products-h200:torch:mm 256x256x4096 bf16 -> bf16"
    of = of_named(name)
    (plan,) = plans_of(of, BudgetRequest(), "normal")
    assert (plan.model.k, plan.promote_every, plan.split_k, plan.model) == (4096, None, 3, of.measured)
    longer = plans_of(of, BudgetRequest(ks=(8192,), intervals=(None, 64)), "normal")
    assert [(p.model.k, p.promote_every, p.split_k, p.model.result) for p in longer] == [
        (8192, None, 3, FORMATS["bf16"]),
        (8192, 64, 3, FORMATS["bf16"]),
    ]


def test_a_measured_product_applies_its_scales_as_it_was_seen_to() -> None:
    of = of_named("products-h200:torch:_scaled_mm 512x512x512 e4m3 -> bf16, scale=row, use_fast_accum=True")
    asked = BudgetRequest(data=("normal",), scales=("none", "row", "tensor"), outputs=64)
    without, row, tensor = entries(of, asked)
    assert [each.is_scaled for each in (without, row, tensor)] == [False, True, True]
    assert of.measured is not None
    assert of.measured.scales is not None
    pair = quantise("row", of.a, of.b, draw_values("normal", 2, 2, 512, np.random.default_rng(0)))
    applied = pair.apply_scales(of.measured)
    assert applied is not None
    assert applied[0] == of.measured.scales


def recommended(request: BudgetRequest, k: int, of: Accumulation = QGMMA) -> Advice:
    found = advice(of, request, k, ())
    assert found is not None
    return found


def test_the_recommended_interval_is_the_longest_whose_error_stays_below_the_rounding_of_d() -> None:
    """Same-sign sums lose about 2^-13 a step; the rounding error of bf16 is 0.17 %."""
    told = recommended(SMALL, 2048)
    normal, positive = told.kinds
    assert (told.promote_every, told.is_enough, told.out) == (128, True, "bf16")
    assert positive.error * MARGIN <= told.rounding < positive.unpromoted
    assert normal.unpromoted * MARGIN <= told.rounding
    assert positive.bias < 0
    doubled = next(entries(QGMMA, replace(SMALL, ks=(2048,), intervals=(256,), data=("same-sign",))))
    assert doubled.errors.error_of_sums is not None
    assert doubled.errors.error_of_sums * MARGIN > told.rounding


def test_the_rounding_error_of_a_format_is_that_of_numbers_of_any_size() -> None:
    x = np.exp(np.random.default_rng(0).uniform(0, np.log(2), 1 << 18)).astype(np.float32)
    errors = x.astype(ml_dtypes.bfloat16).astype(np.float32) / x - 1
    assert own_rounding(FORMATS["bf16"]) == pytest.approx(np.sqrt(np.square(errors).mean()), rel=0.01)
    assert [weighed(error, 1.0) for error in (0.8, 0.81, 1.24, 1.25)] == ["less", "about", "about", "more"]


def test_if_no_interval_is_short_enough_the_advice_is_one_fused_sum() -> None:
    """Chunks rounded to f16 have a larger error than the cancelled sum's rounding."""
    of = of_named("sim:v100:mma.sync.m8n8k4.f16.f16.f16.f16")
    told = recommended(replace(SMALL, out=FORMATS["f16"], data=("cancelling",)), 512, of=of)
    assert (told.promote_every, told.is_enough) == (4, False)
    assert told.rounding < told.kinds[0].error < told.kinds[0].unpromoted
    assert next(sentences([], [told])).startswith("Promote after every fused sum at K = 512: even then the error is not below")


@pytest.mark.slow
def test_a_long_k_may_be_promoted_after_every_sum() -> None:
    """2048 chunks, more than calls may nest."""
    (entry,) = entries(QGMMA, BudgetRequest(ks=(65536,), intervals=(32,), data=("same-sign",), outputs=64))
    assert entry.errors.relative_error is not None
    assert entry.errors.relative_error < 1e-3
