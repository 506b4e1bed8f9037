"""A device that notes every exchange with another one, for `accprobe.devices.recording`."""

from __future__ import annotations

from collections.abc import Callable

from accprobe.devices.protocol import Device, Passing
from accprobe.devices.recording import Exchanges, by_difference, in_full, question
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request


class RecordedDevice(Passing):
    """Passes everything on to `device`; `take` gives what was exchanged since the last time."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._exchanges: Exchanges = {}
        self._asked: dict[bytes, int] = {}

    def take(self) -> Exchanges:
        taken, self._exchanges, self._asked = self._exchanges, {}, {}
        return taken

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(question(inst, request, placement), in_full(d))
        return d

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        d = self._device.dot(inst, request, placement)
        self._note(question(inst, request, placement), by_difference(d, expected()))
        return d

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        d = super().dot_under(setting, inst, request)
        self._note(question(inst, request, 0, setting), in_full(d))
        return d

    def _note(self, key: bytes, kept: bytes) -> None:
        """Keep an answer, unless it is the one before again."""
        answers = self._exchanges.setdefault(key, [])
        times = self._asked[key] = self._asked.get(key, 0) + 1
        if not answers or answers[-1] != kept:
            answers += [answers[-1]] * (times - 1 - len(answers)) if answers else []
            answers.append(kept)
