"""`accprobe.testing`: each assert passes for a planted product, and its message names a planted fault."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted_boxes import chain
from planted_plans import AMPERE, FP8, HOPPER
from planted_products import Planted
from planted_sums import Array

from accprobe.errors import AccprobeError
from accprobe.testing import (
    assert_accumulates,
    assert_batch_invariant,
    assert_every_k_once,
    assert_promotes,
    assert_same_bits,
    assert_same_plan,
    assert_same_reduction,
)


def how(plan: Planted) -> dict[str, Any]:
    return {"shape": plan.shape, "dtype": plan.a if plan.a == plan.b else f"{plan.a}:{plan.b}"}


SMALL = replace(HOPPER, m=16, n=16, k=256)
TAIL = replace(AMPERE, m=16, n=8, k=552, slices=(280, 272), dropped_tail=40)
DOUBLED = replace(SMALL, slices=(128, 128), doubled_k=127)
PROMOTED = replace(FP8, k=360, promote_every=128)
OF_BF16 = replace(SMALL, slices=(128, 128), partial_format="bf16")


@pytest.mark.parametrize("plan", [replace(TAIL, dropped_tail=0), Planted("s8", "s8", out="s32", k=300)])
def test_every_k_once(plan: Planted) -> None:
    assert_every_k_once(plan, **how(plan))


def test_promotes() -> None:
    plan = replace(SMALL, slices=(128, 128))
    assert_promotes(plan, **how(plan))
    with pytest.raises(AssertionError, match="takes 128 products, k = 0-127; expected at most 64"):
        assert_promotes(plan, at_most=64, **how(plan))


@pytest.mark.parametrize(
    ("plan", "bits"),
    [(PROMOTED, 13), (OF_BF16, 7), (replace(SMALL, out="bf16"), 23), (DOUBLED, 23)],
)
def test_accumulates(plan: Planted, bits: int) -> None:
    """The final rounding and missing products do not count."""
    assert_accumulates(plan, bits, **how(plan))


@pytest.mark.parametrize(
    ("plan", "bits"), [(FP8, 13), (OF_BF16, 7), (replace(SMALL, result_bits=18), 18), (replace(SMALL, alignment_bits=21), 21)]
)
def test_too_few_bits(plan: Planted, bits: int) -> None:
    wanted = rf"effective_bits: {bits}, expected 23: X \+ X·2\^-{bits + 1} - X is not X·2\^-{bits + 1} with the three at k = \d"
    with pytest.raises(AssertionError, match=wanted):
        assert_accumulates(plan, **how(plan))


def test_too_few_calls_and_too_few_products() -> None:
    with pytest.raises(AssertionError, match="effective_bits: 23, expected 52"):
        assert_accumulates(lambda a, b: np.float64(chain(np.float32(a), np.float32(b))), 52, shape=(1, 1, 64), dtype="f64")
    with pytest.raises(AssertionError, match="effective_bits: unknown, because only 2 of 16 k are counted once"):
        assert_accumulates(lambda a, b: a[:, :2] @ b[:2], shape=(4, 4, 16))


def test_bits_that_no_format_shows_are_an_error() -> None:
    with pytest.raises(AccprobeError, match="products of e4m3 and e4m3 into f32 show no 40 bits: at most"):
        assert_accumulates(FP8, 40, **how(FP8))


def test_batch_invariant() -> None:
    assert_batch_invariant(SMALL, ms=(1, 16, 17), **how(SMALL))


def last_rows_backward(a: Array, b: Array) -> Array:
    """Add tiles of four rows forward, the remaining rows backward."""
    tiles = len(a) // 4 * 4
    return np.concatenate([chain(a[:tiles], b), chain(a[tiles:], b, -1)])


def test_every_row_that_two_sizes_share_is_compared() -> None:
    with (
        np.errstate(all="ignore"),
        pytest.raises(AssertionError, match=r"2 results: m = 4, 6, 7: the same bits .*; m = 8: other bits in some row"),
    ):
        assert_batch_invariant(last_rows_backward, ms=(4, 6, 7, 8), shape=(8, 8, 64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (8, 8, 64)}, "M is 0: give 1 to"),
        ({"shape": (8, 64)}, "N is 0: give 1 to"),
        ({"shape": (8,)}, r"shape=\(8,\) is not a shape: give M, N and K, or"),
        ({"shap": (8, 8, 64)}, "there is no option 'shap'; did you mean shape"),
    ],
)
def test_options_that_fit_no_function_are_errors(options: Any, message: str) -> None:
    with pytest.raises(AccprobeError, match=message):
        assert_batch_invariant(SMALL, ms=(0, 8), **options)


def test_a_function_that_changes_from_call_to_call() -> None:
    plan = replace(SMALL, slices=(64,) * 4, merge="unordered")
    with pytest.raises(AssertionError, match="which change from call to call"):
        assert_batch_invariant(plan, ms=(1, 16), **how(plan))


def test_same_plan_and_another_plan() -> None:
    plan = replace(FP8, m=8, n=8, k=128)
    assert_same_plan(plan, replace(plan), **how(plan))
    with pytest.raises(AssertionError, match="another plan than Planted: ") as e:
        assert_same_plan(plan, replace(plan, promote_every=64), **how(plan))
    assert "f -> g changed order: chain of [acc 32] -> 2 slices of 64, added in f32" in str(e.value)
    assert "(first seen at row " in str(e.value)


def of_tensors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a[:, :-8], b[:-8])


def test_the_message_has_a_command_that_looks_closer() -> None:
    with pytest.raises(AssertionError) as e:
        assert_every_k_once(of_tensors, shape=(8, 8, 64), dtype="bf16", arrays="torch")
    first, second = str(e.value).splitlines()
    assert first == "of_tensors: each_product_once: no, k = 56-63 missing, 8 of 64"
    assert second.startswith("look closer: accprobe gemm ")
    assert second.endswith("test_testing.py:of_tensors --shape 8x8x64 --dtype bf16 --arrays torch")


def test_pytest_is_not_needed() -> None:
    program = """
