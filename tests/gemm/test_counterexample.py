"""The answer that is shown where a plan is contradicted: the simplest there is, as it was asked."""

from __future__ import annotations

import re

import numpy as np
from planted_boxes import FunctionBox
from planted_sums import Array

from accprobe.gemm.dots import Answered, Sparse, predicted
from accprobe.gemm.characterise import characterise
from accprobe.gemm.dots import counterexamples
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.findings import row
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel, multiply_add

F16, F32 = FORMATS["f16"], FORMATS["f32"]
K = 8


def chain() -> ProductModel:
    return ProductPlan(Spec(4, 4, K, F32, F32, F32), tuple((k,) for k in range(K)), multiply_add()).model()


def asked(*dots: list[tuple[int, float]]) -> Sparse:
    """Dot products with these products at these k."""
    ks, a, b = np.zeros((len(dots), 4), int), np.zeros((len(dots), 4), np.float32), np.ones((len(dots), 4), np.float32)
    for i, terms in enumerate(dots):
        for t, (k, value) in enumerate(terms):
            ks[i, t], a[i, t] = k, value
    return Sparse(ks, a.view(np.uint32), b.view(np.uint32))


def shown(dots: Sparse, *wrong: int) -> str:
    """What is shown where some answers are one last bit too large."""
    d = predicted(chain(), dots)
    d[list(wrong)] += 1
    return counterexamples(chain(), Answered(dots, d))


def test_fewest_terms_come_first_then_those_nearest_in_size() -> None:
    dots = asked([(2, 3.0)], [(5, 64.0), (1, 1.0)], [(0, 2.0), (7, 1.0)], [(3, 1.0), (4, 1.0), (5, 1.0)])
    assert shown(dots) == ""
    of_two = shown(dots, 1, 3)
    assert (
        of_two == "products 1 at k = 1, 64 at k = 5, the others 0: 0x42820001 (65.0000076), expected 0x42820000 (65), 1 ulp; "
        "products 1 at k = 3, 1 at k = 4, 1 at k = 5, the others 0: 0x40400001 (3.00000024), expected 0x40400000 (3), 1 ulp"
    )
    assert shown(dots, 1, 2, 3).startswith("products 2 at k = 0, 1 at k = 7, the others 0: 0x40400001 ")
    assert shown(dots, 0, 1, 2, 3).startswith("products 3 at k = 2, the others 0: ")


def test_the_result_that_is_farthest_off_is_shown_too() -> None:
    dots = asked([(2, 3.0)], [(5, 64.0)], [(1, 5.0)])
    d = predicted(chain(), dots)
    d[1] += 900
    told = counterexamples(chain(), Answered(dots, d + np.uint32(1)))
    assert told.startswith("products 3 at k = 2")
    assert told.endswith("expected 0x42800000 (64), 901 ulp")


def test_of_two_terms_at_one_k_the_last_was_asked() -> None:
    assert shown(asked([(2, 64.0), (2, 1.0)]), 0).startswith("products 1 at k = 2, the others 0: 0x3f800001 (1.00000012), ")


def test_products_that_are_rounded_on_their_own_are_shown_by_one_of_them() -> None:
    """numpy multiplies float16s as float16s: one product is enough to see it."""

    def function(a: Array, b: Array) -> Array:
        sums = np.zeros((len(a), b.shape[1]), np.float32)
        with np.errstate(all="ignore"):
            for k in range(a.shape[1]):
                sums = sums + np.outer(a[:, k].view(np.float16), b[k].view(np.float16)).astype(np.float32)
        return sums

    spec = Spec(16, 16, 64, F16, F16, F32)
    found = row(characterise(FunctionBox(spec, function), elements=1 << 12), "own")
    assert found.status == "inferred"
    assert found.verification is not None
    words = re.fullmatch(
        r"products (\S+) at k = \d+, the others 0: 0x([0-9a-f]{8}) \(\S+\), expected 0x[0-9a-f]{8} \((\S+)\), [\d,]+ ulp",
        found.verification.counterexample.partition("; ")[0],
    )
    assert words, found.verification.counterexample
    got = np.array([int(words[2], 16)], np.uint32).view(np.float32)[0]
    assert words[1] == words[3]
    assert got == np.float32(np.float16(np.float64(words[1])))
    assert got != np.float32(words[1])
