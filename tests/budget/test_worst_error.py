"""Bounds of errors hold for all operands, operands that are made to err approach them, and none is given where none follows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from adversarial import ADVERSARIES, crafted, float_models
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from numpy.typing import NDArray
from product_rows import product_model, step

from accprobe.budget.errors import exact_product
from accprobe.budget.worst_error import worst_case, worst_error
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, ProductModel, Scales, multiply_add
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product, Subnormals

SIDE = 24
PUBLISHED = {name: (model, a, b) for name, model, a, b in float_models()}


def of_sums(**changes: object) -> DotModel:
    root = step().root
    return replace(step(), root=FusedSum(root.terms, replace(root.arithmetic, **changes)))


STEPS = {
    "QGMMA": ("e4m3", step()),
    "wide sums": ("bf16", step(16, 23, 25)),
    "narrow sums": ("f16", step(4, 10, 12)),
    "multiply-adds": ("f32", multiply_add()),
    "rounded products": ("f32", multiply_add(fused=False)),
    "exact sums": ("f16", step(8, 23, None)),
    "min_exponent": ("e4m3", of_sums(min_exponent=-4)),
    "subnormal_results": ("e4m3", of_sums(subnormal_results="flushed")),
    "RNE": ("e4m3", of_sums(result_bits=9, result_rounding="RNE")),
    "aligned to nearest": ("e4m3", of_sums(alignment_rounding="nearest")),
    "flushed addends": ("e4m3", replace(step(), subnormal_addend="flushed")),
}


def exceeded(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> float:
    """How many times its bound an element is off at most; infinite if it is off where the bound is zero."""
    bound = worst_case(model, a, b, scales)
    with np.errstate(all="ignore"):
        exact = exact_product(model, a, b, scales)
        off = np.abs(model.result.values(product(model, a, b, scales=scales)) - exact.sums) - exact.off
        ratio = np.where(off > 0, np.where(bound > 0, off / bound, np.inf), 0.0)
    return float(np.where(np.isinf(bound), 0.0, ratio).max())


@given(
    name=st.sampled_from(sorted({**PUBLISHED, **STEPS})),
    kind=st.sampled_from(ADVERSARIES),
    k=st.integers(1, 100),
    parts=st.sampled_from([{}, {"promote": 32}, {"slices": 3, "kept": "bf16"}]),
    seed=st.integers(0, 999),
)
@settings(max_examples=100, deadline=None)
def test_no_operands_made_to_err_exceed_a_bound(name: str, kind: str, k: int, parts: dict[str, Any], seed: int) -> None:
    if name in STEPS:
        fmt, sums = STEPS[name]
        model = product_model(96, fmt, "bf16" if parts else "f32", of=sums, **parts)
    else:
        sums, a, b = PUBLISHED[name]
        model = replace(product_model(k, of=sums), a=a, b=b, result=sums.root.arithmetic.result)
    assert exceeded(model, *crafted(kind, model, SIDE, SIDE, np.random.default_rng(seed))) <= 1


def small_sums(rng: np.random.Generator) -> DotModel:
    """Sums of so few bits that every way to lose some comes up; their results are often subnormal."""
    products, result = int(rng.choice([1, 2, 4])), FORMATS["f16"]
    arithmetic = FloatArithmetic(
        result,
        int(rng.integers(0, 5)),
        rng.choice(["RZ", "RNE"]),
        None if products == 1 and rng.integers(0, 2) else int(rng.integers(0, 9)),
        product_exponent=rng.choice(["unnormalised", "normalised operands", "normalised product"]),
        min_exponent=rng.choice([None, -24, -16, -10]),
        subnormal_results=rng.choice(get_args(Subnormals)),
    )
    terms = (Addend(), *map(Product, range(products)))
    node = FusedSum(terms, arithmetic)
    if products > 1 and rng.integers(0, 2):
        node = FusedSum((FusedSum(terms[1:], arithmetic), Addend()), arithmetic)
    return DotModel(node, subnormal_addend=rng.choice(get_args(Subnormals)))


@pytest.mark.parametrize("seed", range(60))
def test_small_sums_of_any_kind_stay_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums, k = small_sums(rng), int(rng.integers(1, 9))
    pattern = tuple(range(sums.products))
    model = ProductModel(FORMATS["e5m2"], FORMATS["e4m3"], k, sums, Chain(0, k, pattern), FORMATS["f16"])
    for low, high in ((-9, -6), (-12, 1), (-2, 2)):
        a, b = (
            (rng.choice([-1, 1, 1], (48, k)) * rng.uniform(1, 2, (48, k)) * np.exp2(rng.integers(low, high, (48, k))))
            .astype(fmt.ml_dtype)
            .view(np.uint8)
            for fmt in (model.a, model.b)
        )
        assert exceeded(model, a, b) <= 1


@pytest.mark.parametrize("how", some(["product of scales", "a then b", "b then a"], 2))
@pytest.mark.parametrize(("of", "fused"), [("row", False), ("1x128", False), ("1x128", True)])
def test_scales(of: str, how: str, fused: bool) -> None:
    model = product_model(512, promote=128, scales=Scales(of, how, fused))
    rng = np.random.default_rng(3)
    blocks = 4 if of == "1x128" else 1
    scales = ScaleWords(*(rng.uniform(0.01, 90, shape).astype(np.float32) for shape in ((64, blocks), (blocks, 64))))
    a, b = crafted("wide", model, 64, 64, rng)
    assert np.isfinite(worst_case(model, a, b, scales)).all()
    assert exceeded(model, a, b, scales) <= 1


def test_exact_products_of_f64_have_their_scales() -> None:
    model = replace(product_model(2, scales=Scales("tensor")), a=FORMATS["f64"], b=FORMATS["f64"])
    ones, scales = np.ones((1, 2)).view(np.uint64), ScaleWords(np.full((1, 1), 3.0), np.full((1, 1), 5.0))
    assert exact_product(model, ones, ones, scales).sums == [[30]]


def test_scales_magnify_what_sums_lose_below_their_range() -> None:
    """Every product is below the last bit of the sums."""
    model = product_model(512, promote=128, scales=Scales("row"), of=of_sums(min_exponent=8))
    scales = ScaleWords(np.full((4, 1), 60, np.float32), np.full((1, 4), 60, np.float32))
    a, b = (np.full((4, 512), 0.125, fmt.ml_dtype).view(fmt.dtype) for fmt in (model.a, model.b))
    assert not model.result.values(product(model, a, b, scales=scales)).any()
    assert 0.1 < exceeded(model, a, b, scales) <= 1


def test_no_bound_where_sums_can_be_too_large_or_are_no_numbers() -> None:
    model = product_model(64, "e5m2", "f16")
    a = np.full((2, 64), FORMATS["e5m2"].largest, np.uint8)
    b = a.copy()
    a[1] = 0
    b[1] = FORMATS["e5m2"].infinity or 0
    bound = worst_case(model, a, b)
    assert np.isinf(bound[0]).all()
    assert bound[1, 0] < 1e-7
    assert np.isinf(bound[1, 1])


def relative_error(model: ProductModel, a: Bits, b: Bits) -> float:
    """|result - exact sum| over the sum of |a·b|, of the one row and column."""
    values = [[Fraction(float(x)) for x in fmt.values(words)[0]] for fmt, words in ((model.a, a), (model.b, b))]
    products = [x * y for x, y in zip(*values, strict=True)]
    result = Fraction(float(model.result.values(product(model, a, b))[0, 0]))
    return float(abs(result - sum(products)) / sum(map(abs, products)))


def encoded(name: str, values: NDArray[Any]) -> Bits:
    fmt = FORMATS[name]
    assert fmt.ml_dtype is not None
    return values.astype(np.float32).astype(fmt.ml_dtype).view(fmt.dtype)[None]


def cut_off(k: int, chunk: int) -> tuple[Bits, Bits]:
    """At the head of each chunk 2^8; then products of 0.9375 of the last bit that 13 fraction bits below it keep."""
    a, b = np.full(k, 1.875 * 2.0**-3), np.full(k, 2.0**-3)
    a[::chunk] = b[::chunk] = 16
    return encoded("e4m3", a), encoded("e4m3", b)


@pytest.mark.parametrize(("promote", "chunk"), [(None, 1024), (128, 128)])
def test_worst_case_operands_approach_the_bound(promote: int | None, chunk: int) -> None:
    model = product_model(promote=promote)
    bound = worst_error(model)
    assert 0.7 * bound < relative_error(model, *cut_off(1024, chunk)) <= bound


@pytest.mark.parametrize(
    ("sums", "has_bound"),
    [
        (of_sums(zero_terms="aligned"), False),
        (replace(step(), root=FusedSum(step().root.terms, IntegerArithmetic(FORMATS["s32"], "wrap"))), False),
        (replace(step(), subnormal_operands="flushed"), True),
    ],
    ids=["zeros are aligned to", "integers", "flushed"],
)
def test_no_bound_of_elements_and_of_products_if_none_follows(sums: DotModel, has_bound: bool) -> None:
    model = product_model(64, of=sums)
    assert (worst_error(model) is not None) == has_bound
    assert np.isinf(worst_case(model, *crafted("integers", model, 2, 2, np.random.default_rng(0)))).all()
