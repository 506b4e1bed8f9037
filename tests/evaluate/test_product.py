"""Whole products against planted ones, whose generator shares no code with the evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from marks import some
from planted_models import model_of, outcomes, words
from planted_plans import NAMED

from accprobe.evaluate import tiles
from accprobe.evaluate.product import ScaleWords, product, rounded_words
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.product import Scales, chained
from accprobe.model.tree import Rounding
from accprobe.report.names import named_models


@pytest.fixture(autouse=True, params=["numpy", "compiled"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Select the evaluator of chains."""
    if request.param == "compiled":
        pytest.importorskip("accprobe.evaluate.lanes", reason="numba is not installed")
    monkeypatch.setattr(tiles, "pays", lambda _: request.param == "compiled")


@pytest.mark.parametrize("promote_every", [64, 128])
def test_slices_of_scattered_blocks_are_promoted_too(promote_every: int) -> None:
    plan = replace(NAMED["4 interleaved slices"], interleave=32, promote_every=promote_every)
    model, a, b, _, d = words(plan, 3)
    np.testing.assert_array_equal(product(model, a, b), d)


@pytest.mark.parametrize("name", [name for name, plan in NAMED.items() if plan.merge != "unordered"])
def test_planted_product(name: str) -> None:
    plan = replace(NAMED[name], m=12, n=9)
    model, a, b, scales, d = words(plan, seed=3)
    np.testing.assert_array_equal(product(model, a, b, scales=scales), d)


@pytest.mark.parametrize("name", some(["5 even slices, unordered, tensor scale", "5 even slices, unordered"]))
def test_every_outcome_of_an_unordered_one(name: str) -> None:
    plan = replace(NAMED[name], m=12, n=9)
    model, a, b, scales, d = words(plan, seed=3)
    every = outcomes(model, a, b, scales)
    assert len(every) == 60
    assert (every == d).any(axis=0).all()
    assert not (every == d).all(axis=0).all()


def test_many_products_at_once_are_each_computed_alone() -> None:
    plan = replace(NAMED["chain of 8"], m=3, n=5)
    model, a, b, _, d = words(plan, seed=1)
    _, other_a, other_b, _, other = words(plan, seed=2)
    found = product(model, np.stack([a, other_a]), np.stack([b, other_b]))
    np.testing.assert_array_equal(found, np.stack([d, other]))


def test_elements_do_not_depend_on_their_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(NAMED["block scales"], m=7, n=5)
    model, a, b, scales, d = words(plan, seed=4)
    monkeypatch.setattr("accprobe.evaluate.product.TILE", 4)
    np.testing.assert_array_equal(product(model, a, b, scales=scales), d)


@pytest.mark.parametrize(("name", "k"), [("chain of 8", 64), ("promoted every 128", 512)])
def test_c_is_where_a_chain_begins(name: str, k: int) -> None:
    """The first half of K, and then the second with that as C, are the whole chain; of promoted chunks too."""
    plan, half = replace(NAMED[name], m=4, n=4, k=k), k // 2
    model, a, b, _, d = words(plan, seed=5)
    model = model_of(replace(plan, k=half))
    first = product(model, a[:, :half], b[:, :half])
    np.testing.assert_array_equal(product(model, a[:, half:], b[:, half:], c=first), d)


@pytest.mark.parametrize("promote_every", [None, 32])
def test_where_k_ends_within_a_group_the_rest_is_zero(promote_every: int | None) -> None:
    """24 of 32 k, even pairs first."""
    inst, rng = parse("mma.sync.m16n8k16.f32.f16.f16.f32"), np.random.default_rng(9)
    groups = [[k for k in range(32) if k // 2 % 2 == odd] for odd in (0, 1)]
    model = chained(inst, named_models("h200")[inst], 56, promote_every, groups)
    a, b = (rng.standard_normal((4, 56)).astype(np.float16).view(np.uint16) for _ in range(2))
    filled = [np.pad(x, ((0, 0), (0, 8))) for x in (a, b)]
    whole = chained(inst, model.step, 64, promote_every, groups)
    np.testing.assert_array_equal(product(model, a, b), product(whole, *filled))
    assert (product(model, a, b) != product(chained(inst, model.step, 56, promote_every), a, b)).any()


def test_the_order_of_scales_changes_bits() -> None:
    """sa·sb overflows to infinity, sa and then sb do not; and with ordinary scales some last bits differ."""
    plan = replace(NAMED["row scales"], m=32, n=32, k=256)
    model, a, b, scales, _ = words(plan, seed=6)
    assert scales is not None
    orders = [replace(model, scales=Scales("row", how)) for how in ("product of scales", "a then b", "b then a")]
    at_once, a_first, b_first = (product(each, a, b, scales=scales) for each in orders)
    assert 0 < np.count_nonzero(at_once != a_first) < a_first.size
    assert 0 < np.count_nonzero(b_first != a_first) < a_first.size
    huge = ScaleWords(np.full((32, 1), 2.0**100, np.float32), np.full((1, 32), 2.0**100, np.float32))
    tiny = product(orders[0], a, b, scales=huge).view(np.float32)
    assert np.isinf(tiny[tiny != 0]).all()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("RZ", [0x3F800000, 0x3F800000, 0x3F802000, 0x3F804000, 0x3F806000, 0x3F800000]),
        ("RNE", [0x3F800000, 0x3F802000, 0x3F804000, 0x3F804000, 0x3F808000, 0x3F800000]),
        ("RNA", [0x3F802000, 0x3F802000, 0x3F804000, 0x3F806000, 0x3F808000, 0x3F800000]),
    ],
)
def test_operands_are_rounded_to_their_format(how: Rounding, expected: list[int]) -> None:
    """Ties and a little more, and less, of both signs."""
    words = np.array([0x3F801000, 0x3F801001, 0x3F803000, 0x3F805000, 0x3F807000, 0x3F800FFF], np.uint32)
    sign = np.uint32(0x80000000)
    tf32 = FORMATS["tf32"]
    for signs in (np.uint32(0), sign):
        found = rounded_words(tf32, words | signs, how)
        np.testing.assert_array_equal(tf32.values(found), tf32.values(np.array(expected, np.uint32) | signs))


def test_the_largest_operands_become_infinities_and_nans_stay() -> None:
    words = np.array([0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    found = FORMATS["tf32"].values(rounded_words(FORMATS["tf32"], words, "RNE"))
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.inf, -np.inf, np.nan, np.nan])
