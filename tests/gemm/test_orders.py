"""Accumulation orders: chains, blocks, lanes, slices added with atomics, and sums of f64."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from benchmark import loaded
from marks import only_on_a_gpu
from planted_boxes import FunctionBox, box_of, chain, spec_of
from planted_plans import HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.callables.spec import Spec
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.regions import FIRST, MOST
from accprobe.gemm.findings import findings, status
from accprobe.gemm.tree.slices import _run
from accprobe.gemm.tree.structures import order_in_words
from accprobe.isa.formats import FORMATS
from accprobe.model.product import nested
from accprobe.report.words import plan_words

ELEMENTS = 1 << 10
F64 = FORMATS["f64"]


def atomics(slices: int, each: int = 64) -> Planted:
    return replace(HOPPER, m=32, n=32, k=slices * each, slices=(each,) * slices, merge="unordered")


def test_slices_in_a_new_order_for_each_tile() -> None:
    outcome = characterise(box_of(replace(atomics(4), orders="tile")), elements=ELEMENTS)
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
    outcome = characterise(box_of(plan), elements=ELEMENTS)
    assert status(outcome) == ("confirmed", "")
    assert outcome.main.plan is not None
    assert order_in_words(outcome.main.plan) == "3 slices of 96: chunks of 32, each a chain of [acc 16]"


def test_only_parts_added_in_turn_and_in_increasing_order_are_a_run() -> None:
    """Runs may be deeper than Python's limit of recursion."""
    assert _run(nested("forward", 5000)) == list(range(5000))
    assert _run((1, (0, 2))) is None
    assert _run(((0, 1), (2, 3), 4)) is None


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


def chain_of_doubles(a: Array, b: Array) -> Array:
    d = np.zeros((len(a), b.shape[1]))
    for k in range(len(b)):
        d = d + a[:, k, None] * b[k]
    return d


def taken(of: Planted, *blocks: tuple[int, int]) -> FunctionBox:
    """Return a chain that takes blocks of k in this order."""
    ks = [k for block in blocks for k in range(*block)]
    plan = replace(of, m=16, n=16, k=len(ks))
    return FunctionBox(spec_of(plan), lambda a, b: plan(a[:, ks], b[ks]))


ORDERS: dict[str, tuple[FunctionBox, str, dict[str, object]]] = {
    "from the last k": (
        FunctionBox(SPEC, lambda a, b: chain(a, b, -1)),
        "one chain from the last k to the first",
        {"split_k": 1, "product_bits": 23, "order": "chain of [acc 1], from the last k to the first"},
    ),
    "blocks, the last short": (
        taken(HOPPER, (64, 80), (32, 64), (0, 32)),
        "one chain by blocks of 32 from the last to the first",
        {},
    ),
    "4 lanes of fused sums": (
        box_of(replace(HOPPER, m=16, n=16, k=128, slices=(32,) * 4, interleave=16)),
        "4 lanes of 16 k (lane = k // 16 mod 4), added in f32",
        {"promote_every": None},
    ),
    "3 slices of 4 chains": (
        FunctionBox(SPEC, partial(in_slices_of_chains, slices=3, chains=4)),
        "3 slices of 16, added in f32, each in 4 chains, 1 of every 4 k",
        {"promote_every": None},
    ),
    "one sum in f64": (
        FunctionBox(Spec(8, 8, 32, F64, F64, F64), chain_of_doubles),
        "one chain",
        {"promote_every": None, "effective_bits": 52, "product_bits": 52},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("2 lanes", "one sum in f64"))) for name in ORDERS]
)
def test_an_order_is_found_and_named(name: str) -> None:
    box, words, expected = ORDERS[name]
    with np.errstate(over="ignore", invalid="ignore"):
        outcome = characterise(box, elements=1 << 10)
    found = findings(outcome)
    assert status(outcome) == ("confirmed", "")
    assert plan_words(found) == words
    assert {each: found[each].value for each in expected} == expected
    assert ("promotion_format" in found) == (found["promote_every"].value is not None)


KERNEL = Path(__file__).parents[1] / "programs" / "triton_split_k.py"


@pytest.mark.gpu
@only_on_a_gpu[1]
def test_four_slices_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded("atomics").measured(f"{KERNEL}:split_k", "256x256x2048", "bf16", None)
    printed = capsys.readouterr().out
    assert "slice_sizes: 512, 512, 512, 512\n" in printed
    assert "repeatable: no" in printed
