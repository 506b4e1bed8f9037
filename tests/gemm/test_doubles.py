"""Products of f64, whose sums numpy computes here in the order that is written."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from accprobe.evaluate.product import ScaleWords, SumWords, added
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings
from accprobe.gemm.operands import random_lines
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import addition

F64 = FORMATS["f64"]
Doubles = NDArray[np.float64]


def chain(a: Doubles, b: Doubles) -> Doubles:
    total = np.zeros((len(a), len(b)))
    for k in range(a.shape[1]):
        total = total + a[:, None, k] * b[None, :, k]
    return total


class Slices:
    """Sums of so many k, each added to the sum before it."""

    def __init__(self, each: int) -> None:
        self.spec, self._each = Spec(8, 8, 32, F64, F64, F64), each

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y, total = a.view(np.float64), b.view(np.float64), np.zeros((len(a), len(b)))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, self.spec.k, self._each):
                total = total + chain(x[:, start : start + self._each], y[:, start : start + self._each])
        return total.view(np.uint64)


@pytest.mark.parametrize("each", [32, pytest.param(8, marks=pytest.mark.slow)])
def test_sums_of_doubles_are_found(each: int) -> None:
    outcome = characterise(Slices(each), 512)
    found = findings(outcome)
    assert outcome.explained
    assert found["promote_every"].value == (None if each == 32 else each)
    assert (found["effective_bits"].value, found["product_bits"].value) == (52, 52)
    assert each == 32 or found["promotion_format"].value == "f64"


def test_random_doubles_have_all_their_bits() -> None:
    drawn = random_lines(F64, (1, 64), "normal", np.random.default_rng(0))
    assert np.bitwise_or.reduce(drawn[0]) & 0x1FFFFFFF == 0x1FFFFFFF


@pytest.mark.parametrize(
    ("y", "nearest", "truncated"), [(1.5, 2**53 + 2, 2**53), (-1.0, 2**53 - 1, 2**53 - 1), (3.5, 2**53 + 4, 2**53 + 2)]
)
def test_sums_are_added_in_f64_and_rounded_once(y: float, nearest: float, truncated: float) -> None:
    words = [SumWords(np.array([value]).view(np.uint64), F64) for value in (2.0**53, y)]
    got = [added(*words, addition(F64, rounding)).patterns.view(np.float64)[0] for rounding in ("RNE", "RZ")]
    assert got == [nearest, truncated]
