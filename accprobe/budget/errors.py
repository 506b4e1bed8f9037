"""Exact sums of a matrix product, and the errors of a computed product against them.

Let d be an output, x the exact sum of its products, S the sum of |a·b|.

- relative error: ||d - x|| / ||x||, Euclidean norms over all outputs, because x of one output can be near zero.
- bias: the mean of d - x relative to the mean of |x|, with its sign.
- bound over sum: a bound of |d - x| / S for all operands (`accprobe.budget.worst_error`).

Exact sums are sums in float64; `exact_product` compensates those of f64 operands. The error of others is at most (K + 4) ·
2^-52 · S, far below the rounding error of float32 outputs for any K that fits in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accprobe.budget.data import DrawnPair
from accprobe.budget.worst_error import by_k, worst_error
from accprobe.evaluate.decoding import values_of
from accprobe.evaluate.error_free import Floats, plain_product, two_product, two_sum
from accprobe.evaluate.product import ScaleWords, SumWords, product, rounded_to, rounded_words
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ProductModel

F64 = FORMATS["f64"]

# Distance of 1 to the next float64.
ULP = 2.0**-F64.mantissa_bits

# Bootstrap samples of an interval, and its confidence.
RESAMPLED, CONFIDENCE = 500, 0.95


class Exact(NamedTuple):
    """Exact sums in float64 [M, N]. off: bound of their rounding error; sizes: sums of |a·b|."""

    sums: Floats
    off: Floats
    sizes: Floats


def exact_product(model: ProductModel, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Exact:
    """Return the exact sums of a [M, K] and b [N, K], bit patterns, times both scales (see above).

    Products of f64 are added together with the error of each sum and product.
    """
    x, y = (
        values_of(rounded_words(fmt, words, model.operand_rounding), fmt, "kept") for fmt, words in ((model.a, a), (model.b, b))
    )
    with np.errstate(all="ignore"):
        scaled = scales is not None and model.scales is not None
        if scales is not None and scaled:
            x, y = x * by_k(model, scales.a.astype(np.float64)), y * by_k(model, scales.b.T.astype(np.float64))
        sizes = np.abs(x) @ np.abs(y).T
        if F64 in (model.a, model.b):
            sums, rest = _compensated(x, y)
            return Exact(sums, np.abs(sums) * ULP + sizes * ((model.k * ULP) ** 2 + 2 * ULP * scaled) + rest, sizes)
        return Exact(x @ y.T, sizes * ((model.k + 4) * ULP), sizes)


def exact_sums(a: Floats, b: Floats) -> Exact:
    """Return the exact sums of values a [M, K], b [N, K] of at most 26 significant bits each."""
    sizes = plain_product(np.abs(a), np.abs(b))
    return Exact(plain_product(a, b), sizes * ((a.shape[1] + 4) * ULP), sizes)


def _compensated(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return compensated sums of f64 products and a bound of their underflow.

    After Ogita, Rump and Oishi, "Accurate sum and dot product" (2005).
    """
    total, rest = np.zeros((len(x), len(y))), np.zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        product, off = two_product(*np.broadcast_arrays(x[:, [k]], y[None, :, k]))
        total, error = two_sum(total, product)
        rest += error + off
    return total + rest, np.full_like(total, x.shape[1] * 2.0**-1000)


class Tally(NamedTuple):
    """The contribution of one draw of operands to the errors.

    outputs: count of finite outputs; overflowed: count of the others, which enter no error. Sums over outputs: squared_error of
    d - x; squared of x; signed_error of d - x; magnitude of |x|; squared_before and signed_before of the error before D is
    rounded.
    """

    outputs: int
    overflowed: int
    squared_error: float
    squared: float
    signed_error: float
    magnitude: float
    squared_before: float
    signed_before: float


def tally(model: ProductModel, operands: DrawnPair, exact: Exact, scales: ScaleWords | None = None) -> Tally:
    """Compare the model's outputs with the exact sums, which include the scales."""
    f32 = FORMATS["f32"]
    sums = SumWords(product(replace(model, result=f32, result_rounding="RNE"), operands.a, operands.b, scales=scales), f32)
    outputs = model.result.values(rounded_to(sums, model.result, model.result_rounding))
    before = f32.values(sums.patterns)
    there = np.isfinite(outputs)
    x = exact.sums[there]
    error = outputs[there] - x
    return Tally(
        outputs=int(there.sum()),
        overflowed=int((~there).sum()),
        squared_error=float(error @ error),
        squared=float(x @ x),
        signed_error=float(error.sum()),
        magnitude=float(np.abs(x).sum()),
        squared_before=float(np.square(before[there] - x).sum()),
        signed_before=float((before[there] - x).sum()),
    )


Interval = tuple[float, float]
"""A confidence interval at the level CONFIDENCE, from the differences between draws."""


@dataclass(frozen=True)
class Errors:
    """The errors of a product over several draws of operands; None if no output is finite or all sums are zero.

    error_of_sums, bias_of_sums: before D is rounded. bound_over_sum: for all operands; None if the model implies no bound.
    """

    outputs: int
    overflowed: int
    seeds: int
    relative_error: float | None
    relative_error_interval: Interval | None
    bias: float | None
    bias_interval: Interval | None
    bound_over_sum: float | None
    error_of_sums: float | None
    bias_of_sums: float | None

    @classmethod
    def of(cls, model: ProductModel, tallies: Sequence[Tally]) -> Errors:
        """Combine independent draws."""
        total = Tally(*(sum(column) for column in zip(*tallies, strict=True)))
        known = total.squared > 0
        square_errors = np.array([[t.squared_error, t.squared] for t in tallies])
        signed_errors = np.array([[t.signed_error, t.magnitude] for t in tallies])
        return cls(
            outputs=total.outputs,
            overflowed=total.overflowed,
            seeds=len(tallies),
            relative_error=_root(total.squared_error, total.squared),
            relative_error_interval=_interval(square_errors, 0.5) if known else None,
            bias=total.signed_error / total.magnitude if known else None,
            bias_interval=_interval(signed_errors) if known else None,
            bound_over_sum=worst_error(model),
            error_of_sums=_root(total.squared_before, total.squared),
            bias_of_sums=total.signed_before / total.magnitude if known else None,
        )


def _root(part: float, whole: float) -> float | None:
    return (part / whole) ** 0.5 if whole > 0 else None


def _interval(sums: Floats, power: float = 1.0) -> Interval | None:
    """Return the percentile bootstrap interval of a quotient of two sums over draws, [draws, 2], raised to a power."""
    draws = len(sums)
    if draws < 2:
        return None
    counts = np.random.default_rng(0).multinomial(draws, np.full(draws, 1 / draws), RESAMPLED)
    over, under = (counts @ sums).T
    quotients = np.divide(over, under, out=np.zeros(RESAMPLED), where=under > 0) ** power
    low, high = np.quantile(quotients, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
