"""Verification by random operands and by sparse dot products: other plans, overflow, many chains, and counterexamples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox, box_of, chain, spec_of
from planted_plans import HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.callables.operands import OWN
from accprobe.callables.spec import Spec
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.dots import (
    SparseDots,
    count_mismatches,
    counterexamples,
    predicted,
    probe_chains,
)
from accprobe.gemm.findings import ProductOutcome, findings, row, status
from accprobe.gemm.fit import fit
from accprobe.gemm.plans import draft
from accprobe.infer.tree_builder import NoTree
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import Chain, ProductModel, addition, in_chunks, multiply_add
from accprobe.operands.distributions import DISTRIBUTIONS, random_lines

FLOATS = ("e4m3", "e5m2", "f16", "bf16", "tf32", "f32", "f64")
SHAPE = (300, 300)


def values(name: str, kind: str, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    fmt = FORMATS[name]
    return fmt.values(random_lines(fmt, SHAPE, kind, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", FLOATS)
def test_distributions_have_the_moments_of_their_names(name: str) -> None:
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


Otherwise = Callable[[Array, Array], bool]


def switching(otherwise: Otherwise) -> FunctionBox:
    """Return a chain that is computed in two halves of K for some operands."""

    def function(a: Array, b: Array) -> Array:
        return chain(a[:, :8], b[:8]) + chain(a[:, 8:], b[8:]) if otherwise(a, b) else chain(a, b)

    return FunctionBox(Spec(8, 8, 16, *[FORMATS["f32"]] * 3), function)


def is_large(x: Array, y: Array) -> bool:
    return bool(np.abs(x).min() > 300)


def is_uniform(x: Array, y: Array) -> bool:
    return bool(min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) <= 1 and (x > 0).mean() > 0.9)


def is_whole(x: Array, y: Array) -> bool:
    return bool((x == np.rint(x)).all() and 15 < np.abs(x).max() < 4096 and (x != 0).mean() > 0.9)


@pytest.mark.parametrize(
    ("otherwise", "kinds"),
    [
        (lambda x, y: is_large(y, x), {"large", "large B"}),
        (is_uniform, {"uniform"}),
        (is_whole, {"integers"}),
    ],
)
def test_another_plan_for_some_operands_is_noticed(otherwise: Otherwise, kinds: set[str]) -> None:
    outcome = characterise(switching(otherwise), 640)
    assert status(outcome)[0] == "inferred"
    assert {each.kind for each in outcome.verification.first} <= kinds
    assert outcome.verification.mismatches


def test_every_distribution_has_its_share_of_results() -> None:
    outcome = characterise(switching(lambda x, y: False), 640)
    assert status(outcome) == ("confirmed", "")
    assert outcome.verification.kinds == dict.fromkeys(DISTRIBUTIONS, 64)


def test_own_operands_are_a_further_distribution() -> None:
    def own(rng: np.random.Generator) -> tuple[Bits, Bits]:
        return tuple(np.full((8, 16), 1000 + rng.random(), np.float32).view(np.uint32) for _ in "ab")

    def is_own(x: Array, y: Array) -> bool:
        return bool((x == x[0, 0]).all() and 1000 < x[0, 0] < 1001)

    def outcome(otherwise: Otherwise, asked: bool) -> ProductOutcome:
        return characterise(switching(otherwise), 64, own=own if asked else None)

    assert outcome(is_own, False).explained
    assert outcome(lambda x, y: False, True).verification.kinds[OWN]
    found = outcome(is_own, True)
    assert not found.explained
    assert {each.kind for each in found.verification.first} == {OWN}


ELEMENTS = 1 << 10
BF16 = Planted(m=16, n=16, k=64, out="bf16")
F16 = Planted(a="f16", b="f16", m=16, n=16, k=64, out="f16")


def overflowing(plan: Planted, positive: float, negative: float) -> FunctionBox:
    """Return a planted product with other results in place of Inf and of -Inf."""

    def function(a: Array, b: Array) -> Array:
        d = plan(a, b)
        return np.where(np.isinf(d.astype(np.float64)), np.where(d > 0, positive, negative).astype(d.dtype), d)

    return FunctionBox(spec_of(plan), function)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (overflowing(BF16, np.inf, np.nan), "NaN for -Inf"),
        pytest.param(overflowing(F16, 65504, -65504), "-65504 for -Inf and 65504 for Inf", marks=pytest.mark.slow),
    ],
)
def test_other_overflow_results_are_named_and_mark_the_findings(box: FunctionBox, message: str) -> None:
    outcome = characterise(box, elements=ELEMENTS)
    assert status(outcome) == ("inferred", f"sums beyond the range of {box.spec.out} give {message}")
    assert (outcome.verification.elements, outcome.verification.mismatches) == (ELEMENTS, 0)
    assert 0 < outcome.kept.contradicting < outcome.kept.results
    assert findings(outcome)["alignment_bits"].bound == "suggested"


# 10 chains. Their f32 roundings show in few results of dense operands, because D is bf16.
PROMOTED = replace(HOPPER, m=16, n=16, k=160, promote_every=16, out="bf16")


@pytest.mark.slow
def test_one_promotion_that_truncates_is_not_confirmed() -> None:
    outcome = characterise(box_of(replace(PROMOTED, truncated_step=6)), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert "dot products that reach every chain" in reason
    (region,) = row(outcome, "planted").regions
    assert (region.chains_probed, region.chains) == (10, 10)


def test_a_sample_of_many_chains_is_probed() -> None:
    plan = replace(PROMOTED, k=1120)
    box = box_of(plan)
    found = draft(box.spec, in_chunks(range(plan.k), 16, tuple(range(16)), addition()), 16)
    region = Region(np.arange(plan.m), np.arange(plan.n), plan.m * plan.n)
    probed, chains_of_plan, reached = probe_chains(RecordedCallable(box), region, found)
    assert (reached, chains_of_plan) == (64, 70)
    assert not count_mismatches(found, probed)


def test_a_contradicted_region_has_suggested_findings_alone() -> None:
    outcome = characterise(box_of(replace(HOPPER, m=8, n=8, k=16)), elements=1 << 8)
    outcome.verification.count("normal", 64, 3)
    assert findings(outcome)["order"].bound == "suggested"
    assert f"fresh elements differ from the plan (normal 3 of {outcome.verification.kinds['normal']:,}" in status(outcome)[1]


def test_no_arithmetic_is_searched_of_a_sum_wider_than_any_known() -> None:
    spec = Spec(8, 8, 512, *[FORMATS["bf16"]] * 2, FORMATS["f32"])
    nothing = SparseDots(np.zeros((1, 6), np.int64), *(np.zeros((1, 6), np.uint16) for _ in range(2)), np.zeros(1, np.uint32))
    with pytest.raises(NoTree, match="512 products seem to be added in one fused sum; accprobe searches"):
        fit(spec, draft(spec, Chain(0, 512, tuple(range(512))), 512), nothing, nothing)


def test_wrong_subnormal_results_leave_the_other_findings_exact() -> None:
    plan = replace(HOPPER, m=8, n=8, k=16)

    def odd_below_the_normal_range(a: Array, b: Array) -> Array:
        d = plan(a, b).view(np.uint32)
        return np.where((d & 0x7FFFFFFF < 0x400000) & (d & 0xFF != 0), d ^ np.uint32(1), d)

    outcome = characterise(FunctionBox(spec_of(plan), odd_below_the_normal_range), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert reason.endswith("all of these are subnormal: only subnormal results are in doubt")
    told = findings(outcome)
    assert {name for name, finding in told.items() if finding.bound == "suggested"} == {
        "subnormal_operands",
        "subnormal_results",
    }
    assert told["effective_bits"].bound == "exact"


K = 8


def chain_of_8() -> ProductModel:
    spec = Spec(4, 4, K, FORMATS["f32"], FORMATS["f32"], FORMATS["f32"])
    return replace(draft(spec, Chain(0, K, (0,)), 1), step=multiply_add())


def shown(dots: SparseDots, *wrong: int) -> str:
    """Return the counterexamples if some results are one last bit too large."""
    d = predicted(chain_of_8(), dots)
    d[list(wrong)] += 1
    return counterexamples(chain_of_8(), replace(dots, d=d))


def dots_of(*dots: list[tuple[int, float]]) -> SparseDots:
    """Return dot products with these products at these k."""
    ks, a, b = np.zeros((len(dots), 4), int), np.zeros((len(dots), 4), np.float32), np.ones((len(dots), 4), np.float32)
    for i, terms in enumerate(dots):
        for t, (k, value) in enumerate(terms):
            ks[i, t], a[i, t] = k, value
    return SparseDots(ks, a.view(np.uint32), b.view(np.uint32))


def test_counterexamples_have_the_fewest_terms_first_then_those_nearest_in_size() -> None:
    dots = dots_of([(2, 3.0)], [(5, 64.0), (1, 1.0)], [(0, 2.0), (7, 1.0)], [(3, 1.0), (4, 1.0), (5, 1.0)])
    assert shown(dots) == ""
    assert shown(dots, 1, 3) == (
        "products 1 at k = 1, 64 at k = 5, all others 0: 0x42820001 (65.0000076), expected 0x42820000 (65), 1 ulp; "
        "products 1 at k = 3, 1 at k = 4, 1 at k = 5, all others 0: 0x40400001 (3.00000024), expected 0x40400000 (3), 1 ulp"
    )
    assert shown(dots, 1, 2, 3).startswith("products 2 at k = 0, 1 at k = 7, all others 0: 0x40400001 ")
    assert shown(dots, 0, 1, 2, 3).startswith("products 3 at k = 2, all others 0: ")
