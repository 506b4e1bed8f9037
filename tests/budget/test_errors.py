"""Errors against exact arithmetic, and those of accumulators that are known."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from accprobe.budget.accumulation import Accumulation, of_named
from accprobe.budget.data import DrawnPair, draw_patterns
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
    assert found.bound_over_sum is not None
    assert max(over) <= found.bound_over_sum


def test_the_rounding_of_d_is_separate_from_the_error_of_the_sum() -> None:
    narrow = errors(E4M3.product(1024, 128, out=FORMATS["bf16"]), "same-sign")
    wide = errors(E4M3.product(1024, 128), "same-sign")
    assert (narrow.error_of_sums, narrow.bias_of_sums) == (wide.relative_error, wide.bias)
    assert narrow.relative_error is not None
    assert wide.error_of_sums is not None
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
