"""Generate dot products of a few terms at chosen places of the summation tree, which distinguish arithmetics.

Most are X + y - X. The remainder of y shows which bits a sum keeps beside X and how it rounds, wherever X, y and -X lie: in one
fused sum, in successive sums, in chunks or in slices. Others have random terms at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.gemm import dots
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.dots import TERMS, ProbedDots, SparseDots
from accprobe.gemm.layout import ANY_SIGNIFICAND, Ints, layout_of, product_exponents
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import every_chain
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ProductModel
from accprobe.model.tree import FloatArithmetic

# Bits below X where formats and accumulators end.
WIDTHS = range(7, 29)

# Maximum bits from the largest to the smallest term.
DEEPEST = 45

# Pairs of products of each sign whose sum is too large for D.
OVERFLOWING_PAIRS = 4

# Maximum number of chains that are probed, chosen at random.
MOST_CHAINS = 64

# Dot products with y in a given chain. In so many of them X and -X lie in other chains, -X in one that is added later, whether
# partial sums are added from the first or from the last.
DOTS_OF_CHAIN, ACROSS = 32, 24

# The k of each fused sum of some chains.
Chains = Sequence[Sequence[Sequence[int]]]


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
    """Choose the k of the terms, [n, TERMS]: in any sums, in one sum, in different sums, or in different chains, as far as
    there are as many. The first term is X, the last -X.
    """
    places = [place for chain in chains for place in chain]
    widest = max(map(len, places))
    table = np.array([[place[i % len(place)] for i in range(widest)] for place in places], np.int64)
    lengths = np.array([len(place) for place in places])
    same_sum = rng.integers(0, len(places), (n, TERMS))
    same_sum[:, 1 + TERMS // 3 :] = same_sum[:, [1 + TERMS // 3]]
    same_sum[:, 1 : 1 + TERMS // 3] = same_sum[:, [1]]
    different = rng.random((n, max(TERMS, len(places)))).argsort(axis=1)[:, :TERMS] % len(places)
    of_chain = np.array([len(chain) for chain in chains])
    which = rng.random((n, max(TERMS, len(chains)))).argsort(axis=1)[:, :TERMS] % len(chains)
    in_chains = (np.cumsum(of_chain) - of_chain)[which] + (rng.random((n, TERMS)) * of_chain[which]).astype(np.int64)
    sums = np.sort(np.choose(rng.integers(0, 3, (n, 1)), (same_sum, different, in_chains)), axis=1)
    turn = rng.integers(0, widest, (n, 1)) + np.arange(TERMS)
    return np.asarray(table[sums, turn % lengths[sums]])


def _terms(spec: Spec, n: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Draw signs (0: no term), exponents and significands (in eighths, or ANY_SIGNIFICAND), each [n, TERMS].

    X and -X are the first and the last. Between them lie at most three terms, each smaller than the one before. Some have X
    twice, which makes the sum one bit longer, and -2X. A third of the dot products have six terms of any size.
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
    """Return dot products of one or two terms that are too large for D, of either sign; None if no factors reach so far."""
    layout, largest = layout_of(spec), spec.out.max_exponent
    highest = layout.exponents()[1]
    if not spec.out.is_float or spec.out.infinity is None or highest < largest or len(ks) < 2 or spec.scale is not None:
        return None
    terms = [(largest, largest), *((exponent,) for exponent in sorted({largest + 1, highest}) if exponent > largest)]
    rows = [(pair, of, sign) for pair in range(min(OVERFLOWING_PAIRS, len(ks) // 2)) for of in terms for sign in (0, 1)]
    found = SparseDots(*(np.zeros((len(rows), 2), dtype) for dtype in (np.int64, spec.a.dtype, spec.b.dtype)))
    for row, (pair, of, sign) in enumerate(rows):
        found.ks[row] = ks[pair], ks[-1 - pair]
        for t, exponent in enumerate(of):
            a, b = layout.power(exponent)
            found.a[row, t], found.b[row, t] = a, b | sign * spec.b.sign_bit
    return found


def observed_overflow(model: ProductModel, probed: ProbedDots) -> tuple[str, ...]:
    """Return each unexpected result with the plan's own, such as "NaN for -Inf"."""
    expected = dots.predicted(model, probed.dots)
    pairs = {(int(got), int(wanted)) for got, wanted in zip(probed.d, expected, strict=True) if got != wanted}
    return tuple(sorted({f"{_special(model.result, got)} for {_special(model.result, wanted)}" for got, wanted in pairs}))


def _special(fmt: Format, pattern: int) -> str:
    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return "NaN" if np.isnan(value) else f"{value:g}".replace("inf", "Inf")


@dataclass(frozen=True)
class ChainCoverage:
    """Results of dot products that reach `reached` of all `chains`."""

    probed: ProbedDots
    chains: int
    reached: int


def probe_chains(subject: RecordedCallable, region: Region, plan: ProductPlan, seed: int) -> ChainCoverage:
    """Probe every chain of a plan, or a random sample of `MOST_CHAINS`, and the additions of their sums."""
    rng = np.random.default_rng((seed, 0xC4A1))
    chains = [np.array([k for group in chain for k in group]) for chain in every_chain(plan.tree)]
    sample = rng.permutation(len(chains))[:MOST_CHAINS]
    ks = np.concatenate([_chain_places(chains, int(i), rng) for i in sample])
    probed = dots.probe(subject, _last_bit_dots(plan, ks[rng.permutation(len(ks))], rng), region.rows, region.columns)
    there = np.unique(probed.dots.ks[:, 1])
    return ChainCoverage(probed, len(chains), sum(bool(np.isin(chains[i], there).any()) for i in sample))


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


def _last_bit_dots(plan: ProductPlan, ks: Ints, rng: np.random.Generator) -> SparseDots:
    """Return X + y - X at these k, with y up to four bits below the last bit of X in a format of the plan's sums."""
    low, high = product_exponents(plan.spec)
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
    a, b = layout_of(plan.spec).patterns(signs, exponents_of, significands, rng)
    return SparseDots(ks, a, b)


def _fraction_bits(plan: ProductPlan) -> Iterator[int]:
    """Yield the fraction bits of the plan's sums."""
    yield plan.running.mantissa_bits
    if plan.kept is not None:
        yield plan.kept.mantissa_bits
    for arithmetic in plan.step.arithmetics:
        if isinstance(arithmetic, FloatArithmetic):
            yield from (arithmetic.result_bits, arithmetic.alignment_bits or arithmetic.result_bits)
