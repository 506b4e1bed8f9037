"""A unit of a device that answers dot products: drawn, evaluated and compared on the CPU."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from accprobe.devices.protocol import Device, OnEverySm
from accprobe.evaluate.evaluator import evaluate
from accprobe.health.bench import SeenWord, Turn
from accprobe.health.outcome import SmPlace
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request
from accprobe.operands.sparse import laid_out
from accprobe.verify.shrink import shrink

ASKED_AT_ONCE = 1 << 13
"""Dot products asked at once."""

SEEN_OF_A_BATCH = 4


class AskedBench:
    """As `UnitBench`: on every SM where the device tells them apart, each result one dot product of one instruction."""

    chain = 1

    def __init__(self, device: Device, inst: Instruction, model: DotModel, seed: int) -> None:
        self._device, self.inst, self._model = device, inst, model
        self._batches = ((number, kind) for number in count() for kind in kinds(inst.stored))
        self._seed = seed

    def prepare(self) -> Turn:
        return replace(self.turn(0.0), seconds=0.0)

    def turn(self, seconds: float) -> Turn:
        started = time.monotonic()
        dots, sms, wrong_by_sm, seen = 0, None, dict[str, int](), list[SeenWord]()
        while True:
            number, kind = next(self._batches)
            random = np.random.default_rng([self._seed, number, *kind.encode()])
            request = laid_out(self.inst, draw(kind, self.inst.stored, random, ASKED_AT_ONCE))
            expected = evaluate(self._model, self.inst, request)
            answers = self._answers(request)
            sms = len(answers) if isinstance(self._device, OnEverySm) else None
            for sm, got in answers:
                dots += len(got)
                wrong = np.flatnonzero(got != expected)
                if len(wrong):
                    wrong_by_sm["" if sm is None else str(sm)] = wrong_by_sm.get(str(sm), 0) + len(wrong)
                seen += [
                    SeenWord(SmPlace(sm=sm), Counterexample.of(request, row, got, expected, kind), None)
                    for row in wrong[:SEEN_OF_A_BATCH].tolist()
                ]
            if (passed := time.monotonic() - started) >= seconds:
                return Turn(dots, dots, passed, sms, wrong_by_sm, tuple(seen))

    def again(self, seen: SeenWord, times: int) -> int:
        asked = seen.found.exchange.request(self.inst)
        rows = asked[np.zeros(times, np.intp)]
        expected = evaluate(self._model, self.inst, asked)[0]
        return int((self._answer(seen.place.sm, rows) != expected).sum())

    def smallest(self, seen: SeenWord) -> Counterexample | None:
        return shrink(partial(self._answer, seen.place.sm), self.inst, self._model, seen.found)

    def _answers(self, request: Request) -> tuple[tuple[int | None, Bits], ...]:
        if isinstance(self._device, OnEverySm):
            return tuple(self._device.dot_on_every_sm(self.inst, request).items())
        return ((None, self._device.dot(self.inst, request)),)

    def _answer(self, sm: int | None, request: Request) -> Bits:
        return dict(self._answers(request))[sm]
