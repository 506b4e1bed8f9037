"""How much of what a model's sums can do dot products made them do, and operands for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Device
from accprobe.devices.stored import StoredProducts
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.families import FAMILIES
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import fields_of, with_values
from accprobe.model.record import Value
from accprobe.model.tree import Arithmetic, DotModel
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.codes import every_pair, every_scale
from accprobe.verify.coverage.covering import Maker, classes
from accprobe.verify.coverage.events import CANCEL_AT, Event, EventFamily, Key
from accprobe.verify.coverage.factors import TermNumbers
from accprobe.verify.coverage.families import families
from accprobe.verify.coverage.integers import (
    ODD_PRODUCTS,
    IntegerTrace,
    integer_addends,
    integer_families,
    integer_operands,
    odd_operands,
)
from accprobe.verify.coverage.left_out import as_asked, layout_operands
from accprobe.verify.coverage.scales import scale_operands
from accprobe.verify.coverage.spans import bounds
from accprobe.verify.coverage.trace import Trace
from accprobe.verify.outcome import CODE_PAIRS, COVERING, Advance, Events, Verification, silent
from accprobe.verify.random import Known, compared, parts

AT_ONCE = 512  # Dot products that are given at once.

MODELS_KEPT = 256  # Models whose dot products are kept.

# Words that no chip is known to need, and the one that stands for each; of others the first that its field has.
NEAREST: dict[Value, Value] = {"RNA": "RNE", "nearest away": "nearest"}

DOTS_KEPT = 1 << 20  # Random dot products that are kept for the next instruction like it, at most.

KEPT_WHOLE = (ODD_PRODUCTS, CANCEL_AT)  # Families of events of which all operands that are made are kept.

# Random dot products whose events are looked for, of those that are drawn at once: what these do not meet is made.
SEEN = 1 << 11

EventPlace = tuple[Key, int]  # An event: its family, and its code there.


@dataclass(frozen=True)
class Covering:
    """Dot products that do all that a model's sums can: rows of `request` by event.

    tried: how many were made; those that are missing in rows have no operands among them.
    """

    request: Request
    rows: dict[EventPlace, tuple[int, ...]]
    tried: int


class Coverage:
    """What the sums of a model can do, and what dot products made them do.

    Of a model that does what no chip is known to do, it is what they would do without that.
    """

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, as_usual(model), seed
        self._events = _families(_alike(inst), self._model)
        self._trace = _trace(inst, self._model)
        self._hit = {key: np.zeros(len(events), bool) for key, events in self._events.items()}
        self._not_found = ""

    def see(self, request: Request) -> None:
        """Counts what these dot products make the model's sums do."""
        for key, _, codes in self._trace.of(request):
            self._hit[key] |= np.bincount(codes[codes >= 0], minlength=len(self._hit[key])) > 0

    def add(self, other: Coverage) -> None:
        """Counts what another coverage of the model has seen."""
        for key, hit in other._hit.items():
            self._hit[key] |= hit

    def missing(self) -> tuple[Event, ...]:
        """What can happen and did not."""
        return tuple(event for event, reason in self.unmet() if not reason)

    def wrong(self) -> tuple[str, ...]:
        """Events that were met although they are said to be impossible: none, unless a bound is wrong."""
        every = (
            (event, hit) for key, events in self._events.items() for event, hit in zip(events, self._hit[key], strict=True)
        )
        return tuple(event.name for event, hit in every if event and hit and event.impossible)

    def directed(self) -> Iterator[Request]:
        """Operands made for what is missing now, a few hundred dot products at a time; they count once they are asked."""
        made = covering(self._inst, self._model, self._seed)
        wanted = {
            (key, code): made.rows[key, code]
            for key, events in self._events.items()
            for code, event in enumerate(events)
            if event and not event.impossible and not self._hit[key][code] and (key, code) in made.rows
        }
        rows = sorted({row for rows in wanted.values() for row in rows})
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            yield made.request[some]
            asked = set(some)
            for (key, code), places in wanted.items():
                self._hit[key][code] |= not asked.isdisjoint(places)
        self._not_found = f"no operands were found in {made.tried:,} tries"

    def outcome(self) -> Events:
        """What was met of what can happen; what can happen and was not is missing."""
        impossible = Counter(reason for _, reason in self.unmet() if reason)
        missing = self.missing()
        hit = sum(int(x.sum()) for x in self._hit.values())
        return Events(hit, hit + len(missing), dict(sorted(impossible.items())), tuple(sorted(event.name for event in missing)))

    def unmet(self) -> Iterator[tuple[Event, str]]:
        """Events that were not met, with why they cannot be; empty: they can."""
        for key, events in self._events.items():
            for event, hit in zip(events, self._hit[key], strict=True):
                if event and not hit:
                    yield event, event.impossible or (self._not_found if event.hard else "")


