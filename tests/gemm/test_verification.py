"""Random operands by distribution, and plans that differ for some of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from planted_boxes import FunctionBox, chain
from planted_sums import Array

from accprobe.callables.operands import OWN
from accprobe.callables.spec import Spec
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import ProductOutcome, status
from accprobe.isa.formats import FORMATS, Bits
from accprobe.operands.distributions import DISTRIBUTIONS, random_lines

FLOATS = ("e4m3", "e5m2", "f16", "bf16", "tf32", "f32", "f64")
SHAPE = (300, 300)


def values(name: str, kind: str, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    fmt = FORMATS[name]
    return fmt.values(random_lines(fmt, SHAPE, kind, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", FLOATS)
def test_distributions_have_the_moments_of_their_names(name: str) -> None:
    every = {kind: values(name, kind) for kind in DISTRIBUTIONS}
    assert all(np.isfinite(x).all() for x in every.values())
    for kind in ("normal", "cancelling"):
        assert (abs(every[kind].mean()), abs(every[kind].std() - 1)) < (0.02, 0.05)
    assert not np.signbit(every["same sign"]).any()
    assert every["same sign"].mean() == pytest.approx((2 / np.pi) ** 0.5, abs=0.02)
    assert (every["sparse"] == 0).mean() == pytest.approx(0.9, abs=0.02)
    largest, smallest = np.abs(every["wide"]).max(), np.abs(every["wide"][every["wide"] != 0]).min()
    assert largest > 16
    assert largest <= 256
    assert largest / smallest > 64 * np.abs(every["normal"]).max()


Otherwise = Callable[[Array, Array], bool]


def switching(otherwise: Otherwise) -> FunctionBox:
    """Return a chain that is computed in two halves of K for some operands."""

    def function(a: Array, b: Array) -> Array:
        return chain(a[:, :8], b[:8]) + chain(a[:, 8:], b[8:]) if otherwise(a, b) else chain(a, b)

    return FunctionBox(Spec(8, 8, 16, *[FORMATS["f32"]] * 3), function)


def is_large(x: Array, y: Array) -> bool:
    return bool(np.abs(x).min() > 300)


def is_uniform(x: Array, y: Array) -> bool:
    return bool(min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) <= 1 and (x > 0).mean() > 0.9)


def is_whole(x: Array, y: Array) -> bool:
    return bool((x == np.rint(x)).all() and 15 < np.abs(x).max() < 4096 and (x != 0).mean() > 0.9)


@pytest.mark.parametrize(
    ("otherwise", "kinds"),
    [
        (lambda x, y: is_large(y, x), {"large", "large B"}),
        (is_uniform, {"uniform"}),
        (is_whole, {"integers"}),
    ],
)
def test_another_plan_for_some_operands_is_noticed(otherwise: Otherwise, kinds: set[str]) -> None:
    outcome = characterise(switching(otherwise), 640)
    assert status(outcome)[0] == "inferred"
    assert {each.kind for each in outcome.verification.first} <= kinds
    assert outcome.verification.mismatches


def test_every_distribution_has_its_share_of_results() -> None:
    outcome = characterise(switching(lambda x, y: False), 640)
    assert status(outcome) == ("confirmed", "")
    assert outcome.verification.kinds == dict.fromkeys(DISTRIBUTIONS, 64)


def test_own_operands_are_a_further_distribution() -> None:
    def own(rng: np.random.Generator) -> tuple[Bits, Bits]:
        return tuple(np.full((8, 16), 1000 + rng.random(), np.float32).view(np.uint32) for _ in "ab")  # type: ignore[return-value]  # two arrays

    def is_own(x: Array, y: Array) -> bool:
        return bool((x == x[0, 0]).all() and 1000 < x[0, 0] < 1001)

    def outcome(otherwise: Otherwise, asked: bool) -> ProductOutcome:
        return characterise(switching(otherwise), 64, own=own if asked else None)

    assert outcome(is_own, False).explained
    assert outcome(lambda x, y: False, True).verification.kinds[OWN]
    found = outcome(is_own, True)
    assert not found.explained
    assert {each.kind for each in found.verification.first} == {OWN}
