"""Fault check of one unit at full load: chains of its instruction on every SM, compared there with precomputed results.

A set of operands serves for many chains: each tile of A is combined with each tile of B. Its results are evaluated once, folded
into one word per thread, and then computed over and over; only mismatches leave the GPU. The next set is drawn and evaluated in
the same stream, so that the GPU does not wait for the host between sets. Each set that covers events, and each kind of random
operands, has a turn; then the one with the least accumulated cost is next. All sets that cover events cost as much as one kind.

Operands that cover events have chains of one instruction with a C of their own, so that each result is compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from typing import Any, NamedTuple

import numpy as np

from accprobe.build import cache, compiler
from accprobe.build.golden import METADATA_LINES, MOST_SMS, GoldenShape, golden_shape, golden_source
from accprobe.errors import DeviceError
from accprobe.evaluate.cuda.launch import Drawing, Evaluator, evaluator_name
from accprobe.evaluate.cuda.source import source
from accprobe.health.bench import SeenWord, Turn
from accprobe.health.operand_batches import OperandKind, cell, covering_sets, evaluate_chain, operand_kinds, singly, turned_over
from accprobe.health.outcome import SmPlace
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, in_a_row
from accprobe.isa.sparsity import Places
from accprobe.model.tree import DotModel
from accprobe.operands import drawing
from accprobe.operands.exchange import Counterexample
from accprobe.operands.protocol import OnGpu
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, layouts
from accprobe.records.verification import COVERING
from accprobe.verify.shrink import shrink

CHAIN_SECONDS = 2e-4
"""Seconds of computing per chain of a set: a set with fewer chains is replaced sooner."""

MADE_SECONDS = 0.005
"""Seconds of computing per set of operands made for events, however many chains it has."""

TIMES_PREPARED = 6
"""Factor on the cost of drawing and evaluating a set: expensive kinds (of f64) come less often."""

FIRST_ROUNDS = 256
"""Rounds before the time of a round is known. In a round each group of threads computes one chain."""
MOST_GROWTH, MOST_ROUNDS = 64, 1 << 24

MOST_RECORDS = 256
"""Mismatches recorded per set; all are counted."""

SEEN_OF_A_SET = 8

STRIDE = 37
"""Distance between consecutive chains of a group; odd, so that it reaches all of them: their number is a power of two."""

NOWHERE = 0xFFFFFFFF
"""Sentinel for no position, as in golden.cuh; instead of the number of an SM it selects all SMs."""

SHRINK_ROUNDS = 16
"""Repetitions of operands while shrinking."""

TRIES = 8
"""Tries, of one launch per chain each, after which an SM that has not computed every round counts as not computing."""


@dataclass(eq=False)
class _Source:
    """A source of sets. kind: of random operands; None: operands made for events, the covering set of number `place`.

    cost: the estimated milliseconds of its next set. It is the intended computing time, or TIMES_PREPARED times the preparation
    of the last set if that is more. The cost of a covering set is multiplied by the number of these sets.
    spent: the sum of the costs of its sets.
    """

    kind: OperandKind | None
    place: int = 0
    cost: float = 0.0
    spent: float = 0.0


class _Key(NamedTuple):
    """The set and the chain of a result."""

    source: _Source
    number: int
    chain: int


class _Program:
    """The kernels of one shape. steps: the tiles of the chain that begins at each step, [steps, chain]."""

    def __init__(self, cupy: Any, shape: GoldenShape, target: str) -> None:
        self.shape = shape
        cubin = compiler.compile_source(golden_source(shape), target, shape.inst.name)
        module = cupy.RawModule(path=str(cubin.path))
        self.golden, self.fold = module.get_function("golden"), module.get_function("fold_words")
        self.golden.max_dynamic_shared_size_bytes = shape.shared_bytes
        self.steps = cupy.asarray((np.arange(shape.steps)[:, None] + np.arange(shape.chain)) % shape.steps)
        self.rounds = max(FIRST_ROUNDS, shape.chains)
        self.milliseconds = 1e3 * (MADE_SECONDS if shape.addends else CHAIN_SECONDS * shape.chains)


class _Set:
    """The memory of one set of operands and of its results. every_metadata, every_stored: for a sparse A, from `layouts`.
    metadata [METADATA_LINES, chain, K / group], stored [METADATA_LINES, chain * K / 2]: the places of each row's products.
    """

    def __init__(self, cupy: Any, program: _Program, every_metadata: Any = None, every_stored: Any = None) -> None:
        shape, inst = program.shape, program.shape.inst
        self.a = cupy.empty((shape.steps * shape.rows, inst.stored.k), inst.a.dtype)
        self.b = cupy.empty((shape.steps * shape.columns, inst.k), inst.b.dtype)
        self.addends = cupy.empty(shape.steps * shape.rows, inst.c.dtype)
        self.words = cupy.empty((shape.steps * shape.rows, shape.steps * shape.columns), inst.d.dtype)
        self.folded = cupy.empty(shape.chains * shape.group_threads, np.uint32)
        self.tally = cupy.empty(2 * MOST_SMS + 1, np.uint64)
        self.records = cupy.empty((MOST_RECORDS, 8), np.uint32)
        self.started, self.began, self.ended = (cupy.cuda.Event() for _ in range(3))
        self.program, self.source, self.number, self.rounds = program, _Source(None), -1, 0
        self._cupy, self._every_metadata, self._every_stored = cupy, every_metadata, every_stored
        self.metadata: Any = None
        self.stored: Any = None

    def lay_out(self, which: Any) -> None:
        """Lay out a sparse A. which: layouts of rows and instructions, [METADATA_LINES * chain]; not used if A is dense."""
        if self._every_metadata is None:
            return
        chain, k = self.program.shape.chain, self.program.shape.inst.k
        self.metadata = self._every_metadata[which].reshape(METADATA_LINES, chain, -1)
        stored = self._every_stored[which].reshape(METADATA_LINES, chain, -1) + self._cupy.arange(chain)[:, None] * k
        self.stored = stored.reshape(METADATA_LINES, -1)


def prepare_golden(device: OnGpu, models: Mapping[Instruction, DotModel]) -> None:
    """Compile the kernels of many units; of GPUs that are checked at once, only one compiles."""
    shapes = [shape for inst in models for shape in (golden_shape(inst), singly(golden_shape(inst)))]
    sources = [(golden_source(shape), shape.inst.name) for shape in shapes]
    sources += [(source(model, inst.stored, chained=True), evaluator_name(inst)) for inst, model in models.items()]
    sources += [(drawing.source(inst.stored), f"the operands of {inst.name}") for inst in models]
    with cache.one_at_a_time(f"golden-{device.architecture}"):
        compiler.fill_cache(sources, device.architecture)


class GoldenBench:
    """A `UnitBench` at full load."""

    def __init__(self, device: OnGpu, inst: Instruction, model: DotModel, seed: int, shape: GoldenShape | None = None) -> None:
        self._device, self.inst, self._model, self.instruction = device, inst, model, inst.name
        shape = shape or golden_shape(inst)
        self.chain = shape.chain
        self._numbers, self._seed = count(), seed
        with device.lend(f"failed to prepare the check of {inst.name}") as cupy:
            self._cupy = cupy
            self._sms: int = cupy.cuda.Device().attributes["MultiProcessorCount"]
            self._evaluator = Evaluator(cupy, inst.stored, model, device.architecture, chained=True)
            self._drawing = Drawing(cupy, inst.stored, device.architecture, seed)
            self._drawn, self._made = (_Program(cupy, each, device.architecture) for each in (shape, singly(shape)))
            self._stream, self._copies = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            with self._stream:
                every = [cupy.asarray(x) for x in (layouts(inst).metadata, layouts(inst).stored)] if inst.sparse else []
                self._sets = [_Set(cupy, self._drawn, *every) for _ in range(2)]
            self._covering = [[*map(cupy.asarray, made)] for made in covering_sets(inst, self._made.shape, model, seed)]
            cupy.cuda.Device().synchronize()
        made = [_Source(None, place) for place in range(len(self._covering))]
        self._sources = [*made, *map(_Source, operand_kinds(inst.stored))]

    def prepare(self) -> Turn:
        """Compare a set of each kind of source: operands made for events, and random ones, toggling and not."""
        ways = {source.kind and source.kind.toggling: source for source in reversed(self._sources)}
        turn = Turn(loaded_seconds=0.0)
        with self._device.lend(f"failed to prepare the check of {self.inst.name}"), self._stream:
            for source in ways.values():
                self._count(turn, self._begun(self._sets[0], source))
        return replace(turn, loaded_seconds=0.0, loaded_computed=0)

    def turn(self, seconds: float) -> Turn:
        started, turn = time.monotonic(), Turn(loaded_seconds=0.0)
        with self._device.lend(f"failed to check {self.inst.name}"), self._stream:
            before = self._begun(self._sets[0])
            for operands in cycle(reversed(self._sets)):
                over = time.monotonic() - started >= seconds
                running = before if over else self._begun(operands)
                self._count(turn, before)
                if over:
                    break
                before = running
        turn.seconds = time.monotonic() - started
        return turn

    def _count(self, turn: Turn, finished: _Set) -> None:
        done, wrong, records, milliseconds = self._read_outcome(finished)
        shape = finished.program.shape
        loaded_seconds = milliseconds / 1e3 if finished.source.kind else None
        turn.add(int(done.sum()) * shape.results, shape.chain, loaded_seconds, done, wrong)
        turn.vanished += int((records[:, 3] == NOWHERE).sum())
        turn.seen += self._seen(finished, records)

    def again(self, seen: SeenWord, times: int) -> int:
        request = self._request(seen)
        return int((self._peeked(seen, request, times) != evaluate_chain(self._model, self.inst, request)[0]).sum())

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        expect = partial(evaluate_chain, self._model, self.inst)

        def query(request: Request) -> Bits:
            """Return the first unexpected result of each chain, else its first one."""
            got = self._peeked(seen, request, SHRINK_ROUNDS)
            differs = got != expect(request)[:, None]
            return np.asarray(np.take_along_axis(got, differs.argmax(axis=1)[:, None], axis=1)[:, 0])

        return shrink(query, expect, in_a_row(self.inst, seen.chain), seen.found)

    def _begun(self, operands: _Set, source: _Source | None = None) -> _Set:
        """Put all work of one set on the stream without waiting. source: None for the one with the least `spent`."""
        operands.started.record()
        source = source or min(self._sources, key=lambda each: each.spent)
        source.spent += source.cost
        operands.source, operands.number = source, next(self._numbers)
        self._draw(operands, source, operands.number)
        program = operands.program
        self._evaluate(operands)
        program.fold((program.shape.chains,), (program.shape.group_threads,), (operands.words, operands.folded))
        operands.tally.fill(0)
        operands.rounds = program.rounds
        operands.began.record()
        self._launch(operands, operands.rounds, 0, 1, STRIDE)
        operands.ended.record()
        return operands

    def _draw(self, operands: _Set, source: _Source, number: int) -> None:
        if (kind := source.kind) is None:
            operands.program = self._made
            operands.a[:], operands.b[:], operands.addends[:], which = self._covering[source.place]
            operands.lay_out(which)
            return
        operands.program = self._drawn
        self._drawing.draw(kind.recipe, number, operands.a, operands.b.reshape(-1, self.inst.stored.k), None)
        lines = METADATA_LINES * self.chain
        operands.lay_out((self._cupy.arange(lines) + (self._seed + number) * lines % LAYOUTS) % LAYOUTS)
        if kind.toggling:
            for x, fmt in ((operands.a, self.inst.a), (operands.b, self.inst.b)):
                steps = x.reshape(self._drawn.shape.steps, -1)
                steps[1::2] = steps[::2] ^ fmt.dtype.type(turned_over(fmt))

    def _evaluate(self, operands: _Set) -> None:
        """Evaluate all chains; for a sparse A, rows with the same metadata at once, with the elements of B that they use."""
        cupy, shape, words = self._cupy, operands.program.shape, operands.words
        a, b = (self._chains(x, operands.program) for x in (operands.a, operands.b))
        c = cupy.ascontiguousarray(cupy.broadcast_to(operands.addends[:, None], words.shape)) if shape.addends else None
        if operands.stored is None:
            self._evaluator.evaluate(a, b, c, words, shape.chain)
            return
        for line, stored in enumerate(operands.stored):
            some = slice(line, None, METADATA_LINES)
            found = cupy.empty((len(a) // METADATA_LINES, len(b)), words.dtype)
            its_a, its_b = (cupy.ascontiguousarray(x) for x in (a[some], b[:, stored]))
            its_c = None if c is None else cupy.ascontiguousarray(c[some])
            self._evaluator.evaluate(its_a, its_b, its_c, found, shape.chain)
            words[some] = found

    def _chains(self, operands: Any, program: _Program) -> Any:
        """Return the operands of the chains that begin at each step, [steps * lines, chain * K].

        operands: of the steps, [steps * lines, K].
        """
        steps = operands.reshape(program.shape.steps, -1, operands.shape[1])
        in_order = steps[program.steps].transpose(0, 2, 1, 3)
        return self._cupy.ascontiguousarray(in_order).reshape(len(operands), -1)

    def _launch(
        self,
        operands: _Set,
        rounds: int,
        first: int,
        spread: int,
        stride: int,
        only: int = NOWHERE,
        thread: int = NOWHERE,
        register: int = 0,
        peek: Any = None,
    ) -> None:
        shape = operands.program.shape
        inputs = (operands.a, operands.b, operands.metadata, operands.addends, operands.folded, operands.words)
        outputs = (operands.tally, operands.records, peek)
        pointers = [np.uint64(0 if x is None else x.data.ptr) for x in inputs + outputs]
        job = map(np.uint32, (rounds, first, spread, stride, only, thread, register, MOST_RECORDS))
        operands.program.golden((self._sms,), (shape.threads,), (*pointers, *job), shared_mem=shape.shared_bytes)

    def _read_outcome(self, finished: _Set) -> tuple[Any, Any, Any, float]:
        """Return chains and mismatches by SM, the records, and milliseconds of computing, without waiting for the next set."""
        finished.ended.synchronize()
        milliseconds = self._cupy.cuda.get_elapsed_time(finished.began, finished.ended)
        program = finished.program
        preparing = self._cupy.cuda.get_elapsed_time(finished.started, finished.began)
        source, cost = finished.source, max(program.milliseconds, TIMES_PREPARED * preparing)
        cost *= 1 if source.kind else len(self._covering)
        source.spent, source.cost = source.spent + cost - source.cost, cost
        wanted = finished.rounds * program.milliseconds / max(milliseconds, 1e-3)
        program.rounds = int(min(max(wanted, program.shape.chains), finished.rounds * MOST_GROWTH, MOST_ROUNDS))
        tally = finished.tally.get(stream=self._copies)
        kept = min(int(tally[-1]), MOST_RECORDS)
        records = finished.records[:kept].get(stream=self._copies) if kept else np.zeros((0, 8), np.uint32)
        return tally[:MOST_SMS], tally[MOST_SMS:-1], records, milliseconds

    def _seen(self, finished: _Set, records: Any) -> Iterator[SeenWord]:
        """Yield the first mismatches of each SM, at most SEEN_OF_A_SET for each."""
        words = [record for record in records.tolist() if record[3] != NOWHERE]
        for sm in dict.fromkeys(record[0] for record in words):
            for record in [each for each in words if each[0] == sm][:SEEN_OF_A_SET]:
                yield self._named(finished, record)

    def _named(self, finished: _Set, record: list[int]) -> SeenWord:
        sm, thread, chain, register = record[:4]
        got, expected = np.array(record[4:], np.uint32).view(np.uint64).astype(self.inst.d.dtype)[:, None]
        shape, key = finished.program.shape, _Key(finished.source, finished.number, chain)
        place = SmPlace(sm=sm, warp=thread // 32, lane=thread % 32, register_of_lane=register)
        rows, columns = self._places(shape, chain, thread, register)
        a, b, c = (
            x[self._cupy.asarray(lines)].get(stream=self._stream)
            for x, lines in ((finished.a, rows), (finished.b, columns), (finished.addends, rows[:1]))
        )
        c = c if shape.addends else np.zeros_like(c)
        metadata = None
        if finished.metadata is not None:
            metadata = finished.metadata[int(rows[0]) % METADATA_LINES].get(stream=self._stream).reshape(1, -1)
        kind = finished.source.kind
        request = Request(a.reshape(1, -1), b.reshape(1, -1), c, metadata)
        found = Counterexample.of(request, 0, got, expected, kind.name if kind else COVERING)
        return SeenWord(place, found, key, shape.chain)

    def _places(self, shape: GoldenShape, chain: int, thread: int, register: int) -> tuple[Places, Places]:
        """Return the rows of A and the columns of B of a result, one per instruction."""
        row, column = cell(shape, thread % shape.group_threads, register)
        i, j = (begin + np.arange(shape.chain) for begin in divmod(chain, shape.steps))
        return i % shape.steps * shape.rows + row, j % shape.steps * shape.columns + column

    def _request(self, seen: SeenWord) -> Request:
        return seen.found.exchange.request(in_a_row(self.inst, seen.chain))

    def _peeked(self, seen: SeenWord, request: Request, rounds: int) -> Bits:
        """Compute the result of that thread and register with other operands in its rows and columns: N chains -> [N, rounds].

        The rest of the set stays unchanged. Raises DeviceError where the SM does not compute.
        """
        key, place, n = seen.key, seen.place, len(request)
        assert isinstance(key, _Key)
        thread, register = 32 * (place.warp or 0) + (place.lane or 0), place.register_of_lane or 0
        with self._device.lend(f"failed to repeat a mismatch on SM {seen.place.sm}") as cupy, self._stream:
            operands = self._sets[0]
            self._draw(operands, key.source, key.number)
            rows, columns = (cupy.asarray(each) for each in self._places(operands.program.shape, key.chain, thread, register))
            a, b, c = (cupy.asarray(x) for x in (request.a, request.b, request.c))
            words = cupy.zeros((n, rounds), self.inst.d.dtype)
            operands.tally.fill(0)
            sm = NOWHERE if place.sm is None else place.sm
            for _ in range(TRIES):
                for i in range(n):
                    operands.a[rows], operands.b[columns] = (x[i].reshape(len(rows), -1) for x in (a, b))
                    operands.addends[rows[:1]] = c[i]
                    self._launch(operands, rounds, key.chain, 0, 0, sm, thread, register, words[i])
                done = int(operands.tally[sm : sm + 1].get(stream=self._stream)[0])
                if done >= n * rounds * operands.program.shape.groups:
                    got: Bits = words.get(stream=self._stream)
                    return got
        raise DeviceError(f"SM {sm} does not compute any more: the GPU gave it no work in {TRIES} tries")
