"""Recommended tolerance of a product's test, and the mistakes that tests detect.

The tests are:
- DeepGEMM's calc_diff = 1 - 2·sum(x·y) / sum(x² + y²) over all elements, below 1e-3 (github.com/deepseek-ai/DeepGEMM).
- atol and rtol as in numpy.allclose, recommended or the user's.
- Each element within the error bound of its arithmetic, at a rate of false alarms (`accprobe.budget.error_check`): the
  recommended test, "elements".

Each test is applied to correct and to wrong results of many trials: products of fresh operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from accprobe.budget.accumulation import Accumulation
from accprobe.budget.data import Data, draw_patterns
from accprobe.budget.error_check import FALSE_ALARMS, Emulated, Tail, Tolerance, largest_share, rounded_values, tail_of
from accprobe.budget.mutants import MUTATIONS, Operation, mistake_name, never_promoted
from accprobe.budget.worst_error import worst_error
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats, Truths
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ProductModel

CALC_DIFF = 1e-3

# Largest default rows, and columns, of the result of one trial.
USUAL_SIDE = 64

# Largest number of trials, and number of trials that share a B.
TRIALS, SHARING = 200, 10

# Approximate number of multiply-adds of all trials: a long K has smaller results or fewer trials.
PRODUCTS = 1 << 30

FEWEST_TRIALS = 20


class OwnTest(NamedTuple):
    """|got - reference| <= atol + rtol · |reference|, where the reference is the exact sum (f64); recommended or the user's."""

    atol: float
    rtol: float


def calc_diff(got: Floats, reference: Floats) -> Floats:
    """Return DeepGEMM's calc_diff of each trial [trials, m, n]."""
    both = (got * got + reference * reference).sum(axis=(1, 2))
    once = 2.0 * (got * reference).sum(axis=(1, 2))
    return np.asarray(1.0 - np.divide(once, both, out=np.ones_like(both), where=both != 0))


@dataclass(frozen=True)
class ToleranceRequest:
    """The product and its trials.

    m, n: shape of one trial's result, None: as K allows. rate: of false alarms among correct elements; own: a test of the user.
    """

    accumulation: Accumulation
    k: int
    m: int | None
    n: int | None
    promote_every: int | None
    split_k: int
    out: Format
    data: Data
    seed: int
    rate: float = FALSE_ALARMS
    own: OwnTest | None = None

    @cached_property
    def model(self) -> ProductModel:
        """Return the model of the product. Raises AccprobeError."""
        return self.accumulation.model(self.k, self.promote_every, self.split_k, self.out)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Return the number of trials, and m and n of each."""
        outputs = PRODUCTS // (self.k * (len(MUTATIONS) + 1))
        side = max(8, 1 << max(0, (outputs // TRIALS).bit_length() - 1) // 2)
        m, n = (min(side, USUAL_SIDE) if given is None else given for given in (self.m, self.n))
        return min(TRIALS, max(FEWEST_TRIALS, outputs // (m * n) // SHARING * SHARING)), m, n


class DrawnTrials(NamedTuple):
    """Trials with the same B: their product, its bounds, and the reference of calc_diff."""

    emulated: Emulated
    tolerance: Tolerance
    reference: Floats

    @classmethod
    def of(cls, request: ToleranceRequest, draw: int, trials: int) -> DrawnTrials:
        """Draw so many trials; `draw` is part of the seed."""
        model, (_, m, n) = request.model, request.shape
        rng = np.random.default_rng([request.seed, draw])
        a, b = draw_patterns(request.data, model.a, model.b, trials * m, n, request.k, rng)
        emulated = Emulated.of(Operation(model, a, b, trials=trials))
        reference = rounded_values(emulated.exact.sums, model.result)
        return cls(emulated, Tolerance.at_rate(emulated, request.rate), reference)

    def trials(self, x: Floats) -> Floats:
        """Split the rows into trials, [trials, m, n]."""
        return x.reshape(self.emulated.operation.trials, -1, x.shape[1])

    def any_of_trial(self, elements: Truths) -> Truths:
        """Mark the trials with any of these elements."""
        return np.asarray(elements.reshape(self.emulated.operation.trials, -1).any(axis=1))


@dataclass(frozen=True)
class ToleranceReport:
    """The recommended test and the mistakes that tests detect.

    allclose: recommended atol and rtol against f64 sums, at the rate of false alarms. over_sum: bound of the sums before D is
    rounded, at that rate, relative to sums of |a·b|; over_any_sum: of D in the worst case, None if there is no bound. passed:
    by test, the share of trials whose correct results pass.
    """

    request: ToleranceRequest
    allclose: OwnTest
    over_sum: float
    over_any_sum: float | None
    tail: Tail
    passed: Mapping[str, float]
    kill_table: tuple[CaughtMistake, ...]


@dataclass(frozen=True)
class CaughtMistake:
    """A mistake, and by kind of test the share of trials that detect it.

    size: root mean square of its change, divided by the root mean square of the bounds of elements.
    """

    mistake: str
    by: Mapping[str, float]
    size: float


class _Detection(NamedTuple):
    """The tests of a product. allclose: the recommended atol and rtol; own: the user's."""

    allclose: OwnTest
    own: OwnTest | None

    def of_draw(self, draw: DrawnTrials, got: Floats) -> dict[str, Truths]:
        """Return by test in which of the draw's trials, [trials], it rejects the results."""
        exact = draw.emulated.exact.sums
        found = {
            "elements": draw.any_of_trial(draw.tolerance.beyond(got)),
            "allclose": draw.any_of_trial(_beyond(self.allclose, got, exact)),
            "calc_diff": ~(calc_diff(draw.trials(got), draw.trials(draw.reference)) < CALC_DIFF),
        }
        return found | ({"own": draw.any_of_trial(_beyond(self.own, got, exact))} if self.own else {})

    def shares(self, draws: Sequence[DrawnTrials], results: Sequence[Floats]) -> dict[str, float]:
        """Return by test the share of all trials in which it rejects the results of the draws."""
        every = [self.of_draw(draw, got) for draw, got in zip(draws, results, strict=True)]
        return {name: float(np.mean(np.concatenate([each[name] for each in every]))) for name in every[0]}


