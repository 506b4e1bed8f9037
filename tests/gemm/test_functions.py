"""Functions of two matrices: products of this machine's libraries, functions that are not products, and flushed subnormals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from marks import some
from planted_boxes import FunctionBox, chain
from planted_sums import Array
from pydantic import TypeAdapter

from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, status
from accprobe.isa.formats import FORMATS
from accprobe.model.notation import ProductModelField, product_json
from accprobe.model.product import Merged

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
    assert f"identical calls give other bits in {outcome.first.changed} element" in reason
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
    assert isinstance(model and model.tree, Merged)
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
    assert model is not None
    assert TypeAdapter(ProductModelField).validate_python(product_json(model)) == model


def test_a_flush_of_one_operand_is_not_confirmed() -> None:
    function = flushing(kept, flushed, kept, kept)
    outcome = characterise(FunctionBox(Spec(16, 16, 8, *[FORMATS["f32"]] * 3), function), elements=ELEMENTS)
    assert status(outcome)[0] == "inferred"
