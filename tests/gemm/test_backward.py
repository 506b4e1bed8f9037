"""Chains that take the last k first, told as what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox, PlantedBox
from planted_plans import FMAS, HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.gemm.characterise import ProductOutcome, characterise
from accprobe.gemm.findings import findings, status
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS
from accprobe.report.product_words import plan_words

K = 48
SPEC = Spec(16, 16, K, *[FORMATS["f32"]] * 3)


def multiplied_then_added(a: Array, b: Array, descending: bool) -> Array:
    d = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(K)[:: -1 if descending else 1]:
        with np.errstate(over="ignore", invalid="ignore"):
            d = d + a[:, k, None] * b[k]
    return d


def asked(box: PlantedBox | FunctionBox) -> ProductOutcome:
    return characterise(box, elements=1 << 12)


def told(outcome: ProductOutcome) -> tuple[object, str]:
    found = findings(outcome)
    return found["order"].value, plan_words(found)


@pytest.mark.parametrize("descending", [True, False])
def test_products_that_are_rounded_and_then_added(descending: bool) -> None:
    outcome = asked(FunctionBox(SPEC, lambda a, b: multiplied_then_added(a, b, descending)))
    assert status(outcome) == ("confirmed", "")
    found, model = findings(outcome), outcome.main.model
    assert (found["split_k"].value, found["product_bits"].value) == (1, 23)
    assert model is not None
    (chain,) = model.chains()
    assert [k for k in chain.ks().tolist() if k >= 0] == list(range(K))[:: -1 if descending else 1]
    how = " from the last k to the first" if descending else ""
    assert told(outcome) == (f"chain of [acc 1]{',' * descending}{how}", f"one chain{how}")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(FMAS, m=16, n=16, k=K, descending=True), "one chain from the last k to the first"),
        (replace(FMAS, m=16, n=16, k=K), "one chain"),
        (
            replace(FMAS, m=16, n=16, k=K, slices=(16, 16, 16), merge="backward"),
            "3 slices of 16, partials f32, merged backward",
        ),
        (
            replace(FMAS, m=16, n=16, k=K, slices=(16, 16, 16), merge="backward", descending=True),
            "3 slices of 16, each from the last k to the first, partials f32, merged backward",
        ),
        (replace(HOPPER, m=16, n=16, k=K, descending=True), "one chain from the last k to the first"),
    ],
)
def test_multiply_adds_and_sums_of_several(plan: Planted, words: str) -> None:
    outcome = asked(PlantedBox(plan))
    assert status(outcome) == ("confirmed", "")
    assert told(outcome)[1] == words