def cover(
    device: Device,
    inst: Instruction,
    model: DotModel,
    dots: int = 1 << 14,
    seed: int = 0,
    advance: Advance = silent,
    stored: StoredProducts | None = None,
) -> Verification:
    """As `random.verify`, then on every pair of codes, and on operands made for every event that none of these met.

    stored: what lays dense questions of `inst` out for a sparse A, if any does; operands are made for its events too.
    """
    if inst.sparse:
        asked = StoredProducts(device, inst)
        return as_asked(asked, cover(asked, inst.stored, model, dots, seed, advance, asked))
    coverage = Coverage(inst, model, seed)

    def known() -> Iterator[Known]:
        if dots <= DOTS_KEPT:
            random = _random(_alike(inst), model, dots, seed)
            yield from random.parts
            coverage.add(random.coverage)
        else:
            for part in _asked(inst, model, dots, seed):
                coverage.see(part.request[:SEEN])
                yield part
        for request in chain(coverage.directed(), layout_operands(stored.inst, stored.used, seed) if stored else ()):
            yield Known(COVERING, request, evaluate(model, inst, request))

    done = compared(device, inst, known(), seed, advance)
    return replace(done, events=coverage.outcome())


class _Random(NamedTuple):
    """Random dot products, and what they cover."""

    parts: tuple[Known, ...]
    coverage: Coverage


@lru_cache(maxsize=1)
def _random(inst: Instruction, model: DotModel, dots: int, seed: int) -> _Random:
    """Made once for instructions that are alike and measured one after another."""
    drawn, coverage = tuple(_asked(inst, model, dots, seed)), Coverage(inst, model, seed)
    for part in drawn:
        coverage.see(part.request[:SEEN])
    return _Random(drawn, coverage)


def _asked(inst: Instruction, model: DotModel, dots: int, seed: int) -> Iterator[Known]:
    """Random dot products, and every pair of codes where there are few, of operands and of scales."""
    yield from parts(inst, model, dots, seed)
    for codes in (every_pair(inst, model), every_scale(inst)):
        if codes is not None:
            yield Known(CODE_PAIRS, codes, evaluate(model, inst, codes))


def together(random: Verification, covered: Verification) -> Verification:
    """What two verifications of one model came to; events are those of the second."""
    kinds = {kind: random.kinds.get(kind, 0) + covered.kinds.get(kind, 0) for kind in {**random.kinds, **covered.kinds}}
    return replace(
        random,
        dots=random.dots + covered.dots,
        mismatches=random.mismatches + covered.mismatches,
        kinds=kinds,
        counterexample=random.counterexample or covered.counterexample,
        events=covered.events,
    )


def covering(inst: Instruction, model: DotModel, seed: int) -> Covering:
    """Dot products that cover the model; made once for all instructions of these formats."""
    return _covering(_alike(inst), model, seed)


def as_usual(model: DotModel) -> DotModel:
    """The model with the nearest values that chips are known to have."""
    changed = model.with_arithmetic(lambda arithmetic: with_values(arithmetic, _unlike_any(arithmetic)))
    return with_values(changed, _unlike_any(model))


