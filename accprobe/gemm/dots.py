"""Dot products of a few terms at chosen places of the summation tree: draw and probe them, and compare them with a model.

Most are X + y - X. The remainder of y shows which bits a sum keeps beside X and how it rounds. X, y and -X lie in one fused
sum, in successive sums, in chunks or in slices. Others have random terms at the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import ANY_SIGNIFICAND, Ints, layout_of, product_exponents
from accprobe.callables.spec import Spec
from accprobe.evaluate.any_order import given_by_some_order
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.product import product
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.plans import additions_of
from accprobe.gemm.verification import got_and_expected, ulps
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel, restricted
from accprobe.model.tree import FloatArithmetic

# Maximum number of terms of a dot product.
TERMS = 6
# Maximum number of calls of one probe.
MOST_CALLS = 512
# Results that a plan is compared with before all others. Most wrong plans fail at these.
FIRST = 96
# Bits below X where formats and accumulators end.
WIDTHS = range(7, 29)
# Maximum bits from X to y, and from the largest to the smallest of terms of any size.
DEEPEST = 45
# Maximum number of pairs of k at which products, or sums of two, are too large for D.
OVERFLOWING_PAIRS = 4
# Maximum number of chains that are probed, chosen at random.
MOST_CHAINS = 64
# Dot products with y in a given chain. ACROSS of them have X and -X in other chains. Where possible, -X lies after X and y: in
# half of them if partial sums are added in order, in the others if they are added from the last.
DOTS_OF_CHAIN, ACROSS = 32, 24

# The k of each fused sum of some chains.
Chains = Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class SparseDots:
    """Dot products that are zero except at a few k: ks, a, b [n, up to TERMS], results d [n], empty before they are probed.

    If a is zero, the term is absent.
    """

    ks: Ints
    a: Bits
    b: Bits
    d: Bits = field(default_factory=lambda: np.zeros(0, np.uint32))

    def __len__(self) -> int:
        return len(self.ks)

    def __getitem__(self, rows: NDArray[np.intp] | Truths | slice) -> SparseDots:
        return SparseDots(self.ks[rows], self.a[rows], self.b[rows], self.d[rows] if len(self.d) else self.d)

    def within(self, ks: Iterable[int]) -> SparseDots:
        """Return the dot products with all terms at these k."""
        inside = np.isin(self.ks, np.fromiter(ks, np.int64)) | (self.a == 0)
        return self[inside.all(axis=1)]


def joined_dots(parts: Sequence[SparseDots]) -> SparseDots:
    return SparseDots(*(np.concatenate([getattr(x, name) for x in parts]) for name in ("ks", "a", "b", "d")))


def probe(subject: RecordedCallable, dots: SparseDots, rows: Ints, columns: Ints) -> SparseDots:
    """Return the dot products that fit in MOST_CALLS calls, with results. Each has its own operands and element of D."""
    spec, layout = subject.spec, layout_of(subject.spec)
    side = len(layout.independent_pairs(rows, columns)[0])
    dots = dots[: side * MOST_CALLS]
    if spec.a_exponent is not None:

        def fill(lines: Bits, some: slice) -> None:
            numbers = np.arange(len(lines))
            _place(dots[some], np.empty_like(lines), numbers, lines, numbers, dots.ks[some])

        return replace(dots, d=subject.of_columns(layout.blank()[0], rows[0], columns, len(dots), fill))
    d = np.empty(len(dots), spec.out.dtype)
    for start in range(0, len(dots), side):
        part = dots[start : start + side]
        n = len(part)
        y, x = (lines[:n] for lines in layout.independent_pairs(np.roll(rows, -start), np.roll(columns, -start)))
        a, b = layout.blank()
        _place(part, a, y, b, x, part.ks)
        d[start : start + n] = subject.product(a, b)[y, x]
    return replace(dots, d=d)


def _place(dots: SparseDots, a: Bits, rows: Ints, b: Bits, columns: Ints, ks: Ints) -> None:
    """Write the terms of each dot product into its row of A and column of B at these k [n, TERMS], in place."""
    for t in range(ks.shape[1]):
        there = dots.a[:, t] != 0
        a[rows[there], ks[there, t]] = dots.a[there, t]
        b[columns[there], ks[there, t]] = dots.b[there, t]


def predicted(model: ProductModel, dots: SparseDots) -> Bits:
    """Return the results of a model, [n]. Partial sums in no fixed order are added forward."""
    return product(*_restricted(model, dots))[:, 0, 0]


def mismatching(model: ProductModel, probed: SparseDots) -> Truths:
    """Return which results the model does not explain, [n]."""
    if not len(probed):
        return np.zeros(0, bool)
    if not model.is_ordered:
        return ~given_by_some_order(*_restricted(model, probed), probed.d)
    expected = predicted(model, probed)
    # The sign of zero depends on sums without terms, which are left out here.
    zeros = (expected | probed.d) << expected.dtype.type(1) == 0
    return np.asarray((expected != probed.d) & ~(zeros & model.result.is_float))


def count_mismatches(model: ProductModel, probed: SparseDots) -> int:
    return int(np.count_nonzero(mismatching(model, probed)))


def count_in_range(model: ProductModel, probed: SparseDots) -> int:
    """Count mismatches, except of two subnormal words, which `KeptResults.subnormal` counts."""
    wrong = probed[np.flatnonzero(mismatching(model, probed))]
    if not len(wrong):
        return 0
    subnormal = model.result.is_subnormal(predicted(model, wrong)) & model.result.is_subnormal(wrong.d)
    return int(np.count_nonzero(~subnormal))


def _restricted(model: ProductModel, dots: SparseDots) -> tuple[ProductModel, Bits, Bits]:
    """Return the model of only those sums that have terms, and operands for it, [n, 1, k]."""
    used = np.unique(dots.ks)
    smaller, ks = restricted(model, used)
    a, b = (np.zeros((len(dots), len(used) + 1), fmt.dtype) for fmt in (model.a, model.b))
    lines = np.arange(len(dots))
    _place(dots, a, lines, b, lines, np.searchsorted(used, dots.ks))
    columns = np.minimum(np.searchsorted(used, ks), len(used) - 1)
    columns[used[columns] != ks] = len(used)
    return smaller, a[:, None, columns], b[:, None, columns]


def counterexamples(model: ProductModel, probed: SparseDots) -> str:
    """Describe up to three unlike results that the model does not explain, "" if it explains all.

    The first has the fewest terms, nearest to one another in size; the second another number of terms; the third differs most.
    """
    probed = probed[np.flatnonzero(mismatching(model, probed))]
    if not len(probed):
        return ""
    got = probed.d
    terms = model.a.values(probed.a).astype(np.float64) * model.b.values(probed.b)
    there = _present(probed)
    sizes = np.where(there, np.log2(np.abs(terms), where=there, out=np.zeros_like(terms)), np.nan)
    order = np.lexsort([np.nanmax(sizes, axis=1) - np.nanmin(sizes, axis=1), there.sum(axis=1)])
    expected = predicted(model, probed)
    farthest = max(order, key=lambda i: ulps(model.result, int(got[i]), int(expected[i])) or 0)
    other = next((i for i in order if there[i].sum() != there[order[0]].sum()), order[0])
    found = []
    for i in dict.fromkeys(map(int, (order[0], other, farthest))):
        products = ", ".join(f"{terms[i, t]:.9g} at k = {probed.ks[i, t]}" for t in np.argsort(probed.ks[i]) if there[i, t])
        found.append(f"products {products}, all others 0: {got_and_expected(model.result, int(got[i]), int(expected[i]))}")
    return "; ".join(found)


def _present(dots: SparseDots) -> Truths:
    """Return which terms are present, [n, TERMS]. A later term at the same k replaces an earlier one."""
    there = dots.a != 0
    later = (dots.ks[:, :, None] == dots.ks[:, None]) & there[:, None] & np.triu(np.ones((there.shape[1],) * 2, bool), 1)
    return np.asarray(there & ~later.any(axis=2))


def sparse_probes(spec: Spec, chains: Chains, n: int, seed: int) -> SparseDots:
    """Return n dot products with terms in some sums of some chains."""
    rng = np.random.default_rng(seed)
    ks = _ks(chains, n, rng)
    signs, exponents_of, significands = _terms(spec, n, rng)
    a, b = layout_of(spec).patterns(signs, exponents_of, significands, rng)
    return SparseDots(ks, a, b)


def exchanged_probes(spec: Spec, chains: Chains, n: int, seed: int) -> SparseDots:
    """Return `sparse_probes` with the operands exchanged: B then has subnormals."""
    found = sparse_probes(replace(spec, a=spec.b, b=spec.a), chains, n, seed)
    return SparseDots(found.ks, found.b, found.a)


def tie_probes(spec: Spec, plan: ProductModel, chains: Chains, n: int, seed: int) -> SparseDots:
    """Return n dot products near a tie of D, with all terms in the last fused sum of a chain.

    In a narrow D, nothing else shows the last bit of a sum that carried. The next sum truncates it when it aligns the running
    sum. D rounds it off unless it decides a tie. The terms are X, two X or four X, mostly half a unit in the last place of D,
    and y near the sum's last bit.
    """
    rng = np.random.default_rng(seed)
    low, high = product_exponents(spec)
    ks = np.stack([np.resize(rng.permutation(chains[i][-1]), TERMS) for i in rng.integers(0, len(chains), n)])
    times, wide = rng.integers(0, 3, n), rng.random(n) < 0.5
    signs = np.zeros((n, TERMS), np.int64)
    signs[:, 0], signs[:, 1], signs[:, 4:] = 1, times > 0, (times > 1)[:, None]
    signs[:, 2] = rng.random(n) < 0.75
    signs *= rng.choice([-1, 1], (n, 1))
    signs[:, 3] = rng.choice([-1, 1], n)
    top = np.repeat(high - 2 - rng.integers(0, 3, (n, 1)), TERMS, axis=1)
    down = np.zeros_like(top)
    down[:, 2] = spec.out.mantissa_bits + 1 - times - wide
    down[:, 3] = rng.choice(sorted(set(_fraction_bits(plan))), n) + rng.integers(0, 4, n)
    significands = np.full((n, TERMS), 8)
    significands[wide[:, None] & (down == 0)] = 12  # 1.5 · 1.5 = 2.25
    a, b = layout_of(spec).patterns(signs, np.maximum(top - down, low), significands, rng)
    return SparseDots(ks, a, b)


def underflow_probes(spec: Spec, chains: Chains, n: int, seed: int) -> SparseDots:
    """Return dot products of one or two terms near f32's smallest numbers, where sums round differently or flush to zero."""
    rng = np.random.default_rng(seed)
    ks = _ks(chains, n, rng)
    signs = np.zeros((n, TERMS), np.int64)
    signs[:, 0] = rng.choice([-1, 1], n)
    signs[:, 1] = -signs[:, 0] * (rng.random(n) < 0.5)
    f32 = FORMATS["f32"]
    least = np.where(rng.random((n, 1)) < 0.5, f32.min_exponent - 2, f32.min_exponent - f32.mantissa_bits - 1)
    exponents_of = rng.integers(least, f32.min_exponent + 2, (n, TERMS))
    a, b = layout_of(spec).patterns(signs, exponents_of, np.full((n, TERMS), ANY_SIGNIFICAND), rng)
    return SparseDots(ks, a, b)


