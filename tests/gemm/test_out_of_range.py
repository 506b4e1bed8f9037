"""Sums beyond the range of D: a product that makes of them what its plan does not is not confirmed, and says what comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from planted_boxes import PlantedBox
from planted_products import Planted
from planted_sums import Array

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm import out_of_range
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, status
from accprobe.gemm.outcome import ProductOutcome
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits

ELEMENTS = 1 << 12
BF16 = Planted(m=16, n=16, k=64, out="bf16")
F16 = Planted(a="f16", b="f16", m=16, n=16, k=64, out="f16")


@dataclass(frozen=True)
class OverflowBox:
    """A planted product with other results where its own are infinite: for Inf, and for -Inf."""

    plan: Planted
    positive: float
    negative: float

    @property
    def spec(self) -> Spec:
        return PlantedBox(self.plan).spec

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        d = PlantedBox(self.plan).product(a, b, scales).view(self.spec.out.ml_dtype)
        replaced = np.where(d > 0, self.positive, self.negative).astype(d.dtype)
        return np.where(np.isinf(d.astype(np.float64)), replaced, d).view(self.spec.out.dtype)


def characterised(box: PlantedBox | OverflowBox) -> ProductOutcome:
    return characterise(box, elements=ELEMENTS)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (OverflowBox(BF16, np.inf, np.nan), "NaN for -Inf"),
        (OverflowBox(BF16, 1.0, -np.inf), "1 for Inf"),
        (OverflowBox(F16, 65504, -65504), "-65504 for -Inf and 65504 for Inf"),
    ],
)
def test_other_overflow_results_are_named_and_mark_the_findings(box: OverflowBox, message: str) -> None:
    outcome = characterised(box)
    assert status(outcome) == ("inferred", f"of sums beyond the range of {box.spec.out}: {message}")
    assert outcome.verification.elements == ELEMENTS
    assert not outcome.verification.wrong
    assert 0 < outcome.contradicting < outcome.checked
    assert findings(outcome)["alignment_bits"].bound == "suggested"


@pytest.mark.parametrize("plan", [BF16, F16])
def test_infinities_are_confirmed(plan: Planted) -> None:
    assert status(characterised(PlantedBox(plan)))[0] == "confirmed"


def test_queries_overflow_by_one_term_and_by_two() -> None:
    for plan, largest in ((BF16, 127), (F16, 15)):
        box = PlantedBox(plan)
        dots = out_of_range.too_large(box.spec, np.arange(64))
        assert dots is not None
        with np.errstate(over="ignore"):
            terms = box.spec.a.values(dots.a) * box.spec.b.values(dots.b)
        assert set(terms[:, 1]) == {0, 2.0**largest, -(2.0**largest)}
        assert (np.abs(terms.sum(axis=1)) >= 2.0 ** (largest + 1)).all()
        assert set(np.sign(terms[:, 0])) == {1, -1}
        assert len(np.unique(dots.ks)) == 2 * out_of_range.PLACES
        answers = out_of_range.query(RecordedCallable(box), Region(np.arange(16), np.arange(16), 256), np.arange(64))
        assert answers is not None
        assert np.isinf(box.spec.out.values(answers.d)).all()


@pytest.mark.parametrize(
    "plan",
    [
        Planted(a="e4m3", b="e4m3", m=8, n=8, k=64, products_per_sum=32),
        Planted(a="f16", b="f16", m=8, n=8, k=64, out="bf16"),
        Planted(a="s8", b="s8", m=8, n=8, k=64, out="s32"),
    ],
)
def test_formats_that_cannot_overflow_are_not_probed(plan: Planted) -> None:
    assert out_of_range.too_large(PlantedBox(plan).spec, np.arange(64)) is None


def test_scaled_products_are_not_probed() -> None:
    scaled = Planted(a="e4m3", b="e4m3", m=8, n=8, k=128, products_per_sum=32, out="f16", scales="tensor")
    assert (
        out_of_range.query(RecordedCallable(PlantedBox(scaled)), Region(np.arange(8), np.arange(8), 64), np.arange(128)) is None
    )


def test_which_patterns_are_infinities() -> None:
    values: Array = np.array([np.inf, -np.inf, np.nan, 65504, 0], np.float16)
    assert out_of_range.is_infinite(FORMATS["f16"], values.view(np.uint16)).tolist() == [True, True, False, False, False]
    assert not out_of_range.is_infinite(FORMATS["e4m3"], np.arange(256, dtype=np.uint8)).any()
    assert not out_of_range.is_infinite(FORMATS["s32"], np.arange(9, dtype=np.uint32)).any()