def _unlike_any(described: Arithmetic | DotModel) -> dict[str, Value]:
    found = ((name, field, getattr(described, name)) for name, field in fields_of(type(described)).items())
    return {
        name: NEAREST.get(value, field.compiled[0])
        for name, field, value in found
        if not (field.has_events or field.is_compiled(value))
    }


def _alike(inst: Instruction) -> Instruction:
    """One for all instructions whose dot products are alike."""
    return replace(
        inst, name="dot product", family=FAMILIES[0], m=1, n=1, satfinite=False, a_registers=False, kind=None, mnemonic=None
    )


@lru_cache(maxsize=MODELS_KEPT)
def _covering(inst: Instruction, model: DotModel, seed: int) -> Covering:
    return _Search(inst, model, seed).found()


@lru_cache(maxsize=MODELS_KEPT)
def _families(inst: Instruction, model: DotModel) -> dict[Key, EventFamily]:
    return integer_families(inst, model) if inst.is_integer else families(inst, model)


def _trace(inst: Instruction, model: DotModel) -> Trace | IntegerTrace:
    return IntegerTrace(inst, model) if inst.is_integer else Trace(inst, model)


class _Search:
    """The search for dot products that cover a model."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int) -> None:
        self._inst, self._model = inst, model
        self._rng = np.random.default_rng([seed, inst.k])
        self._trace, self._events = _trace(inst, model), _families(inst, model)
        self._parts: list[Request] = []
        self._rows: dict[EventPlace, tuple[int, ...]] = {}
        self._size = self._tried = 0

    def found(self) -> Covering:
        """All that were found."""
        if self._inst.is_integer:
            self._taken(-1, integer_addends(self._inst))
            for i, node in enumerate(self._model.root.nodes()):
                if node.products:
                    self._taken(i, odd_operands(self._inst, node, self._rng))
                self._taken(i, integer_operands(self._inst, node))
        else:
            self._find_floats()
        return Covering(joined(self._parts), self._rows, self._tried)

    def _find_floats(self) -> None:
        self._taken(-1, joined([classes(self._inst, self._rng), scale_operands(self._inst, self._rng)]))
        alike: dict[object, list[TermNumbers]] = {}
        for i, (node, bound) in enumerate(zip(self._model.root.nodes(), bounds(self._inst, self._model), strict=True)):
            maker = Maker(self._inst, self._model, node, bound, self._rng)
            known = alike.setdefault(maker.likeness, [])
            for made in maker.every(list(known)):
                taken = self._taken(i, made.request)
                if made.numbers is not None and len(taken):
                    known.append(made.numbers.at(taken))
                if not self._wanted(i):
                    break

    def _wanted(self, i: int) -> set[EventPlace]:
        """Events of that sum that no dot product has yet."""
        own = {key: events for key, events in self._events.items() if key[0] == i}
        every = {(key, code) for key, events in own.items() for code, e in enumerate(events) if e and not e.impossible}
        return every - self._rows.keys()

    def _taken(self, i: int, request: Request) -> NDArray[np.intp]:
        """Rows that do what none before did: they are kept, the first and the last that do it, or all of some."""
        wanted, found = self._wanted(i), dict[EventPlace, set[int]]()
        self._tried += len(request)
        for key, where, codes in self._trace.of(request, i) if len(request) else ():
            for code in {code for of, code in wanted if of == key}:
                rows = where[codes == code]
                if len(rows):
                    some = rows.tolist() if key[1] in KEPT_WHOLE else [int(rows.min()), int(rows.max())]
                    every = found.get((key, code), set[int]()).union(some)
                    found[key, code] = every if key[1] in KEPT_WHOLE else {min(every), max(every)}
        taken = np.array(sorted(set[int]().union(*found.values())), np.intp)
        for place, every in found.items():
            self._rows[place] = tuple(self._size + int(np.searchsorted(taken, row)) for row in sorted(every))
        if len(taken):
            self._parts.append(request[taken])
            self._size += len(taken)
        return taken