def _ks(chains: Sequence[Sequence[Sequence[int]]], n: int, rng: np.random.Generator) -> Ints:
    """Choose the k of the terms, X first and -X last, [n, TERMS], in up to three sums, in different sums or chains."""
    places = [place for chain in chains for place in chain]
    widest = max(map(len, places))
    table = np.array([[place[i % len(place)] for i in range(widest)] for place in places], np.int64)
    lengths = np.array([len(place) for place in places])
    grouped = rng.integers(0, len(places), (n, TERMS))
    grouped[:, 1 + TERMS // 3 :] = grouped[:, [1 + TERMS // 3]]
    grouped[:, 1 : 1 + TERMS // 3] = grouped[:, [1]]
    different = rng.random((n, max(TERMS, len(places)))).argsort(axis=1)[:, :TERMS] % len(places)
    of_chain = np.array([len(chain) for chain in chains])
    which = rng.random((n, max(TERMS, len(chains)))).argsort(axis=1)[:, :TERMS] % len(chains)
    in_chains = (np.cumsum(of_chain) - of_chain)[which] + (rng.random((n, TERMS)) * of_chain[which]).astype(np.int64)
    sums = np.sort(np.choose(rng.integers(0, 3, (n, 1)), (grouped, different, in_chains)), axis=1)
    turn = rng.integers(0, widest, (n, 1)) + np.arange(TERMS)
    return np.asarray(table[sums, turn % lengths[sums]])


def _terms(spec: Spec, n: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Draw signs (0: no term), exponents and significands (in eighths, or ANY_SIGNIFICAND), each [n, TERMS].

    X and -X are the first and the last. At most three terms lie between them: y and up to two smaller ones. Some have X twice,
    which makes the sum one bit longer, and -2X. A third of the dot products have six terms of any size.
    """
    low, high = product_exponents(spec)
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


def overflow_probes(spec: Spec, ks: Ints) -> SparseDots | None:
    """Return dot products of one or two terms that are too large for D, of either sign; None if spec or ks allow none."""
    layout, largest = layout_of(spec), spec.out.max_exponent
    highest = layout.exponents()[1]
    if not spec.out.is_float or spec.out.infinity is None or highest < largest or len(ks) < 2 or spec.scale is not None:
        return None
    terms = [(largest, largest), *((exponent,) for exponent in sorted({largest + 1, highest}) if largest < exponent <= highest)]
    rows = [(pair, of, sign) for pair in range(min(OVERFLOWING_PAIRS, len(ks) // 2)) for of in terms for sign in (0, 1)]
    found = SparseDots(*(np.zeros((len(rows), 2), dtype) for dtype in (np.int64, spec.a.dtype, spec.b.dtype)))
    for row, (pair, of, sign) in enumerate(rows):
        found.ks[row] = ks[pair], ks[-1 - pair]
        for t, exponent in enumerate(of):
            a, b = layout.power(exponent)
            found.a[row, t], found.b[row, t] = a, b | sign * spec.b.sign_bit
    return found


def observed_overflow(model: ProductModel, probed: SparseDots) -> tuple[str, ...]:
    """Return each unexpected result with the plan's own, such as "NaN for -Inf"."""
    expected = predicted(model, probed)
    pairs = {(int(got), int(wanted)) for got, wanted in zip(probed.d, expected, strict=True) if got != wanted}
    return tuple(sorted({f"{_special(model.result, got)} for {_special(model.result, wanted)}" for got, wanted in pairs}))


def _special(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return "NaN" if np.isnan(value) else f"{value:g}".replace("inf", "Inf")


def probe_chains(subject: RecordedCallable, region: Region, plan: ProductModel) -> tuple[SparseDots, int, int]:
    """Probe every chain of a plan, or a random sample of `MOST_CHAINS`, and the additions of their sums.

    Return the results, the number of chains, and how many of them were reached.
    """
    rng = subject.rng(0xC4A1)
    chains = [chain.taken for chain in plan.chains()]
    sample = rng.permutation(len(chains))[:MOST_CHAINS]
    ks = np.concatenate([_chain_places(chains, int(i), rng) for i in sample])
    probed = probe(subject, _last_bit_dots(subject.spec, plan, ks[rng.permutation(len(ks))], rng), region.rows, region.columns)
    there = np.unique(probed.ks[:, 1])
    return probed, len(chains), sum(bool(np.isin(chains[i], there).any()) for i in sample)


def _chain_places(chains: list[Ints], i: int, rng: np.random.Generator) -> Ints:
    """Return the k of X, y and, last, -X, [DOTS_OF_CHAIN, TERMS], with y in chain i."""
    ks = rng.choice(chains[i], (DOTS_OF_CHAIN, TERMS))
    others = np.delete(np.arange(len(chains)), i)
    for row in range(ACROSS if len(others) else 0):
        of_large = rng.choice(others)
        after = others[others > max(i, of_large)] if row % 2 else others[others < min(i, of_large)]
        ks[row, 0] = rng.choice(chains[of_large])
        ks[row, -1] = rng.choice(chains[rng.choice(after if len(after) else others)])
    return ks


def _last_bit_dots(spec: Spec, plan: ProductModel, ks: Ints, rng: np.random.Generator) -> SparseDots:
    """Return X + y - X at these k, with y up to three bits below X's last bit in a format of the plan's sums."""
    low, high = product_exponents(spec)
    widths = np.array(sorted({min(bits, high - low - 2) for bits in _fraction_bits(plan)}))
    n = len(ks)
    top = high - 1 - rng.integers(0, 2, n)
    down = np.minimum(rng.choice(widths, n) + rng.integers(0, 4, n), top - low)
    signs = np.zeros((n, TERMS), np.int64)
    signs[:, :2] = rng.choice([-1, 1], (n, 2))
    signs[:, -1] = -signs[:, 0]
    exponents_of, significands = np.tile(top[:, None], TERMS), np.full((n, TERMS), 8)
    exponents_of[:, 1] -= down
    significands[:, 1] = ANY_SIGNIFICAND
    a, b = layout_of(spec).patterns(signs, exponents_of, significands, rng)
    return SparseDots(ks, a, b)


def _fraction_bits(plan: ProductModel) -> Iterator[int]:
    """Yield the fraction bits of the plan's sums."""
    how = additions_of(plan)
    yield from (fmt.mantissa_bits for fmt in (how.running, how.kept) if fmt is not None)
    for arithmetic in plan.step.arithmetics:
        if isinstance(arithmetic, FloatArithmetic):
            yield from (arithmetic.result_bits, arithmetic.alignment_bits or arithmetic.result_bits)
