"""Which chains are of one slice, where slices are added in any order: those of one are added alike in every call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accprobe.gemm.blackbox import Asked
from accprobe.gemm.growth import NoTree
from accprobe.gemm.pairs import Ints
from accprobe.gemm.parts import Groups, Merging
from accprobe.gemm.reach import measured_units
from accprobe.gemm.units import Units, power, units_in
from accprobe.model.product import nested

MOST_SLICES = 8
"""Slices, every order of which is tried."""

ASKED_AGAIN = 2
"""Calls of a pair of chains; the columns of each are further samples."""


def in_slices(asked: Asked, rows: Ints, columns: Ints, chains: Sequence[Groups]) -> Merging:
    """The chains as chunks of slices, each of which goes up K. Raises NoTree where there are too many slices."""
    each = measured_units(
        asked, rows, columns, np.array(sorted(k for chain in chains for group in chain for k in group), np.int64)
    )
    firsts = np.array([chain[0][0] for chain in chains], np.int64)
    slices: list[list[int]] = []
    for number in range(len(chains)):
        of = next(
            (slice_ for slice_ in slices[::-1] if _are_alike(asked, rows, columns, each, firsts, slice_[0], number)), None
        )
        if of is None:
            slices.append([])
            of = slices[-1]
        of.append(number)
        if len(slices) > MOST_SLICES:
            raise NoTree(f"more than {MOST_SLICES} slices are added in any order")
    parts = [tuple(chains[i] for i in slice_) for slice_ in slices]
    merged = tuple(part[0] if len(part) == 1 else Merging(part, nested("forward", len(part))) for part in parts)
    return Merging(merged, nested("forward", len(merged)))


def _are_alike(asked: Asked, rows: Ints, columns: Ints, each: Units, firsts: Ints, one: int, other: int) -> bool:
    """Whether beside X in one chain and -X in another each unit has one fate: a row has a unit in one of the others."""
    spec = asked.spec
    beside = np.delete(firsts, [one, other])[: len(rows)]
    a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
    large_a, large_b = each.large
    for k, negative in ((firsts[one], False), (firsts[other], True)):
        a[:, k], b[:, k] = power(spec.a, large_a), power(spec.b, large_b, negative=negative)
    a[rows[: len(beside)], beside] = power(spec.a, each.unit[0])
    b[:, beside] = power(spec.b, each.unit[1])
    d = np.stack([asked.product(a, b, keep=False) for _ in range(ASKED_AGAIN)])
    found = units_in(d[:, rows[: len(beside), None], columns], spec, each)
    return bool((found == found[:1, :, :1]).all())
