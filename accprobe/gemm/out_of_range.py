"""Results outside the normal range of D's format: sums too large for it, and subnormal results, against what a plan gives."""

from __future__ import annotations

import numpy as np

from accprobe.gemm import battery
from accprobe.gemm.battery import Answered, Sparse
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.regions import Region
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import ProductModel

PLACES = 4
"""Pairs of products that are asked about, of each sign."""


def query(asked: RecordedCallable, region: Region, ks: Ints) -> Answered | None:
    """What comes of sums that are too large for D; None where nothing is that large, or scales make it so."""
    dots = too_large(asked.spec, ks) if asked.spec.scale is None else None
    return None if dots is None else battery.query(asked, dots, region.rows, region.columns)


def too_large(spec: Spec, ks: Ints) -> Sparse | None:
    """Dot products of one term or of two that D cannot hold, of either sign; None where no factors reach so far."""
    layout, largest = layout_of(spec), spec.out.max_exponent
    highest = layout.exponents()[1]
    if not spec.out.is_float or spec.out.infinity is None or highest < largest or len(ks) < 2:
        return None
    terms = [(largest, largest), *((exponent,) for exponent in sorted({largest + 1, highest}) if exponent > largest)]
    rows = [(pair, of, sign) for pair in range(min(PLACES, len(ks) // 2)) for of in terms for sign in (0, 1)]
    dots = Sparse(*(np.zeros((len(rows), 2), dtype) for dtype in (np.int64, spec.a.dtype, spec.b.dtype)))
    for row, (pair, of, sign) in enumerate(rows):
        dots.ks[row] = ks[pair], ks[-1 - pair]
        for t, exponent in enumerate(of):
            a, b = layout.power(exponent)
            dots.a[row, t], dots.b[row, t] = a, b | sign * spec.b.sign_bit
    return dots


def observed_overflow(model: ProductModel, answered: Answered) -> tuple[str, ...]:
    """What comes where the plan has something else, and what that is, such as "NaN for -Inf"; none where all is as planned."""
    expected = battery.predicted(model, answered.dots)
    pairs = {(int(got), int(wanted)) for got, wanted in zip(answered.d, expected, strict=True) if got != wanted}
    return tuple(sorted({f"{_told(model.result, got)} for {_told(model.result, wanted)}" for got, wanted in pairs}))


def is_infinite(fmt: Format, patterns: Bits) -> Bits:
    """Which of the patterns are an infinity."""
    infinity = fmt.infinity if fmt.is_float else None
    unsigned = patterns & fmt.dtype.type(fmt.sign_bit - 1)
    return np.zeros(patterns.shape, bool) if infinity is None else unsigned == infinity


def _told(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return "NaN" if np.isnan(value) else f"{value:g}".replace("inf", "Inf")
