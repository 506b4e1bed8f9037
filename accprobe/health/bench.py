"""The benchmark of one unit: its interface, and one for matrix units that draws operands and compares results on the CPU."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import evaluate
from accprobe.health.outcome import SmPlace
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.protocol import Device
from accprobe.operands.request import Request
from accprobe.operands.sparse import laid_out
from accprobe.verify.shrink import shrink


@dataclass(frozen=True)
class SeenWord:
    """A mismatch. key: data with which its bench repeats it; chain: number of instructions that computed it.

    instruction: its name, "" for the only one of the bench.
    """

    place: SmPlace
    found: Counterexample
    key: object
    chain: int = 1
    instruction: str = ""


@dataclass
class Turn:
    """The results of one turn of a unit; dots, computed, loaded_seconds and loaded_computed as in `UnitOutcome`.

    sms: number of SMs that computed, None if unknown. wrong_by_sm: mismatches by SM, "" for an unknown SM. seen: some
    mismatches. vanished: as in `GpuOutcome`.
    """

    dots: int = 0
    computed: int = 0
    seconds: float = 0.0
    sms: int | None = None
    wrong_by_sm: Counter[str] = field(default_factory=Counter)
    seen: list[SeenWord] = field(default_factory=list)
    vanished: int = 0
    loaded_seconds: float | None = None
    loaded_computed: int = 0

    @property
    def wrong(self) -> int:
        return self.wrong_by_sm.total()

    def add(self, dots: int, chain: int, loaded_seconds: float | None, done: NDArray[Any], wrong: NDArray[Any]) -> None:
        """Add results of chains. loaded_seconds: None if not at full load. done, wrong: comparisons and mismatches by SM."""
        self.dots, self.computed = self.dots + dots, self.computed + dots * chain
        if loaded_seconds is not None:
            self.loaded_seconds = (self.loaded_seconds or 0.0) + loaded_seconds
            self.loaded_computed += dots * chain
        self.sms = max(self.sms or 0, int((done > 0).sum()))
        self.wrong_by_sm.update({str(sm): int(wrong[sm]) for sm in np.flatnonzero(wrong).tolist()})


class UnitBench(Protocol):
    """One unit of one GPU. instruction: its name, or several; chain: the most instructions per compared result."""

    instruction: str
    chain: int

    def prepare(self) -> Turn:
        """Compare a little, so that no turn compiles or loads anything; counts as no time. Raises DeviceError."""

    def turn(self, seconds: float) -> Turn:
        """Compute and compare for about so many seconds. Raises DeviceError."""

    def again(self, seen: SeenWord, times: int) -> int:
        """Repeat the operands at that place and return the number of mismatches. Raises DeviceError."""

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        """Return the fewest operands with a result that still differs there, None if no repetition does. Raises DeviceError."""


BATCH_SIZE = 1 << 13
"""Dot products per batch."""

SEEN_OF_A_BATCH = 4


class CpuBench:
    """A `UnitBench` on every SM, if the device distinguishes them; each result is a dot product of one instruction."""

    chain = 1

    def __init__(self, device: Device, inst: Instruction, model: DotModel, seed: int) -> None:
        self._device, self.inst, self._model, self.instruction = device, inst, model, inst.name
        self._batches = ((number, kind) for number in count() for kind in kinds(inst.stored))
        self._seed = seed

    def prepare(self) -> Turn:
        return replace(self.turn(0.0), seconds=0.0)

    def turn(self, seconds: float) -> Turn:
        started, turn = time.monotonic(), Turn()
        while not turn.dots or turn.seconds < seconds:
            number, kind = next(self._batches)
            random = np.random.default_rng([self._seed, number, *kind.encode()])
            request = laid_out(self.inst, draw(kind, self.inst.stored, random, BATCH_SIZE))
            expected = evaluate(self._model, self.inst, request)
            results = self._device.dot_on_every_sm(self.inst, request)
            turn.sms = None if None in results else len(results)
            for sm, got in results.items():
                wrong = np.flatnonzero(got != expected)
                turn.dots += len(got)
                if len(wrong):
                    turn.wrong_by_sm["" if sm is None else str(sm)] += len(wrong)
                turn.seen += [
                    SeenWord(SmPlace(sm=sm), Counterexample.of(request, row, got, expected, kind), None)
                    for row in wrong[:SEEN_OF_A_BATCH].tolist()
                ]
            turn.seconds = time.monotonic() - started
        turn.computed = turn.dots
        return turn

    def again(self, seen: SeenWord, times: int) -> int:
        request = seen.found.exchange.request(self.inst)
        rows = request[np.zeros(times, np.intp)]
        expected = evaluate(self._model, self.inst, request)[0]
        return int((self._result(seen.place.sm, rows) != expected).sum())

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        return shrink(partial(self._result, seen.place.sm), partial(evaluate, self._model, self.inst), self.inst, seen.found)

    def _result(self, sm: int | None, request: Request) -> Bits:
        return self._device.dot_on_every_sm(self.inst, request)[sm]
