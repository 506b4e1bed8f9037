"""`assert_matmul_close`: results of the arithmetic pass; mistakes fail and are reported by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import draw_patterns
from accprobe.budget.mutants import MUTATIONS, Operation
from accprobe.emulate import predict
from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords, product
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Scales
from accprobe.testing import assert_matmul_close

LIKE = "h200:wgmma.m64n8k32.f32.e4m3.e4m3"
M, N, K = 24, 16, 512


def operands(kind: str = "same-sign", k: int = K, m: int = M, n: int = N) -> tuple[Any, Any]:
    named = of_named(LIKE)
    a, b = draw_patterns(kind, named.a, named.b, m, n, k, np.random.default_rng(0))
    return a.view(named.a.ml_dtype), b.view(named.b.ml_dtype).T


@pytest.mark.parametrize("kind", ["same-sign", "normal", "cancelling", "outliers"])
@pytest.mark.parametrize("promote_every", [None, 128])
def test_results_of_the_arithmetic_pass(kind: str, promote_every: int | None) -> None:
    a, b = operands(kind)
    got = predict(LIKE, a, b, promote_every=promote_every)
    assert_matmul_close(got, a, b, like=LIKE, promote_every=promote_every)
    assert_matmul_close(got.astype(ml_dtypes.bfloat16), a, b, like=LIKE, promote_every=promote_every)
    assert_matmul_close(got.astype(np.float64), a, b, like=LIKE, promote_every=promote_every)


def test_missing_promotion_is_detected() -> None:
    """On normal operands the worst case of promoted sums allows sums that are never promoted."""
    a, b = operands("normal", 2048, 32, 32)
    right, wrong = (predict(LIKE, a, b, promote_every=every).astype(ml_dtypes.bfloat16) for every in (128, None))
    assert_matmul_close(right, a, b, like=LIKE, promote_every=128)
    with pytest.raises(AssertionError, match="likeliest: no promotion, which gives exactly these bits"):
        assert_matmul_close(wrong, a, b, like=LIKE, promote_every=128)


def test_tensors() -> None:
    a, b = (torch.randn(M, K).to(torch.bfloat16), torch.randn(K, N).to(torch.bfloat16))
    like = "h200:mma.sync.m16n8k16.f32.bf16.bf16.f32"
    assert_matmul_close(a @ b, a, b, like=like)


def test_pytest_has_it_as_a_fixture(matmul_close: Callable[..., None]) -> None:
    a = np.ones((2, 8), np.float16)
    matmul_close(np.full((2, 2), 8, np.float16), a, a.T, like="HGMMA")


@pytest.mark.parametrize("name", [name for name in MUTATIONS if name != "block scales swapped"][::2])
def test_mistakes_are_reported_by_name(name: str) -> None:
    a, b = operands()
    model = of_named(LIKE).model(K, 64, 1, FORMATS["bf16"])
    d = MUTATIONS[name](Operation(model, a.view(np.uint8), np.ascontiguousarray(b.T).view(np.uint8)))
    with pytest.raises(AssertionError, match=f"likeliest: (k [0-9-]+ .*: )?{name}, which gives exactly these bits"):
        assert_matmul_close(d.view(ml_dtypes.bfloat16), a, b, like=LIKE, promote_every=64)


def test_the_message_says_where_and_how_much() -> None:
    a, b = operands()
    got = predict(LIKE, a, b, promote_every=128)
    got[3, 5] += 40
    found = rf"1 of {M * N} elements .*; no known mistake .*; element \[3, 5\] is {got[3, 5]:.9g}, .* times its bound"
    with pytest.raises(AssertionError, match=found):
        assert_matmul_close(got, a, b, like=LIKE, promote_every=128)
    got[2, 2] = np.nan
    with pytest.raises(AssertionError, match=r"2 of .*element \[2, 2\] is nan, the exact sum [\d.]+: not finite"):
        assert_matmul_close(got, a, b, like=LIKE, promote_every=128)


def test_of_a_large_result_the_cause_is_looked_for_where_it_is_wrong() -> None:
    a, b = operands("same-sign", 128, 300, 200)
    got = predict(LIKE, a, b)
    got[250:, 150:] = predict(LIKE, a[250:, :96].copy(), b[:96, 150:].copy())
    with pytest.raises(AssertionError, match=r"2,500 of 60,000 elements .*; likeliest: .*the last products dropped"):
        assert_matmul_close(got, a, b, like=LIKE)


def test_which_k_are_missing_or_counted_twice() -> None:
    a, b = operands("normal", 128)
    less = a.astype(np.float64)
    less[:, 40:44] = 0
    less[:, 7] *= 2
    with pytest.raises(AssertionError, match="likeliest: k 40-43 missing; k 7 counted twice"):
        assert_matmul_close(less @ b.astype(np.float64), a, b, like=LIKE, promote_every=32)


@pytest.mark.parametrize("of", ["tensor", "row", "1x128", "128x128"])
def test_scales(of: str) -> None:
    a, b = operands("normal")
    rng = np.random.default_rng(1)
    shapes = {"tensor": ((1, 1), (1, 1)), "row": ((M, 1), (1, N)), "1x128": ((M, 4), (4, N)), "128x128": ((M, 4), (4, 1))}
    of_a, of_b = (rng.uniform(0.1, 3, shape).astype(np.float32) for shape in shapes[of])
    model = of_named(LIKE).model(K, 128, 1, FORMATS["f32"], Scales(of))
    words = ScaleWords(of_a, np.repeat(of_b, N, axis=1) if of == "128x128" else of_b)
    asked = Operation(model, a.view(np.uint8), np.ascontiguousarray(b.T).view(np.uint8), words)
    got = product(model, asked.a, asked.b, scales=words).view(np.float32)
    assert_matmul_close(got, a, b, like=LIKE, promote_every=128, scales=(of_a, of_b))
    swapped = MUTATIONS["block scales swapped"](asked)
    if swapped is None:
        assert "x" not in of
        return
    with pytest.raises(AssertionError, match="likeliest: block scales swapped, which gives exactly these bits"):
        assert_matmul_close(swapped.view(np.float32), a, b, like=LIKE, promote_every=128, scales=(of_a, of_b))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"like": "nothing"}, "no model of 'nothing'"),
        ({"got": np.zeros((3, 3), np.float32)}, r"got has shape \[3, 3\]"),
        ({"a": np.zeros((M, K), np.float32)}, "a is f32, and that arithmetic takes e4m3"),
        ({"a": np.zeros(K, ml_dtypes.float8_e4m3fn)}, "a is .*give a matrix"),
        ({"scales": (np.ones((2, 2), np.float32), 1.0)}, "are no scales"),
        ({"scales": (np.ones((M, 4), np.float32), np.ones((4, N), np.float32))}, "give promote_every=128"),
        ({"a": np.full((M, K), np.nan, ml_dtypes.float8_e4m3fn)}, "have no bound"),
        ({"false_alarms": 1.0}, "give a share between 0 and 1"),
    ],
)
def test_invalid_arguments_are_one_sentence(changes: dict[str, Any], told: str) -> None:
    a, b = operands()
    given = {"got": np.zeros((M, N), np.float32), "a": a, "b": b, "like": LIKE} | changes
    with pytest.raises(AccprobeError, match=told):
        assert_matmul_close(**given)
