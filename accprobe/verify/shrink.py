"""The smallest counterexample: of a dot product that a model gets wrong, the fewest products on which it still does."""

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

MOST_TRIED = 1 << 14  # Choices of so many products are all tried, smallest first.

Ask = Callable[[Request], Bits]  # What the device answers, or a model.

Choice = tuple[tuple[int, ...], bool]  # The products that are left, and whether C is.


def shrink(query: Ask, inst: Instruction, model: DotModel, found: Counterexample) -> Counterexample | None:
    """The same mismatch with the fewest products that are not 0 × 0, and C zero where it may be.

    Of a sparse A, the same elements are stored, and B has the same where none is.
    None where the device, asked again, does not differ from the model at all: the mismatch does not come back.
    """
    return fewest(query, partial(evaluate, model, inst), inst, found)


def fewest(query: Ask, expect: Ask, inst: Instruction, found: Counterexample) -> Counterexample | None:
    """As `shrink`; `expect` is what the model says."""
    if inst.sparse:
        return _fewest_stored(query, expect, inst, found)
    asked = found.exchange.request(inst)
    whole = tuple(int(k) for k in np.flatnonzero((asked.a[0] != 0) | (asked.b[0] != 0)))

    def first(choices: Sequence[Choice]) -> tuple[Choice, Counterexample] | None:
        """Of the choices the first on which the model is still wrong."""
        operands = _rows(inst, asked, choices)
        got, expected = query(operands), expect(operands)
        still = np.flatnonzero(got != expected).tolist()
        return (choices[still[0]], Counterexample.of(operands, still[0], got, expected, found.kind)) if still else None

    best = first([(whole, True)])
    if best is None:
        return None
    while fewer := first(list(_without_one(best[0]))):
        best = fewer
    left, small = best
    for count in range(len(left[0]) + 1):
        if comb(len(whole), count) > MOST_TRIED:
            break
        choices = [(ks, with_c) for with_c in (False, True) for ks in combinations(whole, count)]
        if smaller := first([choice for choice in choices if _size(choice) < _size(left)]):
            return smaller[1]
    return small


def _fewest_stored(query: Ask, expect: Ask, inst: Instruction, found: Counterexample) -> Counterexample | None:
    known = found.exchange.request(inst)

    def again(dense: Request) -> Request:
        return laid_out_like(inst, known, dense)

    dense = Exchange.of(stored_products(inst, known), 0, found.exchange.answer(inst))
    small = fewest(
        lambda asked: query(again(asked)), lambda asked: expect(again(asked)), inst.stored, replace(found, exchange=dense)
    )
    if small is None:
        return None
    request = again(small.exchange.request(inst.stored))
    return replace(small, exchange=Exchange.of(request, 0, small.exchange.answer(inst)))


def _size(choice: Choice) -> tuple[int, bool]:
    return len(choice[0]), choice[1]


def _without_one(choice: Choice) -> Iterable[Choice]:
    ks, with_c = choice
    yield from ((ks[:i] + ks[i + 1 :], with_c) for i in range(len(ks)))
    if with_c:
        yield ks, False


def _rows(inst: Instruction, asked: Request, choices: Sequence[Choice]) -> Request:
    keep = np.zeros((len(choices), inst.k), bool)
    for row, (ks, _) in enumerate(choices):
        keep[row, list(ks)] = True
    with_c = np.array([with_c for _, with_c in choices])
    alike = asked[[0] * len(choices)]
    a, b = (np.where(keep, x, x.dtype.type(0)) for x in (alike.a, alike.b))
    return replace(alike, a=a, b=b, c=np.where(with_c, alike.c, inst.c.dtype.type(0)))
