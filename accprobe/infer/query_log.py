"""The log of one instruction: every query that a device got, and its results.

Every result counts, those of the self-test too: the model that is inferred in the end has to explain all of them. Each query
starts in the tile where the one before ended, so that every tile element is covered. A device that is not a pure function gets
queries again, at once and later, in another order, at other places and in queries of other sizes: the bits must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Device, Passing
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

REPEATED = 8  # One in so many dot products is repeated at the end.
MOST_REPEATED = 1 << 14  # Dot products repeated at the end, at most, unless the tile has more elements.

SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 17, 22, 31, 45, 64, 65, 127, 254, 257, 509, 516, 1018, 1024, 1025, 2039)
# Dot products of the queries that repeat others: odd, prime and even numbers, powers of two, and every remainder modulo 8, few
# and many; the last is larger than any other query.
SIZES = (*SMALL_SIZES, 3001, 4096, 4099, 8193, 20011, 65537)

# Elements of an operand of these queries, at most: larger sizes are omitted, so that each takes milliseconds whatever K is.
MOST_ELEMENTS = 2_200_000

MAX_SUSPECTS = 6  # Dot products that are queried at every tile element, of those whose results changed or contradict the model.
TURNS = 4  # Passes through the tile in which a suspect is queried at half of the elements, then at the other half, and so on.
RANDOM_NEIGHBOURS = 64  # Random dot products that stand between those of a suspect.
MIN_VOTES = 2  # Suspects for which a tile element has to differ every time before it is reported.
MAX_PER_QUERY = 20  # Counterexamples that are kept of one query.

# Models that are compared with the results of one instruction, at most. An H200's instructions need none, planted ones
# hundreds, seldom thousands.
CANDIDATES = 15_000


@dataclass(frozen=True, eq=False)
class LogEntry:
    """One query of `inst` and its results `d`. before: dot products queried before it.

    model: a model that is known to explain all results.
    """

    inst: Instruction
    request: Request
    d: Bits
    before: int
    model: DotModel | None = None

    def __getitem__(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> LogEntry:
        return LogEntry(self.inst, self.request[rows], self.d[rows], self.before)


@dataclass(frozen=True)
class Contradictions:
    """The number of results that a model does not explain, and some of them, from each query that has any."""

    count: int
    sample: tuple[Counterexample, ...]


NONE = Contradictions(0, ())


class QueryLog(Passing):
    """A device that keeps its results for one instruction and continues in the tile where the last query ended.

    budget: of the search for a model. dots: queried so far; sizes: number of queries by their size. unstable: results that
    differed when their query was repeated; changed, first_change: the first of them, and when it did. covered, differing: tile
    elements, [M, N], or [0, 0] without a tile: those from which results were read, and those whose results of some queries,
    repeated many times, were not those of most elements.
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
        self.covered: Marks = np.zeros((inst.m, inst.n) if has_tile else (0, 0), bool)
        self.differing: Marks = np.zeros_like(self.covered)

    @classmethod
    def of(cls, device: Device, inst: Instruction) -> QueryLog:
        """Return a new log of the device, or the device if it is one."""
        return device if isinstance(device, QueryLog) else cls(device, inst)

    @property
    def tests(self) -> Device:
        """The device for tests of the layout, which place their queries in the tile themselves; their results count too."""
        return _Tests(self._device, self)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self._logged(inst, request, None, lambda: self._device.dot(inst, request, self._place))

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        return self._logged(inst, request, None, lambda: self._expecting(inst, request, expected))

    def query(self, request: Request, model: DotModel | None = None, expected: Bits | None = None) -> Bits:
        """Return the results, [n]. model: that is expected to predict them; expected: its predictions, if known."""
        if model is None:
            return self.dot(self.inst, request)
        known = evaluate(model, self.inst, request) if expected is None else expected
        return self._logged(self.inst, request, (model, known), lambda: self._expecting(self.inst, request, lambda: known))

    def query_twice(self, request: Request, model: DotModel | None = None, expected: Bits | None = None) -> Bits:
        """Query as `query` does; unless the device is a pure function, repeat at once, every other time in reverse order."""
        d = self.query(request, model, expected)
        if not self.pure and len(d):
            order = slice(None, None, -1 if len(self.entries) % 2 else 1)
            self._repeat(self.inst, request[order], d[order], np.full(len(d), self.entries[-1].before))
        return d

    def log_test(self, inst: Instruction, request: Request, d: Bits) -> None:
        """Log the results of a query of a test; one that repeats a query of a test is compared with that instead.

        Metadata codes that PTX does not define are omitted: no model predicts them.
        """
        self.sizes[len(d)] += 1
        first = next((entry for entry in self._tests if entry.request is request), None)
        rows = defined(inst, request)
        if first:
            self._note_changes(inst, request, d, first.d, np.full(len(d), first.before))
        elif rows.any():
            entry = LogEntry(inst, request, d, self.dots)
            self._tests.append(entry if rows.all() else entry[rows])
        self.dots += int(rows.sum())

    def repeat(self, rng: np.random.Generator) -> None:
        """Repeat a share of all queries, mixed, at least as many as fill the tile; then in queries of all `SIZES`.

        Queries of the tests are repeated once, those of a pure function never.
        """
        if self.pure or not self._every:
            return
        most = MOST_ELEMENTS // max(entry.inst.k for entry in self._every)
        sizes = [size for size in SIZES if size <= most]
        for inst in dict.fromkeys(entry.inst for entry in self._every):
            entries = [entry for entry in self._every if entry.inst == inst]
            total = sum(len(entry.d) for entry in entries)
            share = max(min(total // REPEATED, MOST_REPEATED), self.covered.size, 1)
            parts = _chosen(entries, np.sort(rng.choice(total, share, replace=share > total)))
            request, d = joined([part.request for part in parts]), np.concatenate([part.d for part in parts])
            first = np.concatenate([np.full(len(part.d), part.before) for part in parts])
            mixed, start = rng.permutation(share), 0
            for size in (share, *(sizes if inst == self.inst else ())):
                some = mixed[np.arange(start, start + size) % share]
                self._repeat(inst, request[some], d[some], first[some])
                start += size

    def contradictions(self, model: DotModel) -> Contradictions:
        """Return what the model does not explain of all results ever received."""
        count, some = 0, list[Counterexample]()
        for entry in (*self._joined_tests(), *self.entries):
            if entry.model == model:
                continue
            expected = evaluate(model, entry.inst, entry.request)
            wrong = np.flatnonzero(entry.d != expected)
            count += len(wrong)
            shown = wrong[:: -(-len(wrong) // MAX_PER_QUERY) or 1].tolist()
            some += [Counterexample.of(entry.request, row, entry.d, expected, "probe") for row in shown]
        return Contradictions(count, tuple(dict.fromkeys(some)))

    def instruction(self, exchange: Exchange) -> Instruction:
        """Return the instruction of an exchange: the one with the sparse A if the exchange has metadata."""
        return next((entry.inst for entry in self._every if bool(exchange.metadata) == entry.inst.sparse), self.inst)

    def dense(self, exchange: Exchange) -> Exchange:
        """Return the exchange as one of `self.inst`: of a sparse A, with the products that are stored."""
        if not exchange.metadata:
            return exchange
        inst = self.instruction(exchange)
        return Exchange.of(stored_products(inst, exchange.request(inst)), 0, exchange.result(inst))

    def localize_fault(self, contradicting: Sequence[Counterexample] = ()) -> None:
        """Query a few of these, and of those that changed, at every tile element: is it the arithmetic, a place, or a moment?

        Each is repeated beside other neighbours: an element that is wrong only after certain dot products is not the cause.
        """
        if self.pure:
            return
        known = [(self.instruction(found.exchange), found.exchange) for found in contradicting]
        suspects = [*self._suspects, *((inst, exchange.request(inst), exchange.result(inst)) for inst, exchange in known)]
        chosen = suspects[:: -(-len(suspects) // MAX_SUSPECTS) or 1]
        votes = np.zeros(self.covered.shape, int)
        for inst, one, before in chosen:
            d, elements = self._everywhere(inst, one)
            patterns, counts = np.unique(d, return_counts=True)
            usual = patterns[[counts.argmax()]]
            now = np.full(len(d), self.entries[-1].before)
            self._note_changes(inst, one[[0] * len(d)], d, usual.repeat(len(d)), now)
            if before is not None:
                self._note_changes(inst, one, usual, before, now)
            if self.covered.size:
                times, of = np.zeros((2, *self.covered.shape), int)
                np.add.at(times, elements, d != usual)
                np.add.at(of, elements, 1)
                other, same = (times == of) & (of > 0), times == 0
                as_before = (other & (votes > 0)).sum() >= (~other & (votes > 0)).sum()
                votes += other if 2 * counts.max() > len(d) or as_before else same
        self.differing |= votes >= min(len(chosen), MIN_VOTES)

    def _everywhere(self, inst: Instruction, one: Request) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return the results of one dot product at every tile element, beside zeros and beside others, and their elements.

        Beside others, a tile of those comes before each pass, so that no two of the one meet, and no element is always first.
        """
        others = laid_out(inst, draw("uniform", inst.stored, np.random.default_rng(0), RANDOM_NEIGHBOURS))
        first, (rows, columns) = self._beside(inst, one, Request.zeros(inst, 1), TURNS, 0)
        second, elements = self._beside(inst, one, others, 2 * TURNS, tile.problems(inst))
        return np.concatenate([first, second]), (np.concatenate([rows, elements[0]]), np.concatenate([columns, elements[1]]))

    def _beside(
        self, inst: Instruction, one: Request, others: Request, turns: int, gap: int
    ) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """As `_everywhere`, beside any of these others, `gap` of which come before each of the passes."""
        slot = np.arange(-gap, max(self.covered.size, 1))
        is_one = np.concatenate([(slot >= 0) & ((turn + slot) % 2 == 0) for turn in range(turns)])
        rows, columns = tile.cells_of(self.inst, len(is_one), self._place)
        any_others = np.random.default_rng(len(self.entries)).integers(1, 1 + len(others), len(is_one))
        which = np.where(is_one, 0, any_others)
        return self.dot(inst, joined([one, others])[which])[is_one], (rows[is_one], columns[is_one])

    def _joined_tests(self) -> list[LogEntry]:
        """Return the entries of the tests as one for each instruction, which models explain much faster."""
        every = [[entry for entry in self._tests if entry.inst == inst] for inst in dict.fromkeys(e.inst for e in self._tests)]
        return [
            replace(some[0], request=joined([e.request for e in some]), d=np.concatenate([e.d for e in some])) for some in every
        ]

    @property
    def _every(self) -> list[LogEntry]:
        return [*self._tests, *self.entries]

    @property
    def _place(self) -> int:
        return self._tiles % self._placements

    def _expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits]) -> Bits:
        return self._device.dot_expecting(inst, request, expected, self._place)

    def _logged(self, inst: Instruction, request: Request, of: tuple[DotModel, Bits] | None, query: Callable[[], Bits]) -> Bits:
        if not len(request):
            return np.empty(0, self.inst.d.dtype)
        d = query()
        explained = of[0] if of and np.array_equal(d, of[1]) else None
        self.entries.append(LogEntry(inst, request, d, self.dots, explained))
        self._count(len(d))
        return d

    def _repeat(self, inst: Instruction, request: Request, before: Bits, first: NDArray[np.int_]) -> None:
        """Repeat a query with the results `before`; first: dot products queried before each of them, then."""
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
            self.changed = Counterexample.of(request, row, d, before, "repeated query")
            self.first_change = f"first after {first[row]:,} dot products, then again after {self.dots:,}"

    def _count(self, n: int) -> None:
        if self.covered.size:
            self.covered[tile.cells_of(self.inst, n, self._place)] = True
        self.sizes[n] += 1
        self.dots += n
        self._tiles += tile.tiles(self.inst, n)


class _Tests(Passing):
    """The device of a log; its results are logged where the tests placed them."""

    def __init__(self, device: Device, log: QueryLog) -> None:
        super().__init__(device)
        self._log = log

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._log.log_test(inst, request, d)
        return d

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        d = self._device.dot_expecting(inst, request, expected, placement)
        self._log.log_test(inst, request, d)
        return d


def _chosen(entries: Sequence[LogEntry], which: NDArray[np.intp]) -> list[LogEntry]:
    """Return the chosen dot products, numbered through all entries, as parts of the entries that have them."""
    ends = np.cumsum([len(entry.d) for entry in entries])
    of = np.searchsorted(ends, which, side="right")
    return [e[which[of == i] - (ends[i] - len(e.d))] for i, e in enumerate(entries) if (of == i).any()]


T = TypeVar("T")


class Budget:
    """The number of models that may still be tried."""

    def __init__(self, remaining: int = CANDIDATES) -> None:
        self.remaining = remaining

    def take(self, candidates: Iterable[T]) -> Iterator[T]:
        """Yield candidates while the budget lasts."""
        for candidate in candidates:
            if not self.remaining:
                return
            self.remaining -= 1
            yield candidate
