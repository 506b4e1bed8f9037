"""The journal of one instruction: everything that a device was asked of it, and answered.

Nothing that was answered is forgotten: the model that is inferred in the end is held against all of it. Each question lies in
the tile where the one before ended, so that the whole tile is read. A device that is no pure function is asked again, at once
and later on, in another order and at other places: it must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Device, Passing, dot_expecting
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.budget import Budget
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.tile import Marks
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.request import Request, joined

REPEATED = 8
"""One in so many dot products is asked again at the end."""

MOST_REPEATED = 1 << 14
"""Dot products asked again at the end, at most, unless the tile has more cells."""

LOOKED_INTO = 6
"""Dot products that are asked in every cell, of those whose answers changed and of those that contradict the model."""

AGAIN_AND_AGAIN = 2
"""Of these dot products, for how many a cell has to differ both times, before it is said to be the cell."""

OF_A_QUESTION = 20
"""Dot products that contradict a model, of those that were asked together, that are kept."""

AGAIN = "asked again"
"""The kind of a dot product that has two answers, of which one was expected of the other."""


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One question and its answers `d`. before: dot products asked before it.

    model: the one that it was asked about, if any, which explains all answers but those of the dot products `wrong`.
    """

    request: Request
    d: Bits
    before: int
    model: DotModel | None
    wrong: NDArray[np.intp]


@dataclass(frozen=True)
class Contradictions:
    """How many answers a model does not explain, and some of them, of each question that has any."""

    count: int
    some: tuple[Counterexample, ...]


NONE = Contradictions(0, ())


