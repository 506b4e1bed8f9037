"""What is no product of two matrices is refused by its name: something that is added, a factor, a result of another call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from long_tail import some
from planted_boxes import FunctionBox
from planted_functions import chain
from planted_sums import Array

from accprobe.errors import AccprobeError
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, status
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS
from accprobe.testing import assert_every_k_once

M, N, K = 6, 8, 32
Multiply = Callable[[Array, Array], Array]


def of_column_3(value: float) -> Array:
    return np.where(np.arange(N) == 3, np.float32(value), np.float32(0))


class Cached:
    """Gives the result of its first call."""

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
    "it adds 2 to each element: ": lambda a, b: chain(a, b) + np.float32(2),
    "it adds 2 to each element of column 3: ": lambda a, b: chain(a, b) + of_column_3(2),
    "it adds -0.3.* to each element of column 3: ": lambda a, b: chain(a, b) + of_column_3(-0.3),
    "it adds 1 to each element of row 1, 2 to each element of row 2, 3 .*, …: ": lambda a, b: (
        chain(a, b) + np.arange(M, dtype=np.float32)[:, None]
    ),
    "it adds 2 at row 0, column 5: ": lambda a, b: chain(a, b) + np.float32(2) * (np.arange(M * N) == 5).reshape(M, N),
    "the result is 0.125 times A·B: ": lambda a, b: chain(a, b) * np.float32(0.125),
    "the result is -3 times A·B: ": lambda a, b: chain(a, b) * np.float32(-3),
    "the result does not depend on the operands of this call": Cached(),
    "with zeros the result is 0.5 .* and 0.731058": sigmoid,
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_refusal_names_what_is_computed_instead(message: str) -> None:
    with pytest.raises(AccprobeError, match=message):
        characterise(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), REFUSED[message]), elements=1 << 8)
    with pytest.raises(AssertionError, match=message):
        assert_every_k_once(REFUSED[message], shape=(M, N, K))


@pytest.mark.parametrize("name", some(["bf16", "e4m3", "s8"], 2))
def test_of_other_formats(name: str) -> None:
    fmt, out = FORMATS[name], FORMATS["s32" if name == "s8" else "f32"]

    def biased(a: Array, b: Array) -> Array:
        return chain(a, b).astype(out.ml_dtype) + out.ml_dtype(7)

    with pytest.raises(AccprobeError, match="it adds 7 to each element: "):
        characterise(FunctionBox(Spec(M, N, K, fmt, fmt, out), biased), elements=1 << 8)


def without_smallest(x: Array, kept: int, of: int) -> Array:
    """Rows without the smallest numbers of each group; of equal ones those that come first."""
    groups = np.array(x).reshape(len(x), -1, of)
    np.put_along_axis(groups, np.argsort(abs(groups), axis=2, kind="stable")[:, :, : of - kept], 0, axis=2)
    return groups.reshape(x.shape)


def above_threshold(a: Array) -> Array:
    """Rows with no number that is smaller than the second largest of its group: of equal ones all are left."""
    groups = abs(a).reshape(len(a), -1, 4)
    least = np.sort(groups, axis=2)[:, :, 2:3]
    return np.where((groups < least).reshape(a.shape), 0, a).astype(a.dtype)


PRUNED: dict[str, Multiply] = {
    "2:4 pruning: of each 4 neighbouring k the 2 smallest |a|": lambda a, b: chain(without_smallest(a, 2, 4), b),
    "1:2 pruning: of each 2 neighbouring k the smallest |b|": lambda a, b: chain(a, without_smallest(b.T, 1, 2).T),
    "4:8 pruning: of each 8 neighbouring k the 4 smallest |a|": lambda a, b: chain(without_smallest(a, 4, 8), b),
    "2:4 pruning: of each 4 neighbouring k the 2 smallest |a| are": lambda a, b: chain(above_threshold(a), b),
}


@pytest.mark.parametrize("pruning", PRUNED)
def test_pruning_is_named(pruning: str) -> None:
    outcome = characterise(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), PRUNED[pruning]), elements=1 << 8)
    once = findings(outcome)["each_product_once"]
    assert (once.value, once.note.startswith(pruning)) == ("no", True)
    assert "which k count depends on the values of" in once.note
    assert status(outcome)[0] == "inferred"
