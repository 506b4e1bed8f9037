"""Dot products that reach every chain of a plan, and every addition of its sum: X + y - X, y about the last bit of X."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accprobe.gemm import battery
from accprobe.gemm.battery import TERMS, Answered, Sparse
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.decomposition import every_chain
from accprobe.gemm.layout import ANY_SIGNIFICAND, layout_of
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.regions import Region
from accprobe.model.tree import FloatArithmetic

MOST_CHAINS = 64
"""Chains that are probed, each: where a product has more, as many are drawn at random."""

DOTS_OF_CHAIN, ACROSS = 32, 24
"""Dot products that have y in a chain. So many have X and -X in other chains: -X in one that is added later, whether sums are
added from the first or from the last.
"""


@dataclass(frozen=True)
class ChainCoverage:
    """Results of dot products that reach `probed` of all `chains`."""

    answered: Answered
    chains: int
    probed: int


def probe_chains(asked: RecordedCallable, region: Region, plan: ProductPlan, seed: int) -> ChainCoverage:
    """Probe each chain, or a random sample of `MOST_CHAINS`."""
    rng = np.random.default_rng((seed, 0xC4A1))
    chains = [np.array([k for group in chain for k in group]) for chain in every_chain(plan.tree)]
    sample = rng.permutation(len(chains))[:MOST_CHAINS]
    ks = np.concatenate([_places(chains, int(i), rng) for i in sample])
    dots = _dots(plan, ks[rng.permutation(len(ks))], rng)
    answered = battery.query(asked, dots, region.rows, region.columns)
    reached = np.unique(answered.dots.ks[:, 1])
    return ChainCoverage(answered, len(chains), sum(bool(np.isin(chains[i], reached).any()) for i in sample))


def _places(chains: list[Ints], i: int, rng: np.random.Generator) -> Ints:
    """k of X, y and, last, -X, [DOTS_OF_CHAIN, TERMS]: y in chain i."""
    ks = rng.choice(chains[i], (DOTS_OF_CHAIN, TERMS))
    others = np.delete(np.arange(len(chains)), i)
    for row in range(ACROSS if len(others) else 0):
        of_large = rng.choice(others)
        after = others[others > max(i, of_large)] if row % 2 else others[others < min(i, of_large)]
        ks[row, 0] = rng.choice(chains[of_large])
        ks[row, -1] = rng.choice(chains[rng.choice(after if len(after) else others)])
    return ks


def _dots(plan: ProductPlan, ks: Ints, rng: np.random.Generator) -> Sparse:
    """X + y - X at these k, y one to four bits below the last bit of X in some format that sums of the plan have."""
    low, high = battery.exponents(plan.spec)
    widths = np.array(sorted({min(bits, high - low - 2) for bits in _widths(plan)}))
    n = len(ks)
    top = high - 1 - rng.integers(0, 2, n)
    down = np.minimum(rng.choice(widths, n) + rng.integers(0, 4, n), top - low)
    signs = np.zeros((n, TERMS), np.int64)
    signs[:, :2] = rng.choice([-1, 1], (n, 2))
    signs[:, -1] = -signs[:, 0]
    exponents, significands = np.tile(top[:, None], TERMS), np.full((n, TERMS), 8)
    exponents[:, 1] -= down
    significands[:, 1] = ANY_SIGNIFICAND
    a, b = layout_of(plan.spec).patterns(signs, exponents, significands, rng)
    return Sparse(ks, a, b)


def _widths(plan: ProductPlan) -> Iterator[int]:
    """Fraction bits that sums of the plan have."""
    yield plan.running.mantissa_bits
    if plan.kept is not None:
        yield plan.kept.mantissa_bits
    for arithmetic in plan.step.arithmetics:
        if isinstance(arithmetic, FloatArithmetic):
            yield from (arithmetic.result_bits, arithmetic.alignment_bits or arithmetic.result_bits)