class Journal(Passing):
    """A device that remembers what it answers about one instruction, and goes on in the tile where it was asked last.

    budget: of the search for a model. dots: asked so far. unstable: those that gave other bits when asked again; changed: the
    first of them, and when that was.
    read, differing: cells of the tile, [M, N], or [0, 0] where there is none: those that answers were read from, and those
    whose answers to some questions, asked again and again, were not those of most.
    """

    def __init__(self, device: Device, inst: Instruction) -> None:
        super().__init__(device)
        self.inst, self.entries, self.budget = inst, list[JournalEntry](), Budget()
        self.dots = self.unstable = self._tiles = 0
        self.changed: Counterexample | None = None
        self.when = ""
        self._suspects: list[Request] = []
        self._placements = device.placements(inst)
        has_tile = self._placements == tile.placements(inst)
        self.read: Marks = np.zeros((inst.m, inst.n) if has_tile else (0, 0), bool)
        self.differing: Marks = np.zeros_like(self.read)

    @classmethod
    def of(cls, device: Device, inst: Instruction) -> Journal:
        """A new one, unless the device is one."""
        return device if isinstance(device, Journal) else cls(device, inst)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self._noted(request, None, lambda: self._device.dot(inst, request, self._place))

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        return self._noted(request, None, lambda: self._expecting(request, expected))

    def ask(self, request: Request, model: DotModel | None = None, expected: Bits | None = None) -> Bits:
        """The answers, [n]. model: what they are expected to be those of; expected: what it has, where that is known."""
        if model is None:
            return self.dot(self.inst, request)
        known = evaluate(model, self.inst, request) if expected is None else expected
        return self._noted(request, (model, known), lambda: self._expecting(request, lambda: known))

    def ask_twice(self, request: Request, model: DotModel | None = None) -> Bits:
        """As `ask`; a device that is no pure function is asked again at once, every other time the last dot products first."""
        d = self.ask(request, model)
        if not self.pure and len(d):
            order = slice(None, None, -1 if len(self.entries) % 2 else 1)
            self._again(request[order], d[order], np.full(len(d), self.entries[-1].before))
        return d

    def repeat(self, rng: np.random.Generator) -> None:
        """Asks a share of everything again, mixed, twice, as much as fills the tile at least; nothing of a pure function."""
        total = sum(len(entry.d) for entry in self.entries)
        if self.pure or not total:
            return
        share = max(min(total // REPEATED, MOST_REPEATED), self.read.size, 1)
        chosen = np.sort(rng.choice(total, share, replace=share > total))
        ends = np.cumsum([len(entry.d) for entry in self.entries])
        of = np.searchsorted(ends, chosen, side="right")
        parts = [(e, chosen[of == i] - (ends[i] - len(e.d))) for i, e in enumerate(self.entries) if (of == i).any()]
        request = joined([entry.request[rows] for entry, rows in parts])
        d = np.concatenate([entry.d[rows] for entry, rows in parts])
        first = np.concatenate([np.full(len(rows), entry.before) for entry, rows in parts])
        mixed = rng.permutation(share)
        for _ in range(2):
            self._again(request[mixed], d[mixed], first[mixed])

    def contradictions(self, model: DotModel) -> Contradictions:
        """What the model does not explain of all answers ever received."""
        count, some = 0, list[Counterexample]()
        for entry in self.entries:
            if entry.model == model and not len(entry.wrong):
                continue
            expected = evaluate(model, self.inst, entry.request)
            wrong = np.flatnonzero(entry.d != expected)
            count += len(wrong)
            shown = wrong[:: -(-len(wrong) // OF_A_QUESTION) or 1].tolist()
            some += [Counterexample.of(entry.request, row, entry.d, expected, "asked") for row in shown]
        return Contradictions(count, tuple(dict.fromkeys(some)))

    def look_into(self, contradicting: Sequence[Counterexample] = ()) -> None:
        """Asks a few of them, and of those that changed, twice in every cell: is it the arithmetic, a place, or a moment?"""
        if self.pure:
            return
        suspects: list[tuple[Request, Bits | None]] = [(one, None) for one in self._suspects]
        suspects += [(found.exchange.request(self.inst), found.exchange.answer(self.inst)) for found in contradicting]
        chosen = suspects[:: -(-len(suspects) // LOOKED_INTO) or 1]
        votes = np.zeros(self.read.shape, int)
        for one, answer in chosen:
            d, cells = self._everywhere(one)
            patterns, counts = np.unique(d, return_counts=True)
            usual = patterns[[counts.argmax()]]
            now = np.full(len(d), self.entries[-1].before)
            self._note_changes(one[[0] * len(d)], d, usual.repeat(len(d)), now)
            if answer is not None:
                self._note_changes(one, usual, answer, now)
            if self.read.size:
                times = np.zeros(self.read.shape, int)
                np.add.at(times, cells, d != usual)
                other, same = times == 2, times == 0
                as_before = (other & (votes > 0)).sum() >= (~other & (votes > 0)).sum()
                votes += other if 2 * counts.max() > len(d) or as_before else same
        self.differing |= votes >= min(len(chosen), AGAIN_AND_AGAIN)

    def _everywhere(self, one: Request) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """The answers to one dot product asked twice in every cell, beside zeros, and where each was read."""
        size = max(self.read.size, 1)
        turn, slot = np.divmod(np.arange(4 * size), size)
        asked = (turn + slot) % 2 == 0
        rows, columns = self._placed(len(asked))
        mixed = joined([Request.zeros(self.inst, 1), one])[asked.astype(np.intp)]
        return self.dot(self.inst, mixed)[asked], (rows[asked], columns[asked])

    def _expecting(self, request: Request, expected: Callable[[], Bits]) -> Bits:
        return dot_expecting(self._device, self.inst, request, expected, self._place)

    def _noted(self, request: Request, of: tuple[DotModel, Bits] | None, ask: Callable[[], Bits]) -> Bits:
        if not len(request):
            return np.empty(0, self.inst.d.dtype)
        d = ask()
        model, wrong = (of[0], np.flatnonzero(d != of[1])) if of else (None, np.empty(0, np.intp))
        self.entries.append(JournalEntry(request, d, self.dots, model, wrong))
        self._count(len(d))
        return d

    def _again(self, request: Request, before: Bits, first: NDArray[np.int_]) -> None:
        """Asks what was answered before; first: how many dot products had been asked before each, then."""
        d = self._expecting(request, lambda: before)
        self._note_changes(request, d, before, first)
        self._count(len(d))

    def _note_changes(self, request: Request, d: Bits, before: Bits, first: NDArray[np.int_]) -> None:
        changed = np.flatnonzero(d != before)
        self.unstable += len(changed)
        if len(changed):
            self._suspects += [request[[row]] for row in changed[:LOOKED_INTO].tolist()]
        if len(changed) and self.changed is None:
            row = int(changed[0])
            self.changed = Counterexample.of(request, row, d, before, AGAIN)
            self.when = f"first after {first[row]:,} dot products, then again after {self.dots:,}"

    @property
    def _place(self) -> int:
        return self._tiles % self._placements

    def _placed(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the cells that the next dot products will be in."""
        return tile.cells_of(self.inst, n, self._place)

    def _count(self, n: int) -> None:
        if self.read.size:
            self.read[self._placed(n)] = True
        self.dots += n
        self._tiles += tile.tiles(self.inst, n)
