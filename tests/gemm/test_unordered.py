"""Slices that are added with atomics: in a new order for each call, tile or output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox, PlantedBox
from planted_functions import chain
from planted_plans import HOPPER
from planted_products import Array, Planted

from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.repeatability import FIRST, MOST
from accprobe.gemm.findings import findings, status
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.structures import order_in_words
from accprobe.isa.formats import FORMATS

ELEMENTS = 1 << 14


def atomics(slices: int, each: int = 64) -> Planted:
    return replace(HOPPER, m=32, n=32, k=slices * each, slices=(each,) * slices, merge="unordered")


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6)]])
@pytest.mark.parametrize("orders", ["call", "tile"])
@pytest.mark.parametrize("slices", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_slices_in_a_new_order_for_each_call_or_tile(slices: int, orders: str, seed: int) -> None:
    plan = replace(atomics(slices), orders=orders, seed=seed)
    outcome = characterise(PlantedBox(plan), elements=ELEMENTS, seed=seed)
    by_name = findings(outcome)
    assert status(outcome) == ("confirmed", "")
    assert by_name["slice_sizes"].value == ", ".join(["64"] * slices)
    assert {name: by_name[name].value for name in ("split_k", "reduction_order", "repeatable")} == {
        "split_k": slices,
        "reduction_order": "unordered",
        "repeatable": "no",
    }
    assert FIRST < outcome.first.calls <= MOST
    assert outcome.first.values > 2


@pytest.mark.parametrize("orders", ["call", pytest.param("tile", marks=pytest.mark.slow)])
def test_slices_of_chunks_are_distinguished_from_slices(orders: str) -> None:
    plan = replace(atomics(3, 96), promote_every=32, orders=orders)
    outcome = characterise(PlantedBox(plan), elements=ELEMENTS)
    assert status(outcome) == ("confirmed", "")
    assert outcome.main.plan is not None
    assert order_in_words(outcome.main.plan) == "3 slices of 96: chunks of 32, each a chain of [acc 16]"


def test_two_slices_have_one_sum_in_any_order() -> None:
    outcome = characterise(PlantedBox(replace(atomics(2), orders="call")), elements=ELEMENTS)
    assert status(outcome) == ("confirmed", "")
    assert findings(outcome)["repeatable"].value == "yes"


def test_noise_is_not_a_sum_in_any_order() -> None:
    rng = np.random.default_rng(0)

    def noisy(a: Array, b: Array) -> Array:
        """The last bit of some outputs, where these are no whole numbers."""
        d = chain(a, b)
        return np.where((rng.random(d.shape) < 0.5) & (d % 1 != 0), np.nextafter(d, np.float32(np.inf)), d)

    outcome = characterise(FunctionBox(Spec(16, 16, 32, *[FORMATS["f32"]] * 3), noisy), elements=1 << 12)
    assert status(outcome)[0] == "unstable"
    assert findings(outcome)["repeatable"].value == "no"
