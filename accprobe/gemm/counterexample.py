"""An answer that contradicts a plan, in words: the simplest of dot products of a few terms, or one of fresh elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.battery import Answered, Sparse, predicted, unexplained
from accprobe.gemm.fresh import Wrong
from accprobe.isa.formats import Format
from accprobe.model.product import ProductModel


def of_few_terms(model: ProductModel, answered: Answered) -> str:
    """Of the answers that the model does not explain the one with the fewest terms, nearest to one another in size; "" of none.

    Of sums that are added in any order, what is expected is that of the first order.
    """
    which = np.flatnonzero(unexplained(model, answered))
    if not len(which):
        return ""
    dots = answered.dots[which]
    terms = model.a.values(dots.a).astype(np.float64) * model.b.values(dots.b)
    there = _asked(dots)
    sizes = np.where(there, np.log2(np.abs(terms), where=there, out=np.zeros_like(terms)), np.nan)
    simplest = int(np.lexsort([np.nanmax(sizes, axis=1) - np.nanmin(sizes, axis=1), there.sum(axis=1)])[0])
    ks, products = dots.ks[simplest], terms[simplest]
    told = ", ".join(f"{products[t]:.9g} at k = {ks[t]}" for t in np.argsort(ks) if there[simplest, t])
    expected = predicted(model, dots[simplest : simplest + 1])[0]
    return f"products {told}, the others 0: {_got(model.result, int(answered.d[which[simplest]]), int(expected))}"


def _asked(dots: Sparse) -> NDArray[np.bool_]:
    """Which terms there are, [n, TERMS]: of two at one k the last."""
    there = dots.a != 0
    later = (dots.ks[:, :, None] == dots.ks[:, None]) & there[:, None] & np.triu(np.ones((there.shape[1],) * 2, bool), 1)
    return np.asarray(there & ~later.any(axis=2))


def of_fresh(wrong: Wrong, result: Format) -> str:
    """Where an element is that is not as predicted, and what it is."""
    return f"row {wrong.row}, column {wrong.column} of {wrong.kind} operands: {_got(result, wrong.got, wrong.expected)}"


def _got(result: Format, got: int, expected: int) -> str:
    return f"{_pattern(result, got)}, expected {_pattern(result, expected)}"


def _pattern(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x} ({value:.9g})"
