"""Dot products of a few terms at chosen places of the tree, by which arithmetics are told apart.

Most are X + y - X: what is left of y tells which bits a sum keeps beside X and how it rounds, wherever in the tree X, y and -X
stand: in one sum, in sums that follow one another, in chunks, in slices. Others have random terms at the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.product import product
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import ANY_SIGNIFICAND, layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import MAX_EXPONENT
from accprobe.isa.formats import FORMATS, Bits
from accprobe.model.product import ProductModel, restricted

TERMS = 6
"""Terms of a dot product, at most."""

PRODUCT_REACH = 60
"""Exponents of products lie within so many of 0, and within what the formats have."""

MOST_CALLS = 512

WIDTHS = range(7, 29)
"""Bits below X where formats and accumulators end."""

DEEPEST = 45
"""Bits that the smallest term lies below the largest, at most."""


@dataclass(frozen=True)
class Sparse:
    """Dot products that are zero but for a few k: ks, a, b [n, TERMS]; where a is zero, so is the product."""

    ks: Ints
    a: Bits
    b: Bits

    def __len__(self) -> int:
        return len(self.ks)

    def __getitem__(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Sparse:
        return Sparse(self.ks[rows], self.a[rows], self.b[rows])

    @property
    def used(self) -> Ints:
        return np.unique(self.ks)


@dataclass(frozen=True)
class Answered:
    """Dot products with what came back: d [n]."""

    dots: Sparse
    d: Bits

    def __len__(self) -> int:
        return len(self.d)

    def __getitem__(self, rows: NDArray[np.intp] | slice) -> Answered:
        return Answered(self.dots[rows], self.d[rows])


def query(asked: RecordedCallable, dots: Sparse, rows: Ints, columns: Ints) -> Answered:
    """Asks them, each with operands of its own, spread over the rows and columns of D."""
    spec, layout = asked.spec, layout_of(asked.spec)
    side = len(layout.independent_pairs(rows, columns)[0])
    count = min(len(dots), side * MOST_CALLS)
    d = np.empty(count, spec.out.dtype)
    for start in range(0, count, side):
        part = dots[start : min(start + side, count)]
        n = len(part)
        y, x = (lines[:n] for lines in layout.independent_pairs(np.roll(rows, -start), np.roll(columns, -start)))
        a, b = layout.blank()
        for t in range(part.ks.shape[1]):
            there = part.a[:, t] != 0
            a[y[there], part.ks[there, t]] = part.a[there, t]
            b[x[there], part.ks[there, t]] = part.b[there, t]
        d[start : start + n] = asked.product(a, b)[y, x]
    return Answered(dots[:count], d)


def predicted(model: ProductModel, dots: Sparse) -> Bits:
    """What a model makes of them, [n]; unordered sums added forward."""
    return product(*_few(model, dots))[:, 0, 0]


def wrong(model: ProductModel, answered: Answered) -> int:
    """Answers that the model does not explain."""
    return int(np.count_nonzero(unexplained(model, answered)))


def unexplained(model: ProductModel, answered: Answered) -> NDArray[np.bool_]:
    """Which answers those are, [n]."""
    if not len(answered):
        return np.zeros(0, bool)
    if model.is_ordered:
        return _differ(model, predicted(model, answered.dots), answered.d)
    return ~given_by_some_order(*_few(model, answered.dots), answered.d)


def wrong_in_range(model: ProductModel, answered: Answered) -> int:
    """As `wrong`, without the mismatches whose two words are both subnormal; those count among the kept results."""
    return wrong(model, answered) and wrong(model, answered[np.flatnonzero(~_both_subnormal(model, answered))])


def _both_subnormal(model: ProductModel, answered: Answered) -> NDArray[np.bool_]:
    expected = predicted(model, answered.dots)
    return model.result.is_subnormal(expected) & model.result.is_subnormal(answered.d)


def _differ(model: ProductModel, expected: Bits, d: Bits) -> NDArray[np.bool_]:
    """But for the sign of a zero, which sums without terms decide, and these are left out."""
    zeros = (expected | d) << expected.dtype.type(1) == 0
    return np.asarray((expected != d) & ~(zeros & model.result.is_float))


def _few(model: ProductModel, dots: Sparse) -> tuple[ProductModel, Bits, Bits]:
    """The model with the sums alone in which the dot products have terms, and operands for it, [n, 1, k]."""
    smaller, ks = restricted(model, dots.used)
    used = dots.used
    a, b = (np.zeros((len(dots), len(used) + 1), fmt.dtype) for fmt in (model.a, model.b))
    which, place = np.arange(len(dots)), np.searchsorted(used, dots.ks)
    for t in range(dots.ks.shape[1]):
        there = dots.a[:, t] != 0
        a[which[there], place[there, t]] = dots.a[there, t]
        b[which[there], place[there, t]] = dots.b[there, t]
    columns = np.minimum(np.searchsorted(used, ks), len(used) - 1)
    columns[used[columns] != ks] = len(used)
    return smaller, a[:, None, columns], b[:, None, columns]


def exponents(spec: Spec) -> tuple[int, int]:
    """The lowest and the highest exponent of a product that is asked: its factors have it, and D has it."""
    lowest, highest = layout_of(spec).exponents()
    f32 = FORMATS["f32"]
    low = max(lowest, spec.out.min_exponent - spec.out.mantissa_bits, f32.min_exponent + 24, -PRODUCT_REACH)
    half = "f16" in (spec.a.name, spec.b.name)  # partial sums may be kept in f16
    return low, min(highest, MAX_EXPONENT if half else PRODUCT_REACH, spec.out.max_exponent - 4)


def drawn(spec: Spec, chains: Sequence[Sequence[Sequence[int]]], n: int, seed: int) -> Sparse:
    """n dot products with terms in some sums of some chains: k of each sum, in the order in which they follow one another."""
    rng = np.random.default_rng(seed)
    ks = _ks(chains, n, rng)
    signs, exponents_of, significands = _terms(spec, n, rng)
    a, b = layout_of(spec).patterns(signs, exponents_of, significands, rng)
    return Sparse(ks, a, b)


def exchanged(spec: Spec, chains: Sequence[Sequence[Sequence[int]]], n: int, seed: int) -> Sparse:
    """As `drawn`, with what A has there in B: subnormals."""
    dots = drawn(replace(spec, a=spec.b, b=spec.a), chains, n, seed)
    return Sparse(dots.ks, dots.b, dots.a)


def asks_subnormals(spec: Spec) -> bool:
    """Whether f32 sums of its products may be subnormal, and D shows it."""
    f32 = FORMATS["f32"]
    reach = layout_of(spec).exponents()[0] < f32.min_exponent - f32.mantissa_bits
    return spec.a_exponent is None and reach and spec.out.name in ("f32", "bf16")


def tiny(spec: Spec, chains: Sequence[Sequence[Sequence[int]]], n: int, seed: int) -> Sparse:
    """As `drawn`, of one term or two: products about f32's smallest, where they are rounded otherwise, or flushed."""
    rng = np.random.default_rng(seed)
    ks = _ks(chains, n, rng)
    signs = np.zeros((n, TERMS), np.int64)
    signs[:, 0] = rng.choice([-1, 1], n)
    signs[:, 1] = -signs[:, 0] * (rng.random(n) < 0.5)
    f32 = FORMATS["f32"]
    least = np.where(rng.random((n, 1)) < 0.5, f32.min_exponent - 2, f32.min_exponent - f32.mantissa_bits - 1)
    exponents_of = rng.integers(least, f32.min_exponent + 2, (n, TERMS))
    a, b = layout_of(spec).patterns(signs, exponents_of, np.full((n, TERMS), ANY_SIGNIFICAND), rng)
    return Sparse(ks, a, b)


