"""Dot products of a few terms: probe them, compare them with a model, and describe those that contradict it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.product import product
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Ints, layout_of
from accprobe.isa.formats import Bits, Format
from accprobe.model.product import ProductModel, restricted

# Maximum number of terms of a dot product.
TERMS = 6

# Maximum number of calls of one probe.
MOST_CALLS = 512

# Results that a plan is compared with before all others. Most wrong plans fail at these.
FIRST = 96


@dataclass(frozen=True)
class SparseDots:
    """Dot products that are zero except at a few k: ks, a, b [n, TERMS]. If a is zero, the term is absent."""

    ks: Ints
    a: Bits
    b: Bits

    def __len__(self) -> int:
        return len(self.ks)

    def __getitem__(self, rows: NDArray[np.intp] | Truths | slice) -> SparseDots:
        return SparseDots(self.ks[rows], self.a[rows], self.b[rows])

    @property
    def used(self) -> Ints:
        return np.unique(self.ks)


@dataclass(frozen=True)
class ProbedDots:
    """Dot products with their results d [n]."""

    dots: SparseDots
    d: Bits

    def __len__(self) -> int:
        return len(self.d)

    def __getitem__(self, rows: NDArray[np.intp] | Truths | slice) -> ProbedDots:
        return ProbedDots(self.dots[rows], self.d[rows])

    def within(self, ks: Iterable[int]) -> ProbedDots:
        """Return those whose terms all lie at these k."""
        inside = np.isin(self.dots.ks, np.fromiter(ks, np.int64)) | (self.dots.a == 0)
        return self[inside.all(axis=1)]


def joined_dots(several: Sequence[ProbedDots]) -> ProbedDots:
    columns = (np.concatenate([getattr(x.dots, name) for x in several]) for name in ("ks", "a", "b"))
    return ProbedDots(SparseDots(*columns), np.concatenate([x.d for x in several]))


def probe(subject: RecordedCallable, dots: SparseDots, rows: Ints, columns: Ints) -> ProbedDots:
    """Probe dot products, each with its own operands, spread over these rows and columns of D."""
    spec, layout = subject.spec, layout_of(subject.spec)
    side = len(layout.independent_pairs(rows, columns)[0])
    count = min(len(dots), side * MOST_CALLS)
    d = np.empty(count, spec.out.dtype)
    for start in range(0, count, side):
        part = dots[start : min(start + side, count)]
        n = len(part)
        y, x = (lines[:n] for lines in layout.independent_pairs(np.roll(rows, -start), np.roll(columns, -start)))
        a, b = layout.blank()
        _place(part, a, y, b, x, part.ks)
        d[start : start + n] = subject.product(a, b)[y, x]
    return ProbedDots(dots[:count], d)


def _place(dots: SparseDots, a: Bits, rows: Ints, b: Bits, columns: Ints, ks: Ints) -> None:
    """Write the terms of each dot product into its row of A and column of B at these k [n, TERMS], in place."""
    for t in range(ks.shape[1]):
        there = dots.a[:, t] != 0
        a[rows[there], ks[there, t]] = dots.a[there, t]
        b[columns[there], ks[there, t]] = dots.b[there, t]


def predicted(model: ProductModel, dots: SparseDots) -> Bits:
    """Return the results of a model, [n]. Partial sums in no fixed order are added forward."""
    return product(*_restricted(model, dots))[:, 0, 0]


def mismatching(model: ProductModel, probed: ProbedDots) -> Truths:
    """Return which results the model does not explain, [n]."""
    if not len(probed):
        return np.zeros(0, bool)
    if not model.is_ordered:
        return ~given_by_some_order(*_restricted(model, probed.dots), probed.d)
    expected = predicted(model, probed.dots)
    # The sign of zero depends on sums without terms, which are left out here.
    zeros = (expected | probed.d) << expected.dtype.type(1) == 0
    return np.asarray((expected != probed.d) & ~(zeros & model.result.is_float))


def count_mismatches(model: ProductModel, probed: ProbedDots) -> int:
    return int(np.count_nonzero(mismatching(model, probed)))


def count_in_range(model: ProductModel, probed: ProbedDots) -> int:
    """Count mismatches, except those of two subnormal words, which are counted among the kept results."""
    if not count_mismatches(model, probed):
        return 0
    subnormal = model.result.is_subnormal(predicted(model, probed.dots)) & model.result.is_subnormal(probed.d)
    return count_mismatches(model, probed[np.flatnonzero(~subnormal)])


def _restricted(model: ProductModel, dots: SparseDots) -> tuple[ProductModel, Bits, Bits]:
    """Return the model of only those sums that have terms, and operands for it, [n, 1, k]."""
    smaller, ks = restricted(model, dots.used)
    used = dots.used
    a, b = (np.zeros((len(dots), len(used) + 1), fmt.dtype) for fmt in (model.a, model.b))
    lines = np.arange(len(dots))
    _place(dots, a, lines, b, lines, np.searchsorted(used, dots.ks))
    columns = np.minimum(np.searchsorted(used, ks), len(used) - 1)
    columns[used[columns] != ks] = len(used)
    return smaller, a[:, None, columns], b[:, None, columns]


def counterexamples(model: ProductModel, probed: ProbedDots) -> str:
    """Describe up to three unlike results that the model does not explain, "" if it explains all.

    The first has the fewest terms, nearest to one another in size; the second another number of terms; the third differs most.
    """
    probed = probed[np.flatnonzero(mismatching(model, probed))]
    if not len(probed):
        return ""
    dots, got = probed.dots, probed.d
    terms = model.a.values(dots.a).astype(np.float64) * model.b.values(dots.b)
    there = _present(dots)
    sizes = np.where(there, np.log2(np.abs(terms), where=there, out=np.zeros_like(terms)), np.nan)
    order = np.lexsort([np.nanmax(sizes, axis=1) - np.nanmin(sizes, axis=1), there.sum(axis=1)])
    expected = predicted(model, dots)
    farthest = max(order, key=lambda i: ulps(model.result, int(got[i]), int(expected[i])) or 0)
    other = next((i for i in order if there[i].sum() != there[order[0]].sum()), order[0])
    found = []
    for i in dict.fromkeys(map(int, (order[0], other, farthest))):
        products = ", ".join(f"{terms[i, t]:.9g} at k = {dots.ks[i, t]}" for t in np.argsort(dots.ks[i]) if there[i, t])
        found.append(f"products {products}, all others 0: {got_and_expected(model.result, int(got[i]), int(expected[i]))}")
    return "; ".join(found)


def _present(dots: SparseDots) -> Truths:
    """Return which terms are present, [n, TERMS]. The last of two at one k is."""
    there = dots.a != 0
    later = (dots.ks[:, :, None] == dots.ks[:, None]) & there[:, None] & np.triu(np.ones((there.shape[1],) * 2, bool), 1)
    return np.asarray(there & ~later.any(axis=2))


def got_and_expected(fmt: Format, got: int, expected: int) -> str:
    """Return "0x3f800001 (1.00000012), expected 0x3f800000 (1), 1 ulp"."""
    distance = "" if (far := ulps(fmt, got, expected)) is None else f", {far:,} ulp"
    return f"{_pattern(fmt, got)}, expected {_pattern(fmt, expected)}{distance}"


def ulps(fmt: Format, got: int, expected: int) -> int | None:
    """Return the distance in units in the last place; None of infinities, NaNs and integers."""
    words = np.array([got, expected], fmt.dtype)
    if fmt.is_integer or not np.isfinite(fmt.values(words)).all():
        return None
    first, second = ordered(fmt, words)
    return abs(int(first) - int(second))


def ordered(fmt: Format, words: Bits) -> Ints:
    """Return integers whose differences count the numbers of the format in between."""
    if fmt.is_integer:
        return fmt.integers(words)
    size = (words & fmt.dtype.type(fmt.sign_bit - 1)).astype(np.int64)
    return np.where(words & fmt.dtype.type(fmt.sign_bit), -size, size)


def _pattern(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x} ({value:.9g})"
