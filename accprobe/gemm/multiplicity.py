"""Is every product counted once? Ones at one k alone, for every k; then at many k at once, for every element of D."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.gemm import contract
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of, numbers_of
from accprobe.gemm.pairing import mispaired
from accprobe.gemm.pairs import Ints
from accprobe.gemm.regions import Region, region_of, without
from accprobe.isa.formats import Bits, Format

TIMES_ASKED = 8
"""Times that every element is asked about every k, with other signs: two that are missing are seen but once in 256 times."""

ONES = 128
"""Ones that are added up at once: sums of so many are exact in f16 and in bf16."""

MOST_MISCOUNTED = 4
"""Groups of elements whose missing products are looked for."""


class Counted(NamedTuple):
    """A region, and how often it adds each k. mispaired: which other products it adds; reason: why it has no plan."""

    region: Region
    once: Ints
    reason: str = ""
    mispaired: str = ""


def count_products(asked: RecordedCallable, regions: Sequence[Region]) -> list[Counted]:
    """Return which products each region adds. Elements that add others than their region are regions of their own.

    Raises AccprobeError where the result is no number of products.
    """
    known = [(region, counts(asked, region.rows, region.columns)) for region in regions]
    others = list(counted_otherwise(asked, known))
    wrong = mispaired(asked, [*known, *others])
    if wrong:  # Counted anew: the ones of wrong elements may have come from other lines.
        there = np.any([each.there for each in wrong], axis=0)
        known = [(x, counts(asked, x.rows, x.columns)) for region in regions if (x := without(region, there))]
        others = list(counted_otherwise(asked, known)) if known else []
        others = [(x, once) for region, once in others if (x := without(region, there))]
    ones = np.ones(asked.spec.k, np.int64)
    return [
        *(Counted(*each) for each in known),
        *(Counted(each.region, ones, each.told, each.told) for each in wrong),
        *(Counted(*each, "other products are counted there than elsewhere") for each in others),
    ]


def counts(asked: RecordedCallable, rows: Ints, columns: Ints) -> Ints:
    """How often each k is counted, [K]. Raises AccprobeError where the result is no number of products."""
    found = alone(asked, rows, columns, np.arange(asked.spec.k), *layout_of(asked.spec).one())
    whole = np.round(found)
    values = np.unique(found[found != 0])
    if len(values) == 1 and values[0] != 1:
        factor = contract.factor_in_words(asked, rows, columns, int(np.argmax(found != 0)))
        if factor:
            raise AccprobeError(f"the result is {factor}: this is no product of two matrices (a factor alpha?)")
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
            " (an activation?)"
        )
    return whole.astype(np.int64)


def alone(asked: RecordedCallable, rows: Ints, columns: Ints, ks: Ints, word_a: int, word_b: int) -> NDArray[np.float64]:
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


def counted_otherwise(asked: RecordedCallable, known: Sequence[tuple[Region, Ints]]) -> Iterator[tuple[Region, Ints]]:
    """Elements that count k otherwise than is known of their region, or else of the first, and how often each k is counted.

    Of ones, half of them negative, nothing is left; what is missing is, unless as many positive as negative ones are.
    """
    spec, rng = asked.spec, np.random.default_rng(0)
    ks, found = np.arange(spec.k), []
    there = np.zeros((spec.m, spec.n), bool)
    for _ in range(TIMES_ASKED):
        signs = np.ones(spec.k, np.int64) if spec.b.is_integer else rng.permutation(np.resize([1, -1], spec.k))
        found.append(_ones(asked, ks, signs))
        there |= _unlike(spec.out, found[-1], known, signs)
    sums = np.stack([numbers_of(spec.out, d[there]) for d in found], axis=1)
    counted = (sums == np.round(sums)).all(axis=1) & (numbers_of(spec.out, _ones(asked, ks[:0])[there]) == 0)
    there[there] = counted
    _, groups, sizes = np.unique(sums[counted], axis=0, return_inverse=True, return_counts=True)
    for group in np.argsort(-sizes, kind="stable")[:MOST_MISCOUNTED]:
        alike = np.zeros_like(there)
        alike[there] = groups.reshape(-1) == group
        (row, column), once = np.argwhere(alike)[0], known[0][1].copy()
        for window in np.array_split(ks, -(-spec.k // ONES)):
            _count(asked, row, column, window, once, rng)
        yield region_of(alike, int(sizes[group])), once


def _ones(asked: RecordedCallable, ks: Ints, signs: Ints | None = None) -> Bits:
    """What comes out of ones at some k, some of them negative, [M, N]."""
    layout, b_format = layout_of(asked.spec), asked.spec.b
    a, b = (lines[:1].copy() for lines in layout.blank())
    a[:, ks], b[:, ks] = layout.one()
    if signs is not None and b_format.is_float:
        b[:, ks[signs < 0]] |= b_format.dtype.type(b_format.sign_bit)
    return asked.product(np.repeat(a, asked.spec.m, axis=0), np.repeat(b, asked.spec.n, axis=0), keep=False)


def _unlike(out: Format, d: Bits, known: Sequence[tuple[Region, Ints]], signs: Ints) -> NDArray[np.bool_]:
    """Elements at which something else came out than is known, [M, N]."""
    unlike = _other_values(out, d, int(known[0][1] @ signs))
    for region, once in known[1:]:
        place = np.ix_(region.rows, region.columns)
        unlike[place] = _other_values(out, d[place], int(once @ signs))
    return unlike


def _other_values(out: Format, d: Bits, expected: int) -> NDArray[np.bool_]:
    """Most elements have one pattern."""
    other = np.asarray(d != d.flat[0])
    unlike = ~other if numbers_of(out, d[:1, :1])[0, 0] != expected else np.zeros_like(other)
    unlike[other] = numbers_of(out, d[other]) != expected
    return unlike


def _count(asked: RecordedCallable, row: int, column: int, ks: Ints, once: Ints, rng: np.random.Generator) -> None:
    """Enters how often each of some k is counted at an element; whole parts that come out as they should are passed over."""
    for signs in (
        np.ones(len(ks), np.int64),
        *(rng.choice([-1, 1], len(ks)) for _ in range(TIMES_ASKED if len(ks) > 1 else 0)),
    ):
        found = float(numbers_of(asked.spec.out, _ones(asked, ks, signs)[row, column, None])[0])
        if found != once[ks] @ signs:
            break
    else:
        return
    if len(ks) == 1:
        once[ks] = int(found)
        return
    for half in np.array_split(ks, 2):
        _count(asked, row, column, half, once, rng)
