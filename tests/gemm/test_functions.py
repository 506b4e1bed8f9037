"""Functions of two matrices: their accumulation orders, flushed subnormals, and functions that are not quite products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from benchmark import loaded
from marks import only_on_a_gpu, some
from planted_boxes import FunctionBox, box_of, chain, spec_of
from planted_plans import HOPPER
from planted_products import Planted
from planted_sums import Array
from pydantic import TypeAdapter

from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.regions import FIRST, MOST
from accprobe.gemm.findings import findings, status
from accprobe.gemm.tree.slices import _run
from accprobe.gemm.tree.structures import order_in_words
from accprobe.isa.formats import FORMATS
from accprobe.model.notation import ProductModelField, product_json
from accprobe.model.product import nested
from accprobe.report.words import plan_words

ELEMENTS = 1 << 10


def numpy_mm(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a @ b)


def product_of(name: str, m: int, n: int, k: int) -> Spec:
    return Spec(m, n, k, *[FORMATS[name]] * 3)


NEARLY_PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "relu": lambda a, b: np.maximum(numpy_mm(a, b), 0),
    "largest product": lambda a, b: (a[:, :, None] * b[None]).max(axis=1),
    "first row everywhere": lambda a, b: np.repeat(numpy_mm(a, b)[:1], 16, axis=0),
}


TRANSPOSED: dict[str, tuple[tuple[int, int, int], Callable[[Array, Array], Array]]] = {
    "(A·B)ᵀ": ((16, 16, 64), lambda a, b: np.ascontiguousarray(numpy_mm(a, b).T)),
    "A·Bᵀ": ((16, 64, 64), lambda a, b: numpy_mm(a, b.T)),
    "Aᵀ·B": ((64, 16, 64), lambda a, b: numpy_mm(a.T, b)),
    "Aᵀ·Bᵀ": ((16, 16, 16), lambda a, b: numpy_mm(a.T, b.T)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_products_of_transposed_operands_are_refused(name: str) -> None:
    shape, function = TRANSPOSED[name]
    with pytest.raises(AccprobeError) as refused:
        characterise(FunctionBox(product_of("f32", *shape), function), elements=ELEMENTS)
    assert str(refused.value).startswith(f"the callable returns {name}, ")


@pytest.mark.parametrize("name", some([*NEARLY_PRODUCTS]))
def test_a_near_product_is_not_confirmed(name: str) -> None:
    with np.errstate(all="ignore"):
        outcome = characterise(FunctionBox(product_of("f32", 16, 16, 16), NEARLY_PRODUCTS[name]), elements=ELEMENTS)
    found, reason = status(outcome)
    assert found == "inferred"
    assert reason
    assert findings(outcome)["each_product_once"].bound == "exact"


def test_products_of_bf16_that_are_rounded_on_their_own() -> None:
    """The rounding matters only below the normal numbers of f32 or above the largest."""
    spec = Spec(16, 16, 64, FORMATS["bf16"], FORMATS["bf16"], FORMATS["f32"])
    outcome = characterise(FunctionBox(spec, chain), elements=ELEMENTS)
    assert status(outcome) == ("confirmed", "")
    assert outcome.main.alternatives
    assert not outcome.main.surviving
    told = {name: (finding.value, finding.bound) for name, finding in findings(outcome).items()}
    expected = {"product_bits": 23, "result_bits": 23, "sum_rounding": "RNE"}
    assert {name: told[name] for name in expected} == {name: (value, "exact") for name, value in expected.items()}


class NowAndThen:
    """A product in which one element is one last bit larger in call 400."""

    _calls = 0

    def __call__(self, a: Array, b: Array) -> Array:
        d = chain(a, b)
        self._calls += 1
        if self._calls == 400:
            d[0, 0] = np.nextafter(d[0, 0], np.float32(np.inf))
        return d


def test_results_that_change_are_unstable() -> None:
    spec = Spec(16, 16, 32, *[FORMATS["f32"]] * 3)
    outcome = characterise(FunctionBox(spec, NowAndThen()), elements=1 << 17)
    found, reason = status(outcome)
    assert found == "unstable"
    assert f"identical calls give other bits in {outcome.first.changed} of 256 elements" in reason
    assert findings(outcome)["repeatable"].value == "no"


SMALLEST = np.float32(2**-126)
Flushing = Callable[[Array], Array]


def flushed(x: Array) -> Array:
    return np.where(abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def kept(x: Array) -> Array:
    return x


def flushing(of_a: Flushing, of_b: Flushing, products: Flushing, sums: Flushing) -> Callable[[Array, Array], Array]:
    def function(a: Array, b: Array) -> Array:
        a, b, d = of_a(a), of_b(b), np.zeros((len(a), b.shape[1]), np.float32)
        with np.errstate(all="ignore"):
            for k in range(a.shape[1]):
                d = sums(d + products(a[:, k, None] * b[k]))
        return d

    return function


@pytest.mark.parametrize(
    ("function", "operands", "results"),
    [
        (flushing(kept, kept, flushed, flushed), "kept", "flushed"),
        (flushing(kept, kept, flushed, kept), "kept", "flushed of products"),
    ],
)
def test_flushed_subnormals_are_found(function: Callable[[Array, Array], Array], operands: str, results: str) -> None:
    outcome = characterise(FunctionBox(Spec(16, 16, 8, *[FORMATS["f32"]] * 3), function), elements=ELEMENTS)
    told = findings(outcome)
    assert status(outcome) == ("confirmed", "")
    assert (told["subnormal_operands"].value, told["subnormal_operands"].bound) == (operands, "exact")
    assert (told["subnormal_results"].value, told["subnormal_results"].bound) == (results, "exact")


def slices_in_drawn_orders() -> Callable[[Array, Array], Array]:
    """Add four slices of K in any order with additions that flush, as atomics of global memory do."""
    rng = np.random.default_rng(0)

    def function(a: Array, b: Array) -> Array:
        in_slices = zip(np.split(a, 4, axis=1), np.split(b, 4), strict=True)
        parts = [chain(*operands) for operands in in_slices]
        d = np.zeros_like(parts[0])
        with np.errstate(all="ignore"):
            for part in rng.permutation(4):
                d = flushed(d + flushed(parts[part]))
        return d

    return function


def test_additions_of_partial_sums_that_flush_are_found() -> None:
    outcome = characterise(FunctionBox(Spec(16, 16, 64, *[FORMATS["f32"]] * 3), slices_in_drawn_orders()), elements=ELEMENTS)
    told = findings(outcome)
    assert status(outcome) == ("confirmed", "")
    assert told["subnormal_results"].value == "flushed where partial sums are added"
    model = outcome.main.plan
    assert model.tree.order == "unordered"
    assert TypeAdapter(ProductModelField).validate_python(product_json(model)) == model


def pairs_of_products(a: Array, b: Array) -> Array:
    """Add even and odd k in two accumulators and their sum to +0, all flushed, as TDPBF16PS does (Intel SDM)."""
    flush = flushing(flushed, flushed, kept, flushed)
    even, odd = (flush(a[:, i::2].astype(np.float32), b[i::2].astype(np.float32)) for i in (0, 1))
    with np.errstate(all="ignore"):
        return np.asarray((np.float32(0) + flushed(even + odd)).astype(a.dtype))


@pytest.mark.slow
def test_additions_of_lanes_that_flush_to_positive_zero_are_found() -> None:
    outcome = characterise(FunctionBox(product_of("bf16", 8, 8, 8), pairs_of_products), elements=1 << 10)
    assert status(outcome) == ("confirmed", "")
    assert findings(outcome)["subnormal_results"].value == "flushed, to +0 where partial sums are added"
    model = outcome.main.plan
    assert TypeAdapter(ProductModelField).validate_python(product_json(model)) == model


def test_a_flush_of_one_operand_is_not_confirmed() -> None:
    function = flushing(kept, flushed, kept, kept)
    outcome = characterise(FunctionBox(Spec(16, 16, 8, *[FORMATS["f32"]] * 3), function), elements=ELEMENTS)
    assert status(outcome)[0] == "inferred"


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


K_OF_SLICES = 48
SPEC_OF_SLICES = Spec(16, 16, K_OF_SLICES, *[FORMATS["f32"]] * 3)


def in_slices_of_chains(a: Array, b: Array, slices: int, chains: int) -> Array:
    """Add slices of K_OF_SLICES forward, each of several interleaved chains."""
    total = None
    for ks in np.split(np.arange(K_OF_SLICES), slices):
        sums = [
            sum((a[:, k, None] * b[k] for k in ks[i + chains :: chains]), a[:, ks[i], None] * b[ks[i]]) for i in range(chains)
        ]
        whole = sum(sums[1:], sums[0])
        total = whole if total is None else total + whole
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
        FunctionBox(SPEC_OF_SLICES, lambda a, b: chain(a, b, -1)),
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
        FunctionBox(SPEC_OF_SLICES, partial(in_slices_of_chains, slices=3, chains=4)),
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
