"""Missing, repeated and mispaired k are found in results that numpy computes with wrong k."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.miscounts import Miscounts, fit_miscounts

EVERY = np.arange(384)
HALF = EVERY[::2]


def found(kind: str, of_a: np.ndarray, of_b: np.ndarray, m: int = 48, n: int = 40) -> Miscounts:
    """Fit a bf16 result with wrong k."""
    rng = np.random.default_rng(3)
    draw = rng.standard_normal if kind == "normal" else rng.random
    a, b = draw((m, len(EVERY))), draw((n, len(EVERY)))
    d: Floats = (a[:, of_a] @ b[:, of_b].T).astype(ml_dtypes.bfloat16).astype(np.float64)
    return fit_miscounts(d, a, b)


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize(
    ("ks", "missing", "twice"),
    [
        (EVERY[:-10], range(374, 384), ()),
        (np.delete(EVERY, range(70, 134)), range(70, 134), ()),
        (np.delete(EVERY, [5, 200]), (5, 200), ()),
        (np.append(EVERY, EVERY[96:112]), (), range(96, 112)),
        (HALF, range(1, 384, 2), ()),
    ],
)
def test_missing_and_repeated_k(kind: str, ks: np.ndarray, missing: range, twice: range) -> None:
    counts = found(kind, ks, ks).counts
    assert np.flatnonzero(counts == -1).tolist() == list(missing)
    assert np.flatnonzero(counts == 1).tolist() == list(twice)


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize(
    "of_b",
    [np.roll(EVERY, 1), np.where((EVERY >= 64) & (EVERY < 128), EVERY + 128, EVERY), np.where(EVERY < 32, EVERY + 1, EVERY)],
)
def test_mispaired_k(kind: str, of_b: np.ndarray) -> None:
    result = found(kind, EVERY, of_b)
    assert np.array_equal(result.partner, of_b)
    assert not result.counts.any()


def test_few_elements_are_enough_for_one_run() -> None:
    assert list(found("normal", EVERY[:-32], EVERY[:-32], m=12, n=12).sentences()) == ["k 352-383 missing"]


@pytest.mark.parametrize("kind", ["normal", "positive"])
def test_a_correct_result_has_no_miscounts(kind: str) -> None:
    result = found(kind, EVERY, EVERY)
    assert not result
    assert list(result.sentences()) == []


def test_results_that_are_not_finite_are_ignored() -> None:
    a = np.ones((4, 8))
    assert not fit_miscounts(np.full((4, 4), np.nan), a, a)
