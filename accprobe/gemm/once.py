"""Is every product counted once? Ones at one k alone, for every k; then at many k at once, for every element of D."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import Asked
from accprobe.gemm.layout import layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.regions import Region, region_of
from accprobe.gemm.spec import Spec

ONES = 128
"""Ones that are added up at once: sums of so many are exact in f16 and in bf16."""

MOST_MISCOUNTED = 4
"""Groups of elements whose missing products are looked for."""


def counts(asked: Asked, rows: Ints, columns: Ints) -> Ints:
    """How often each k is counted, [K]. Raises AccprobeError where the result is no number of products."""
    found = alone(asked, rows, columns, np.arange(asked.spec.k), *layout_of(asked.spec).one())
    whole = np.round(found)
    if not np.array_equal(found, whole) or (found < 0).any():
        wrong = int(np.flatnonzero(~(found == whole) | (found < 0))[0])
        again = alone(asked, rows, columns, np.array([wrong]), *layout_of(asked.spec).one())[0]
        why = (
            "scales, an activation or another order of the operands?"
            if again == found[wrong]
            else f"and {again:.9g} when it is asked again"
        )
        raise AccprobeError(
            f"of ones at k = {wrong} alone the result is {found[wrong]:.9g}: this is no product of two matrices ({why})"
        )
    if not whole.any():
        raise AccprobeError("the result is 0 whichever k has ones: this is no product of two matrices")
    if (least := int(whole.min())) > 1:
        raise AccprobeError(
            f"of ones at one k alone the result is {least} or more, whichever k it is: this is no product of two matrices"
            " (a factor, or something that is added?)"
        )
    return whole.astype(np.int64)


def alone(asked: Asked, rows: Ints, columns: Ints, ks: Ints, word_a: int, word_b: int) -> NDArray[np.float64]:
    """What comes out of the product of two words at each k, where everything else is zero, [len(ks)].

    Element (i, j) has them at one k: rows share runs of as many k as there are columns, a column one of each run.
    """
    spec, layout = asked.spec, layout_of(asked.spec)
    rows = layout.unlike(rows)
    found = np.empty(len(ks), np.float64)
    width = len(columns)
    for start in range(0, len(ks), width * len(rows)):
        a, b = layout.blank()
        some = ks[start : start + width * len(rows)]
        y, x = np.divmod(np.arange(len(some)), width)
        a[rows[y], some] = word_a
        b[columns[x], some] = word_b
        d = asked.product(a, b)[rows[y], columns[x]]
        found[start : start + len(some)] = spec.out.integers(d) if spec.out.is_integer else spec.out.values(d)
    return found


def counted_otherwise(asked: Asked, known: Sequence[tuple[Region, Ints]]) -> Iterator[tuple[Region, Ints]]:
    """Elements that count k otherwise than is known of their region, or else of the first, and how often each k is counted."""
    spec = asked.spec
    width = min(ONES, 2 << spec.out.mantissa_bits) if spec.out.is_float else ONES
    is_count = _ones(asked, np.arange(0)) == 0
    differing = []
    for start in range(0, spec.k, width):
        ks = np.arange(start, min(start + width, spec.k))
        found = _ones(asked, ks)
        is_count &= found == np.round(found)
        if (found != _expected(spec, known, ks)).any():
            differing.append((ks, found))
    there = np.zeros((spec.m, spec.n), bool)
    for ks, found in differing:
        there |= is_count & (found != _expected(spec, known, ks))
    sums = np.stack([found[there] for _, found in differing], axis=1) if there.any() else np.zeros((0, 0))
    _, groups, sizes = np.unique(sums, axis=0, return_inverse=True, return_counts=True)
    for group in np.argsort(-sizes, kind="stable")[:MOST_MISCOUNTED]:
        alike = np.zeros_like(there)
        alike[there] = groups.reshape(-1) == group
        row, column = np.argwhere(alike)[0]
        once = known[0][1].copy()
        for ks, found in differing:
            _count(asked, int(row), int(column), ks, found[row, column], once)
        yield region_of(alike, int(sizes[group])), once


def _ones(asked: Asked, ks: Ints) -> NDArray[np.float64]:
    """What comes out of ones at some k, [M, N]."""
    layout, out = layout_of(asked.spec), asked.spec.out
    a, b = layout.blank()
    a[:, ks], b[:, ks] = layout.one()
    d = asked.product(a, b, keep=False)
    return np.asarray(out.integers(d) if out.is_integer else out.values(d), np.float64)


def _expected(spec: Spec, known: Sequence[tuple[Region, Ints]], ks: Ints) -> NDArray[np.float64]:
    found = np.full((spec.m, spec.n), float(known[0][1][ks].sum()))
    for region, once in known[1:]:
        found[np.ix_(region.rows, region.columns)] = once[ks].sum()
    return found


def _count(asked: Asked, row: int, column: int, ks: Ints, found: float, once: Ints) -> None:
    """Enters how often each of some k is counted at an element, of which all together are `found` times."""
    if found == once[ks].sum():
        return
    if len(ks) == 1:
        once[ks] = int(found)
        return
    for half in np.array_split(ks, 2):
        _count(asked, row, column, half, float(_ones(asked, half)[row, column]), once)
