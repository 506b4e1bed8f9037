"""The smallest counterexample: the fewest products of a dot product on which a model still mispredicts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import comb

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.request import Request
from accprobe.operands.sparse import laid_out_like, stored_products

MOST_TRIED = 1 << 14  # Numbers of products with at most so many choices are tried in full, smallest first.

ResultsOf = Callable[[Request], Bits]  # The results of a device, or of a model.

Choice = tuple[tuple[int, ...], bool]  # The products that are kept, and whether C is.


def shrink(query: ResultsOf, inst: Instruction, model: DotModel, found: Counterexample) -> Counterexample | None:
    """Return the same mismatch with the fewest products that are not 0 × 0, and C zero if possible.

    A sparse A keeps its metadata, and B its left-out elements. None if the mismatch does not occur again.
    """
    return fewest(query, partial(evaluate, model, inst), inst, found)


def fewest(query: ResultsOf, expect: ResultsOf, inst: Instruction, found: Counterexample) -> Counterexample | None:
    """As `shrink`; `expect` returns the model's results."""
    if inst.sparse:
        return _fewest_stored(query, expect, inst, found)
    request = found.exchange.request(inst)
    whole = tuple(int(k) for k in np.flatnonzero((request.a[0] != 0) | (request.b[0] != 0)))

    def first(choices: Sequence[Choice]) -> tuple[Choice, Counterexample] | None:
        """Return the first choice that is still a mismatch."""
        operands = _chosen(inst, request, choices)
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


def _fewest_stored(query: ResultsOf, expect: ResultsOf, inst: Instruction, found: Counterexample) -> Counterexample | None:
    known = found.exchange.request(inst)

    def again(dense: Request) -> Request:
        return laid_out_like(inst, known, dense)

    dense = Exchange.of(stored_products(inst, known), 0, found.exchange.result(inst))
    of_stored = replace(found, exchange=dense)
    small = fewest(lambda stored: query(again(stored)), lambda stored: expect(again(stored)), inst.stored, of_stored)
    if small is None:
        return None
    request = again(small.exchange.request(inst.stored))
    return replace(small, exchange=Exchange.of(request, 0, small.exchange.result(inst)))


def _size(choice: Choice) -> tuple[int, bool]:
    return len(choice[0]), choice[1]


def _without_one(choice: Choice) -> Iterable[Choice]:
    ks, with_c = choice
    yield from ((ks[:i] + ks[i + 1 :], with_c) for i in range(len(ks)))
    if with_c:
        yield ks, False


def _chosen(inst: Instruction, request: Request, choices: Sequence[Choice]) -> Request:
    """Return a dot product for each choice."""
    keep = np.zeros((len(choices), inst.k), bool)
    for row, (ks, _) in enumerate(choices):
        keep[row, list(ks)] = True
    with_c = np.array([with_c for _, with_c in choices])
    repeated = request[[0] * len(choices)]
    a, b = (np.where(keep, x, x.dtype.type(0)) for x in (repeated.a, repeated.b))
    return replace(repeated, a=a, b=b, c=np.where(with_c, repeated.c, inst.c.dtype.type(0)))
