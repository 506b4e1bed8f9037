"""Fresh operands: what each kind is like, and how scales are told apart with few of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import pytest
from planted_models import model_of
from planted_plans import NAMED

from accprobe.evaluate.product import ScaleWords, product
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.operands import DISTRIBUTIONS, draw_operands, random_lines
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.scaling import Scaled, infer_scales, scaling_in_words
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import Reduction
from accprobe.gemm.verification import Part, verify
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ProductModel, ScaleOf, Scales, Scaling, nested

FLOATS = ("e4m3", "e5m2", "f16", "bf16", "tf32", "f32", "f64")
SHAPE = (300, 300)


def values(name: str, kind: str, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    fmt = FORMATS[name]
    return fmt.values(random_lines(fmt, SHAPE, kind, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", FLOATS)
def test_kinds_are_as_they_are_called(name: str) -> None:
    every = {kind: values(name, kind) for kind in DISTRIBUTIONS}
    assert all(np.isfinite(x).all() for x in every.values())
    for kind in ("normal", "cancelling"):
        assert (abs(every[kind].mean()), abs(every[kind].std() - 1)) < (0.02, 0.05)
    assert not np.signbit(every["same sign"]).any()
    assert every["same sign"].mean() == pytest.approx((2 / np.pi) ** 0.5, abs=0.02)
    assert (every["sparse"] == 0).mean() == pytest.approx(0.9, abs=0.02)
    largest, smallest = np.abs(every["wide"]).max(), np.abs(every["wide"][every["wide"] != 0]).min()
    assert largest > 16
    assert largest <= 256
    assert largest / smallest > 64 * np.abs(every["normal"]).max()


@pytest.mark.parametrize("name", FLOATS)
def test_the_same_seed_has_the_same_numbers_and_another_has_others(name: str) -> None:
    for kind in DISTRIBUTIONS:
        assert np.array_equal(values(name, kind), values(name, kind))
        assert not np.array_equal(values(name, kind), values(name, kind, seed=1))


def test_numbers_of_few_bits_have_all_patterns_about_one() -> None:
    for name in ("e4m3", "e5m2", "bf16", "f16"):
        fmt = FORMATS[name]
        found = random_lines(fmt, (1 << 18,), "normal", np.random.default_rng(0))
        one, two = fmt.encode(False, 1, 0), fmt.encode(False, 1, 1)
        assert set(range(one, two)) <= set(found.tolist())


@pytest.mark.parametrize("kind", ["normal", "wide"])
def test_tf32_words_have_low_bits(kind: str) -> None:
    words = random_lines(FORMATS["tf32"], SHAPE, kind, np.random.default_rng(0))
    assert len(np.unique(words & 0x1FFF)) > 8000


@pytest.mark.parametrize(("name", "most"), [("s8", 255), ("u8", 255), ("s4", 15)])
def test_integers_have_all_values(name: str, most: int) -> None:
    found = random_lines(FORMATS[name], SHAPE, "normal", np.random.default_rng(0))
    assert (found.dtype, found.min(), found.max()) == (np.uint8, 0, most)


def test_half_of_the_products_cancel() -> None:
    e4m3 = FORMATS["e4m3"]
    spec = Spec(16, 24, 512, e4m3, e4m3, FORMATS["f32"])
    a, b, _ = draw_operands(spec, "cancelling", np.random.default_rng(0))
    terms = e4m3.values(a)[:, None] * e4m3.values(b)
    others = random_lines(e4m3, (16, 512), "normal", np.random.default_rng(1))
    plain = np.abs((e4m3.values(others)[:, None] * e4m3.values(b)).sum(axis=-1))
    assert np.abs(terms.sum(axis=-1)).mean() < 0.5 * plain.mean()
    assert not np.array_equal(np.abs(a[:, :256]), np.abs(a[:, 256:]))


def test_only_the_lines_that_are_looked_at_have_numbers() -> None:
    e4m3 = FORMATS["e4m3"]
    spec = Spec(16, 24, 512, e4m3, e4m3, FORMATS["f32"], "row")
    rows, columns = np.array([3, 5]), np.array([7])
    a, b, scales = draw_operands(spec, "normal", np.random.default_rng(0), rows, columns)
    assert scales is not None
    assert (a.shape, b.shape, scales.a.shape, scales.b.shape) == ((16, 512), (24, 512), (16, 1), (1, 24))
    assert np.flatnonzero(a.any(axis=1)).tolist() == [3, 5]
    assert np.flatnonzero(b.any(axis=1)).tolist() == [7]


@dataclass(frozen=True)
class ModelBox:
    """A model's own product."""

    spec: Spec
    model: ProductModel

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        return product(self.model, a, b, scales=scales)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("how", get_args(Scaling))
def test_ways_to_scale_blocks_are_told_apart_within_a_few_calls(how: Scaling, fused: bool) -> None:
    """Though D is bf16, and has few elements."""
    found, calls = of_blocks(Scales("128x128", how, fused), 256)
    assert found.plan.scales is not None
    assert scaling_in_words(found.plan.scales) == scaling_in_words(Scales("128x128", how, fused))
    assert (found.mismatches, found.others) == (0, ())
    assert calls < 12


