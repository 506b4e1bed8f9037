"""Which chains are of one slice, where slices are added in any order: found from the sets of results over identical calls.

Beside X in one chain and -X in another, a unit of a third chain comes out, or is lost. Chains of one slice cancel before their
slice is added to others: units of all other slices come out in every call. Where the two are of two slices, those of a third
come out in some orders and are lost in others, and those of these two slices are always lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.decomposition import FusedGroups, Reduction
from accprobe.gemm.dynamic_range import measured_units
from accprobe.gemm.pairs import Ints
from accprobe.gemm.tree_builder import NoTree
from accprobe.gemm.units import Units, power, units_in
from accprobe.model.product import nested

MOST_SLICES = 8
"""Slices, every order of which is tried."""

MOST_ROWS, MOST_COLUMNS = 64, 512
"""Rows and columns in which units are counted, far from one another."""

QUIET = 16
"""Identical calls in which the units of other chains always come out, of two chains that are of one slice: where one order has
them first nine times of ten, and each call is one sample alone, two slices are taken for one in one of five runs. Each tile of
rows and columns with an order of its own is a further sample.
"""


def in_slices(asked: RecordedCallable, rows: Ints, columns: Ints, chains: Sequence[FusedGroups]) -> Reduction:
    """The chains as chunks of slices, each of which goes up K. Raises NoTree where there are too many slices, or so few that
    their order does not matter.
    """
    each = measured_units(
        asked, rows, columns, np.array(sorted(k for chain in chains for group in chain for k in group), np.int64)
    )
    rows, columns = (lines[:: -(-len(lines) // most)] for lines, most in ((rows, MOST_ROWS), (columns, MOST_COLUMNS)))
    firsts = np.array([chain[0][0] for chain in chains], np.int64)
    slices: list[list[int]] = []
    for number in range(len(chains)):
        of = next(
            (slice_ for slice_ in slices[::-1] if _are_of_one(asked, rows, columns, each, firsts, slice_[0], number)), None
        )
        if of is None:
            slices.append([])
            of = slices[-1]
        of.append(number)
        if len(slices) > MOST_SLICES:
            raise NoTree(f"more than {MOST_SLICES} slices are added in any order")
    if len(slices) < 3:
        raise NoTree("results change from call to call, and not by the order in which three slices or more are added")
    parts = [tuple(chains[i] for i in slice_) for slice_ in slices]
    merged = tuple(part[0] if len(part) == 1 else Reduction(part, nested("forward", len(part))) for part in parts)
    return Reduction(merged, nested("forward", len(merged)))


def _are_of_one(asked: RecordedCallable, rows: Ints, columns: Ints, each: Units, firsts: Ints, one: int, other: int) -> bool:
    """Whether the units of some chain come out in every call, and those of all others always or never."""
    spec = asked.spec
    if len(firsts) < 3:
        return False
    beside = np.resize(np.delete(firsts, [one, other]), len(rows))
    a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
    large_a, large_b = each.large
    for k, negative in ((firsts[one], False), (firsts[other], True)):
        a[:, k], b[:, k] = power(spec.a, large_a), power(spec.b, large_b, negative=negative)
    a[rows, beside] = power(spec.a, each.unit[0])
    b[:, beside] = power(spec.b, each.unit[1])
    chain = np.searchsorted(np.unique(beside), beside)
    always, never = (np.ones(chain.max() + 1, bool) for _ in range(2))
    for _ in range(QUIET):
        units = units_in(asked.product(a, b, keep=False)[np.ix_(rows, columns)], spec, each)
        always &= _in_each(chain, units == 1)
        never &= _in_each(chain, units == 0)
        if not (always | never).all() or not always.any():
            return False
    return True


def _in_each(chain: Ints, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of each chain, whether it is so in all its rows."""
    return np.asarray(np.bincount(chain, ~there.all(axis=1)) == 0)
