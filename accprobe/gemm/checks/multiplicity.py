"""Count how often each product is added: with ones at a single k, and at many k for elements that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks import contract, pairing
from accprobe.gemm.checks.pairing import ElementMask
from accprobe.gemm.checks.regions import Region, region_of, without
from accprobe.gemm.layout import Ints, layout_of
from accprobe.isa.formats import Bits

# Sign patterns with which each element adds ones at every k. Two missing products escape all of them in one of 256 cases.
SIGN_PATTERNS = 8
# Ones added in one query: f16 and bf16 hold sums of this many exactly.
ONES = 128
# Largest number of element groups whose missing products are located.
MOST_MISCOUNTED = 4


class Counted(NamedTuple):
    """A region and how often it adds each k. mispaired: other products it adds; reason: why it has no plan."""

    region: Region
    once: Ints
    reason: str = ""
    mispaired: str = ""


def count_products(subject: RecordedCallable, regions: Sequence[Region]) -> list[Counted]:
    """Return the products that each region adds. Elements that add other products than their region form their own region.

    Raises AccprobeError if the result is no number of products.
    """
    known = [(region, term_multiplicity(subject, region.rows, region.columns)) for region in regions]
    there, draws = pairing.differing(subject, known)
    others = list(_miscounted(subject, there, draws, known))
    rest = there.copy()
    for same, _ in others:
        rest &= ~same
    wrong = list(pairing.mispaired(subject, rest, draws, known[0][1]))
    if wrong:  # Counted anew: the ones of wrong elements may have come from other lines.
        moved = np.any([each.there for each in wrong], axis=0)
        known = [(x, term_multiplicity(subject, x.rows, x.columns)) for region in regions if (x := without(region, moved))]
        others = list(_miscounted(subject, there & ~moved, draws, known)) if known else []
    ones = np.ones(subject.spec.k, np.int64)
    return [
        *(Counted(*each) for each in known),
        *(Counted(region_of(each.there), ones, each.description, each.description) for each in wrong),
        *(Counted(region_of(same), once, "these elements add other products than most elements do") for same, once in others),
    ]


def term_multiplicity(subject: RecordedCallable, rows: Ints, columns: Ints) -> Ints:
    """Return how often each k is counted, [K]. Raises AccprobeError if the result is no number of products."""
    found = single_products(subject, rows, columns, np.arange(subject.spec.k), *layout_of(subject.spec).one())
    whole = np.round(found)
    values = np.unique(found[found != 0])
    if len(values) == 1 and values[0] != 1:
        factor = contract.factor_in_words(subject, rows, columns, int(np.argmax(found != 0)))
        if factor:
            raise AccprobeError(f"the result is {factor}: this is not a product of two matrices (a factor alpha?)")
    if not np.array_equal(found, whole) or (found < 0).any():
        wrong = int(np.flatnonzero(~(found == whole) | (found < 0))[0])
        raise AccprobeError(
            f"with ones at k = {wrong} only, the result is {found[wrong]:.9g}: this is not a product of two matrices (scales,"
            " an activation or another order of the operands?)"
        )
    if not whole.any():
        raise AccprobeError("the result is 0 with ones at any k: this is not a product of two matrices")
    if (least := int(whole.min())) > 1:
        raise AccprobeError(
            f"with ones at a single k, the result is {least} or more at every k: this is not a product of two matrices"
            " (an activation?)"
        )
    return whole.astype(np.int64)


def single_products(
    subject: RecordedCallable, rows: Ints, columns: Ints, ks: Ints, word_a: int, word_b: int
) -> NDArray[np.float64]:
    """Return the product of two words at each k, with zeros elsewhere, [len(ks)].

    Each element (i, j) probes one k: a row holds as many k as there are columns, and each column selects one of them.
    """
    spec, layout = subject.spec, layout_of(subject.spec)
    rows = layout.distinct_rows(rows)
    found = np.empty(len(ks), np.float64)
    width = len(columns)
    if spec.a_exponent is not None:

        def fill(lines: Bits, some: slice) -> None:
            lines[np.arange(len(lines)), ks[some]] = word_b

        return spec.out.values(subject.of_columns(layout.blank()[0], rows[0], columns, len(ks), fill))
    for start in range(0, len(ks), width * len(rows)):
        a, b = layout.blank()
        some = ks[start : start + width * len(rows)]
        y, x = np.divmod(np.arange(len(some)), width)
        a[rows[y], some] = word_a
        b[columns[x], some] = word_b
        d = subject.product(a, b)[rows[y], columns[x]]
        found[start : start + len(some)] = spec.out.values(d)
    return found


def _miscounted(
    subject: RecordedCallable, there: ElementMask, draws: Sequence[pairing.OperandDraw], known: Sequence[tuple[Region, Ints]]
) -> Iterator[tuple[ElementMask, Ints]]:
    """Yield groups of these elements that count some k differently from their region (or the first one), with their counts.

    Half of the ones are negative, so a complete sum is 0. Missing products leave a remainder unless their signs balance.
    """
    spec, rng = subject.spec, np.random.default_rng(0)
    if not there.any():
        return
    ks, region_number = np.arange(spec.k), np.zeros(there.shape, np.int64)
    for number, (region, _) in enumerate(known):
        region_number[np.ix_(region.rows, region.columns)] = number
    whole = np.ones(spec.k, np.int64)
    signs = [whole if spec.b.is_integer else rng.permutation(np.resize([1, -1], spec.k)) for _ in range(SIGN_PATTERNS)]
    sums = np.stack([spec.out.values(_ones(subject, ks, each)[there]) for each in signs], axis=1)
    usual = np.array([[once @ each for each in signs] for _, once in known])[region_number[there]]
    deviating = (sums != usual).any(axis=1) & (sums == np.round(sums)).all(axis=1)
    places = np.argwhere(there)[deviating]
    _, groups, sizes = np.unique(sums[deviating], axis=0, return_inverse=True, return_counts=True)
    for group in np.argsort(-sizes, kind="stable")[:MOST_MISCOUNTED]:
        rows, columns = places[groups.reshape(-1) == group].T
        once = known[0][1].copy()
        for window in np.array_split(ks, -(-spec.k // ONES)):
            _count_part(subject, rows[0], columns[0], window, once, rng)
        same = np.zeros_like(there)
        same[rows, columns] = True
        same &= pairing.explained(spec.out, draws, once)
        if same.any():
            yield same, once


def _ones(subject: RecordedCallable, ks: Ints, signs: Ints) -> Bits:
    """Return D [M, N] for ones at some k, some of them negative."""
    layout, b_format = layout_of(subject.spec), subject.spec.b
    a, b = (lines[:1].copy() for lines in layout.blank())
    a[:, ks], b[:, ks] = layout.one()
    if b_format.is_float:
        b[:, ks[signs < 0]] |= b_format.dtype.type(b_format.sign_bit)
    return subject.product(np.repeat(a, subject.spec.m, axis=0), np.repeat(b, subject.spec.n, axis=0), keep=False)


def _count_part(subject: RecordedCallable, row: int, column: int, ks: Ints, once: Ints, rng: np.random.Generator) -> None:
    """Write into `once` how often an element counts each of some k. Skip halves whose result is as expected."""
    for signs in (
        np.ones(len(ks), np.int64),
        *(rng.choice([-1, 1], len(ks)) for _ in range(SIGN_PATTERNS if len(ks) > 1 else 0)),
    ):
        found = float(subject.spec.out.values(_ones(subject, ks, signs)[row, column, None])[0])
        if found != once[ks] @ signs:
            break
    else:
        return
    if len(ks) == 1:
        once[ks] = int(found)
        return
    for half in np.array_split(ks, 2):
        _count_part(subject, row, column, half, once, rng)