import sys, numpy as np
from accprobe.testing import assert_every_k_once
assert_every_k_once(np.matmul, shape=(8, 8, 64))
assert not {"pytest", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def summed(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1))


def of_few(x: Array) -> Array:
    """Add in turn from 4 rows on."""
    return summed(x) if len(x) < 4 else np.asarray(x.cumsum(axis=-1)[:, -1])


def test_reductions_are_compared_and_checked() -> None:
    """A shape of rows and K is that of x."""
    of: dict[str, Any] = {"shape": (8, 32)}
    assert_same_reduction(summed, lambda x: np.add.reduce(x, axis=-1), **of)
    assert_every_k_once(summed, **of)
    assert_accumulates(summed, **of)
    assert_batch_invariant(summed, (1, 2), **of)
    with pytest.raises(AssertionError, match="rows = 1, 2: the same bits for the same row; rows = 4: other bits in some row"):
        assert_batch_invariant(of_few, (1, 2, 4), **of)
    with pytest.raises(
        AssertionError, match=r"another plan than of_few: .* 8 lanes(.|\n)*accprobe reduce .*:summed --shape 8x32"
    ):
        assert_same_reduction(summed, of_few, **of)


def normalised(x: Any) -> Any:
    return torch.nn.functional.normalize(x)


def shifted(x: Any) -> Any:
    """Each row depends on the number of rows."""
    return normalised(x) * (1 + len(x) / 256)


X = torch.arange(32.0).reshape(8, 4)


def test_equal_programs_pass() -> None:
    assert_same_bits(normalised, lambda x: normalised(x), inputs=[X])
    assert_same_bits(normalised, inputs=[X], batch=(1, 8))


def test_the_first_difference_is_named() -> None:
    with pytest.raises(AssertionError, match=r"first difference: aten.mul .*1\.00390625.* against .*1\.03125"):
        assert_same_bits(shifted, inputs=[X], batch=(1, 8))
