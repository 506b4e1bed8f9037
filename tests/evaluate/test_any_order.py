"""Sums whose parts are added in any order, and miscounted products."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from planted_models import outcomes, words
from planted_plans import HOPPER

from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.miscounts import Miscounts, fit_miscounts
from accprobe.model.product import Merged, addition
from accprobe.operands.distributions import times_power

FIVE = replace(HOPPER, m=8, n=9, k=160, slices=(32,) * 5, merge="unordered")
PLANS = {
    "f32": FIVE,
    "three": replace(FIVE, k=96, slices=(32,) * 3),
    "results bf16": replace(FIVE, out="bf16"),
    "partials bf16": replace(FIVE, partial_format="bf16"),
    "tensor scales": replace(FIVE, scales="tensor"),
    "row scales": replace(FIVE, scales="row", out="bf16"),
    "promoted": replace(FIVE, promote_every=16),
    "FMAs": replace(FIVE, products_per_sum=1, alignment_bits=None, sum_rounding="RNE"),
    "blocks": replace(FIVE, a="e4m3", b="e4m3", k=640, slices=(128,) * 5, promote_every=128, scales="128x128", out="bf16"),
}


@pytest.mark.parametrize("name", PLANS)
def test_results_of_every_order_are_found_and_their_neighbours_are_not(name: str) -> None:
    model, a, b, scales, _ = words(PLANS[name], 1)
    every = outcomes(model, a, b, scales)
    rng = np.random.default_rng(0)
    drawn = np.take_along_axis(every, rng.integers(len(every), size=(1, *every.shape[1:])), axis=0)[0]
    for d in (drawn, every.min(axis=0), every.max(axis=0), drawn + 1, drawn - 1):
        expected = (every == d).any(axis=0)
        np.testing.assert_array_equal(given_by_some_order(model, a, b, d, scales), expected.reshape(-1))


def test_subnormal_sums_may_be_flushed() -> None:
    """Atomics of global memory flush them: terms and sums about f32's smallest normal number."""
    model, a, b, *_ = words(FIVE, 1)
    a, b = (times_power(model.a, x, -63) for x in (a, b))
    assert isinstance(model.tree, Merged)
    flushing = replace(model, tree=replace(model.tree, arithmetic=addition(subnormals="flushed")))
    for own, other in ((model, flushing), (flushing, model)):
        d = outcomes(own, a, b)[5]
        assert given_by_some_order(own, a, b, d).all()
        assert not given_by_some_order(other, a, b, d).all()


EVERY = np.arange(384)
HALF = EVERY[::2]


def found(kind: str, of_a: np.ndarray, of_b: np.ndarray, m: int = 48, n: int = 40) -> Miscounts:
    """Fit a bf16 result with wrong k."""
    rng = np.random.default_rng(3)
    draw = rng.standard_normal if kind == "normal" else rng.random
    a, b = draw((m, len(EVERY))), draw((n, len(EVERY)))
    d: Floats = (a[:, of_a] @ b[:, of_b].T).astype(ml_dtypes.bfloat16).astype(np.float64)
    return fit_miscounts(d, a, b)


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize(
    ("ks", "missing", "twice"),
    [
        (EVERY[:-10], range(374, 384), ()),
        (np.delete(EVERY, range(70, 134)), range(70, 134), ()),
        (np.delete(EVERY, [5, 200]), (5, 200), ()),
        (np.append(EVERY, EVERY[96:112]), (), range(96, 112)),
        (HALF, range(1, 384, 2), ()),
    ],
)
def test_missing_and_repeated_k(kind: str, ks: np.ndarray, missing: range, twice: range) -> None:
    counts = found(kind, ks, ks).counts
    assert np.flatnonzero(counts == -1).tolist() == list(missing)
    assert np.flatnonzero(counts == 1).tolist() == list(twice)


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize(
    "of_b",
    [np.roll(EVERY, 1), np.where((EVERY >= 64) & (EVERY < 128), EVERY + 128, EVERY), np.where(EVERY < 32, EVERY + 1, EVERY)],
)
def test_mispaired_k(kind: str, of_b: np.ndarray) -> None:
    result = found(kind, EVERY, of_b)
    assert np.array_equal(result.partner, of_b)
    assert not result.counts.any()


@pytest.mark.parametrize("kind", ["normal", "positive"])
def test_a_correct_result_has_no_miscounts(kind: str) -> None:
    result = found(kind, EVERY, EVERY)
    assert not result
    assert list(result.sentences()) == []


def test_results_that_are_not_finite_are_ignored() -> None:
    a = np.ones((4, 8))
    assert not fit_miscounts(np.full((4, 4), np.nan), a, a)
