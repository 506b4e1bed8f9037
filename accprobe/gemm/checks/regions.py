"""Repeat identical calls, compare rows for several M, and find regions of D with the same bits for equal rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import MAX_EXPONENT, MIN_EXPONENT, Ints, Layout, draw_operands, first_operands, layout_of
from accprobe.callables.spec import BlackBox, Spec
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import Call, RecordedCallable, one_nan
from accprobe.isa.formats import Bits
from accprobe.model.tree import number_ranges
from accprobe.operands.distributions import random_lines, times_power

# Identical calls at the start of a run, including those that opened the callable.
FIRST = 6
# Calls without a new value after which repetition ends, and the maximum number of calls.
QUIET, MOST = 8, 64
# Elements to count values of if results change.
ELEMENTS_WATCHED = 1 << 10
# Calls that are repeated at the end if the plan does not explain everything.
REPEATED_AT_END = 512


@dataclass(frozen=True)
class FirstCalls:
    """Identical calls at the start of a run. call: operands and last result. calls: their number.

    other: how many of the first calls differ from all later ones, in `elements` elements of D. changed: elements that keep
    changing, in these calls or, if they are equal, in later identical ones; values: the largest number of values of an element.
    """

    call: Call
    calls: int
    other: int = 0
    elements: int = 0
    changed: int = 0
    values: int = 1


def repeat_first(subject: RecordedCallable, before: Sequence[Bits] = ()) -> FirstCalls:
    """Repeat `first_operands` until results settle or no new values appear. before: results of earlier such calls."""
    a, b = first_operands(subject.spec)
    earlier = (one_nan(d, subject.spec.out) for d in before)
    results = chain(earlier, (subject.product(a, b, keep=False) for _ in repeat(None)))
    last = next(results)
    changed, values = np.zeros(last.shape, bool), [_sample(last)]
    calls = unchanged = 1  # unchanged: how many of the last results are equal
    quiet = 0  # calls since an element had a new value
    while calls < max(FIRST, len(before)) or (changed.any() and max(unchanged, quiet) < QUIET and calls < MOST):
        d = next(results)
        differ, sample = d != last, _sample(d)
        calls, unchanged, last = calls + 1, 1 if differ.any() else unchanged + 1, d
        changed |= differ
        is_new = ~np.logical_or.reduce([sample == known for known in values])
        quiet = 0 if is_new.any() else quiet + 1
        values += [sample] if is_new.any() else []
    call, count = Call(a, b, None, last), int(changed.sum())
    if count and unchanged < QUIET:
        ordered = np.sort(np.stack(values), axis=0)
        most = int(1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0).max())
        return FirstCalls(call, calls, changed=count, values=most)
    subject.keep(call)
    return FirstCalls(call, calls, calls - unchanged if count else 0, count)


def _sample(d: Bits) -> Bits:
    """Return evenly spaced elements, flat."""
    return d.reshape(-1)[:: -(-d.size // ELEMENTS_WATCHED)]


def compare_at_end(subject: RecordedCallable, first: FirstCalls) -> FirstCalls:
    """Repeat the first call after all others, as settled results may have changed since."""
    if first.changed or not (differ := subject.repeat(first.call)).any():
        return first
    last = subject.product(first.call.a, first.call.b, keep=False)
    if ((last != first.call.d) == differ).all():
        return replace(first, other=first.calls, elements=int(differ.sum()))
    return replace(first, changed=int(differ.sum()), values=2)


def count_changed(subject: RecordedCallable, disputed: Sequence[Call]) -> int:
    """Count the elements that differ in repeated calls: fresh calls that contradict the plan, and a sample of the rest."""
    calls = [*disputed, *subject.whole[:: -(-len(subject.whole) // REPEATED_AT_END) or 1]]
    return sum(int(np.count_nonzero(subject.repeat(call))) for call in calls)


# Runs of lines, and other phrases, in one sentence.
MOST_LISTED = 4
# Pairs of a row and a column that every element computes.
PRODUCTS_REPEATED = 6
# Calls for each pair.
REPEATS = 3
# Cancelling pairs of large products by draw, and the exponent range of the small products. One pair leaves some slices without
# a large product.
_CANCELLING, _SMALL = (1, 1, 6), 4


@dataclass(frozen=True)
class Region:
    """Elements with equal bits for every pair. rows × columns: a block of them; elements: their total number.

    changing: whether identical calls give different results.
    """

    rows: Ints
    columns: Ints
    elements: int
    changing: bool = False

    def __str__(self) -> str:
        return ", ".join(
            f"{noun}{'s' * (len(lines) > 1)} {ranges(lines)}" for noun, lines in (("row", self.rows), ("column", self.columns))
        )

    @property
    def where(self) -> str:
        """Return the rows and columns as in every report: comparisons match regions by these words."""
        return f"rows {ranges(self.rows)}, columns {ranges(self.columns)}"


def find_regions(subject: RecordedCallable, first: FirstCalls) -> tuple[tuple[Region, ...], FirstCalls]:
    """Compute the same dot products in every element; different bits mean another plan or a fault.

    Return the regions, the largest first, and `first` with elements that change in these calls. If `first` has such elements,
    no more calls are made. One region has all elements if any changes.
    """
    rng, spec = np.random.default_rng(subject.seed), subject.spec
    whole = Region(np.arange(spec.m), np.arange(spec.n), spec.m * spec.n, changing=True)
    if first.changed:
        return (whole,), first
    classes = np.zeros((spec.m, spec.n), np.int64)
    changed = np.zeros((spec.m, spec.n), bool)
    values = 1
    for draw in range(PRODUCTS_REPEATED):
        a, b = same_for_all(spec, draw, rng)
        results = [subject.product(a, b, keep=False) for _ in range(REPEATS)]
        for other in results[1:]:
            changed |= other != results[0]
        values = max([values, *(len(np.unique(np.stack(results)[:, i, j])) for i, j in np.argwhere(changed)[:4])])
        if changed.any() or (results[0] == results[0][0, 0]).all():
            continue
        _, numbers = np.unique(results[0], return_inverse=True)
        _, classes = np.unique(classes * (numbers.max() + 1) + numbers.reshape(classes.shape), return_inverse=True)
        classes = classes.reshape(spec.m, spec.n)
    if changed.any():
        return (whole,), replace(first, changed=int(changed.sum()), values=values)
    counts = np.bincount(classes.reshape(-1))
    order = np.argsort(-counts, kind="stable")
    return tuple(region_of(classes == number, int(counts[number])) for number in order), first


def same_for_all(spec: Spec, draw: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Return A [M, K] of one row and B [N, K] of one column: alternately random and sensitive to the order of additions."""
    layout = layout_of(spec)
    if draw % 2 and spec.a.is_float:
        row, column = _spread(layout, _CANCELLING[draw // 2 % len(_CANCELLING)], rng)
    else:
        row, column = (random_lines(fmt, (1, spec.k), "normal", rng) for fmt in (spec.a, spec.b))
        row = layout.a(row)
    return np.repeat(row, spec.m, axis=0), np.repeat(column, spec.n, axis=0)


def _spread(layout: Layout, pairs: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Return a row and a column of small products and some large ones that cancel; surviving small ones show the order."""
    spec, (low, high) = layout.spec, layout.exponents()
    low, high = max(low, MIN_EXPONENT), min(high, MAX_EXPONENT - pairs.bit_length())
    exponents = rng.integers(low, low + _SMALL, spec.k)
    first, second = rng.permutation(spec.k)[: min(pairs, spec.k // 2) * 2].reshape(2, -1)
    exponents[first] = exponents[second] = high - rng.integers(0, _SMALL if pairs > 1 else 1, len(first))
    words = np.array([layout.power(exponent) for exponent in range(low, high + 1)])[exponents - low]
    row, column = words[None, :, 0].astype(spec.a.dtype), words[None, :, 1].astype(spec.b.dtype)
    negative = rng.random(spec.k) < 0.5
    negative[second] = ~negative[first]
    column[0, negative] |= spec.b.dtype.type(spec.b.sign_bit)
    return row, column


def region_of(there: NDArray[np.bool_], elements: int | None = None) -> Region:
    """Return the rows and columns of a block without other elements. Lines with the most others are removed first."""
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    while True:
        others = ~there[np.ix_(rows, columns)]
        if not others.any():
            return Region(rows, columns, int(there.sum()) if elements is None else elements)
        of_rows, of_columns = others.mean(axis=1), others.mean(axis=0)
        if of_rows.max() >= of_columns.max():
            rows = np.delete(rows, int(of_rows.argmax()))
        else:
            columns = np.delete(columns, int(of_columns.argmax()))


def without(region: Region, there: NDArray[np.bool_]) -> Region | None:
    """Return the region without these elements, None if none remain."""
    left = np.zeros_like(there)
    left[np.ix_(region.rows, region.columns)] = True
    taken = int((left & there).sum())
    left &= ~there
    return replace(region_of(left, region.elements - taken), changing=region.changing) if left.any() else None


def ranges(lines: Ints) -> str:
    """Return "0-127", or the first few runs."""
    return first_few(list(number_ranges(lines.tolist())))


def first_few(phrases: Sequence[str]) -> str:
    """Return the first phrases of a list, in a sentence."""
    return ", ".join([*phrases[:MOST_LISTED], *(["…"] if len(phrases) > MOST_LISTED else [])])


# Operand distributions, and number, of the products to compare rows of for several M. Some have a subnormal A, or one as large
# as its format allows.
KINDS, PRODUCTS_SHARED = ("normal", "wide", "cancelling", "same sign"), 16


@dataclass(frozen=True)
class SameRow:
    """Values of M that give the same bits for each shared row. changing: identical calls of some gave other bits.

    of: the name of M in sentences.
    """

    ms: tuple[int, ...]
    changing: bool
    of: str

    def __str__(self) -> str:
        bits = "the same bits for the same row" if len(self.ms) > 1 else "other bits in some row"
        changing = ", which change from call to call" if self.changing else ""
        return f"{self.of} = {', '.join(map(str, self.ms))}: {bits}{changing}"


def same_rows(open_: Callable[[int], BlackBox], ms: Sequence[int], seed: int = 0, of: str = "m") -> list[SameRow]:
    """Group values of M, called `of` in sentences, by the bits of the rows that they share: row i of A and B are the same."""
    rows: dict[int, list[bytes]] = {}
    changing = set()
    for m in ms:
        box, seen = open_(m), [blake2b(digest_size=16) for _ in range(m)]
        for number in range(PRODUCTS_SHARED):
            a, b, scales = _shared(box.spec, max(ms), number, seed)
            d, again = (box.product(a, b, scales) for _ in range(2))
            for row, bits in zip(seen, d, strict=True):
                row.update(bits.tobytes())
            if (d != again).any():
                changing.add(m)
        rows[m] = [row.digest() for row in seen]
    found: list[list[int]] = []
    for m in ms:
        like = (same for same in found if all(x == y for other in same for x, y in zip(rows[m], rows[other], strict=False)))
        if (same := next(like, None)) is not None:
            same.append(m)
        else:
            found.append([m])
    return [SameRow(tuple(same), bool(changing & set(same)), of) for same in found]


def _shared(spec: Spec, most: int, number: int, seed: int) -> tuple[Bits, Bits, ScaleWords | None]:
    """Return operands with the same B and rows of A for every M up to `most`. Every other product has equal rows."""
    rng = np.random.default_rng((seed, number))
    a, b, scales = draw_operands(replace(spec, m=most), KINDS[number // 2 % len(KINDS)], rng)
    if number % 2:
        a, b = same_for_all(replace(spec, m=most), number, rng)
    elif spec.a.is_float and spec.a_exponent is None:
        a = times_power(spec.a, a, (0, spec.a.min_exponent - 2, 0, spec.a.max_exponent - 2)[number // 2 % 4])
    if scales is not None and spec.scale != "tensor":
        scales = ScaleWords(scales.a[: spec.m], scales.b)
    return a[: spec.m], b, scales
