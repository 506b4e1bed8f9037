"""The bound of a product's error holds for all operands, and worst-case operands approach it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from product_rows import product_model, step

from accprobe.budget.worst_error import error_shares, worst_error
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ProductModel, Scales, multiply_add
from accprobe.model.tree import DotModel, FusedSum, IntegerArithmetic

MODELS = {
    "one chain": product_model(),
    "promoted": product_model(promote=128),
    "slices in bf16": product_model(slices=4, kept="bf16"),
    "results bf16": product_model(out="bf16"),
    "results bf16, RZ": replace(product_model(out="bf16", promote=256), result_rounding="RZ"),
    "wide sums": product_model(a="bf16", of=step(16, 23, 25)),
    "multiply-adds": product_model(k=256, a="f32", of=multiply_add()),
    "rounded products": product_model(k=256, a="f32", of=multiply_add(product_bits=23)),
    "exact sums": product_model(k=256, a="f16", of=step(8, 23, None)),
    "row scales": product_model(promote=128, scales=Scales("row")),
}


def relative_error(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> float:
    """|result - exact sum| over the sum of |a·b|, of the one row and column."""
    d = product(model, a, b, scales=scales)
    values = [[Fraction(float(x)) for x in fmt.values(words)[0]] for fmt, words in ((model.a, a), (model.b, b))]
    factor = Fraction(1) if scales is None else Fraction(float(scales.a[0, 0])) * Fraction(float(scales.b[0, 0]))
    products = [x * y * factor for x, y in zip(*values, strict=True)]
    exact, whole = sum(products, Fraction()), sum(map(abs, products), Fraction())
    return float(abs(Fraction(float(model.result.values(d)[0, 0])) - exact) / whole)


def encoded(name: str, values: np.ndarray) -> Bits:  # type: ignore[type-arg]
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
    assert bound is not None
    assert 0.7 * bound < relative_error(model, *cut_off(1024, chunk)) <= bound


def test_the_bound_grows_with_the_promotion_interval() -> None:
    chain, promoted, longer = (worst_error(product_model(k, promote=p)) for k, p in ((1024, None), (1024, 128), (2048, 128)))
    assert chain is not None
    assert promoted is not None
    assert longer is not None
    assert 7 < chain / promoted < 8.1
    assert longer == pytest.approx(promoted, rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_shares_add_up_to_the_bound(name: str) -> None:
    shares = error_shares(MODELS[name])
    assert sum(shares.values()) == pytest.approx(worst_error(MODELS[name]))
    assert all(error >= 0 for error in shares.values())


def test_each_loss_has_its_share() -> None:
    model = product_model(k=64, a="f32", out="bf16", slices=4, kept="f16", of=multiply_add(), scales=Scales("row"))
    shares = error_shares(model)
    assert list(shares) == ["sums", "partial sums", "additions", "scales", "result"]
    expected = [16 * 2.0**-24, 2.0**-11, 3 * 2.0**-24, 2 * 2.0**-24, 2.0**-8]
    assert list(shares.values()) == pytest.approx(expected, rel=1e-3)
    inside = error_shares(product_model(k=64, a="f32", promote=16, of=multiply_add(), scales=Scales("1x128")))
    assert list(inside) == ["sums", "scales", "additions", "result"]


def of_sums(**changes: object) -> DotModel:
    root = step().root
    return replace(step(), root=FusedSum(root.terms, replace(root.arithmetic, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sums",
    [
        of_sums(zero_terms="aligned"),
        of_sums(accumulator_bits=4),
        replace(step(), addend_bits=10),
        replace(step(), root=FusedSum(step().root.terms, IntegerArithmetic(FORMATS["s32"], "wrap"))),
    ],
    ids=["zeros are aligned to", "accumulators wrap", "bits of C are lost", "integers"],
)
def test_no_bound_is_given_if_none_follows(sums: DotModel) -> None:
    assert worst_error(product_model(of=sums)) is None
    assert error_shares(product_model(of=sums)) == {}
