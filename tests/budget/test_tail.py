"""The tail of emulated errors: fresh elements exceed the tolerance no more often than it says."""

from __future__ import annotations

import numpy as np
import pytest
from marks import some

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import drawn_patterns
from accprobe.budget.mutants import Operation
from accprobe.budget.tail import FEWEST, Emulated, tail_of_shares
from accprobe.evaluate.error_free import Floats
from accprobe.isa.formats import FORMATS

K = 256
HGMMA = "h200:wgmma.m64n256k16.f32.bf16.bf16"
PLANS = (("QGMMA", 128), (HGMMA, None))
CASES = [(*plan, data) for data in ("normal", "positive", "cancelling") for plan in PLANS]


def shares(like: str, every: int | None, data: str, lines: int, draws: range) -> Floats:
    """Errors over their worst cases, of lines x lines elements of each draw."""
    model = of_named(like).model(K, every, 1, FORMATS["bf16"])
    found = []
    for draw in draws:
        a, b = drawn_patterns(data, model.a, model.b, lines, lines, K, np.random.default_rng([draw, 5]))
        emulated = Emulated.of(Operation(model, a, b))
        found.append((emulated.errors / emulated.worst).reshape(-1))
    return np.concatenate(found)


@pytest.mark.parametrize(("like", "every", "data"), some(CASES, 2))
def test_fresh_elements_exceed_no_more_often_than_stated(like: str, every: int | None, data: str) -> None:
    tail = tail_of_shares(shares(like, every, data, 32, range(16)), 16 * 64)
    fresh = shares(like, every, data, 256, range(100, 106))
    for rate in (1e-3, 1e-4, 1e-5):
        assert np.count_nonzero(np.abs(fresh) > tail.at(rate)) <= rate * fresh.size
    assert tail.at(1e-3) < tail.at(1e-9) < 0.8
    assert np.abs(fresh).max() > 0.3 * tail.at(1e-9)  # the tolerance is of the errors' size


def test_of_normal_numbers_it_is_a_little_above_their_quantile() -> None:
    tail = tail_of_shares(0.01 * np.random.default_rng(0).standard_normal(1 << 16), 1 << 16)
    assert 0.06 < tail.at(1e-9) < 0.075  # 6.11 standard deviations are exceeded once in 10^9


def test_rare_large_errors_raise_it() -> None:
    rng = np.random.default_rng(0)
    errors = 0.001 * rng.standard_normal(1 << 14)
    errors[:: 1 << 12] = 0.5
    tail = tail_of_shares(errors, 1 << 14)
    assert tail.at(1e-9) > 0.5 > 7 * float(errors.std())


@pytest.mark.parametrize("errors", [np.zeros(1 << 12), np.full(FEWEST - 1, 0.1) * (-1) ** np.arange(FEWEST - 1), np.zeros(0)])
def test_where_too_little_is_known_the_worst_case_stands(errors: Floats) -> None:
    assert tail_of_shares(errors, 64).at(1e-9) == 1
