"""Errors against exact arithmetic, of accumulators that are known, of every plan, and the advice that follows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import ml_dtypes
import numpy as np
import pytest

from accprobe.budget.accumulation import Accumulation, of_named
from accprobe.budget.advice import MARGIN, Advice, advice, own_rounding, ratio, sentences, weighed
from accprobe.budget.data import DrawnPair, draw_patterns, draw_values, quantise
from accprobe.budget.error_report import BudgetRequest, entries, plans_of
from accprobe.budget.errors import Errors, Exact, Tally, exact_sums, tally
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel

E4M3 = of_named("h200:wgmma.m64n8k32.f32.e4m3.e4m3")
BF16 = of_named("h200:wgmma.m64n8k16.f32.bf16.bf16")


def exact_sums_of(model: ProductModel, operands: DrawnPair) -> Exact:
    return exact_sums(model.a.values(operands.a), model.b.values(operands.b))


def errors(model: ProductModel, kind: str, draws: int = 4, m: int = 4, n: int = 64) -> Errors:
    drawings = [draw_patterns(kind, model.a, model.b, m, n, model.k, np.random.default_rng([0, i])) for i in range(draws)]
    return Errors.of(model, [tally(model, each, exact_sums_of(model, each)) for each in drawings])


@pytest.mark.parametrize("kind", ["normal", "same-sign", "cancelling"])
@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("of", [E4M3, BF16], ids=["e4m3", "bf16"])
def test_errors_equal_exact_fractions(kind: str, out: str, of: Accumulation) -> None:
    model = of.product(96, 32, out=FORMATS[out])
    drawings = [draw_patterns(kind, of.a, of.b, 2, 3, 96, np.random.default_rng(i)) for i in range(2)]
    found = Errors.of(model, [tally(model, each, exact_sums_of(model, each)) for each in drawings])
    error, exact, over = list[Fraction](), list[Fraction](), list[Fraction]()
    for a, b in drawings:
        d = model.result.values(product(model, a, b))
        x, y = ([[Fraction(v) for v in row] for row in fmt.values(p).tolist()] for fmt, p in ((of.a, a), (of.b, b)))
        for i, row in enumerate(x):
            for j, column in enumerate(y):
                products = [p * q for p, q in zip(row, column, strict=True)]
                exact.append(sum(products, Fraction()))
                error.append(Fraction(d[i, j]) - exact[-1])
                over.append(abs(error[-1]) / sum(map(abs, products), Fraction()))
    rms = sqrt(sum(x * x for x in exact) / len(exact))
    assert found.outputs == 12
    assert found.relative_error == pytest.approx(sqrt(sum(e * e for e in error) / len(error)) / rms)
    assert found.bias == pytest.approx(float(sum(error) / sum(map(abs, exact))))
    assert max(over) <= found.bound_over_sum


def test_the_rounding_of_d_is_separate_from_the_error_of_the_sum() -> None:
    narrow = errors(E4M3.product(1024, 128, out=FORMATS["bf16"]), "same-sign")
    wide = errors(E4M3.product(1024, 128), "same-sign")
    assert (narrow.error_of_sums, narrow.bias_of_sums) == (wide.relative_error, wide.bias)
    assert narrow.relative_error > 2 * wide.error_of_sums


def test_overflowed_outputs_are_counted_separately() -> None:
    of = of_named("h200:wgmma.m64n8k32.f32.e5m2.e5m2")
    large = DrawnPair(*(np.full((rows, 64), FORMATS["e5m2"].largest, np.uint8) for rows in (1, 2)))
    model = of.product(64, out=FORMATS["f16"])
    found = Errors.of(model, [tally(model, large, exact_sums_of(model, large))])
    assert (found.outputs, found.overflowed, found.relative_error) == (0, 2, None)


def test_sums_of_nothing_but_zeros_have_no_relative_error() -> None:
    model = E4M3.product(64)
    nothing = DrawnPair(np.zeros((1, 64), np.uint8), np.zeros((1, 64), np.uint8))
    found = Errors.of(model, [tally(model, nothing, exact_sums_of(model, nothing))])
    assert (found.outputs, found.relative_error, found.bias) == (1, None, None)


def test_the_confidence_interval_contains_the_mean_of_many_draws() -> None:
    """Nearly all of 40 runs with eight draws have the mean of all in their interval of 95 %."""
    rng = np.random.default_rng(0)

    def of_draw() -> Tally:
        squares = rng.chisquare(50)
        return Tally(50, 0, squares, 50.0, rng.normal(0, 1), 50.0, squares, 0.0)

    runs = [Errors.of(E4M3.product(32), [of_draw() for _ in range(8)]) for _ in range(40)]
    intervals = [run.relative_error_interval for run in runs]
    assert 30 <= sum(each is not None and each[0] <= 1 <= each[1] for each in intervals) <= 40
    assert Errors.of(E4M3.product(32), [of_draw()]).relative_error_interval is None


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
    pair = quantise("row", of.a, of.b, draw_values("normal", 2, 2, 512, np.random.default_rng(0)))
    applied = pair.apply_scales(of.measured)
    assert applied[0] == of.measured.scales


def recommended(request: BudgetRequest, k: int, of: Accumulation = QGMMA) -> Advice:
    return advice(of, request, k, ())


def test_the_recommended_interval_is_the_longest_whose_error_stays_below_the_rounding_of_d() -> None:
    """Same-sign sums lose about 2^-13 a step; the rounding error of bf16 is 0.17 %."""
    told = recommended(SMALL, 2048)
    (normal, _), (positive, promoted) = told.kinds.values()
    assert (told.promote_every, told.is_enough, told.out) == (128, True, "bf16")
    assert promoted.error_of_sums * MARGIN <= told.rounding < positive.error_of_sums
    assert normal.error_of_sums * MARGIN <= told.rounding
    assert positive.bias_of_sums < 0
    doubled = next(entries(QGMMA, replace(SMALL, ks=(2048,), intervals=(256,), data=("same-sign",))))
    assert doubled.errors.error_of_sums * MARGIN > told.rounding


def test_the_rounding_error_of_a_format_is_that_of_numbers_of_any_size() -> None:
    x = np.exp(np.random.default_rng(0).uniform(0, np.log(2), 1 << 18)).astype(np.float32)
    errors = x.astype(ml_dtypes.bfloat16).astype(np.float32) / x - 1
    assert own_rounding(FORMATS["bf16"]) == pytest.approx(np.sqrt(np.square(errors).mean()), rel=0.01)
    assert [weighed(error, 1.0) for error in (0.8, 0.81, 1.24, 1.25)] == ["less", "about", "about", "more"]
    assert [ratio(times) for times in (1.25, 99.4, 99.6, 250.4)] == ["1.2", "99", "100", "250"]


def test_if_no_interval_is_short_enough_the_advice_is_the_shortest() -> None:
    """Chunks rounded to f16 have a larger error than the cancelled sum's rounding."""
    of = of_named("sim:v100:mma.sync.m8n8k4.f16.f16.f16.f16")
    told = recommended(replace(SMALL, out=FORMATS["f16"], data=("cancelling",)), 512, of=of)
    assert (told.promote_every, told.is_enough) == (4, False)
    unpromoted, promoted = told.kinds["cancelling"]
    assert told.rounding < promoted.error_of_sums < unpromoted.error_of_sums
    assert next(sentences([], [told])).startswith(
        "Promote every 4 products, the shortest interval, at K = 512: even then the error before D is rounded is not"
    )


@pytest.mark.slow
def test_a_long_k_may_be_promoted_after_every_sum() -> None:
    """2048 chunks, more than calls may nest."""
    (entry,) = entries(QGMMA, BudgetRequest(ks=(65536,), intervals=(32,), data=("same-sign",), outputs=64))
    assert entry.errors.relative_error < 1e-3
