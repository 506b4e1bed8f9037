"""A small counterexample: few products of a dot product on which a model still mispredicts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Counterexample
from accprobe.operands.request import Request
from accprobe.operands.sparse import laid_out_like, stored_products

MOST_TRIED = 1 << 14  # Numbers of products with at most so many choices are tried in full, smallest first.

ResultsOf = Callable[[Request], Bits]  # The results of a device, or of a model.

Choice = tuple[tuple[int, ...], bool]  # The products that are kept, and whether C is.


def shrink(query: ResultsOf, expect: ResultsOf, inst: Instruction, found: Counterexample) -> Counterexample | None:
    """Return a mismatch of the same dot product with the fewest products that are not 0 × 0, and C zero if possible.

    Fewer may be enough where there are more than MOST_TRIED choices of them. A sparse A keeps its metadata, and B its left-out
    elements. None if the mismatch does not occur again.
    """
    request = found.exchange.request(inst)
    products = stored_products(inst, request)
    whole = tuple(int(k) for k in np.flatnonzero((products.a[0] != 0) | (products.b[0] != 0)))

    def first(choices: Sequence[Choice]) -> tuple[Choice, Counterexample] | None:
        """Return the first choice that is still a mismatch."""
        operands = laid_out_like(inst, request, _chosen(products, choices))
        got, expected = query(operands), expect(operands)
        still = np.flatnonzero(got != expected).tolist()
        return (choices[still[0]], Counterexample.of(operands, still[0], got, expected, found.kind)) if still else None

    best = first([(whole, True)])
    if best is None:
        return None
    while fewer := first(list(_without_one(best[0]))):
        best = fewer
    kept, small = best
    for count in range(len(kept[0]) + 1):
        if comb(len(whole), count) > MOST_TRIED:
            break
        choices = [(ks, with_c) for with_c in (False, True) for ks in combinations(whole, count)]
        if smaller := first([choice for choice in choices if _size(choice) < _size(kept)]):
            return smaller[1]
    return small


def _size(choice: Choice) -> tuple[int, bool]:
    return len(choice[0]), choice[1]


def _without_one(choice: Choice) -> Iterable[Choice]:
    ks, with_c = choice
    yield from ((ks[:i] + ks[i + 1 :], with_c) for i in range(len(ks)))
    if with_c:
        yield ks, False


def _chosen(products: Request, choices: Sequence[Choice]) -> Request:
    """Return the dot product [1, K] with each choice of its products and C."""
    keep = np.zeros((len(choices), products.a.shape[1]), bool)
    for row, (ks, _) in enumerate(choices):
        keep[row, list(ks)] = True
    with_c = np.array([with_c for _, with_c in choices], bool)
    repeated = products[[0] * len(choices)]
    a, b = (np.where(keep, x, x.dtype.type(0)) for x in (repeated.a, repeated.b))
    return replace(repeated, a=a, b=b, c=np.where(with_c, repeated.c, repeated.c.dtype.type(0)))
