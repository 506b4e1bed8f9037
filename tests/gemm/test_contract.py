"""Callables that are not products: what they add, drop, repeat, prune or depend on, and calls that give other bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from marks import some
from ml_dtypes import bfloat16, float4_e2m1fn, float8_e4m3fn
from planted_boxes import FunctionBox, Multiply, chain
from planted_disturbances import Around, Mispaired, scaled
from planted_plans import FMAS
from planted_sums import Array

from accprobe.callables.operands import first_operands
from accprobe.callables.spec import Spec
from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.checks.contract import find_dependence
from accprobe.gemm.checks.pairing import DEPENDS_ON_VALUES
from accprobe.gemm.checks.regions import FIRST, compare_at_end, repeat_first
from accprobe.gemm.findings import ProductOutcome, findings, row, status
from accprobe.isa.formats import FORMATS
from accprobe.report.words import miscounted
from accprobe.testing import assert_every_k_once

M, N, K = 6, 8, 32
ALL = slice(None)
SQUARE = replace(FMAS, m=16, n=16, k=K)
STRASSEN = replace(SQUARE, around=Around("Strassen"))
WRONG_TILE = replace(SQUARE, mispaired=Mispaired("columns", 8, 0, 8))
SCALED_BY_TENSOR = replace(SQUARE, around=Around("scaled by tensor"))
SCALED_BY_ROW = partial(scaled, chain, axis=1)


def warming(first: int) -> Multiply:
    """Return a product whose first calls give other bits."""
    return replace(SQUARE, around=Around("first calls", first))


def box(function: Multiply, m: int = M, n: int = N, k: int = K, of: str = "f32", out: str = "f32") -> FunctionBox:
    return FunctionBox(Spec(m, n, k, FORMATS[of], FORMATS[of], FORMATS[out]), function)


def outcome_of(function: Multiply, *shape: int) -> ProductOutcome:
    return characterise(box(function, *shape), elements=1 << 10)


def of_column_3(value: float) -> Array:
    return np.where(np.arange(N) == 3, np.float32(value), np.float32(0))


class Cached:
    """Returns the result of its first call."""

    def __init__(self) -> None:
        self.first: Array | None = None

    def __call__(self, a: Array, b: Array) -> Array:
        if self.first is None:
            self.first = chain(a, b)
        return self.first.copy()


def sigmoid(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(1 / (1 + np.exp(-chain(a, b))), np.float32)


REFUSED: dict[str, Multiply] = {
    r"with zeros the result is 2 \(row 0, column 0\): this is not a product of two matrices \(a bias": lambda a, b: (
        chain(a, b) + np.float32(2)
    ),
    r"with zeros the result is 2 \(row 0, column 3\): ": lambda a, b: chain(a, b) + of_column_3(2),
    "with ones at k = 0 only, the result is 0.125: ": lambda a, b: chain(a, b) * np.float32(0.125),
    "the result does not depend on the operands of this call": Cached(),
    "with zeros the result is 0.5 .* and 0.731058": sigmoid,
    "returns only zeros where its operands have ones": lambda a, b: np.zeros((M, N), np.float32),
    "with ones at k = 0 only, the result is 0.76": lambda a, b: np.tanh(chain(a, b)),
    "with ones at a single k, the result is": lambda a, b: chain(a, b) + a.sum(),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_refusal_names_what_is_computed_instead(message: str) -> None:
    with pytest.raises(AccprobeError, match=message):
        outcome_of(REFUSED[message])
    with pytest.raises(AssertionError, match=message):
        assert_every_k_once(REFUSED[message], shape=(M, N, K))


def without_smallest(x: Array, kept: int, of: int) -> Array:
    """Zero the smallest numbers of each group; of equal ones the first."""
    groups = np.array(x).reshape(len(x), -1, of)
    np.put_along_axis(groups, np.argsort(abs(groups), axis=2, kind="stable")[:, :, : of - kept], 0, axis=2)
    return groups.reshape(x.shape)


def test_pruning_is_not_reported_as_dropped_products() -> None:
    outcome = outcome_of(lambda a, b: chain(without_smallest(a, 2, 4), b))
    once = findings(outcome)["each_product_once"]
    assert (once.value, once.note, status(outcome)[0]) == ("no", DEPENDS_ON_VALUES, "inferred")


def dropped(*places: tuple[slice | int, slice | int, int]) -> Callable[[Array, Array], Array]:
    """Return a chain in which some elements lack one k."""

    def function(a: Array, b: Array) -> Array:
        d = chain(a, b)
        for rows, columns, k in places:
            left = np.array(a)
            left[:, k] = 0
            d[rows, columns] = chain(left, b)[rows, columns]
        return d

    return function


def one_for_another(a: Array, b: Array) -> Array:
    d = dropped((4, 4, 9))(a, b)
    d[4, 4] += a[4, 10] * b[10, 4]
    return d


def subtracted(a: Array, b: Array) -> Array:
    d, other = chain(a, b), np.array(a)
    other[:, 12] = -other[:, 12]
    d[3, 3] = chain(other, b)[3, 3]
    return d


MISCOUNTED: list[tuple[Multiply, dict[str, str]]] = [
    (dropped((13, 3, 50)), {"rows 13, columns 3": "1 missing: k = 50"}),
    (dropped((ALL, 0, 9)), {"columns 0": "1 missing: k = 9"}),
    (one_for_another, {"rows 4, columns 4": "1 missing: k = 9; 1 counted more than once: k = 10"}),
    (subtracted, {"rows 3, columns 3": "1 subtracted: k = 12"}),
]


@pytest.mark.parametrize(("function", "expected"), some(MISCOUNTED, 7))
def test_products_that_some_elements_do_not_count_once_are_named(function: Multiply, expected: dict[str, str]) -> None:
    notes = dict(miscounted(row(outcome_of(function, 16, 12, 60), "own")))
    assert len(notes) == len(expected)
    for where, which in expected.items():
        assert [note for at, note in notes.items() if where in at and note == which], notes
    with pytest.raises(AssertionError) as refused:
        assert_every_k_once(function, shape=(16, 12, 60))
    assert all(ks in str(refused.value) for which in expected.values() for ks in re.findall("k = [0-9-]+", which))


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (chain, "own row and column"),
        (STRASSEN, "other rows and columns"),
        (WRONG_TILE, "other columns"),
        (lambda a, b: WRONG_TILE(b.T, a.T).T, "other rows"),
        (SCALED_BY_TENSOR, "whole tensor"),
        (SCALED_BY_ROW, "whole row of A"),
        (lambda a, b: SCALED_BY_ROW(b.T, a.T).T, "whole column of B"),
    ],
)
def test_the_dependence_of_an_output_is_named(function: Multiply, value: str) -> None:
    found = find_dependence(RecordedCallable(box(function, 16, 16)))
    assert found.value == value
    assert found.note.endswith("changes 15 of the 15 other rows") or function is not SCALED_BY_TENSOR
    assert not found.quantised


def quantised(x: Array, fmt: str, width: int, power: bool) -> tuple[Array, Array]:
    """Return numbers of a narrow format, and their scales; `width` elements of a row share one."""
    groups, most = x.astype(np.float32).reshape(-1, width), np.float32({"s8": 127, "s4": 7}.get(fmt, 448))
    scale = np.maximum(np.abs(groups).max(axis=1, keepdims=True), np.float32(1e-12)) / most
    scale = np.exp2(np.ceil(np.log2(scale))) if power else scale
    narrow = np.rint(groups / scale) if fmt in ("s8", "s4") else (groups / scale).astype(FORMATS[fmt].ml_dtype)
    return narrow.astype(np.float32).reshape(x.shape), np.broadcast_to(scale, groups.shape).reshape(x.shape)


@pytest.mark.parametrize(
    ("fmt", "width_a", "width_b", "power", "words"),
    [
        ("e4m3", 128, 4096, True, "A per 128 k and B per tensor are quantised to e4m3, scale 2^ceil(log2(amax/448))"),
        ("s8", 256, 256, False, "A per row and B per column are quantised to s8, scale amax/127"),
    ],
)
def test_dynamic_quantisation_is_named(fmt: str, width_a: int, width_b: int, power: bool, words: str) -> None:
    def function(a: Array, b: Array) -> Array:
        (x, of_x), (y, of_y) = quantised(a, fmt, width_a, power), quantised(b.T, fmt, width_b, power)
        return chain(x * of_x, (y * of_y).T).astype(a.dtype)

    outcome = characterise(box(function, 16, 16, 256, "bf16", "bf16"), elements=1 << 10)
    assert status(outcome)[0] == "inferred"
    assert status(outcome)[1].endswith(f": {words}")


def test_dequantised_weights_are_named() -> None:
    def function(a: Array, b: Array) -> Array:
        codes, scales = quantised(b.T, "s4", 128, power=False)
        return chain(a, (codes * scales).astype(a.dtype).T).astype(a.dtype)

    reason = status(characterise(box(function, 16, 16, 256, "bf16", "bf16"), elements=1 << 10))[1]
    assert reason.endswith("whole column of B: B is quantised to s4 per 128 k, scale amax/7, dequantised to bf16")


def nvfp4(x: Array) -> Array:
    """Quantise groups of 16 of a row to e2m1, with scales in e4m3 below one of the tensor; zero scales become 1."""
    groups, most = x.astype(np.float32).reshape(-1, 16), np.float32(6 * 448)
    of_all = np.maximum(np.abs(groups).max() / most, np.float32(1e-12))
    scales = (np.abs(groups).max(axis=1, keepdims=True) / 6 / of_all).astype(float8_e4m3fn).astype(np.float32)
    scales = np.where(scales == 0, 1, scales) * of_all
    return ((groups / scales).astype(float4_e2m1fn).astype(np.float32) * scales).reshape(x.shape)


def test_quantisation_by_other_schemes_is_named_without_a_plan() -> None:
    def rounded(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(chain(nvfp4(a), nvfp4(b.T).T)).astype(a.dtype)

    outcome = characterise(box(rounded, 16, 16, 64, "bf16", "bf16"), elements=1 << 10)
    assert (outcome.main.plan, status(outcome)[0]) == (None, "inferred")
    assert "A per 16 k and B per 16 k are quantised to e2m1, scale e4m3 below" in status(outcome)[1]


def test_sums_that_are_nested_too_deeply_have_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested_too_deeply(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("accprobe.gemm.characterise._PlanSearch.run", nested_too_deeply)
    assert status(outcome_of(chain))[1].endswith("its sums are nested more deeply than accprobe can describe")


def test_results_of_8_bits_have_no_plan() -> None:
    outcome = characterise(box(lambda a, b: chain(a, b).astype(float8_e4m3fn), 16, 16, 64, "bf16", "e4m3"), elements=1 << 10)
    assert outcome.main.plan is None
    assert status(outcome)[1].endswith("results of 8 bits show too little of their sums: return bf16 or f32 (--out)")


HALF = np.uint32(0x8000)
CONVERSIONS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "half away": (lambda d: (d.view(np.uint32) + HALF & ~np.uint32(0xFFFF)).view(np.float32), "RNA"),
    "twice": (lambda d: d.astype(np.float16), "results are rounded to f16, then to bf16"),
    "clamp": (lambda d: np.clip(d, -448, 448), "results beyond ±448 become ±448: a clamp"),
}


@pytest.mark.parametrize("name", ["half away", pytest.param("twice", marks=pytest.mark.slow), "clamp"])
def test_conversions_of_the_result_are_named(name: str) -> None:
    convert, words = CONVERSIONS[name]

    def function(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return convert(chain(a, b)).astype(a.dtype)

    outcome = characterise(box(function, 16, 16, 8, "bf16", "bf16"), elements=1 << 10)
    if words == "RNA":
        assert status(outcome) == ("confirmed", "")
        assert findings(outcome)["result_rounding"].value == words
    else:
        assert words in status(outcome)[1]
        assert status(outcome)[0] == "inferred"


@pytest.mark.parametrize(("fmt", "out", "bits"), [("bf16", "bf16", 7), ("f16", "f32", 10)])
def test_products_that_are_rounded_to_their_format_are_found(fmt: str, out: str, bits: int) -> None:
    def function(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            total = sum((a[:, k, None] * b[k]).astype(np.float32) for k in range(a.shape[1]))
            return np.asarray(total).astype(FORMATS[out].ml_dtype)

    outcome = characterise(box(function, 16, 16, 32, fmt, out), elements=1 << 10)
    assert status(outcome) == ("confirmed", "")
    assert findings(outcome)["product_bits"].value == bits


def as_tf32(x: Array, how: str = "RZ") -> Array:
    added = np.uint32(0 if how == "RZ" else 0x1000)
    return (np.ascontiguousarray(x).view(np.uint32) + added & np.uint32(0xFFFFE000)).view(np.float32)


def as_bf16(x: Array) -> Array:
    return x.astype(bfloat16).astype(np.float32)


def in_parts(part: Callable[[Array], Array], count: int, pairs: int) -> Multiply:
    """Return the product of `count` parts of each number, of whose pairs the last `pairs` are added, the smallest first."""

    def function(a: Array, b: Array) -> Array:
        parts = []
        for x in (a, b):
            parts.append([])
            for _ in range(count):
                parts[-1].append(part(x))
                x = x - parts[-1][-1]
        order = sorted(((i, j) for i in range(count) for j in range(count)), key=sum, reverse=True)[-pairs:]
        return np.sum([chain(parts[0][i], parts[1][j]) for i, j in order], axis=0, dtype=np.float32)

    return function


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (in_parts(as_bf16, 2, 3), "each product of f32 operands is the sum of 3 products of bf16 parts"),
        (in_parts(lambda x: as_tf32(x, "RNA"), 2, 3), "each product of f32 operands is the sum of 3 products of tf32 parts"),
        (lambda a, b: chain(as_tf32(a), as_tf32(b)), "f32 operands are rounded to tf32, RZ: give --dtype tf32"),
    ],
)
def test_f32_operands_in_parts_are_named(function: Multiply, words: str) -> None:
    with np.errstate(all="ignore"):
        assert words in status(outcome_of(function))[1]


def test_first_calls_that_give_other_bits_are_counted() -> None:
    outcome = outcome_of(warming(3), 16, 16)
    found, reason = status(outcome)
    assert (found, reason.partition(":")[0]) == ("unstable", "the first 3 calls give other bits than later ones")
    by_name = findings(outcome)
    assert (by_name["first_calls"].value, by_name["first_calls"].note) == ("other bits", reason)
    assert by_name["repeatable"].value == "no"


def test_first_calls_are_compared_with_the_last() -> None:
    """Results that change after more calls than are repeated at the start."""
    recorded = RecordedCallable(box(warming(FIRST + 2), 16, 16))
    first = repeat_first(recorded)
    assert (first.calls, first.other, first.changed) == (FIRST, 0, 0)
    for _ in range(3):
        recorded.product(*first_operands(recorded.spec))
    last = compare_at_end(recorded, first)
    assert (last.other, last.changed) == (FIRST, 0)
    assert last.elements > 0
