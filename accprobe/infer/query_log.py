"""The log of a subject: every query that it got, and its results.

The inferred model has to explain every result, also of the self-test. The log repeats queries to a subject that is not a pure
function: at once, later, in other orders, at other places, in other sizes. The bits must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.tile import Marks
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.kinds import draw
from accprobe.operands.protocol import Device, InstructionSubject
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import defined, laid_out, stored_products

REPEATED = 8  # One in so many dot products is repeated at the end.
MOST_REPEATED = 1 << 14  # Dot products repeated at the end, at most, unless the tile has more elements.

SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 17, 22, 31, 45, 64, 65, 127, 254, 257, 509, 516, 1018, 1024, 1025, 2039)
# Dot products of the queries that repeat others: odd, prime and even numbers, powers of two, every remainder modulo 8, few and
# many. The last is larger than any other query.
SIZES = (*SMALL_SIZES, 3001, 4096, 4099, 8193, 20011, 65537)

# Elements of an operand of these queries, at most: larger sizes are omitted, so that each takes milliseconds whatever K is.
MOST_ELEMENTS = 2_200_000

MAX_SUSPECTS = 6  # Dot products that are queried at every tile element, of those that changed or contradict the model.
TURNS = 4  # Passes through the tile in which a suspect is queried at half of the elements, then at the other half, and so on.
RANDOM_NEIGHBOURS = 64  # Random dot products that stand between the repetitions of a suspect.
MIN_VOTES = 2  # Suspects for which a tile element has to differ every time before it is reported.
MAX_PER_QUERY = 20  # Counterexamples that are kept of one query.

# Models that are compared with the results of one instruction, at most. An H200's instructions need none, planted ones
# hundreds, seldom thousands.
CANDIDATES = 15_000


@dataclass(eq=False)
class LogEntry:
    """One query and its results `d`. before: dot products queried before it.

    model: the last model that is known to explain all results.
    """

    request: Request
    d: Bits
    before: int
    model: DotModel | None = None

    def __getitem__(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> LogEntry:
        return LogEntry(self.request[rows], self.d[rows], self.before)

    @property
    def has_metadata(self) -> bool:
        return self.request.metadata is not None


@dataclass(frozen=True)
class Contradictions:
    """The number of results that a model does not explain, and some of them, from each query that has any."""

    count: int
    sample: tuple[Counterexample, ...]


NONE = Contradictions(0, ())


class QueryLog(InstructionSubject):
    """A subject that keeps its results.

    budget: of the search for a model. dots: number of dot products queried so far. sizes: number of queries by their size.
    unstable: number of results that differed when their query was repeated. changed, first_change: the first of them, and
    when it differed. covered, differing: tile elements, [M, N], or [0, 0] without a tile. Results were read from each covered
    element. A differing element returned other bits than most elements when some queries were repeated many times.
    """

    def __init__(self, device: Device, runs: Instruction) -> None:
        super().__init__(device, runs)
        self.entries, self.budget = list[LogEntry](), Budget()
        self.dots = self.unstable = 0
        self.sizes = Counter[int]()
        self.changed: Counterexample | None = None
        self.first_change = ""
        self._suspects: list[tuple[Request, Bits | None]] = []
        self._tests: list[LogEntry] = []
        has_tile = self._placements == tile.placements(self.inst)
        self.covered: Marks = np.zeros((self.inst.m, self.inst.n) if has_tile else (0, 0), bool)
        self.differing: Marks = np.zeros_like(self.covered)

    def query(self, request: Request, expected: Bits | None = None, model: DotModel | None = None) -> Bits:
        """Return the results, [N]. model: that which predicts `expected`, if it is to be noted that it explains them."""
        if not len(request):
            return np.empty(0, self.inst.d.dtype)
        before, place = self.dots, self.place
        d = super().query(request, expected)
        explained = model if expected is not None and np.array_equal(d, expected) else None
        self.entries.append(LogEntry(request, d, before, explained))
        self._count(len(d), place)
        return d

    def query_twice(self, request: Request, expected: Bits | None = None, model: DotModel | None = None) -> Bits:
        """Query as `query` does; unless the subject is a pure function, repeat at once, every other time in reverse order."""
        d = self.query(request, expected, model)
        if not self.pure and len(d):
            order = slice(None, None, -1 if len(self.entries) % 2 else 1)
            self._repeat(request[order], d[order], np.full(len(d), self.entries[-1].before))
        return d

    def query_at(self, place: int, request: Request, expected: Bits | None = None) -> Bits:
        """Query for a test, which places its queries itself; one that repeats a query of a test is compared with that.

        Metadata codes that PTX does not define are not logged: no model predicts them.
        """
        d = super().query_at(place, request, expected)
        self.sizes[len(d)] += 1
        first = next((entry for entry in self._tests if entry.request is request), None)
        rows = defined(self.runs, request)
        if first:
            self._note_changes(request, d, first.d, np.full(len(d), first.before))
        elif rows.any():
            entry = LogEntry(request, d, self.dots)
            self._tests.append(entry if rows.all() else entry[rows])
        self.dots += int(rows.sum())
        return d

    def repeat(self, rng: np.random.Generator) -> None:
        """Repeat a share of all queries, mixed, at least as many as fill the tile; then in queries of other sizes.

        The sizes are those of SIZES that MOST_ELEMENTS allows. Queries with metadata are repeated once, queries to a pure
        function never.
        """
        if self.pure or not self._every:
            return
        most = MOST_ELEMENTS // max(self.instruction(entry.has_metadata).k for entry in self._every)
        sizes = [size for size in SIZES if size <= most]
        for has_metadata in dict.fromkeys(entry.has_metadata for entry in self._every):
            entries = [entry for entry in self._every if entry.has_metadata == has_metadata]
            total = sum(len(entry.d) for entry in entries)
            share = max(min(total // REPEATED, MOST_REPEATED), self.covered.size, 1)
            parts = _chosen(entries, np.sort(rng.choice(total, share, replace=share > total)))
            request, d = joined([part.request for part in parts]), np.concatenate([part.d for part in parts])
            first = np.concatenate([np.full(len(part.d), part.before) for part in parts])
            mixed, start = rng.permutation(share), 0
            for size in (share, *(() if has_metadata else sizes)):
                some = mixed[np.arange(start, start + size) % share]
                self._repeat(request[some], d[some], first[some])
                start += size

    def contradictions(self, model: DotModel) -> Contradictions:
        """Return what the model does not explain of all results ever received."""
        count, some = 0, list[Counterexample]()
        for entry in self._every:
            if entry.model == model:
                continue
            expected = evaluate(model, self.instruction(entry.has_metadata), entry.request)
            wrong = np.flatnonzero(entry.d != expected)
            if not len(wrong):
                entry.model = model
            count += len(wrong)
            shown = wrong[:: -(-len(wrong) // MAX_PER_QUERY) or 1].tolist()
            some += [Counterexample.of(entry.request, row, entry.d, expected, "probe") for row in shown]
        return Contradictions(count, tuple(dict.fromkeys(some)))

    def dense(self, exchange: Exchange) -> Exchange:
        """Return the exchange as one of `self.inst`: of a sparse A, with the products that are stored."""
        if not exchange.metadata:
            return exchange
        return Exchange.of(stored_products(self.runs, exchange.request(self.runs)), 0, exchange.result(self.runs))

    def localize_fault(self, contradicting: Sequence[Counterexample] = ()) -> None:
        """Query a few of these, and of those that changed, at every tile element: is it the arithmetic, a place, or a moment?

        Each is repeated beside other neighbours: an element that is wrong only after certain dot products is not the cause.
        """
        if self.pure:
            return
        known = [(self.instruction(bool(found.exchange.metadata)), found.exchange) for found in contradicting]
        suspects = [*self._suspects, *((exchange.request(inst), exchange.result(inst)) for inst, exchange in known)]
        chosen = suspects[:: -(-len(suspects) // MAX_SUSPECTS) or 1]
        votes = np.zeros(self.covered.shape, int)
        for one, before in chosen:
            d, elements = self._everywhere(one)
            patterns, counts = np.unique(d, return_counts=True)
            usual = patterns[[counts.argmax()]]
            now = np.full(len(d), self.entries[-1].before)
            self._note_changes(one[[0] * len(d)], d, usual.repeat(len(d)), now)
            if before is not None:
                self._note_changes(one, usual, before, now)
            if self.covered.size:
                times, of = np.zeros((2, *self.covered.shape), int)
                np.add.at(times, elements, d != usual)
                np.add.at(of, elements, 1)
                other, same = (times == of) & (of > 0), times == 0
                as_before = (other & (votes > 0)).sum() >= (~other & (votes > 0)).sum()
                votes += other if 2 * counts.max() > len(d) or as_before else same
        self.differing |= votes >= min(len(chosen), MIN_VOTES)

    def _everywhere(self, one: Request) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return the results of one dot product at every tile element, beside zeros and beside others, and their elements.

        A tile of the others precedes each pass, so that two copies of the one are never adjacent, and no element is always
        first.
        """
        inst = self.instruction(one.metadata is not None)
        others = laid_out(inst, draw("uniform", inst.stored, np.random.default_rng(0), RANDOM_NEIGHBOURS))
        first, (rows, columns) = self._beside(one, Request.zeros(inst, 1), TURNS, 0)
        second, elements = self._beside(one, others, 2 * TURNS, tile.problems(inst))
        return np.concatenate([first, second]), (np.concatenate([rows, elements[0]]), np.concatenate([columns, elements[1]]))

    def _beside(
        self, one: Request, others: Request, turns: int, gap: int
    ) -> tuple[Bits, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """As `_everywhere`, beside any of these others. `gap` of them come before the first pass."""
        slot = np.arange(-gap, max(self.covered.size, 1))
        is_one = np.concatenate([(slot >= 0) & ((turn + slot) % 2 == 0) for turn in range(turns)])
        rows, columns = tile.cells_of(self.inst, len(is_one), self.place)
        any_others = np.random.default_rng(len(self.entries)).integers(1, 1 + len(others), len(is_one))
        which = np.where(is_one, 0, any_others)
        return self.query(joined([one, others])[which])[is_one], (rows[is_one], columns[is_one])

    @property
    def _every(self) -> list[LogEntry]:
        return [*self._tests, *self.entries]

    def _repeat(self, request: Request, before: Bits, first: NDArray[np.int_]) -> None:
        """Repeat a query with the results `before`; first: dot products queried before each of them, then."""
        place = self.place
        d = super().query(request, before)
        self._note_changes(request, d, before, first)
        self._count(len(d), place)

    def _note_changes(self, request: Request, d: Bits, before: Bits, first: NDArray[np.int_]) -> None:
        changed = np.flatnonzero(d != before)
        self.unstable += len(changed)
        if not len(changed):
            return
        self._suspects += [(request[[row]], None) for row in changed[:MAX_SUSPECTS].tolist()]
        if self.changed is None:
            row = int(changed[0])
            self.changed = Counterexample.of(request, row, d, before, "repeated query")
            self.first_change = f"first after {first[row]:,} dot products, then again after {self.dots:,}"

    def _count(self, n: int, place: int) -> None:
        if self.covered.size:
            self.covered[tile.cells_of(self.inst, n, place)] = True
        self.sizes[n] += 1
        self.dots += n


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
        for candidate in candidates:
            if not self.remaining:
                return
            self.remaining -= 1
            yield candidate
