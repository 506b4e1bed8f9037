"""Products that compute otherwise for some operands, each step of numpy's: the plan of the others is not confirmed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import status
from accprobe.gemm.operands import DISTRIBUTIONS, LARGE, OWN, draw_operands
from accprobe.gemm.outcome import ProductOutcome
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits

Singles = NDArray[np.float32]
Otherwise = Callable[[Singles, Singles], bool]

F32 = FORMATS["f32"]


def chain(a: Singles, b: Singles) -> Singles:
    total = np.zeros((len(a), len(b)), np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, None, k] * b[None, :, k]
    return total


class Switching:
    """A chain; where the operands are such, two halves of K."""

    def __init__(self, otherwise: Otherwise, a: str = "f32") -> None:
        self.spec, self._otherwise = Spec(8, 8, 16, FORMATS[a], FORMATS[a], F32), otherwise

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        x, y = (self.spec.a.values(words).astype(np.float32) for words in (a, b))
        half = self.spec.k // 2
        with np.errstate(over="ignore", invalid="ignore"):
            split = self._otherwise(x, y)
            d = chain(x[:, :half], y[:, :half]) + chain(x[:, half:], y[:, half:]) if split else chain(x, y)
        return d.view(np.uint32)


def is_large(x: Singles, y: Singles) -> bool:
    return bool(np.abs(x).min() > 300)


def is_uniform(x: Singles, y: Singles) -> bool:
    return bool(min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) <= 1 and (x > 0).mean() > 0.9)


def is_whole(x: Singles, y: Singles) -> bool:
    return bool((x == np.rint(x)).all() and 15 < np.abs(x).max() < 4096 and (x != 0).mean() > 0.9)


@pytest.mark.parametrize(
    ("otherwise", "kinds"),
    [
        (is_large, {"large", "large A"}),
        (lambda x, y: is_large(y, x), {"large", "large B"}),
        (is_uniform, {"uniform"}),
        (is_whole, {"integers"}),
    ],
)
def test_another_plan_for_some_operands_is_noticed(otherwise: Otherwise, kinds: set[str]) -> None:
    outcome = characterise(Switching(otherwise), 640)
    assert status(outcome)[0] == "inferred"
    assert {each.kind for each in outcome.verification.first} <= kinds
    assert outcome.verification.mismatches


def test_every_kind_has_its_share_of_results() -> None:
    outcome = characterise(Switching(lambda x, y: False), 640)
    assert status(outcome) == ("confirmed", "")
    assert outcome.verification.kinds == dict.fromkeys(DISTRIBUTIONS, 64)


def test_operands_of_the_user_are_a_kind_of_their_own() -> None:
    def own(rng: np.random.Generator) -> tuple[Bits, Bits]:
        return tuple(np.full((8, 16), 1000 + rng.random(), np.float32).view(np.uint32) for _ in "ab")  # type: ignore[return-value]

    def is_own(x: Singles, y: Singles) -> bool:
        return bool((x == x[0, 0]).all() and 1000 < x[0, 0] < 1001)

    def outcome(otherwise: Otherwise, asked: bool) -> ProductOutcome:
        return characterise(Switching(otherwise), 64, own=own if asked else None)

    assert outcome(is_own, False).explained
    assert outcome(lambda x, y: False, True).verification.kinds[OWN]
    found = outcome(is_own, True)
    assert not found.explained
    assert {each.kind for each in found.verification.first} == {OWN}


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("out", ["f16", "bf16", "f32", "f64"])
def test_large_operands_are_as_large_as_the_sum_allows(name: str, out: str) -> None:
    fmt = FORMATS[name]
    spec = Spec(4, 4, 64, fmt, fmt, FORMATS[out])
    for kind in LARGE:
        a, b, _ = draw_operands(spec, kind, np.random.default_rng(0))
        x, y = fmt.values(a), fmt.values(b)
        assert np.isfinite(x).all()
        assert np.isfinite(y).all()
        assert np.log2(np.abs(x).max() / np.abs(x).min()) < 1.1
        assert set(np.sign(x).ravel()) == {-1, 1}
        most, of_a, of_b = FORMATS[out].max_exponent, *(int(np.log2(np.abs(each).max())) for each in (x, y))
        assert of_a + of_b + 6 < most
        assert kind != "large A" or of_a >= min(fmt.max_exponent, most - 10 - abs(fmt.min_exponent))
