"""The errors that a product makes on given operands, of all its outputs against exact sums.

Let d be an output, x the exact sum of the products that it stands for, S the sum of |a·b|.

- relative error: ||d - x|| / ||x||, Euclidean norms over all outputs: the root mean square of the error relative to that of x.
  Of sums about zero, |d - x| / |x| of one output says how near x is to zero, and no more.
- worst relative error: the largest |d - x|, relative to the same root mean square of x.
- bias: the mean of d - x relative to the mean of |x|, with its sign: a drift.
- error over sum: the largest |d - x| / S; `accprobe.model.product_error` bounds it for all operands.

Exact sums are float64 sums of exact products: within K · 2^-53 of S, which for any K that fits in memory is far less than
an output in float32 loses by its own rounding, 2^-24 of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accprobe.budget.data import DrawnPatterns
from accprobe.errors import AccprobeError
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import ScaleWords, SumWords, product, rounded_to
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ProductModel
from accprobe.model.product_error import worst_error

RESAMPLED = 500
"""Times that the draws are drawn anew for an interval."""

CONFIDENCE = 0.95


class ExactSums(NamedTuple):
    """float64 [M, N]: the sums of the products, and of their magnitudes."""

    sums: Floats
    magnitudes: Floats


def exact_sums(a: Floats, b: Floats) -> ExactSums:
    """Of values a [M, K], b [N, K] of at most 26 significant bits each, whose products float64 holds as they are."""
    return ExactSums(plain_product(a, b), plain_product(np.abs(a), np.abs(b)))


def plain_product(a: Floats, b: Floats) -> Floats:
    """a · bᵀ without BLAS, whose threads wait for cores that others use."""
    found: Floats = np.einsum("mk,nk->mn", a, b)
    return found


def check_formats(a: Format, b: Format) -> None:
    """Raises AccprobeError where float64 does not hold the products of such operands."""
    if FORMATS["f64"] in (a, b):
        raise AccprobeError("errors of f64 products are not told: their exact sums take more than float64")


@dataclass(frozen=True)
class Tally:
    """What one draw of operands adds to the errors.

    outputs: finite ones; overflowed: others, which count nowhere else. Sums over outputs: squared_error, of d - x; squared, of
    x; signed_error, of d - x; magnitude, of |x|; squared_before and signed_before, of the error before the last rounding;
    squared_rounding, of that of x rounded to D's format, all that a perfect sum would have. largest, largest_over_sum,
    largest_sum: of |d - x|, of |d - x| / S and of S.
    """

    outputs: int
    overflowed: int
    squared_error: float
    squared: float
    signed_error: float
    magnitude: float
    squared_before: float
    signed_before: float
    squared_rounding: float
    largest: float
    largest_over_sum: float
    largest_sum: float


def tally(model: ProductModel, operands: DrawnPatterns, exact: ExactSums, scales: ScaleWords | None = None) -> Tally:
    """The model's outputs of these operands against their exact sums, which have the scales in them."""
    f32 = FORMATS["f32"]
    sums = SumWords(product(replace(model, result=f32, result_rounding="RNE"), operands.a, operands.b, scales=scales), f32)
    outputs = model.result.values(rounded_to(sums, model.result, model.result_rounding))
    before = f32.values(sums.patterns)
    rounded = model.result.values(rounded_to(_nearest_words(exact.sums), model.result, model.result_rounding))
    there = np.isfinite(outputs) & np.isfinite(rounded)
    x, magnitudes = exact.sums[there], exact.magnitudes[there]
    error = outputs[there] - x
    over = np.divide(np.abs(error), magnitudes, out=np.zeros_like(error), where=magnitudes > 0)
    return Tally(
        outputs=int(there.sum()),
        overflowed=int((~there).sum()),
        squared_error=float(error @ error),
        squared=float(x @ x),
        signed_error=float(error.sum()),
        magnitude=float(np.abs(x).sum()),
        squared_before=float(np.square(before[there] - x).sum()),
        signed_before=float((before[there] - x).sum()),
        squared_rounding=float(np.square(rounded[there] - x).sum()),
        largest=float(np.abs(error).max(initial=0)),
        largest_over_sum=float(over.max(initial=0)),
        largest_sum=float(magnitudes.max(initial=0)),
    )


def _nearest_words(values: Floats) -> SumWords:
    """As float64 patterns."""
    return SumWords(values.view(np.uint64), FORMATS["f64"])


@dataclass(frozen=True)
class Interval:
    """Where a value lies with a confidence of CONFIDENCE, as the draws differ from one another."""

    low: float
    high: float


@dataclass(frozen=True)
class Errors:
    """The errors of a product over several draws of operands; None where no output was finite, or all sums are zero.

    error_of_sums, bias_of_sums: before the last rounding; error_of_rounding: that of exact sums rounded to D's format.
    bound_over_sum: of all operands; None where none follows from the model. max_error: the largest |d - x|; largest_sum: the
    largest S.
    """

    outputs: int
    overflowed: int
    seeds: int
    relative_error: float | None
    relative_error_interval: Interval | None
    relative_error_worst: float | None
    bias: float | None
    bias_interval: Interval | None
    max_error_over_sum: float | None
    bound_over_sum: float | None
    error_of_sums: float | None
    bias_of_sums: float | None
    error_of_rounding: float | None
    max_error: float | None
    largest_sum: float

    @classmethod
    def of(cls, model: ProductModel, tallies: Sequence[Tally]) -> Errors:
        """All draws together; their seeds do not depend on one another."""
        squared, magnitude = sum(t.squared for t in tallies), sum(t.magnitude for t in tallies)
        outputs = sum(t.outputs for t in tallies)
        told = squared > 0
        square_errors = np.array([[t.squared_error, t.squared] for t in tallies])
        signed_errors = np.array([[t.signed_error, t.magnitude] for t in tallies])
        return cls(
            outputs=outputs,
            overflowed=sum(t.overflowed for t in tallies),
            seeds=len(tallies),
            relative_error=_root(sum(t.squared_error for t in tallies), squared),
            relative_error_interval=_interval(square_errors, 0.5) if told else None,
            relative_error_worst=max(t.largest for t in tallies) / (squared / outputs) ** 0.5 if told else None,
            bias=sum(t.signed_error for t in tallies) / magnitude if told else None,
            bias_interval=_interval(signed_errors) if told else None,
            max_error_over_sum=max(t.largest_over_sum for t in tallies) if outputs else None,
            bound_over_sum=worst_error(model),
            error_of_sums=_root(sum(t.squared_before for t in tallies), squared),
            bias_of_sums=sum(t.signed_before for t in tallies) / magnitude if told else None,
            error_of_rounding=_root(sum(t.squared_rounding for t in tallies), squared),
            max_error=max(t.largest for t in tallies) if outputs else None,
            largest_sum=max(t.largest_sum for t in tallies),
        )


def _root(part: float, whole: float) -> float | None:
    return (part / whole) ** 0.5 if whole > 0 else None


def _interval(sums: Floats, power: float = 1.0) -> Interval | None:
    """Of the quotient of two sums over draws, [draws, 2], to a power: the percentile bootstrap, draws drawn anew."""
    draws = len(sums)
    if draws < 2:
        return None
    counts = np.random.default_rng(0).multinomial(draws, np.full(draws, 1 / draws), RESAMPLED)
    over, under = (counts @ sums).T
    quotients = np.divide(over, under, out=np.zeros(RESAMPLED), where=under > 0) ** power
    low, high = np.quantile(quotients, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))
