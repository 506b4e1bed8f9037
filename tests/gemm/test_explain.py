"""Explanations of results: the planted plan, miscounts, references and regions are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from marks import some
from planted_boxes import chain, spec_of
from planted_plans import AMPERE, FMAS, FP8, HOPPER, operands
from planted_products import Planted
from planted_sums import Array

from accprobe.callables.spec import Spec
from accprobe.evaluate.product import product
from accprobe.gemm.explain import explain
from accprobe.gemm.known_plans import Explanation, KnownPlan, SampledPlans, sizes, steps_to_try
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.tree import Rounding


def patterns(array: Array, name: str) -> Bits:
    return np.ascontiguousarray(array).view(FORMATS[name].dtype)


def asked(plan: Planted, *others: Planted) -> tuple[Bits, Bits, list[Bits]]:
    """Operands, and the results of these plans."""
    a, b = operands(plan, 1)
    return patterns(a, plan.a), patterns(b.T, plan.b), [patterns(each(a, b), plan.out) for each in (plan, *others)]


def explained(plan: Planted) -> Explanation:
    (found,) = explain([spec_of(plan)], *asked(plan))
    return found


SMALL_FP8 = replace(FP8, m=16, n=16, k=320)
SMALL_HOPPER = replace(HOPPER, m=16, n=16, k=320)
SMALL_AMPERE = replace(AMPERE, m=16, n=16, k=192)
SMALL_FMAS = replace(FMAS, m=16, n=16, k=320)
SMALL_S8 = Planted("s8", "s8", 16, 16, 300, out="s32")
WHOLE = {"promote_every": None, "split_k": 1}

PLANTS: dict[str, tuple[Planted, dict[str, Any]]] = {
    "chain of 32": (SMALL_FP8, {"products_per_sum": 32, "effective_bits": 13, **WHOLE}),
    "chain of 16": (SMALL_HOPPER, {"products_per_sum": 16, "effective_bits": 23, **WHOLE}),
    "chain of 8": (SMALL_AMPERE, {"instruction": "sim:a100:mma.sync.m16n8k8.f32.f16.f16.f32", "products_per_sum": 8, **WHOLE}),
    "FMAs": (SMALL_FMAS, {"instruction": "f32 FMA", "products_per_sum": 1, **WHOLE}),
    "promoted every 64": (replace(SMALL_FP8, promote_every=64, out="bf16"), {"promote_every": 64, "split_k": 1}),
    "slices of bf16": (
        replace(SMALL_HOPPER, slices=(192, 128), partial_format="bf16"),
        {"split_k": 2, "slice_sizes": "192, 128", "partial_format": "bf16", "reduction_order": "forward"},
    ),
    "slices, serial in bf16": (
        replace(SMALL_FP8, slices=(128, 128, 64), merge="serial", partial_format="bf16"),
        {"split_k": 3, "partial_format": "bf16", "reduction_order": "serial"},
    ),
    "promoted slices": (
        replace(SMALL_FP8, slices=(160, 160), promote_every=64, partial_format="bf16"),
        {"split_k": 2, "promote_every": 64, "partial_format": "bf16"},
    ),
    "int8, dropped tail": (replace(SMALL_S8, dropped_tail=44), {"each_product_once": "no: k 256-299 missing"}),
}


@pytest.mark.parametrize("name", some(list(PLANTS), 3))
def test_the_planted_plan_is_named(name: str) -> None:
    plan, expected = PLANTS[name]
    found = explained(plan)
    assert (found.words, found.compared, found.mismatches) == (256, 256, 0)
    assert expected.items() <= found.plans[0].findings.items()


def test_a_multiply_and_then_an_add_is_no_fma() -> None:
    a, b, (fused,) = asked(SMALL_FMAS)
    d = chain(a.view(np.float32), b.view(np.float32).T)
    found = explain([spec_of(SMALL_FMAS)], a, b, [fused, d.view(np.uint32)])
    assert [(each.mismatches, each.plans[0].findings["instruction"]) for each in found] == [
        (0, "f32 FMA"),
        (0, "f32 multiply, then add"),
    ]


@pytest.mark.parametrize("how", ["RZ", "RNE", "RNA"])
def test_how_f32_words_become_tf32(how: Rounding) -> None:
    plan = replace(SMALL_HOPPER, a="tf32", b="tf32", products_per_sum=8, k=64, operand_rounding=how)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 64), (64, 16)))
    a.view(np.uint32)[:, ::4] = a.view(np.uint32)[:, ::4] & ~np.uint32(0x1FFF) | np.uint32(0x1000)  # ties
    d = plan(a, b).view(np.uint32)
    (found,) = explain([spec_of(plan)], a.view(np.uint32), np.ascontiguousarray(b.T).view(np.uint32), [d])
    assert not found.mismatches
    assert found.plans[0].findings["operand_rounding"] == how
    assert found.plans[0].model.operand_rounding == how


K = 512
BLOCKS = np.arange(K)
EXCHANGED = BLOCKS.copy()
EXCHANGED[64:128], EXCHANGED[192:256] = BLOCKS[192:256], BLOCKS[64:128]
OVER_AND_OVER = np.where((BLOCKS >= 128) & (BLOCKS < 192), BLOCKS - 64, BLOCKS)


@pytest.mark.parametrize(
    ("of_a", "of_b", "told"),
    [
        (np.arange(K - 16), np.arange(K - 16), "k 496-511 missing"),
        (OVER_AND_OVER, OVER_AND_OVER, "k 64-127 counted twice; k 128-191 missing"),
        (BLOCKS, EXCHANGED, "a[k] multiplied by b[k + 128] for k 64-127; a[k] multiplied by b[k - 128] for k 192-255"),
    ],
)
def test_missing_repeated_and_mispaired_k_are_named_wherever_they_are(of_a: Array, of_b: Array, told: str) -> None:
    """The plan computes with other operands than the given ones."""
    plan = replace(SMALL_FP8, m=32, n=32, k=K)
    a, b = operands(plan, 1)
    d = patterns(replace(plan, k=len(of_a))(a[:, of_a], b[of_b]), "f32")
    (found,) = explain([spec_of(plan)], patterns(a, "e4m3"), patterns(b.T, "e4m3"), [d])
    assert not found.mismatches
    words = str(found.plans[0].findings["each_product_once"])
    assert set(words.removeprefix("no: ").split("; ")) == set(told.split("; "))
    assert found.plans[0].findings["products_per_sum"] == 32


@pytest.mark.parametrize(("out", "told"), [("f32", "once, to f32"), ("bf16", "to f32, then to bf16")])
def test_one_f64_sum_is_a_plan(out: str, told: str) -> None:
    plan = replace(SMALL_HOPPER, m=64, n=96, k=512, out=out)
    a, b = operands(plan, 1)
    sums = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    d = patterns(sums.astype(FORMATS[out].ml_dtype), out)
    (found,) = explain([spec_of(plan)], patterns(a, plan.a), patterns(b.T, plan.b), [d])
    assert not found.mismatches
    assert {each.findings["instruction"] for each in found.plans} == {"f64 sum, in any order"}
    assert told in {each.findings["rounded"] for each in found.plans}


def test_regions_with_plans_of_their_own_are_found() -> None:
    plan = replace(SMALL_FP8, m=32, n=48)
    a, b, (d, promoted) = asked(plan, replace(plan, promote_every=128))
    d[16:, 32:] = promoted[16:, 32:]
    less = a.copy()
    less[:, 256:] = 0
    d[:, :16] = patterns(plan(less.view(FORMATS["e4m3"].ml_dtype), b.view(FORMATS["e4m3"].ml_dtype).T), "f32")[:, :16]
    (found,) = explain([spec_of(plan)], a, b, [d])
    assert not found.mismatches
    parts = {(part.rows, part.columns): part.found.plans[0].findings for part in found.regions}
    assert set(parts) == {((0, 31), (0, 15)), ((16, 31), (32, 47))}
    assert parts[(0, 31), (0, 15)]["each_product_once"] == "no: k 256-319 missing"
    assert parts[(16, 31), (32, 47)]["promote_every"] == 128


def test_k_missing_in_one_short_row_is_named() -> None:
    plan = replace(SMALL_HOPPER, n=24)
    a, b = operands(plan, 1)
    less = a.copy()
    less[3, 100] = 0
    d = np.where(np.arange(len(a))[:, None] == 3, plan(less, b), plan(a, b))
    (found,) = explain([spec_of(plan)], patterns(a, plan.a), patterns(b.T, plan.b), [patterns(d, plan.out)])
    (part,) = found.regions
    assert (part.rows, part.found.plans[0].findings["each_product_once"]) == ((3, 3), "no: k 100 missing")


def test_results_of_other_operands_have_none() -> None:
    plan = replace(SMALL_FP8, k=64)
    a, b, (d,) = asked(plan)
    (found,) = explain([spec_of(plan)], a[::-1], b, [d ^ np.uint32(0x55)])
    assert found.plans == ()
    assert found.mismatches == found.compared
    assert found.unknown.miscounts == ("every k missing: a result of other operands",)


def test_plans_that_few_words_distinguish_are_distinguished() -> None:
    """Nearly all f16 results of f32 sums are equal; the sampled elements lie next to ties."""
    chain = replace(SMALL_AMPERE, m=96, n=96, k=256, out="f16")
    promoted = replace(chain, promote_every=128)
    a, b, (d, other) = asked(chain, promoted)
    assert 0 < np.count_nonzero(d != other) < 40
    (found,) = explain([spec_of(chain)], a, b, [other])
    assert not found.mismatches
    assert all(plan.findings["promote_every"] or plan.findings["split_k"] != 1 for plan in found.plans)


def test_of_large_results_some_rows_are_compared_those_that_differ_first() -> None:
    a, b, (d, same) = asked(SMALL_FP8, SMALL_FP8)
    d[9, 2] ^= 1
    found = explain([spec_of(SMALL_FP8)], a, b, [d, same], at_most=4 * 16 * 320)
    assert [each.compared for each in found] == [64, 64]
    assert [each.mismatches for each in found] == [1, 0]
    assert found[0].places[0].row == 9


def test_nan_is_nan_whatever_its_pattern() -> None:
    plan = replace(SMALL_HOPPER, k=64)
    a, b, _ = asked(plan)
    a[0, 0] = 0x7FC0
    spec = spec_of(plan)
    d = product(KnownPlan(steps_to_try([spec])[0], 64).model(), a, b)
    d[0] = 0xFFC00000
    (found,) = explain([spec], a, b, [d])
    assert not found.mismatches


def test_unexplained_elements_have_the_recorded_words_and_their_place_in_the_whole_result() -> None:
    plan = replace(SMALL_FP8, m=32, n=48)
    a, b, (d, promoted) = asked(plan, replace(plan, promote_every=128))
    d[16:, 32:] = promoted[16:, 32:]
    d[3, 5] = d[20, 40] = 0xFFC00001
    (found,) = explain([spec_of(plan)], a, b, [d])
    places = [*found.places, *(place for part in found.regions for place in part.found.places)]
    assert [(x.row, x.column, x.got) for x in places] == [(3, 5, 0xFFC00001), (20, 40, 0xFFC00001)]


@pytest.mark.parametrize("names", [("f32", "tf32"), ("bf16",), ("e4m3",), ("f64",)])
def test_plans_with_other_arithmetic_have_other_findings(names: tuple[str, ...]) -> None:
    specs = [Spec(16, 16, 64, FORMATS[name], FORMATS[name], FORMATS["f32"]) for name in names]
    plans = [KnownPlan(step, 64) for step in steps_to_try(specs)]
    assert len({str(plan.findings) for plan in plans}) == len({plan.model() for plan in plans})
    in_slices = (KnownPlan(plan.step, 32).findings for plan in plans)
    assert {x["partial_format"] for x in in_slices if str(x["instruction"]).startswith("f64 ")} <= {"f64"}


def test_plans_are_evaluated_as_their_models() -> None:
    a, b, _ = asked(SMALL_FP8)
    spec = spec_of(SMALL_FP8)
    lines = a[:8], b[:8]
    plans = list(SampledPlans(steps_to_try([spec])[0], *lines).results(sizes(spec.k)))
    for plan, d in [plans[i] for i in np.random.default_rng(0).permutation(len(plans))[:30]]:
        assert np.array_equal(product(plan.model(), lines[0][:, None], lines[1][:, None])[:, 0, 0], d), plan
