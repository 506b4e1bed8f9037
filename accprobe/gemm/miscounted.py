"""Operands of which a product with missing, repeated or mispaired k is an ordinary product, for plans to be tried on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.miscounts import Miscounts
from accprobe.gemm.known_plans import Sizes, sizes, slices
from accprobe.gemm.pairs import Ints
from accprobe.isa.formats import Bits

OMITTED = -1
"""Stands for a zero in place of an operand."""

MOST_COUNTED = 2
"""Products that are counted more often than this have no plan here."""


class Arrangement(NamedTuple):
    """For each product in turn, the k of A and the k of B, or OMITTED; sizes: of slices to try."""

    a: Ints
    b: Ints
    sizes: list[Sizes]

    def operands(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Of a [M, K] and b [N, K]."""
        x, y = (np.where(ks == OMITTED, 0, words[:, ks]).astype(words.dtype) for ks, words in ((self.a, a), (self.b, b)))
        return x, y


def arrangements(found: Miscounts) -> Iterator[Arrangement]:
    """The ways in which a program comes to count products so, the likeliest first."""
    k = len(found.counts)
    every, missing, twice = np.arange(k), found.counts == -1, found.counts == 1
    if found.is_mispaired:
        a, b = np.where(missing, OMITTED, every), np.where(missing, OMITTED, found.partner)
        yield Arrangement(a, b, list(sizes(k)))
        if len(np.unique(found.partner)) == k:
            order = np.argsort(found.partner)
            yield Arrangement(a[order], b[order], list(sizes(k)))
        return
    if missing.all() or (found.counts < -1).any() or (found.counts >= MOST_COUNTED).any():
        return
    if missing.any() and not twice.any():
        zeroed, left = np.where(missing, OMITTED, every), every[~missing]
        yield Arrangement(zeroed, zeroed, list(sizes(k)))
        yield Arrangement(left, left, list(sizes(len(left))))
    elif missing.sum() == twice.sum():
        read = every.copy()
        read[missing] = every[twice]
        yield Arrangement(read, read, list(sizes(k)))
    elif not missing.any():
        yield from _repeated(every, twice)


def _repeated(every: Ints, twice: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Arrangement]:
    """Once more right behind, by slices that overlap or a loop that runs once too often; or at the end."""
    ks, k = every[twice], len(every)
    low, high = int(ks[0]), int(ks[-1]) + 1
    if high - low == len(ks):
        behind = np.concatenate([every[:high], ks, every[high:]])
        overlapping: list[Sizes] = []
        for size in sizes(k)[1:]:
            borders = [part.stop for part in slices(k, size)]
            if low in borders or high in borders:
                moved = [high if border == low else border + len(ks) * (border > high) for border in borders]
                steps = np.diff([0, *moved[:-1], k + len(ks)])
                overlapping += [tuple(steps.tolist())] if steps.all() else []
        yield Arrangement(behind, behind, [*overlapping, *sizes(len(behind))])
    after = np.concatenate([every, ks])
    yield Arrangement(after, after, list(sizes(len(after))))
