"""What is said of a product's error: a bound, and what it grows with."""

import json
from typing import Any

import pytest
from product_rows import dropped, product_data, product_model, step, suggested, two_regions

from accprobe.budget.worst_error import worst_error
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged, Order, ProductModel, Scales, addition, multiply_add
from accprobe.model.tree import DotModel
from accprobe.render.subjects import products
from accprobe.report.products import ProductRow

Row = dict[str, Any]


def row(data: Row) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))


def in_words(data: Row) -> str:
    """ "" where nothing is said of the whole product."""
    return next((line.said.text for line in products.lines(row(data)) if line.label == "in words"), "")


def surviving(*alternatives: str) -> Row:
    data = product_data()
    data["regions"][0]["alternatives"]["surviving"] = list(alternatives)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            product_data(product_model(promote=128)),
            "the error grows with 128, not with K: at this K at most 1.6e-2 of sum |a·b|",
        ),
        (product_data(), "the error grows with K: at this K at most 1.3e-1 of sum |a·b|"),
        (
            product_data(product_model(slices=4, kept="bf16")),
            "of the error 89 % grows with the longest slice, 256 products; 11 % is that of rounding each slice to bf16",
        ),
        (surviving("product_exponent: normalised operands"), "the error grows with K"),
        (product_data(scale="row"), "the error grows with K: at this K at most 1.3e-1 of sum |a·b| with its scales"),
    ],
)
def test_error_in_words_is_a_bound(data: Row, words: str) -> None:
    assert in_words(data).startswith(words)
    assert in_words(data).endswith("(a bound; overflow and tiny numbers aside)")


def of_floats(promote: int, k: int = 64) -> Row:
    """Products of f32 that are rounded, and added one after the other."""
    return product_data(product_model(k, "f32", promote=promote, of=multiply_add(product_bits=23)))


def tree(of: DotModel, sizes: int = 2, order: Order = "tree") -> Row:
    """64 products of f32 in slices of that size."""
    starts = range(0, 64, sizes)
    chains = tuple(Chain(i, i + sizes, tuple(range(of.products))) for i in starts)
    model = ProductModel(FORMATS["f32"], FORMATS["f32"], 64, of, Merged(chains, order, addition()), FORMATS["f32"])
    found = {"promote_every": None, "split_k": len(starts), "slice_sizes": ", ".join([str(sizes)] * len(starts))}
    return product_data(model, findings={name: {"value": value, "bound": "exact"} for name, value in found.items()})


def side_by_side() -> Row:
    """Two slices of 32 products, each of two chains that take turns."""
    chains = [Chain(i, i + 32, (0,), 2, shift) for i in (0, 32) for shift in (0, 1)]
    halves = tuple(Merged(tuple(chains[i : i + 2]), "forward", addition()) for i in (0, 2))
    model = ProductModel(
        FORMATS["f32"], FORMATS["f32"], 64, multiply_add(), Merged(halves, "forward", addition()), FORMATS["f32"]
    )
    return product_data(model, findings={"promote_every": {"value": None, "bound": "exact"}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (of_floats(8), "of the error 56 % grows with 8; 44 % grows with K, by its 8 chunks"),
        (of_floats(8, k=512), "of the error 88 % grows with K, by its 64 chunks; 12 % grows with 8"),
        (of_floats(64, k=256), "of the error 96 % grows with 64; 4 % grows with K, by its 4 chunks"),
        (of_floats(2, k=128), "of the error 95 % grows with K, by its 64 chunks; 5 % grows with 2"),
        (
            product_data(product_model(k=256, a="f32", slices=2, promote=16, of=multiply_add())),
            "of the error 67 % grows with 16; 29 % grows with the longest slice, 128 products, by its 8 chunks;"
            " 4 % grows with the sum of 2 slices",
        ),
        (
            product_data(product_model(promote=128, out="bf16")),
            "of the error 80 % grows with 128, not with K; 20 % is that of one rounding to bf16",
        ),
        (
            product_data(product_model(k=1 << 14, a="f16", out="f16", promote=1408, of=step(16, 23, 25))),
            "of the error 90 % is that of one rounding to f16; 10 % grows with 1408",
        ),
        (
            tree(multiply_add()),
            "of the error 71 % grows with the 5 levels of a tree of 32 slices; 29 % grows with the longest slice, 2 products",
        ),
        (
            tree(multiply_add(), order="forward"),
            "of the error 94 % grows with the sum of 32 slices; 6 % grows with the longest slice, 2 products",
        ),
        (
            tree(multiply_add(), sizes=1),
            "of the error 86 % grows with the 6 levels of a tree of 64 slices; 14 % is that of one rounding",
        ),
        (
            tree(multiply_add(product_bits=23), sizes=1),
            "of the error 75 % grows with the 6 levels of a tree of 64 slices; 25 % is that of each product",
        ),
        (
            side_by_side(),
            "of the error 89 % grows with the longest slice, 32 products; 6 % grows with the sum of 2 slices;"
            " 6 % grows with the sum of 2 chains",
        ),
        (product_data(product_model(k=64, a="f16", of=step(64, 23, None))), "the error is that of one rounding"),
        (product_data(product_model(k=32)), "the error is that of a sum of 32 products"),
        (
            product_data(product_model(k=64, a="f32", of=multiply_add(FORMATS["f64"]))),
            "the error is that of one rounding to f32",
        ),
        (
            product_data(product_model(k=512, a="bf16", out="bf16", of=step(16, 23, 25))),
            "the error is that of one rounding to bf16",
        ),
        (
            product_data(product_model(k=16, a="f32", of=multiply_add(), scales=Scales("tensor")), scale="tensor"),
            "of the error 89 % grows with K; 11 % is that of applying the scales",
        ),
    ],
)
def test_what_the_error_grows_with_is_the_bounds(data: Row, words: str) -> None:
    assert in_words(data).partition(": at this K")[0] == words


def test_promotion_ends_the_growth_only_where_the_bound_has_none() -> None:
    """Whether a K eight times as large has about the same bound."""
    for of in (step(), step(16, 23, 25), multiply_add()):
        for promote in (64, 128, 512):
            first, second = (product_data(product_model(k, "f32", promote=promote, of=of)) for k in (1024, 8192))
            bounds = [worst_error(row(data).regions[0].model) for data in (first, second)]
            assert ("not with K" in in_words(first)) == (bounds[1] < 1.1 * bounds[0])


@pytest.mark.parametrize(
    "data",
    [
        suggested(),
        dropped(),
        surviving("alignment_bits: 14"),
        product_data(product_model(k=1 << 14)),
        two_regions(),
    ],
    ids=["suggested", "k is dropped", "a rival is left", "as large as the sum", "regions have their own"],
)
def test_nothing_is_said_of_the_error_that_is_not_proved(data: Row) -> None:
    assert in_words(data) == ""


@pytest.mark.parametrize("number", [0.0, 1.0, 0.016113, 6.1e-4, 9.99e-5, 0.3])
def test_bound_is_never_rounded_down(number: float) -> None:
    assert number <= float(products.rounded_up(number)) <= 1.11 * number
