"""How far apart the numbers of a product can be: what its operands, partial sums and results hold, as it is asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.multiplicity import alone
from accprobe.gemm.pairs import Ints
from accprobe.gemm.spec import Spec
from accprobe.gemm.units import Units, candidates, fewer, power, units_in
from accprobe.isa.formats import Bits

SOME, FEWER = 32, 64
"""Draws of units all over K that are counted, and how many fewer each may have than are counted at once: formats that keep a
bit less are told by odd numbers.
"""


def measured_units(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints) -> Units:
    """The farthest apart of which a unit comes out alone at each k and large numbers cancel, whatever the two are, and as many
    units as are counted without rounding. The nearest where none does.
    """
    several = list(candidates(asked.spec))
    for each in several[:-1]:
        if _comes_out(asked, rows, columns, leaves, each) and _cancels(asked, rows, columns, leaves, each):
            return _counting(asked, rows, columns, leaves, each)
    return _counting(asked, rows, columns, leaves, several[-1])


def _comes_out(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    words = (power(fmt, e) for fmt, e in zip((asked.spec.a, asked.spec.b), each.unit, strict=True))
    return bool(np.all(alone(asked, rows, columns, leaves, *words) == 2.0 ** sum(each.unit)))


def _cancels(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> bool:
    """A large number of each row with one of each column, all over K."""
    spec = asked.spec
    order = np.random.default_rng(len(leaves)).permutation(leaves)
    half = len(order) // 2
    if not half:
        return True
    i, j = np.resize(order[:half], len(rows)), np.resize(order[half:], len(columns))
    a, b = _zeros(spec)
    a[rows, i], b[:, i] = (power(fmt, e) for fmt, e in zip((spec.a, spec.b), each.large, strict=True))
    a[:, j] = power(spec.a, each.large[0])
    b[columns, j] = power(spec.b, each.large[1], negative=True)
    d = asked.product(a, b)[np.ix_(rows, columns)]
    return bool(np.all(spec.out.values(d) == 0))


def _counting(asked: RecordedCallable, rows: Ints, columns: Ints, leaves: Ints, each: Units) -> Units:
    """With as few units at once as are counted rightly: of neighbours, and all over K."""
    rng = np.random.default_rng(len(leaves))
    for most in fewer(each.most):
        runs = [leaves[start : start + most] for start in range(0, len(leaves), most)]
        runs += [rng.permutation(leaves)[:most] for _ in range(SOME)]
        runs = [run[rng.permutation(len(run)) >= rng.integers(0, FEWER)] for run in runs]
        if all(_counts(asked, rows, columns, runs[top : top + len(rows)], each) for top in range(0, len(runs), len(rows))):
            break
    return replace(each, most=most)


def _counts(asked: RecordedCallable, rows: Ints, columns: Ints, runs: list[Ints], each: Units) -> bool:
    spec = asked.spec
    a, b = _zeros(spec)
    for row, run in zip(rows, runs, strict=False):
        a[row, run] = power(spec.a, each.unit[0])
    b[:, :] = power(spec.b, each.unit[1])
    d = asked.product(a, b)[np.ix_(rows[: len(runs)], columns)]
    sizes = np.array([len(run) for run in runs])
    return bool(np.all(units_in(d, spec, each) == sizes[:, None]))


def _zeros(spec: Spec) -> tuple[Bits, Bits]:
    return np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
