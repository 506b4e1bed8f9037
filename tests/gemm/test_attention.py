"""Attention as a product of which only V varies: planted kernels are found as planted, torch's on a CPU are predicted."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from marks import some
from planted_boxes import FunctionBox, planted_attention
from planted_products import Planted
from product_judge import false_findings, is_planted_order

from accprobe.callables.opening import Opened, ProductRequest, open_callable
from accprobe.errors import AccprobeError
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import ProductOutcome, RegionOutcome, status
from accprobe.isa.formats import FORMATS

ELEMENTS = 1 << 10
FLASH = Planted(m=8, n=64, k=128, products_per_sum=16, out="f32")
"""As FlashAttention-2 on Hopper: mma of 16 products, one chain along the keys."""

PLANS = {
    "2 splits, partial sums in bf16": replace(FLASH, slices=(64,) * 2, partial_format="bf16"),
    "sums of 16 products": FLASH,
    "multiply-adds": replace(FLASH, products_per_sum=1, alignment_bits=None, sum_rounding="RNE"),
    "block after block of 32 keys": replace(FLASH, promote_every=32),
}

CANNOT_SHOW = {
    "2 splits, partial sums in bf16": {"product_exponent", "promotion_rounding", "partial_format", "reduction_order"}
}
"""Alternatives with the same results: of weights that are powers of two; of one sum of two numbers in bf16, rounded to bf16."""


def asked(box: FunctionBox) -> ProductOutcome:
    return characterise(box, elements=ELEMENTS)


def hold_as_planted(plan: Planted, outcome: ProductOutcome, found: RegionOutcome | None = None) -> None:
    found = found or outcome.main
    assert is_planted_order(plan, found)
    assert list(false_findings(plan, outcome, found)) == []


@pytest.mark.parametrize(("name", "operands"), some(list(itertools.product(PLANS, ("bf16", "f16"))), 12))
def test_planted_attention_is_found_as_planted(name: str, operands: str) -> None:
    plan = replace(PLANS[name], a=operands, b=operands)
    outcome = asked(planted_attention(plan))
    assert status(outcome) == ("confirmed", "")
    assert (outcome.verification.mismatches, outcome.kept.contradicting) == (0, 0)
    assert outcome.verification.elements >= ELEMENTS
    assert {alternative.property for alternative in outcome.main.surviving} <= CANNOT_SHOW.get(name, {"product_exponent"})
    hold_as_planted(plan, outcome)


def test_queries_with_another_plan_are_a_region_of_their_own() -> None:
    plan = replace(FLASH, n=256, k=256)
    other = replace(plan, products_per_sum=8, alignment_bits=24)
    outcome = asked(planted_attention(plan, other=other, since=5))
    assert status(outcome) == ("confirmed", "")
    assert [found.region.rows.tolist() for found in outcome.found] == [[0, 1, 2, 3, 4], [5, 6, 7]]
    hold_as_planted(plan, outcome)
    hold_as_planted(other, outcome, outcome.found[1])


torch = pytest.importorskip("torch")


def opened(shape: tuple[int, int, int] = (16, 128, 256), dtype: str = "bf16", **options: Any) -> Opened:
    return open_callable("torch:sdpa", ProductRequest(shape, FORMATS[dtype]), options, "cpu")


@pytest.mark.parametrize("backend", [None, "math", "flash"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_columns_are_those_of_the_heads(backend: str | None, dtype: str) -> None:
    """The mean of such whole numbers is exact in any order."""
    called = opened(dtype=dtype, backend=backend, head_dim=32).adapter
    spec = called.spec
    one = np.random.default_rng(0).permutation(spec.n)
    values = np.zeros((spec.n, spec.k), np.float32)
    values[np.arange(spec.n), one] = spec.k * (1 + one)
    v = values.astype(spec.b.ml_dtype).view(spec.b.dtype)
    a = np.full((spec.m, spec.k), spec.a.encode(False, 1, -8), spec.a.dtype)
    assert np.array_equal(spec.out.values(called.product(a, v)), np.broadcast_to((values / spec.k).sum(axis=1), (16, 128)))


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "message"),
    [
        ((16, 64, 250), "bf16", {}, "over 250 keys has weights of 1/250, which are rounded: give a power of two as K"),
        ((16, 64, 1 << 15), "f16", {}, "f16 cannot hold weights of 1/32768: give at most 16384 keys as K"),
        ((16, 96, 256), "bf16", {}, "N is 96, not a multiple of the head_dim 64: see option head_dim"),
        ((16, 64, 256), "bf16", {"backend": "flsh"}, "torch:sdpa has no back end 'flsh'; did you mean flash"),
    ],
)
def test_what_is_no_attention_is_one_sentence(shape: tuple[int, int, int], dtype: str, options: Any, message: str) -> None:
    with pytest.raises(AccprobeError, match=message):
        opened(shape, dtype, **options)


@pytest.mark.parametrize("backend", ["cudnn", "efficient"])
def test_a_back_end_that_is_not_here_is_one_sentence(backend: str) -> None:
    with pytest.raises(
        AccprobeError, match=f"torch has no {backend} attention for bf16 16x128x256 on cpu: give another --option backend="
    ):
        opened(backend=backend).adapter.check()