@pytest.mark.parametrize("of", ["tensor", "row"])
@pytest.mark.parametrize("how", get_args(Scaling))
def test_ways_to_scale_the_result_are_told_apart_within_a_few_calls(how: Scaling, of: ScaleOf) -> None:
    """Though D is bf16, and of one scale a call shows few numbers."""
    scales = Scales(of, how)
    model = replace(model_of(NAMED["tensor scales"]), scales=scales)
    spec = Spec(64, 64, model.k, model.a, model.b, model.result, of)
    groups = tuple(tuple(range(i, i + 32)) for i in range(0, model.k, 32))
    asked, every = RecordedCallable(ModelBox(spec, model)), np.arange(64)
    found = infer_scales(asked, ProductPlan(spec, groups, model.step), every, every, seed=0)
    assert found.plan.scales == scales
    assert (found.mismatches, found.others) == (0, ())
    assert asked.calls < 12


@pytest.mark.parametrize("how", get_args(Scaling))
def test_one_block_is_not_added_to_anything(how: Scaling) -> None:
    found, _ = of_blocks(Scales("128x128", how), 128, out="f32")
    assert found.plan.scales == Scales("128x128", how)
    assert (found.mismatches, found.others) == (0, ())


def of_blocks(scales: Scales, k: int, out: str = "bf16") -> tuple[Scaled, int]:
    """What is found of them, and within how many calls."""
    model = replace(model_of(replace(NAMED["block scales"], k=k, out=out)), scales=scales)
    spec = Spec(24, 24, k, model.a, model.b, model.result, scales.of)
    chains = [tuple(tuple(range(i, i + 32)) for i in range(start, start + 128, 32)) for start in range(0, k, 128)]
    tree = Reduction(tuple(chains), nested("forward", len(chains))) if len(chains) > 1 else chains[0]
    asked, every = RecordedCallable(ModelBox(spec, model)), np.arange(24)
    return infer_scales(asked, ProductPlan(spec, tree, model.step), every, every, seed=0), asked.calls


@pytest.mark.parametrize(("m", "n", "singly"), [(1, 8, False), (16, 64, True)])
def test_calls_of_small_products_are_predicted_together_whoever_evaluates_others(m: int, n: int, singly: bool) -> None:
    model = model_of(NAMED["chain of 32"])
    spec, seen = Spec(m, n, model.k, model.a, model.b, model.result), []

    def evaluate(given: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None) -> Bits:
        seen.append(a.shape)
        return product(given, a, b)

    parts = [Part(model, np.arange(m), np.arange(n))]
    verification = verify(RecordedCallable(ModelBox(spec, model)), parts, 1 << 12, 0, evaluate)
    assert (verification.elements >= 1 << 12, verification.mismatches) == (True, 0)
    assert bool(seen) == singly
