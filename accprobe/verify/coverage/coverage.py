"""Functional coverage: the events of a model's sums that dot products reached, and operands for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request, alike
from accprobe.records.verification import COVERING, NOT_FOUND, Advance, Events, Verification, silent
from accprobe.verify.corpora import stored_operands, tries_of
from accprobe.verify.coverage.events import Key
from accprobe.verify.coverage.integers import DRAWS, ODD_PRODUCTS, integer_operands
from accprobe.verify.coverage.search import Reached, search
from accprobe.verify.coverage.trace import MODELS_KEPT, RowNumbers, trace_of
from accprobe.verify.layouts import layout_operands, with_layouts
from accprobe.verify.random import Known, compared, known_pairs, predicted_batches

AT_ONCE = 512  # Dot products of one request.

DOTS_KEPT = 1 << 20  # Most random dot products that are kept for the next instruction like it.

SEEN = 1 << 11  # Random dot products of each batch to determine the events of; directed operands reach the others.


class Covering(NamedTuple):
    """Dot products that reach the events of a model: rows of `request` for each. tries: how many were tried."""

    request: Request
    rows: dict[tuple[Key, int], RowNumbers]
    tries: int


class Coverage:
    """The events of a model, and which of them dot products reached."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._key = alike(inst), model, seed
        self._trace = trace_of(alike(inst), model)
        self._reached = Reached(self._trace.families)

    def see(self, request: Request) -> None:
        self._reached.see(self._trace.of(request))

    def add(self, other: Coverage) -> None:
        """Count the events that another coverage of the model has counted."""
        for key, hit in other._reached.hit.items():
            self._reached.hit[key] |= hit

    def directed(self) -> Iterator[Request]:
        """Yield operands for the events that are missing now, a few hundred dot products at a time; count what they reach."""
        made = covering(*self._key)
        missing = [rows for (key, code), rows in made.rows.items() if not self._reached.hit[key][code]]
        rows = sorted({row for rows in missing for row in rows.tolist()})
        for start in range(0, len(rows), AT_ONCE):
            request = made.request[rows[start : start + AT_ONCE]]
            yield request
            self.see(request)

    def outcome(self) -> Events:
        """Return the counts, and the names of events that were missed though operands for them are known or must exist."""
        made, hits, missing, unknown = covering(*self._key), 0, list[str](), 0
        for key, names in self._trace.families.items():
            for code, (name, hit) in enumerate(zip(names, self._reached.hit[key].tolist(), strict=True)):
                known = key[0] < 0 or (key, code) in made.rows
                hits += bool(name) and hit
                missing += [name] * (known and not hit and bool(name))
                unknown += bool(name) and not (hit or known)
        others = {f"{NOT_FOUND} in {made.tries:,} tries": unknown} if unknown else {}
        return Events(hits, hits + len(missing), others, tuple(sorted(missing)))


def cover(
    subject: InstructionSubject,
    model: DotModel,
    dots: int = 1 << 14,
    seed: int = 0,
    advance: Advance = silent,
    before: Verification | None = None,
) -> Verification:
    """Verify on random dot products, on every pair of codes, and on operands for the events that remain.

    Of each batch only the first SEEN dot products count for the events. before: what was compared already, which counts too.
    """
    inst = subject.inst
    coverage = Coverage(inst, model, seed)

    def known() -> Iterator[Known]:
        if dots <= DOTS_KEPT:
            random, covered = _random(alike(inst), model, dots, seed)
            yield from random
            coverage.add(covered)
        else:
            for part in _undirected(inst, model, dots, seed):
                coverage.see(part.request[:SEEN])
                yield part
        of_layouts = layout_operands(subject.runs, subject.used, seed) if subject.runs.sparse else ()
        for request in chain(coverage.directed(), of_layouts):
            yield Known(COVERING, request, evaluate(model, inst, request))

    done, events = compared(subject, known(), seed, advance, before), coverage.outcome()
    return replace(done, events=with_layouts(events, subject.runs, subject.used) if subject.runs.sparse else events)


@lru_cache(maxsize=1)
def _random(inst: Instruction, model: DotModel, dots: int, seed: int) -> tuple[tuple[Known, ...], Coverage]:
    """Return random dot products and what they cover: the same for instructions that are alike and measured in turn."""
    drawn, coverage = tuple(_undirected(inst, model, dots, seed)), Coverage(inst, model, seed)
    for part in drawn:
        coverage.see(part.request[:SEEN])
    return drawn, coverage


def _undirected(inst: Instruction, model: DotModel, dots: int, seed: int) -> Iterator[Known]:
    """Yield random dot products, and every pair of codes of operands and of scales, if they are few."""
    yield from predicted_batches(inst, model, dots, seed)
    yield from known_pairs(inst, model)


@lru_cache(maxsize=MODELS_KEPT)
def covering(inst: Instruction, model: DotModel, seed: int) -> Covering:
    """Return dot products that cover the model. Pass `alike` instructions: they share the result."""
    stored, tries = stored_operands(inst), tries_of(inst, model)
    if inst.is_integer:
        request = integer_operands(inst, model, np.random.default_rng([seed, inst.k]))
        tries = len(request)
    elif stored is not None and tries is not None:
        request = stored
    else:
        request, tries = search(trace_of(inst, model), seed, () if stored is None else (stored,))
    rows = trace_of(inst, model).covering_rows(request)
    chosen = {place: every[:DRAWS] if place[0][1] == ODD_PRODUCTS else every[[0, -1]] for place, every in rows.items()}
    some = np.unique(np.concatenate(list(chosen.values())))
    return Covering(request[some], {place: np.searchsorted(some, own) for place, own in chosen.items()}, tries)
