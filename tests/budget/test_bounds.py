"""Bounds of each element: nothing that is made for it exceeds them, some comes near, and narrower ones would be exceeded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from adversarial import ADVERSARIES, crafted, float_models
from all_orders import outcomes
from hypothesis import given, settings
from hypothesis import strategies as st
from long_tail import some
from product_rows import product_model, step

from accprobe.budget.bounds import from_sum, tight
from accprobe.budget.errors import exact_product
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, Merged, ProductModel, Scales, multiply_add
from accprobe.model.tree import (
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    Product,
    Subnormals,
)

SIDE = 24

STEPS = {
    "QGMMA": ("e4m3", step()),
    "wide sums": ("bf16", step(16, 23, 25)),
    "narrow sums": ("f16", step(4, 10, 12)),
    "multiply-adds": ("f32", multiply_add()),
    "rounded products": ("f32", multiply_add(product_bits=23)),
    "exact sums": ("f16", step(8, 23, None)),
}
root = step().root
for field, value in {"min_exponent": -4, "subnormal_results": "flushed", "product_bits": 4}.items():
    changed = replace(root.arithmetic, **{field: value})  # type: ignore[arg-type]
    STEPS[field] = "e4m3", DotModel(FusedSum(root.terms, changed))
STEPS["RNE"] = "e4m3", DotModel(FusedSum(root.terms, replace(root.arithmetic, result_bits=9, result_rounding="RNE")))  # type: ignore[type-var]
STEPS["flushed addends"] = "e4m3", replace(step(), subnormal_addend="flushed")

PUBLISHED = {name: (model, a, b) for name, model, a, b in float_models()}


def exceeded(model: ProductModel, a: Bits, b: Bits, d: Bits, bound: Floats, scales: ScaleWords | None = None) -> Floats:
    """How many times its bound each element is off, at least; where the bound is zero, 0 or infinite."""
    with np.errstate(all="ignore"):
        exact = exact_product(model, a, b, scales)
        off = np.abs(model.result.values(d) - exact.sums) - exact.off
        ratio = np.where(off > 0, np.where(bound > 0, off / bound, np.inf), 0.0)
        return np.where(np.isinf(bound), 0.0, ratio)


def worst(model: ProductModel, kind: str, seed: int, within: ProductModel | None = None) -> tuple[float, float]:
    """Of the tight bound, and of that from the sum alone."""
    rng = np.random.default_rng(seed)
    a, b = crafted(kind, model, SIDE, SIDE, rng)
    d = product(model, a, b)
    tightly, cheaply = (exceeded(model, a, b, d, f(within or model, a, b)) for f in (tight, from_sum))
    return float(tightly.max()), float(cheaply.max())


@pytest.mark.parametrize(("name", "kind"), some([(name, kind) for kind in ADVERSARIES for name in STEPS]))
def test_nothing_made_for_it_exceeds_a_bound(name: str, kind: str) -> None:
    fmt, sums = STEPS[name]
    for model in (
        product_model(96, fmt, of=sums),
        product_model(96, fmt, "bf16", promote=32, of=sums),
        product_model(96, fmt, "f16", slices=3, kept="bf16", of=sums),
    ):
        for seed in range(2):
            tightly, cheaply = worst(model, kind, seed)
            assert tightly <= 1
            assert cheaply <= 1


@given(
    name=st.sampled_from(sorted(PUBLISHED)), kind=st.sampled_from(ADVERSARIES), k=st.integers(1, 100), seed=st.integers(0, 999)
)
@settings(max_examples=60, deadline=None)
def test_no_known_model_exceeds_a_bound(name: str, kind: str, k: int, seed: int) -> None:
    sums, a, b = PUBLISHED[name]
    model = replace(product_model(k, of=sums), a=a, b=b, result=sums.root.arithmetic.result)
    assert max(worst(model, kind, seed)) <= 1


def small_sums(rng: np.random.Generator) -> DotModel:
    """Sums of so few bits that every way to lose some comes up; their results are often subnormal."""
    products, result = int(rng.choice([1, 2, 4])), FORMATS["f16"]
    arithmetic = FloatArithmetic(
        result,
        int(rng.integers(0, 5)),
        rng.choice(["RZ", "RNE"]),
        None if products == 1 and rng.integers(0, 2) else int(rng.integers(0, 9)),
        product_exponent=rng.choice(["unnormalised", "normalised operands"]),
        min_exponent=rng.choice([None, -24, -16, -10]),
        subnormal_results=rng.choice(get_args(Subnormals)),
        product_bits=rng.choice([None, None, 1]),
        product_rounding=rng.choice(["RZ", "RNE", "RU"]),
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
        d = product(model, a, b)
        for bound in (tight(model, a, b), from_sum(model, a, b)):
            assert exceeded(model, a, b, d, bound).max() <= 1


@pytest.mark.parametrize("changes", [{"alignment_bits": 14, "result_bits": 14}, {"alignment_bits": 14}])
def test_a_bound_of_better_arithmetic_is_exceeded(changes: dict[str, object]) -> None:
    root = step().root
    better = DotModel(FusedSum(root.terms, replace(root.arithmetic, **changes)))  # type: ignore[arg-type]
    model = product_model(256)
    assert worst(model, "below the cut", 0, replace(model, step=better))[0] > 1


@pytest.mark.parametrize("promote", [None, 64])
def test_operands_made_for_it_reach_it(promote: int | None) -> None:
    assert max(worst(product_model(256, promote=promote), "below the cut", seed)[0] for seed in range(4)) > 0.99


def test_it_holds_against_fractions() -> None:
    model = product_model(64, out="bf16")
    a, b = crafted("wide", model, 4, 4, np.random.default_rng(0))
    d, bound = model.result.values(product(model, a, b)), tight(model, a, b)
    x, y = (FORMATS["e4m3"].values(words) for words in (a, b))
    for row, column in np.ndindex(d.shape):
        exact = sum((Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x[row], y[column], strict=True)), Fraction())
        assert abs(Fraction(float(d[row, column])) - exact) <= Fraction(float(bound[row, column]))


@pytest.mark.parametrize("how", some(["product of scales", "a then b", "b then a"], 2))
@pytest.mark.parametrize("of", ["row", "1x128"])
@pytest.mark.parametrize("fused", [False, True])
def test_scales(of: str, how: str, fused: bool) -> None:
    inside = of == "1x128"
    model = product_model(512, promote=128, scales=Scales(of, how, fused and inside))  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    blocks = 4 if inside else 1
    scales = ScaleWords(*(rng.uniform(0.01, 90, shape).astype(np.float32) for shape in ((64, blocks), (blocks, 64))))
    for kind, products_a_block in (("wide", 128), ("integers", 1)):
        a, b = crafted(kind, model, 64, 64, rng)
        a[:, np.arange(512) % 128 >= products_a_block] = 0
        if products_a_block == 1:
            a[:, 256:] = 0
        d = product(model, a, b, scales=scales)
        for bound in (tight(model, a, b, scales), from_sum(model, a, b, scales)):
            assert np.isfinite(bound).all()
            assert exceeded(model, a, b, d, bound, scales).max() <= 1
        if products_a_block == 1:
            assert exceeded(model, a, b, d, tight(model, a, b, scales), scales).max() > 0.6


def test_a_subnormal_sum_is_aligned_to_as_if_it_were_normal() -> None:
    arithmetic = FloatArithmetic(FORMATS["f16"], 10, "RZ", 2, product_exponent="normalised operands")
    sums = DotModel(FusedSum((Addend(), Product(0)), arithmetic))
    model = replace(product_model(8, of=sums), result=FORMATS["f16"])
    a, b = (np.full((1, 8), word, np.uint8) for word in (0x02, 0x01))  # 2^-8 and 2^-9
    b[0, 0] = 0x02
    d = product(model, a, b)
    assert model.result.values(d)[0, 0] == 2.0**-16
    for bound in (tight(model, a, b), from_sum(model, a, b)):
        assert exceeded(model, a, b, d, bound).max() <= 1


def test_slices_in_any_order() -> None:
    model = product_model(256, slices=4)
    assert isinstance(model.tree, Merged)
    unordered = replace(model, tree=replace(model.tree, order="unordered"))
    for seed, kind in enumerate(ADVERSARIES):
        a, b = crafted(kind, model, 8, 8, np.random.default_rng(seed))
        bound = tight(unordered, a, b)
        assert max(exceeded(model, a, b, d, bound).max() for d in outcomes(unordered, a, b)) <= 1


def test_cancellation_depends_on_the_order() -> None:
    """2^16, -2^16, and four that are smaller than half a last place of it."""
    model = product_model(6, slices=6, of=multiply_add())
    assert isinstance(model.tree, Merged)
    unordered = replace(model, tree=replace(model.tree, order="unordered"))
    a, b = encoded_e4m3([256, -256] + [1.875 * 2.0**-3] * 4), encoded_e4m3([256, 256] + [2.0**-6] * 4)
    results = outcomes(unordered, a, b)
    forward, any_order = (tight(of, a, b) for of in (model, unordered))
    assert max(exceeded(model, a, b, d, forward).max() for d in results) > 1
    assert 0.3 < max(exceeded(model, a, b, d, any_order).max() for d in results) <= 1


def encoded_e4m3(values: list[float]) -> Bits:
    return np.array([values], FORMATS["e4m3"].ml_dtype).view(np.uint8)


def test_no_bound_where_sums_can_be_too_large_or_are_no_numbers() -> None:
    model = product_model(64, "e5m2", "f16")
    a = np.full((2, 64), FORMATS["e5m2"].largest, np.uint8)
    b = a.copy()
    a[1] = 0
    b[1] = FORMATS["e5m2"].infinity or 0
    for bound in (tight(model, a, b), from_sum(model, a, b)):
        assert np.isinf(bound[0]).all()
        assert bound[1, 0] < 1e-7
        assert np.isinf(bound[1, 1])


@pytest.mark.parametrize(
    "changes",
    [{"zero_terms": "aligned"}, {"accumulator_bits": 4}, {"alignment_rounding": "nearest"}, {"first_bits": 15}],
)
def test_nothing_is_said_where_no_bound_follows(changes: dict[str, object]) -> None:
    root = step().root
    sums = DotModel(FusedSum(root.terms, replace(root.arithmetic, **changes)))  # type: ignore[arg-type]
    model = product_model(64, of=sums)
    a, b = crafted("integers", model, 2, 2, np.random.default_rng(0))
    assert np.isinf(tight(model, a, b)).all()
    assert np.isinf(from_sum(model, a, b)).all()
    directed = product_model(64, of=DotModel(FusedSum(root.terms, replace(root.arithmetic, result_rounding="RU"))))  # type: ignore[type-var]
    assert np.isinf(tight(directed, a, b)).all()