def _ks(chains: Sequence[Sequence[Sequence[int]]], n: int, rng: np.random.Generator) -> Ints:
    """Where the terms are, [n, TERMS]: some in any sums, also in one alone, some in different sums, some in different chains,
    as far as there are so many. The first of them is X, the last -X.
    """
    places = [place for chain in chains for place in chain]
    widest = max(map(len, places))
    table = np.array([[place[i % len(place)] for i in range(widest)] for place in places], np.int64)
    lengths = np.array([len(place) for place in places])
    together = rng.integers(0, len(places), (n, TERMS))
    together[:, 1 + TERMS // 3 :] = together[:, [1 + TERMS // 3]]
    together[:, 1 : 1 + TERMS // 3] = together[:, [1]]
    independent_pairs = rng.random((n, max(TERMS, len(places)))).argsort(axis=1)[:, :TERMS] % len(places)
    of_chain = np.array([len(chain) for chain in chains])
    which = rng.random((n, max(TERMS, len(chains)))).argsort(axis=1)[:, :TERMS] % len(chains)
    in_chains = (np.cumsum(of_chain) - of_chain)[which] + (rng.random((n, TERMS)) * of_chain[which]).astype(np.int64)
    sums = np.sort(np.choose(rng.integers(0, 3, (n, 1)), (together, independent_pairs, in_chains)), axis=1)
    turn = rng.integers(0, widest, (n, 1)) + np.arange(TERMS)
    return np.asarray(table[sums, turn % lengths[sums]])


def _terms(spec: Spec, n: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Signs (0: no term), exponents and significands, in eighths or DRAWN, each [n, TERMS].

    X and -X are the first and the last; between them lie at most three terms, each smaller than the one before. Some have X
    twice, so that the sum is a bit longer, and -2X. A third has six terms of any size.
    """
    low, high = exponents(spec)
    kind, shape = rng.integers(0, 6, n), (n, TERMS)
    top = high - 1 - rng.integers(0, max(1, (high - low) // 4), n)
    deep = np.minimum(top - low, DEEPEST)
    signs = rng.choice([-1, 1], shape)
    down = 1 + (rng.random((n, 1)) * deep[:, None]).astype(np.int64)
    down = np.minimum(np.where(rng.random((n, 1)) < 0.5, rng.choice(WIDTHS, (n, 1)), down), deep[:, None])
    finer = down + rng.integers(1, 4, (n, 1))
    finest = down + rng.integers(2, 30, (n, 1))
    zero = np.zeros((n, 1), np.int64)
    below = np.hstack([zero, down, finer, finest, zero, zero])
    significands = np.full(shape, 8)
    significands[:, 1] = rng.choice([8, 8, 8, 12, 10, 15], n)
    significands[:, [0, -1]] = np.where(rng.random((n, 1)) < 0.25, 12, 8)
    signs[:, -1] = -signs[:, 0]
    signs[:, 4] = 0
    signs[kind < 2, 2] = 0
    signs[kind < 3, 3] = 0
    twice = (kind >= 2) & (rng.random(n) < 0.5)
    below[twice, 2], below[twice, 1], below[twice, -1] = below[twice, 1], 0, -1
    signs[twice, 1], significands[twice, 1] = signs[twice, 0], significands[twice, 0]
    any_size = kind >= 4
    below[any_size] = (
        rng.random(shape) * np.minimum(deep[:, None], np.where(kind[:, None] == 4, DEEPEST, rng.choice([12, 28], (n, 1))))
    )[any_size]
    signs[any_size] = rng.choice([-1, 1], shape)[any_size]
    significands[any_size] = np.where(kind[:, None] == 4, rng.integers(8, 16, shape), ANY_SIGNIFICAND)[any_size]
    return signs, np.maximum(top[:, None] - below, low), significands
