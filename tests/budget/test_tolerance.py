"""The recommended test of a product: it accepts correct results, catches mistakes whatever the seed; its false alarms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from marks import some

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import draw_patterns
from accprobe.budget.error_check import FEWEST, Emulated, tail_of_shares
from accprobe.budget.mutants import Operation
from accprobe.budget.tolerance import SHARING, OwnTest, ToleranceReport, ToleranceRequest, advised, calc_diff
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats
from accprobe.isa.formats import FORMATS
from accprobe.render.subjects.budget import kill_rows, tolerance_words

ASKED = ToleranceRequest(of_named("QGMMA"), 512, 8, 8, 128, 1, FORMATS["bf16"], "normal", 0)
HGMMA = replace(ASKED, accumulation=of_named("h200:wgmma.m64n256k16.f32.bf16.bf16"), promote_every=None)


@pytest.fixture
def few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accprobe.budget.tolerance.TRIALS", 2 * SHARING)


def caught(found: ToleranceReport, test: str = "elements") -> dict[str, float]:
    return {row.mistake: row.by[test] for row in found.kill_table}


def words(found: ToleranceReport) -> str:
    return " ".join(tolerance_words(found))


def test_the_verdict_does_not_depend_on_the_seed() -> None:
    """As sums are rounded to bf16, |got - reference| <= 0.235 holds for most draws and not for all."""
    asked = replace(HGMMA, own=OwnTest(0.235, 0.0), m=16, n=8)
    every = [advised(replace(asked, seed=seed)) for seed in range(2)]
    verdicts = [[phrase.text for phrase in row[:3]] for row in kill_rows(every[0])]
    assert all([[phrase.text for phrase in row[:3]] for row in kill_rows(each)] == verdicts for each in every)
    assert all(row[1] == "detected" for row in verdicts[1:])
    shares = [each.passed["own"] for each in every]
    assert all(0.9 < share < 1 for share in shares)
    assert max(shares) - min(shares) < 0.1


def test_the_recommended_test_catches_every_mistake_on_normal_data() -> None:
    found = advised(HGMMA)
    assert found.passed["elements"] == found.passed["allclose"] == 1
    assert set(caught(found).values()) == {1.0}
    assert words(found) == ""
    assert caught(found, "calc_diff")["the result truncated, not rounded"] == 0


def test_missed_mistakes_are_explained() -> None:
    """An accumulator of whole numbers loses nothing, however narrow; of few products promotion buys little."""
    found = advised(replace(ASKED, data="integers"))
    assert caught(found)["no promotion"] == 0
    assert "detects 'no promotion' in 0 % of the trials: it changes no result." in words(found)


@pytest.mark.usefixtures("few_tests")
@pytest.mark.parametrize("data", ["normal", "same-sign", "cancelling", "outliers", "attention"])
def test_correct_results_pass(data: str) -> None:
    found = advised(replace(ASKED, data=data))
    assert found.passed["elements"] == 1
    assert found.allclose.atol > 0
    assert found.over_sum < found.over_any_sum


@pytest.mark.usefixtures("few_tests")
def test_a_product_in_slices_that_is_never_promoted_has_no_promotion_to_lose() -> None:
    product = of_named("products-h200:torch:mm 256x256x4096 bf16 -> bf16")
    asked = ToleranceRequest(product, 4096, 4, 4, product.promote_every, product.split_k, FORMATS["bf16"], "integers", 0)
    assert (asked.promote_every, asked.split_k) == (None, 3)
    assert "no promotion" not in caught(advised(asked))


def test_no_bound_no_advice() -> None:
    narrow = of_named("h200:wgmma.m64n8k32.f16.e4m3.e4m3")
    with pytest.raises(AccprobeError, match="sums may overflow bf16"):
        advised(replace(ASKED, accumulation=narrow, k=1 << 16, promote_every=None, data="same-sign", m=2, n=2))


def test_calc_diff() -> None:
    x = np.arange(6.0).reshape(1, 2, 3)
    assert calc_diff(x, x) == 0
    assert calc_diff(0 * x, x) == 1
    assert calc_diff(-x, x) == 2
    assert calc_diff(0 * x, 0 * x) == 0
    assert calc_diff(np.concatenate([x, -x]), np.concatenate([x, x])).tolist() == [0, 2]


K = 256
HGMMA_OF_16 = "h200:wgmma.m64n256k16.f32.bf16.bf16"
PLANS = (("QGMMA", 128), (HGMMA_OF_16, None))
CASES = [(*plan, data) for data in ("normal", "same-sign", "cancelling") for plan in PLANS]


def shares(like: str, every: int | None, data: str, lines: int, draws: range) -> Floats:
    """Errors over their worst cases, of lines x lines elements of each draw."""
    model = of_named(like).model(K, every, 1, FORMATS["bf16"])
    found = []
    for draw in draws:
        a, b = draw_patterns(data, model.a, model.b, lines, lines, K, np.random.default_rng([draw, 5]))
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


def test_rare_large_errors_raise_it() -> None:
    rng = np.random.default_rng(0)
    errors = 0.001 * rng.standard_normal(1 << 14)
    errors[:: 1 << 12] = 0.5
    tail = tail_of_shares(errors, 1 << 14)
    assert tail.at(1e-9) > 0.5 > 7 * float(errors.std())


@pytest.mark.parametrize("errors", [np.zeros(1 << 12), np.full(FEWEST - 1, 0.1) * (-1) ** np.arange(FEWEST - 1), np.zeros(0)])
def test_where_too_little_is_known_the_worst_case_stands(errors: Floats) -> None:
    assert tail_of_shares(errors, 64).at(1e-9) == 1
