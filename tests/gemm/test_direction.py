"""Chains that do not take neighbouring k as they come, told as what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox, PlantedBox
from planted_functions import chain
from planted_plans import FMAS, HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.cli.reports import read_report
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, status
from accprobe.gemm.outcome import ProductOutcome
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import FusedGroups
from accprobe.gemm.tree.structures import direction
from accprobe.infer.findings import Finding
from accprobe.isa.formats import FORMATS
from accprobe.report.product_words import along, plan_words

K = 48
SPEC = Spec(16, 16, K, *[FORMATS["f32"]] * 3)


def characterised(box: PlantedBox | FunctionBox) -> ProductOutcome:
    return characterise(box, elements=1 << 12)


def summary(outcome: ProductOutcome) -> tuple[object, str]:
    found = findings(outcome)
    return found["order"].value, plan_words(found)


@pytest.mark.parametrize("descending", [True, False])
def test_products_that_are_rounded_and_then_added(descending: bool) -> None:
    outcome = characterised(FunctionBox(SPEC, lambda a, b: chain(a, b, -1 if descending else 1)))
    assert status(outcome) == ("confirmed", "")
    found, model = findings(outcome), outcome.main.model
    assert (found["split_k"].value, found["product_bits"].value) == (1, 23)
    assert model is not None
    (ordered,) = model.chains()
    assert [k for k in ordered.ks().tolist() if k >= 0] == list(range(K))[:: -1 if descending else 1]
    how = " from the last k to the first" if descending else ""
    assert summary(outcome) == (f"chain of [acc 1]{',' * descending}{how}", f"one chain{how}")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(FMAS, m=16, n=16, k=K, descending=True), "one chain from the last k to the first"),
        (replace(FMAS, m=16, n=16, k=K), "one chain"),
        (
            replace(FMAS, m=16, n=16, k=K, slices=(16, 16, 16), merge="backward"),
            "3 parts of 16, added in f32 from the last",
        ),
        (
            replace(FMAS, m=16, n=16, k=K, slices=(16, 16, 16), merge="backward", descending=True),
            "3 parts of 16, added in f32 from the last, each from the last k to the first",
        ),
        (replace(HOPPER, m=16, n=16, k=K, descending=True), "one chain from the last k to the first"),
    ],
)
def test_multiply_adds_and_sums_of_several(plan: Planted, words: str) -> None:
    outcome = characterised(PlantedBox(plan))
    assert status(outcome) == ("confirmed", "")
    assert summary(outcome)[1] == words


BLOCKS = [(32, 64), (0, 32)]
SHORT = [(64, 80), (32, 64), (0, 32)]
MIXED = [(32, 48), (64, 80), (0, 32), (48, 64)]


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (BLOCKS, "one chain by blocks of 32 from the last to the first"),
        (SHORT, "one chain by blocks of 32 from the last to the first"),
        (MIXED, "one chain in another order"),
    ],
)
@pytest.mark.parametrize("of", [HOPPER, pytest.param(FMAS, marks=pytest.mark.slow)], ids=["sums of 16", "multiply-adds"])
def test_blocks_in_another_order(of: Planted, blocks: list[tuple[int, int]], words: str) -> None:
    taken = [k for block in blocks for k in range(*block)]
    plan = replace(of, m=16, n=16, k=len(taken))
    outcome = characterised(FunctionBox(PlantedBox(plan).spec, lambda a, b: plan(a[:, taken], b[taken])))
    assert status(outcome) == ("confirmed", "")
    assert summary(outcome)[1] == words


SLICED = replace(FMAS, m=16, n=16, k=64, slices=(32, 32))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(SLICED, interleave=1), "2 lanes (k ≡ l mod 2), added in f32"),
        pytest.param(
            replace(SLICED, slices=(16,) * 4, interleave=4, merge="tree"),
            "4 parts of 16, added in f32 as a tree, each 4 of every 16 k",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            replace(SLICED, interleave=4, descending=True),
            "2 parts of 32, added in f32, each 4 of every 8 k, from the last k to the first",
            marks=pytest.mark.slow,
        ),
        (
            replace(HOPPER, m=16, n=16, k=256, slices=(64,) * 4, interleave=16),
            "4 lanes of 16 k (k // 16 ≡ l mod 4), added in f32",
        ),
    ],
)
def test_accumulators_that_take_turns_are_no_promoted_chunks(plan: Planted, words: str) -> None:
    outcome = characterised(PlantedBox(plan))
    assert status(outcome) == ("confirmed", "")
    assert summary(outcome)[1] == words
    assert findings(outcome)["promote_every"] == Finding(None)


@pytest.mark.parametrize(
    ("chains", "words"),
    [
        ((((0,), (1,)), ((2,), (3,))), ""),
        ((((0,), (2,)), ((1,), (3,))), "1 of every 2 k"),
        ((((0, 1), (4, 5), (8,)), ((2, 3), (6, 7))), "2 of every 4 k"),
        ((((0,), (1,), (5,)), ((2,), (3,), (4,))), "in another order"),
        ((((0,), (3,), (4,)), ((1,), (2,), (5,))), "in another order"),
        ((((0,), (1,), (5,), (6,)),), ""),  # what is left out is nobody's
        ((((1,), (0,)), ((2,), (3,))), "in another order"),
        ((((0, 1),), ((2, 3),)), ""),
    ],
)
def test_which_k_are_whose(chains: tuple[FusedGroups, ...], words: str) -> None:
    assert direction(chains) == words


@pytest.mark.parametrize("name", ["products-h100", "products-h200", "more-products-h200", "sparse-products-h200"])
def test_recorded_orders_are_those_of_their_models(name: str) -> None:
    for row in read_report(name).products:
        for region in row.regions:
            if region.model is not None and region.model.a.is_float:
                chains = [[k for k in chain.ks().tolist() if k >= 0] for chain in region.model.chains()]
                every = sorted({k for ks in chains for k in ks})
                as_it_comes = all(ks == every[every.index(ks[0]) :][: len(ks)] for ks in chains)
                assert (along(region.findings) == "") == as_it_comes, row.title


def in_slices_of_chains(a: Array, b: Array, slices: int, chains: int) -> Array:
    """Slices of K, in each several chains that take turns, all added forward."""
    total = None
    for ks in np.split(np.arange(K), slices):
        sums = [
            sum((a[:, k, None] * b[k] for k in ks[i + chains :: chains]), a[:, ks[i], None] * b[ks[i]]) for i in range(chains)
        ]
        whole = sum(sums[1:], sums[0])
        total = whole if total is None else total + whole
    assert total is not None
    return total


@pytest.mark.parametrize(("slices", "chains"), [(3, 4), (4, 2)])
def test_chains_that_take_turns_in_a_slice_are_not_promoted(slices: int, chains: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        outcome = characterised(FunctionBox(SPEC, lambda a, b: in_slices_of_chains(a, b, slices, chains)))
    assert status(outcome) == ("confirmed", "")
    found = findings(outcome)
    of, how = f"{slices} parts of {K // slices}, added in f32", f"in {chains} chains, 1 of every {chains} k"
    assert summary(outcome) == (f"{of}: chain of [acc 1], {how}", f"{of}, each {how}")
    assert found["promote_every"] == Finding(None)
    assert "promotion_format" not in found