def _beyond(test: OwnTest, got: Floats, reference: Floats) -> Truths:
    with np.errstate(invalid="ignore"):
        return np.asarray(~(np.abs(got - reference) <= test.atol + test.rtol * np.abs(reference)))


def advised(request: ToleranceRequest, show: Callable[[str], object] = lambda _: None) -> ToleranceReport:
    """Return the report. Raises AccprobeError if there is no bound."""
    trials, draws = request.shape[0], []
    for first in range(0, trials, SHARING):
        show(f"trial {first} of {trials}")
        draws.append(DrawnTrials.of(request, first, min(SHARING, trials - first)))
        _check_bounded(request, draws[-1].tolerance.bound)
    tail = tail_of([draw.emulated for draw in draws])
    share = tail.at(request.rate)
    detection = _Detection(_allclose(request.model, share * max(float(x.emulated.worst.max()) for x in draws)), request.own)
    correct = detection.shares(draws, [draw.emulated.d for draw in draws])
    return ToleranceReport(
        request=request,
        allclose=detection.allclose,
        over_sum=share * max(largest_share(draw.emulated.worst, draw.emulated.exact.sizes) for draw in draws),
        over_any_sum=worst_error(request.model),
        tail=tail,
        passed={name: 1 - rejected for name, rejected in correct.items()},
        kill_table=tuple(_kill_table(request, detection, draws, show)),
    )


def _allclose(model: ProductModel, bound: float) -> OwnTest:
    """Return the test with the bound of the sums as atol, and D's rounding error as rtol, 0 unless D is narrower than f32."""
    half = model.result_rounding in ("RNE", "RNA")
    is_narrow = model.result.mantissa_bits < FORMATS["f32"].mantissa_bits
    rtol = 2.0 ** -(model.result.mantissa_bits + half) if is_narrow else 0.0
    return OwnTest(bound * (1 + rtol), rtol)


def _check_bounded(request: ToleranceRequest, bound: Floats) -> None:
    unbounded = int(np.count_nonzero(np.isinf(bound)))
    if unbounded:
        raise AccprobeError(
            f"{unbounded:,} of {bound.size:,} outputs have no bound: sums may overflow {request.model.result} or the"
            f" accumulator of {request.accumulation.name}"
        )


def _kill_table(
    request: ToleranceRequest, detection: _Detection, draws: Sequence[DrawnTrials], show: Callable[[str], object]
) -> Iterator[CaughtMistake]:
    for mistake, mutation in MUTATIONS.items():
        show(f"mistake '{mistake}'")
        words = [mutation(draw.emulated.operation) for draw in draws]
        if (mutation is never_promoted and request.promote_every is None) or any(d is None for d in words):
            continue
        wrong = [draw.emulated.operation.values(d) for draw, d in zip(draws, words, strict=True) if d is not None]
        size = float(np.mean([_change(draw, d) for draw, d in zip(draws, wrong, strict=True)]))
        yield CaughtMistake(mistake_name(mistake, request.model), detection.shares(draws, wrong), size)


def _change(draw: DrawnTrials, wrong: Floats) -> float:
    with np.errstate(all="ignore"):
        change = np.square(wrong - draw.emulated.d).mean()
        return float(np.sqrt(change / np.square(draw.tolerance.bound).mean())) if change else 0.0
