"""The journal of one instruction: every query that a device got, and its results.

Every result counts, those of the self-test too: the model that is inferred in the end is held against all of them. Each query
lies in the tile where the one before ended, so that the whole tile is read. A device that is no pure function gets queries
again, at once and later on, in another order, at other places and in queries of other sizes: it must give the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Device, Passing, dot_expecting
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.tile import Marks
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.kinds import draw
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import defined, laid_out, stored_products

# One in so many dot products is asked again at the end.
REPEATED = 8

# Dot products asked again at the end, at most, unless the tile has more cells.
MOST_REPEATED = 1 << 14

SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 17, 22, 31, 45, 64, 65, 127, 254, 257, 509, 516, 1018, 1024, 1025, 2039)
# Dot products of the queries that repeat others: odd, prime and even numbers, powers of two, and every remainder modulo 8, few
# and many; the last is larger than any other query.
SIZES = (*SMALL_SIZES, 3001, 4096, 4099, 8193, 20011, 65537)

# Of an operand in one of these queries: sizes beyond are left out, so that they cost milliseconds whatever K is.
MOST_ELEMENTS = 2_200_000

# Dot products that are asked in every cell, of those whose answers changed and of those that contradict the model.
MAX_SUSPECTS = 6

# Passes through the tile in which a suspect is queried in half of the cells, then in the other half, and so on.
TURNS = 4

# Random dot products that stand between those of a suspect.
RANDOM_NEIGHBOURS = 64

# Of these dot products, for how many a cell has to differ every time, before it is said to be the cell.
MIN_VOTES = 2

# Dot products that contradict a model, of those that were asked together, that are kept.
MAX_PER_QUERY = 20

# The kind of a dot product that has two answers, of which one was expected of the other.
AGAIN = "asked again"


@dataclass(frozen=True, eq=False)
class LogEntry:
    """One query of `inst` and its results `d`. before: dot products queried before it.

    model: the one that it was asked about, if any, which explains all answers but those of the dot products `wrong`.
    """

    inst: Instruction
    request: Request
    d: Bits
    before: int
    model: DotModel | None
    wrong: NDArray[np.intp]


@dataclass(frozen=True)
class Contradictions:
    """How many answers a model does not explain, and some of them, of each question that has any."""

    count: int
    sample: tuple[Counterexample, ...]


NONE = Contradictions(0, ())


class QueryLog(Passing):
    """A device that remembers what it answers about one instruction, and goes on in the tile where it was asked last.

    budget: of the search for a model. dots: asked so far; sizes: of each query, and how many had it. unstable: those that gave
    other bits when asked again; changed: the first of them, and when that was.
    read, differing: cells of the tile, [M, N], or [0, 0] where there is none: those that answers were read from, and those
    whose answers to some questions, asked again and again, were not those of most.
    """

    def __init__(self, device: Device, inst: Instruction) -> None:
        super().__init__(device)
        self.inst, self.entries, self.budget = inst, list[LogEntry](), Budget()
        self.dots = self.unstable = self._tiles = 0
        self.sizes = Counter[int]()
        self.changed: Counterexample | None = None
        self.first_change = ""
        self._suspects: list[tuple[Instruction, Request, Bits | None]] = []
        self._tests: list[LogEntry] = []
        self._placements = device.placements(inst)
        has_tile = self._placements == tile.placements(inst)
        self.read: Marks = np.zeros((inst.m, inst.n) if has_tile else (0, 0), bool)
        self.differing: Marks = np.zeros_like(self.read)

    @classmethod
    def of(cls, device: Device, inst: Instruction) -> QueryLog:
        """A new one, unless the device is one."""
        return device if isinstance(device, QueryLog) else cls(device, inst)

    @property
    def tests(self) -> Device:
        """The device for tests of the layout, which place their queries in the tile themselves; their results count too."""
        return _Tests(self._device, self)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self._noted(inst, request, None, lambda: self._device.dot(inst, request, self._place))

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        return self._noted(inst, request, None, lambda: self._expecting(inst, request, expected))

    def query(self, request: Request, model: DotModel | None = None, expected: Bits | None = None) -> Bits:
        """The answers, [n]. model: what they are expected to be those of; expected: what it has, where that is known."""
        if model is None:
            return self.dot(self.inst, request)
        known = evaluate(model, self.inst, request) if expected is None else expected
        return self._noted(self.inst, request, (model, known), lambda: self._expecting(self.inst, request, lambda: known))

    def query_twice(self, request: Request, model: DotModel | None = None) -> Bits:
        """As `ask`; a device that is no pure function is asked again at once, every other time the last dot products first."""
        d = self.query(request, model)
        if not self.pure and len(d):
            order = slice(None, None, -1 if len(self.entries) % 2 else 1)
            self._again(self.inst, request[order], d[order], np.full(len(d), self.entries[-1].before))
        return d

    def note_test(self, inst: Instruction, request: Request, d: Bits) -> None:
        """Keep the results of a query of a test; one that repeats a query of a test is compared with that instead.

        Metadata without a meaning are left out: no model says what they do.
        """
        self.sizes[len(d)] += 1
        first = next((entry for entry in self._tests if entry.request is request), None)
        rows = defined(inst, request)
        if first:
            self._note_changes(inst, request, d, first.d, np.full(len(d), first.before))
        elif rows.any():
            entry = (request, d) if rows.all() else (request[rows], d[rows])
            self._tests.append(LogEntry(inst, *entry, self.dots, None, np.empty(0, np.intp)))
        self.dots += int(rows.sum())

    def repeat(self, rng: np.random.Generator) -> None:
        """Repeat a share of all queries, mixed, as much as fills the tile at least; then in queries of all `SIZES`.

        Queries of the tests are repeated once. A pure function gets none.
        """
        if self.pure or not self._every:
            return
        most = MOST_ELEMENTS // max(entry.inst.k for entry in self._every)
        sizes = [size for size in SIZES if size <= most]
        for inst in dict.fromkeys(entry.inst for entry in self._every):
            entries = [entry for entry in self._every if entry.inst == inst]
            total = sum(len(entry.d) for entry in entries)
            share = max(min(total // REPEATED, MOST_REPEATED), self.read.size, 1)
            parts = _chosen(entries, np.sort(rng.choice(total, share, replace=share > total)))
            request = joined([entry.request[rows] for entry, rows in parts])
            d = np.concatenate([entry.d[rows] for entry, rows in parts])
            first = np.concatenate([np.full(len(rows), entry.before) for entry, rows in parts])
            mixed, start = rng.permutation(share), 0
            for size in (share, *(sizes if inst == self.inst else ())):
                some = mixed[np.arange(start, start + size) % share]
                self._again(inst, request[some], d[some], first[some])
                start += size

    def contradictions(self, model: DotModel) -> Contradictions:
        """What the model does not explain of all answers ever received."""
        count, some = 0, list[Counterexample]()
        for entry in (*self._tests_together(), *self.entries):
            if entry.model == model and not len(entry.wrong):
                continue
            expected = evaluate(model, entry.inst, entry.request)
            wrong = np.flatnonzero(entry.d != expected)
            count += len(wrong)
            shown = wrong[:: -(-len(wrong) // MAX_PER_QUERY) or 1].tolist()
            some += [Counterexample.of(entry.request, row, entry.d, expected, "asked") for row in shown]
        return Contradictions(count, tuple(dict.fromkeys(some)))

    def instruction(self, exchange: Exchange) -> Instruction:
        """The instruction whose dot product it is: that with the sparse A where the exchange has metadata."""
        return next((entry.inst for entry in self._every if bool(exchange.metadata) == entry.inst.sparse), self.inst)

    def dense(self, exchange: Exchange) -> Exchange:
        """The same as a dot product of `self.inst`: of a sparse A, of the products that are stored."""
        if not exchange.metadata:
            return exchange
        inst = self.instruction(exchange)
        return Exchange.of(stored_products(inst, exchange.request(inst)), 0, exchange.answer(inst))

    def localize_fault(self, contradicting: Sequence[Counterexample] = ()) -> None:
        """Queries a few of them, and of those that changed, in every cell: is it the arithmetic, a place, or a moment?

        Each is repeated beside other neighbours: a cell that is wrong only after certain dot products is not the cause.
        """
        if self.pure:
            return
        known = [(self.instruction(found.exchange), found.exchange) for found in contradicting]
        suspects = [*self._suspects, *((inst, exchange.request(inst), exchange.answer(inst)) for inst, exchange in known)]
        chosen = suspects[:: -(-len(suspects) // MAX_SUSPECTS) or 1]
        votes = np.zeros(self.read.shape, int)
        for inst, one, answer in chosen:
            d, cells = self._everywhere(inst, one)
            patterns, counts = np.unique(d, return_counts=True)
            usual = patterns[[counts.argmax()]]
            now = np.full(len(d), self.entries[-1].before)
            self._note_changes(inst, one[[0] * len(d)], d, usual.repeat(len(d)), now)
            if answer is not None:
                self._note_changes(inst, one, usual, answer, now)
            if self.read.size:
                times, of = np.zeros((2, *self.read.shape), int)
                np.add.at(times, cells, d != usual)
                np.add.at(of, cells, 1)
                other, same = (times == of) & (of > 0), times == 0
                as_before = (other & (votes > 0)).sum() >= (~other & (votes > 0)).sum()
                votes += other if 2 * counts.max() > len(d) or as_before else same
        self.differing |= votes >= min(len(chosen), MIN_VOTES)

    def _everywhere(self, inst: Instruction, one: Request) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """The results of one dot product in every cell, beside zeros and beside others, and where each was read.

        Beside others, a tile of those comes before each pass, so that no two of the one meet, and no cell is always the first.
        """
        others = laid_out(inst, draw("uniform", inst.stored, np.random.default_rng(0), RANDOM_NEIGHBOURS))
        first, (rows, columns) = self._beside(inst, one, Request.zeros(inst, 1), TURNS, 0)
        second, there = self._beside(inst, one, others, 2 * TURNS, tile.problems(inst))
        return np.concatenate([first, second]), (np.concatenate([rows, there[0]]), np.concatenate([columns, there[1]]))

    def _beside(
        self, inst: Instruction, one: Request, others: Request, turns: int, apart: int
    ) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """As `_everywhere`, beside any of these others; apart: so many of them come before each of the passes."""
        size = max(self.read.size, 1)
        slot = np.arange(-apart, size)
        asked = np.concatenate([(slot >= 0) & ((turn + slot) % 2 == 0) for turn in range(turns)])
        rows, columns = self._placed(len(asked))
        any_others = np.random.default_rng(len(self.entries)).integers(1, 1 + len(others), len(asked))
        which = np.where(asked, 0, any_others)
        return self.dot(inst, joined([one, others])[which])[asked], (rows[asked], columns[asked])

    def _tests_together(self) -> list[LogEntry]:
        """The entries of the tests as one for each instruction: a model explains them much faster so."""
        every = [[entry for entry in self._tests if entry.inst == inst] for inst in dict.fromkeys(e.inst for e in self._tests)]
        return [
            replace(some[0], request=joined([e.request for e in some]), d=np.concatenate([e.d for e in some])) for some in every
        ]

    @property
    def _every(self) -> list[LogEntry]:
        return [*self._tests, *self.entries]

    def _expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits]) -> Bits:
        return dot_expecting(self._device, inst, request, expected, self._place)

    def _noted(self, inst: Instruction, request: Request, of: tuple[DotModel, Bits] | None, query: Callable[[], Bits]) -> Bits:
        if not len(request):
            return np.empty(0, self.inst.d.dtype)
        d = query()
        model, wrong = (of[0], np.flatnonzero(d != of[1])) if of else (None, np.empty(0, np.intp))
        self.entries.append(LogEntry(inst, request, d, self.dots, model, wrong))
        self._count(len(d))
        return d

    def _again(self, inst: Instruction, request: Request, before: Bits, first: NDArray[np.int_]) -> None:
        """Asks what was answered before; first: how many dot products had been asked before each, then."""
        d = self._expecting(inst, request, lambda: before)
        self._note_changes(inst, request, d, before, first)
        self._count(len(d))

    def _note_changes(self, inst: Instruction, request: Request, d: Bits, before: Bits, first: NDArray[np.int_]) -> None:
        changed = np.flatnonzero(d != before)
        self.unstable += len(changed)
        if not len(changed):
            return
        self._suspects += [(inst, request[[row]], None) for row in changed[:MAX_SUSPECTS].tolist()]
        if self.changed is None:
            row = int(changed[0])
            self.changed = Counterexample.of(request, row, d, before, AGAIN)
            self.first_change = f"first after {first[row]:,} dot products, then again after {self.dots:,}"

    @property
    def _place(self) -> int:
        return self._tiles % self._placements

    def _placed(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the cells that the next dot products will be in."""
        return tile.cells_of(self.inst, n, self._place)

    def _count(self, n: int) -> None:
        if self.read.size:
            self.read[self._placed(n)] = True
        self.sizes[n] += 1
        self.dots += n
        self._tiles += tile.tiles(self.inst, n)


