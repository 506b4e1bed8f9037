"""Functional coverage: the events of a model's sums that dot products reached, and operands for the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.build.checkout import data_folder
from accprobe.devices.protocol import InstructionSubject
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request, shapes
from accprobe.verify.code_pairs import every_pair, every_scale
from accprobe.verify.coverage.events import Key
from accprobe.verify.coverage.integers import DRAWS, ODD_PRODUCTS, integer_operands
from accprobe.verify.coverage.search import Reached, search
from accprobe.verify.coverage.trace import MODELS_KEPT, RowNumbers, trace_of
from accprobe.verify.layouts import layout_operands, with_layouts
from accprobe.verify.outcome import CODE_PAIRS, COVERING, NOT_FOUND, Advance, Events, Verification, silent
from accprobe.verify.random import Known, compared, predicted_batches

AT_ONCE = 512  # Dot products of one request.

DOTS_KEPT = 1 << 20  # Most random dot products that are kept for the next instruction like it.

SEEN = 1 << 11  # Random dot products of each batch whose events are determined; directed operands reach the others.


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

    def missing(self) -> tuple[str, ...]:
        """Return the events for which operands are known and that were not reached."""
        return tuple(name for name, hit, expected in self._events() if expected and not hit)

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
        """Return the counts, how many events no operands reached, and the names of those that were missed."""
        every, tries = list(self._events()), covering(*self._key).tries
        hits, missing = sum(hit for _, hit, _ in every), sorted(self.missing())
        unknown = len(every) - hits - len(missing)
        return Events(
            hits, hits + len(missing), {f"{NOT_FOUND} in {tries:,} tries": unknown} if unknown else {}, tuple(missing)
        )

    def _events(self) -> Iterator[tuple[str, bool, bool]]:
        """Yield each event, whether it was reached, and whether operands that reach it are known or must exist."""
        made = covering(*self._key)
        for key, names in self._trace.families.items():
            for code, (name, hit) in enumerate(zip(names, self._reached.hit[key].tolist(), strict=True)):
                if name:
                    yield name, hit, key[0] < 0 or (key, code) in made.rows


def cover(
    subject: InstructionSubject,
    model: DotModel,
    dots: int = 1 << 14,
    seed: int = 0,
    advance: Advance = silent,
    before: Verification | None = None,
) -> Verification:
    """Verify as `random.verify`, then on every pair of codes, and on operands for every event that none of these reached.

    before: what was compared already, which counts too.
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
    for codes in (every_pair(inst, model), every_scale(inst)):
        if codes is not None:
            yield Known(CODE_PAIRS, codes, evaluate(model, inst, codes))


def alike(inst: Instruction) -> Instruction:
    """Return the instruction without fields that do not affect dot products, so that equal dot products share results."""
    return replace(
        inst, name="dot product", family=FAMILIES[0], m=1, n=1, satfinite=False, a_registers=False, kind=None, mnemonic=None
    )


@lru_cache(maxsize=MODELS_KEPT)
def covering(inst: Instruction, model: DotModel, seed: int) -> Covering:
    """Return dot products that cover the model. Pass `alike` instructions: they share the result."""
    request, tries = _operands(inst, model, seed)
    rows = trace_of(inst, model).covering_rows(request)
    chosen = {place: every[:DRAWS] if place[0][1] == ODD_PRODUCTS else every[[0, -1]] for place, every in rows.items()}
    some = np.unique(np.concatenate(list(chosen.values())))
    return Covering(request[some], {place: np.searchsorted(some, own) for place, own in chosen.items()}, tries)


def _operands(inst: Instruction, model: DotModel, seed: int) -> tuple[Request, int]:
    """Return operands, and how many were tried: the stored ones if they cover the model; otherwise search, starting there."""
    if inst.is_integer:
        request = integer_operands(inst, model, np.random.default_rng([seed, inst.k]))
        return request, len(request)
    stored, tries = stored_operands(inst), tries_of(inst, model)
    if stored is not None and tries is not None:
        return stored, tries
    return search(trace_of(inst, model), seed, () if stored is None else (stored,))


# Operands that covered recorded and published models, stored with the reports: coverage replays them before it searches. One
# archive holds them by formats and number of products. `scripts/corpora` writes it.
NAME = "corpora.npz"

MODELS = "models"  # The array of models whose search is done: "DIGEST TRIES" each.


def stored_operands(inst: Instruction) -> Request | None:
    """Return the operands stored for the formats of an instruction; None if there are none."""
    arrays, name = _archive(), signature(inst)
    if f"{name}/c" not in arrays:
        return None
    return Request(**{column: arrays[f"{name}/{column}"] for column in shapes(inst)})


def tries_of(inst: Instruction, model: DotModel) -> int | None:
    """Return how many dot products were tried for the model; None if the stored operands are not known to cover it."""
    return _tries().get(digest(inst, model))


@cache
def _archive() -> dict[str, NDArray[Any]]:
    path = data_folder("reports") / NAME
    if not path.is_file():
        return {}
    with np.load(path) as stored:
        return dict(stored)


@cache
def _tries() -> dict[str, int]:
    lines = (str(line).split() for line in _archive().get(MODELS, np.zeros(0, "U1")))
    return {digest: int(tries) for digest, tries in lines}


def signature(inst: Instruction) -> str:
    """Return a name for all instructions whose operands have the same arrays and formats."""
    scales = () if inst.scale is None else (inst.scale, inst.scale_block)
    return "-".join(map(str, (inst.a, inst.b, inst.c, inst.k, *scales)))


def digest(inst: Instruction, model: DotModel) -> str:
    """Return a short hash of the formats and of the fields of the model that differ from their default."""
    return hashlib.sha256(f"{signature(inst)} {inst.d} {_written(model)}".encode()).hexdigest()[:16]


def _written(value: object) -> str:
    if isinstance(value, Format) or not (is_dataclass(value) or isinstance(value, tuple)):
        return str(value)
    if isinstance(value, tuple):
        return f"({' '.join(map(_written, value))})"
    own = ((field.name, getattr(value, field.name)) for field in fields(value) if getattr(value, field.name) != field.default)
    return f"{type(value).__name__}({' '.join(f'{name}={_written(x)}' for name, x in own)})"
