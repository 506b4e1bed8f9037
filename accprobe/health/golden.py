"""A unit of a GPU at full power: chains of its instruction on every SM, compared there with words that the evaluator computed.

A set of operands serves for many chains: all pairs of a place among the tiles of A and a place among those of B. Its results
are evaluated once, folded into a word a thread, and then computed over and over; nothing but what differs leaves the GPU. The
next set is drawn and evaluated in the same stream, so that the GPU never waits for the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from typing import Any

import numpy as np

from accprobe.build import cache, compiler
from accprobe.build.golden import MOST_SMS, GoldenShape, Planted, golden_shape, golden_source
from accprobe.devices.protocol import OnGpu
from accprobe.errors import DeviceError
from accprobe.evaluate.cuda.launch import Drawing, Evaluator, evaluator_name
from accprobe.evaluate.cuda.source import source
from accprobe.evaluate.evaluator import evaluate
from accprobe.health.bench import SeenWord, Turn
from accprobe.health.outcome import SmPlace
from accprobe.isa.families import registers
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction, in_a_row
from accprobe.model.tree import DotModel
from accprobe.operands import drawing
from accprobe.operands.exchange import Counterexample
from accprobe.operands.request import Request
from accprobe.verify.shrink import fewest

SET_SECONDS = 0.05
"""How long the chains of one set of operands are computed."""

FIRST_ROUNDS = 256
"""Of chains of each group of threads, before it is known how long one takes."""

MOST_GROWTH = 64
MOST_ROUNDS = 1 << 24

MOST_RECORDS = 256
"""Words of a set that are recorded; all are counted."""

SEEN_OF_A_SET = 8

STRIDE = 37
"""From one chain of a group to its next: odd, so that it comes to all of them."""

NOWHERE = 0xFFFFFFFF
"""As in golden.cuh; as SM: all of them."""

SHRINK_ROUNDS = 16
"""How often operands that may still differ are asked."""

TRIES = 8
"""Launches after which an SM that got no block counts as one that does not answer."""

TOGGLING = "toggling"
"""Operands of which each has all bits of sign and significand turned over from step to step."""

NEVER_NUMBERS = "uniform"
"""The kind of floating-point operands that chains make NaN of, nearly all."""


@dataclass(frozen=True)
class OperandKind:
    """How operands are drawn. toggling: every other step is the one before, turned over."""

    name: str
    recipe: drawing.Recipe
    toggling: bool = False


def operand_kinds(inst: Instruction) -> list[OperandKind]:
    """Those that sets of operands have in turn."""
    recipes = drawing.recipes(inst)
    drawn = [OperandKind(name, recipe) for name, recipe in recipes.items() if inst.is_integer or name != NEVER_NUMBERS]
    return [OperandKind(TOGGLING, recipes["uniform" if inst.is_integer else "close"], True), *drawn]


def turned_over(fmt: Format) -> int:
    """The bits that toggle: all of an integer, all but the exponent of a floating-point number, which stays finite."""
    if fmt.is_integer:
        return (1 << fmt.bits) - 1
    return fmt.sign_bit | ((1 << fmt.mantissa_bits) - 1) << fmt.ignored_low_bits


def evaluate_chain(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """What a model makes of chains of `inst`: a, b [N, chain * K], c [N] -> [N]."""
    d = request.c
    for start in range(0, request.a.shape[1], inst.k):
        step = slice(start, start + inst.k)
        d = evaluate(
            model, inst, Request(np.ascontiguousarray(request.a[:, step]), np.ascontiguousarray(request.b[:, step]), d)
        )
    return d


@dataclass(frozen=True)
class _Where:
    """What is needed to compute a word again: its set, chain, thread of the block, register."""

    number: int
    chain: int
    thread: int
    register: int


class _Set:
    """The memory of one set of operands, and of what came of it."""

    def __init__(self, cupy: Any, shape: GoldenShape) -> None:
        inst, steps = shape.inst, shape.steps
        self.a = cupy.empty((steps * shape.rows, inst.k), inst.a.dtype)
        self.b = cupy.empty((steps * shape.columns, inst.k), inst.b.dtype)
        self.words = cupy.empty((steps * shape.rows, steps * shape.columns), inst.d.dtype)
        self.folded = cupy.empty(shape.chains * shape.group_threads, np.uint32)
        self.tally = cupy.empty(2 * MOST_SMS + 1, np.uint64)
        self.records = cupy.empty((MOST_RECORDS, 8), np.uint32)
        self.began, self.ended = cupy.cuda.Event(), cupy.cuda.Event()
        self.number, self.kind, self.rounds = -1, "", 0


def prepare_golden(device: OnGpu, models: Mapping[Instruction, DotModel]) -> None:
    """Compiles what is needed for many units at once; of GPUs that are checked at once, one does."""
    sources = [(golden_source(golden_shape(inst)), inst.name) for inst in models]
    sources += [(source(model, inst, single=True), evaluator_name(inst)) for inst, model in models.items()]
    sources += [(drawing.source(inst), f"the operands of {inst.name}") for inst in models]
    with cache.one_at_a_time(f"golden-{device.architecture}"):
        compiler.fill_cache(sources, device.architecture)


class GoldenBench:
    """As `UnitBench`. planted: an error on purpose, by which accprobe tests itself."""

    def __init__(
        self,
        device: OnGpu,
        inst: Instruction,
        model: DotModel,
        seed: int,
        shape: GoldenShape | None = None,
        planted: Planted | None = None,
    ) -> None:
        self._device, self.inst, self._model = device, inst, model
        self.shape = shape or golden_shape(inst)
        self.chain = self.shape.chain
        self._whole = in_a_row(inst, self.chain)
        self._kinds, self._numbers, self._rounds = operand_kinds(inst), count(), FIRST_ROUNDS
        with device.lend(f"failed to prepare the check of {inst.name}") as cupy:
            self._cupy = cupy
            self._sms: int = cupy.cuda.Device().attributes["MultiProcessorCount"]
            self._evaluator = Evaluator(cupy, inst, model, device.architecture, single=True)
            self._drawing = Drawing(cupy, inst, device.architecture, seed)
            cubin = compiler.compile_source(golden_source(self.shape, planted), device.architecture, inst.name)
            module = cupy.RawModule(path=str(cubin.path))
            self._golden, self._fold = module.get_function("golden"), module.get_function("fold_words")
            self._golden.max_dynamic_shared_size_bytes = self.shape.shared_bytes
            self._stream, self._copies = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            with self._stream:
                self._sets = [_Set(cupy, self.shape) for _ in range(2)]
            self._steps = cupy.asarray((np.arange(self.shape.steps)[:, None] + np.arange(self.chain)) % self.shape.steps)
            cupy.cuda.Device().synchronize()

    def turn(self, seconds: float) -> Turn:
        started = time.monotonic()
        done, wrong, vanished, seen = np.zeros(MOST_SMS, np.uint64), np.zeros(MOST_SMS, np.uint64), 0, list[SeenWord]()
        with self._device.lend(f"failed to check {self.inst.name}"), self._stream:
            before = self._begun(self._sets[0])
            for operands in cycle(reversed(self._sets)):
                over = time.monotonic() - started >= seconds
                running = before if over else self._begun(operands)
                its_done, its_wrong, records = self._told(before)
                done += its_done
                wrong += its_wrong
                vanished += int((records[:, 3] == NOWHERE).sum())
                seen += self._seen(before, records)
                if over:
                    break
                before = running
        dots = int(done.sum()) * self.shape.results
        named = {str(sm): int(wrong[sm]) for sm in np.flatnonzero(wrong).tolist()}
        passed = time.monotonic() - started
        return Turn(dots, dots * self.chain, passed, int((done > 0).sum()), named, tuple(seen), vanished)

    def again(self, seen: SeenWord, times: int) -> int:
        lines = self._lines(seen)
        got = self._peeked(seen, lines.a.reshape(1, self.chain, -1), lines.b.reshape(1, self.chain, -1), times)
        return int((got != evaluate_chain(self._model, self.inst, lines)[0]).sum())

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        expect = partial(evaluate_chain, self._model, self.inst)

        def ask(request: Request) -> Bits:
            """The first answer that is not as expected, where there is one."""
            a, b = (x.reshape(len(request), self.chain, self.inst.k) for x in (request.a, request.b))
            got = self._peeked(seen, a, b, SHRINK_ROUNDS)
            differs = got != expect(request)[:, None]
            return np.asarray(np.take_along_axis(got, differs.argmax(axis=1)[:, None], axis=1)[:, 0])

        return fewest(ask, expect, self._whole, seen.found)

    def _begun(self, operands: _Set) -> _Set:
        """Everything for one set goes to the stream; nothing waits."""
        shape = self.shape
        self._draw(operands, next(self._numbers))
        a, b = (self._chains(x) for x in (operands.a, operands.b))
        self._evaluator.evaluate(a, b, None, operands.words, shape.chain)
        self._fold((shape.chains,), (shape.group_threads,), (operands.words, operands.folded))
        operands.tally.fill(0)
        operands.rounds = self._rounds
        operands.began.record()
        self._launch(operands, operands.rounds, 0, 1, STRIDE)
        operands.ended.record()
        return operands

    def _draw(self, operands: _Set, number: int) -> None:
        kind = self._kinds[number % len(self._kinds)]
        operands.number, operands.kind = number, kind.name
        self._drawing.draw(kind.recipe, number, operands.a, operands.b, None)
        if kind.toggling:
            for x, fmt in ((operands.a, self.inst.a), (operands.b, self.inst.b)):
                steps = x.reshape(self.shape.steps, -1)
                steps[1::2] = steps[::2] ^ fmt.dtype.type(turned_over(fmt))

    def _chains(self, operands: Any) -> Any:
        """[steps * lines, K] -> the operands of the chains that begin at each step, [steps * lines, chain * K]."""
        steps = operands.reshape(self.shape.steps, -1, self.inst.k)
        in_order = steps[self._steps].transpose(0, 2, 1, 3)
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
        arrays = (operands.a, operands.b, operands.folded, operands.words, operands.tally, operands.records)
        pointers = [np.uint64(x.data.ptr) for x in arrays] + [np.uint64(0 if peek is None else peek.data.ptr)]
        job = map(np.uint32, (rounds, first, spread, stride, only, thread, register, MOST_RECORDS))
        self._golden((self._sms,), (self.shape.threads,), (*pointers, *job), shared_mem=self.shape.shared_bytes)

    def _told(self, finished: _Set) -> tuple[Any, Any, Any]:
        """Chains done and words wrong by SM, and the records; the next set is not waited for."""
        finished.ended.synchronize()
        milliseconds = self._cupy.cuda.get_elapsed_time(finished.began, finished.ended)
        wanted = finished.rounds * SET_SECONDS * 1e3 / max(milliseconds, 1e-3)
        self._rounds = int(min(max(wanted, 1), finished.rounds * MOST_GROWTH, MOST_ROUNDS))
        tally = finished.tally.get(stream=self._copies)
        kept = min(int(tally[-1]), MOST_RECORDS)
        records = finished.records[:kept].get(stream=self._copies) if kept else np.zeros((0, 8), np.uint32)
        return tally[:MOST_SMS], tally[MOST_SMS:-1], records

    def _seen(self, finished: _Set, records: Any) -> Iterator[SeenWord]:
        """The first words that differ, of each SM as many."""
        words = [record for record in records.tolist() if record[3] != NOWHERE]
        for sm in dict.fromkeys(record[0] for record in words):
            for record in [each for each in words if each[0] == sm][:SEEN_OF_A_SET]:
                yield self._named(finished, record)

    def _named(self, finished: _Set, record: list[int]) -> SeenWord:
        sm, thread, chain, register = record[:4]
        got, expected = np.array(record[4:], np.uint32).view(np.uint64).astype(self.inst.d.dtype)[:, None]
        where = _Where(finished.number, chain, thread, register)
        a, b = (x[self._cupy.asarray(lines)].get(stream=self._stream) for x, lines in self._places(finished, where))
        request = Request(a.reshape(1, -1), b.reshape(1, -1), np.zeros(1, self.inst.c.dtype))
        place = SmPlace(sm=sm, warp=thread // 32, lane=thread % 32, register_of_lane=register)
        return SeenWord(place, Counterexample.of(request, 0, got, expected, finished.kind), where)

    def _places(self, operands: _Set, where: _Where) -> Iterator[tuple[Any, Any]]:
        """Of A and of B: where the lines are that a word is made of, an instruction each."""
        shape = self.shape
        row, column = cell(shape, where.thread % shape.group_threads, where.register)
        for x, begin, line, lines in (
            (operands.a, where.chain // shape.steps, row, shape.rows),
            (operands.b, where.chain % shape.steps, column, shape.columns),
        ):
            yield x, (begin + np.arange(shape.chain)) % shape.steps * lines + line

    def _lines(self, seen: SeenWord) -> Request:
        return seen.found.exchange.request(self._whole)

    def _peeked(self, seen: SeenWord, a: Bits, b: Bits, rounds: int) -> Bits:
        """The word of that very thread and register, for other operands of its own lines: [N, chain, K] each -> [N, rounds].

        All else in the set stays as it was. Raises DeviceError where the SM does not compute.
        """
        where = seen.key
        assert isinstance(where, _Where)
        with self._device.lend(f"failed to ask SM {seen.place.sm} again") as cupy, self._stream:
            operands = self._sets[0]
            self._draw(operands, where.number)
            (a_all, a_at), (b_all, b_at) = ((x, cupy.asarray(lines)) for x, lines in self._places(operands, where))
            a_each, b_each = cupy.asarray(a), cupy.asarray(b)
            words = cupy.zeros((len(a), rounds), self.inst.d.dtype)
            operands.tally.fill(0)
            sm = NOWHERE if seen.place.sm is None else seen.place.sm
            for _ in range(TRIES):
                for i in range(len(a)):
                    a_all[a_at], b_all[b_at] = a_each[i], b_each[i]
                    self._launch(operands, rounds, where.chain, 0, 0, sm, where.thread, where.register, words[i])
                done = int(operands.tally[sm : sm + 1].get(stream=self._stream)[0])
                if done >= len(a) * rounds * self.shape.groups:
                    got: Bits = words.get(stream=self._stream)
                    return got
        raise DeviceError(f"SM {sm} does not compute any more: the GPU gave it no work in {TRIES} tries")


def cell(shape: GoldenShape, thread: int, register: int) -> tuple[int, int]:
    """Row and column of a chain's results that a thread of a group holds in that register: `cell` of golden.cuh."""
    of_tile = registers(shape.inst)["d"]
    tile, i = divmod(register, of_tile)
    lane, halves = thread % 32, 1 if shape.inst.m < 16 else 2
    row = tile // shape.tiles_n * shape.inst.m + thread // 32 * 16 + lane // 4 + 8 * (i // 2 % halves)
    return row, tile % shape.tiles_n * shape.inst.n + lane % 4 * 2 + i % 2 + 8 * (i // (2 * halves))
