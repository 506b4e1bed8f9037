"""Accumulation orders: chains, blocks, lanes, slices added with atomics, and sums of f64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmark import loaded
from marks import only_on_a_gpu
from planted_boxes import FunctionBox, PlantedBox, chain
from planted_plans import FMAS, HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.regions import FIRST, MOST
from accprobe.gemm.findings import ProductOutcome, findings, status
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.structures import direction, order_in_words
from accprobe.infer.findings import Finding
from accprobe.isa.formats import FORMATS
from accprobe.model.product import FusedSums
from accprobe.report.product_words import plan_words

ELEMENTS = 1 << 14
F64 = FORMATS["f64"]


def atomics(slices: int, each: int = 64) -> Planted:
    return replace(HOPPER, m=32, n=32, k=slices * each, slices=(each,) * slices, merge="unordered")


@pytest.mark.parametrize("orders", ["call", "tile"])
def test_slices_in_a_new_order_for_each_call_or_tile(orders: str) -> None:
    outcome = characterise(PlantedBox(replace(atomics(4), orders=orders)), elements=ELEMENTS)
    by_name = findings(outcome)
    assert status(outcome) == ("confirmed", "")
    assert by_name["slice_sizes"].value == "64, 64, 64, 64"
    assert {name: by_name[name].value for name in ("split_k", "reduction_order", "repeatable")} == {
        "split_k": 4,
        "reduction_order": "unordered",
        "repeatable": "no",
    }
    assert FIRST < outcome.first.calls <= MOST
    assert outcome.first.values > 2


def test_slices_of_chunks_are_distinguished_from_slices() -> None:
    plan = replace(atomics(3, 96), promote_every=32, orders="call")
    outcome = characterise(PlantedBox(plan), elements=ELEMENTS)
    assert status(outcome) == ("confirmed", "")
    assert outcome.main.plan is not None
    assert order_in_words(outcome.main.plan) == "3 slices of 96: chunks of 32, each a chain of [acc 16]"


def test_noise_is_not_a_sum_in_any_order() -> None:
    rng = np.random.default_rng(0)

    def noisy(a: Array, b: Array) -> Array:
        """Change the last bit of some outputs that are not whole numbers."""
        d = chain(a, b)
        return np.where((rng.random(d.shape) < 0.5) & (d % 1 != 0), np.nextafter(d, np.float32(np.inf)), d)

    outcome = characterise(FunctionBox(Spec(16, 16, 32, *[FORMATS["f32"]] * 3), noisy), elements=1 << 12)
    assert status(outcome)[0] == "unstable"
    assert findings(outcome)["repeatable"].value == "no"


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
    found, model = findings(outcome), outcome.main.plan
    assert (found["split_k"].value, found["product_bits"].value) == (1, 23)
    assert model is not None
    (ordered,) = model.chains()
    assert [k for k in ordered.ks().tolist() if k >= 0] == list(range(K))[:: -1 if descending else 1]
    how = " from the last k to the first" if descending else ""
    assert summary(outcome) == (f"chain of [acc 1]{',' * descending}{how}", f"one chain{how}")


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
def test_blocks_in_another_order(blocks: list[tuple[int, int]], words: str) -> None:
    taken = [k for block in blocks for k in range(*block)]
    plan = replace(HOPPER, m=16, n=16, k=len(taken))
    outcome = characterised(FunctionBox(PlantedBox(plan).spec, lambda a, b: plan(a[:, taken], b[taken])))
    assert status(outcome) == ("confirmed", "")
    assert summary(outcome)[1] == words


SLICED = replace(FMAS, m=16, n=16, k=64, slices=(32, 32))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(SLICED, interleave=1), "2 lanes (lane = k mod 2), added in f32"),
        (
            replace(HOPPER, m=16, n=16, k=256, slices=(64,) * 4, interleave=16),
            "4 lanes of 16 k (lane = k // 16 mod 4), added in f32",
        ),
    ],
)
def test_interleaved_accumulators_are_not_promoted_chunks(plan: Planted, words: str) -> None:
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
        ((((0,), (1,), (5,), (6,)),), ""),  # k 2 to 4 belong to no chain
        ((((1,), (0,)), ((2,), (3,))), "in another order"),
        ((((0, 1),), ((2, 3),)), ""),
    ],
)
def test_the_direction_of_chains(chains: tuple[FusedSums, ...], words: str) -> None:
    assert direction(chains) == words


def in_slices_of_chains(a: Array, b: Array, slices: int, chains: int) -> Array:
    """Add slices of K forward, each of several interleaved chains."""
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
def test_interleaved_chains_of_a_slice_are_not_promoted(slices: int, chains: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        outcome = characterised(FunctionBox(SPEC, lambda a, b: in_slices_of_chains(a, b, slices, chains)))
    assert status(outcome) == ("confirmed", "")
    found = findings(outcome)
    of, how = f"{slices} parts of {K // slices}, added in f32", f"in {chains} chains, 1 of every {chains} k"
    assert summary(outcome) == (f"{of}: chain of [acc 1], {how}", f"{of}, each {how}")
    assert found["promote_every"] == Finding(None)
    assert "promotion_format" not in found


def slices_of_doubles(each: int) -> FunctionBox:
    """Return a sum of chains of `each` products, all in f64."""

    def function(a: Array, b: Array) -> Array:
        total = np.zeros((len(a), b.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(b), each):
                part = np.zeros_like(total)
                for k in range(start, start + each):
                    part = part + a[:, k, None] * b[k]
                total = total + part
        return total

    return FunctionBox(Spec(8, 8, 32, F64, F64, F64), function)


def test_f64_sums_are_found() -> None:
    outcome = characterise(slices_of_doubles(32), 512)
    found = findings(outcome)
    assert outcome.explained
    assert found["promote_every"].value is None
    assert (found["effective_bits"].value, found["product_bits"].value) == (52, 52)


KERNEL = Path(__file__).parents[1] / "programs" / "triton_split_k.py"


@pytest.mark.gpu
@only_on_a_gpu[1]
def test_four_slices_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded("atomics").measured(f"{KERNEL}:split_k", "256x256x2048", "bf16", None)
    printed = capsys.readouterr().out
    assert "slice_sizes: 512, 512, 512, 512\n" in printed
    assert "repeatable: no" in printed
