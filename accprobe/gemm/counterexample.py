"""An answer that contradicts a plan, in words: the simplest of dot products of a few terms, or one of fresh elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.battery import Answered, Sparse, predicted, unexplained
from accprobe.gemm.verification import Wrong
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel


def of_few_terms(model: ProductModel, answered: Answered) -> str:
    """Return up to three unlike results that the model does not explain, "" of none.

    The first has the fewest terms, nearest to one another in size; the second another number; the third is farthest off.
    Of sums that are added in any order, what is expected is that of the first order.
    """
    which = np.flatnonzero(unexplained(model, answered))
    if not len(which):
        return ""
    dots, got = answered.dots[which], answered.d[which]
    terms = model.a.values(dots.a).astype(np.float64) * model.b.values(dots.b)
    there = _asked(dots)
    sizes = np.where(there, np.log2(np.abs(terms), where=there, out=np.zeros_like(terms)), np.nan)
    order = np.lexsort([np.nanmax(sizes, axis=1) - np.nanmin(sizes, axis=1), there.sum(axis=1)])
    expected = predicted(model, dots)
    farthest = max(order, key=lambda i: _ulps(model.result, int(got[i]), int(expected[i])) or 0)
    other = next((i for i in order if there[i].sum() != there[order[0]].sum()), order[0])
    told = []
    for i in dict.fromkeys(map(int, (order[0], other, farthest))):
        products = ", ".join(f"{terms[i, t]:.9g} at k = {dots.ks[i, t]}" for t in np.argsort(dots.ks[i]) if there[i, t])
        told.append(f"products {products}, the others 0: {_got(model.result, int(got[i]), int(expected[i]))}")
    return "; ".join(told)


def _asked(dots: Sparse) -> NDArray[np.bool_]:
    """Which terms there are, [n, TERMS]: of two at one k the last."""
    there = dots.a != 0
    later = (dots.ks[:, :, None] == dots.ks[:, None]) & there[:, None] & np.triu(np.ones((there.shape[1],) * 2, bool), 1)
    return np.asarray(there & ~later.any(axis=2))


def of_fresh(wrong: Wrong, result: Format) -> str:
    """Where an element is that is not as predicted, and what it is."""
    return f"row {wrong.row}, column {wrong.column} of {wrong.kind} operands: {_got(result, wrong.got, wrong.expected)}"


def _got(result: Format, got: int, expected: int) -> str:
    far = "" if (ulps := _ulps(result, got, expected)) is None else f", {ulps:,} ulp"
    return f"{_pattern(result, got)}, expected {_pattern(result, expected)}{far}"


def _ulps(result: Format, got: int, expected: int) -> int | None:
    """How many numbers of the format lie from one to the other; None beside infinities and NaNs, and of integers."""
    if result.is_integer or not np.isfinite(result.values(np.array([got, expected], result.dtype))).all():
        return None
    places = (-(word & ~result.sign_bit) if word & result.sign_bit else word for word in (got, expected))
    return abs(next(places) - next(places))


def _pattern(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x} ({value:.9g})"