class _Tests(Passing):
    """The device of a journal; what is queried is noted there, where it was placed."""

    def __init__(self, device: Device, log: QueryLog) -> None:
        super().__init__(device)
        self._log = log

    def placements(self, inst: Instruction) -> int:
        return self._device.placements(inst)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._log.note_test(inst, request, d)
        return d

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        d = dot_expecting(self._device, inst, request, expected, placement)
        self._log.note_test(inst, request, d)
        return d


def _chosen(entries: Sequence[LogEntry], which: NDArray[np.intp]) -> list[tuple[LogEntry, NDArray[np.intp]]]:
    """Of dot products that are numbered through all entries: the entries that have them, and their rows there."""
    ends = np.cumsum([len(entry.d) for entry in entries])
    of = np.searchsorted(ends, which, side="right")
    return [(e, which[of == i] - (ends[i] - len(e.d))) for i, e in enumerate(entries) if (of == i).any()]


# Models that are held against the answers of one instruction, at most.
#
# An H200's instructions need none, planted ones hundreds, seldom thousands.
CANDIDATES = 15_000

T = TypeVar("T")


class Budget:
    """What is left of `CANDIDATES`."""

    def __init__(self, left: int = CANDIDATES) -> None:
        self.left = left

    def take(self, candidates: Iterable[T]) -> Iterator[T]:
        """As many of them as may still be tried."""
        for candidate in candidates:
            if not self.left:
                return
            self.left -= 1
            yield candidate
