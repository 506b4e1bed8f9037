"""Sums whose parts are added in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_models import outcomes, words
from planted_plans import HOPPER

from accprobe.evaluate.any_order import given_by_some_order
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
