"""A recording played back as a device: it answers what was asked when it was made, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np

from accprobe.devices import recording
from accprobe.devices.protocol import DeviceKind
from accprobe.devices.recording import Facts, Recording
from accprobe.errors import NotRecorded
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, alike_but_n, parse
from accprobe.operands.request import Request
from accprobe.sass.lowering import Lowering


class ReplayDevice:
    """The device of a recording; a simulated one stays a simulated one.

    A question that was asked several times is answered as it was then, in turn. Raises RecordingError where the file cannot
    be read.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._recording = path, Recording.load(path)
        has = self._recording
        self.kind: DeviceKind = "simulated" if has.kind == "simulated" else "replay"
        self.name, self.architecture, self.pure = has.name, has.architecture, has.pure
        self._instructions = [parse(name) for name in has.instructions]
        self._times: dict[bytes, int] = {}

    def describe(self) -> dict[str, object]:
        return dict(self._recording.facts)

    def environment(self) -> dict[str, str]:
        """That of the recorded run."""
        return self._recording.environment

    def instructions(self) -> Sequence[Instruction]:
        """Those that the recorded run was to measure."""
        return self._instructions

    def why_not(self, inst: Instruction) -> str | None:
        facts = self._recording.instructions.get(inst.name)
        if facts is None or not (facts.why_not or facts.asked):
            others = [] if inst in self._instructions else alike_but_n(inst, self._instructions)
            known = " and ".join(map(str, sorted(other.n for other in others)))
            return "not in the recording" + f", which has it at n = {known}" * bool(others)
        return facts.why_not

    def identity(self, inst: Instruction) -> Hashable:
        return self._facts(inst).leader

    def placements(self, inst: Instruction) -> int:
        return self._facts(inst).placements

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._facts(inst).lowering

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """As recorded. Raises NotRecorded where this was not asked then, or asked by one who knew what to expect."""
        kept = self._kept(inst, recording.question(inst, request, placement))
        if not recording.is_in_full(kept):
            raise self._not_recorded(inst)
        return recording.read_in_full(kept, inst.d.dtype)

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        """As recorded. Raises NotRecorded where this was not asked then, or something else was expected."""
        kept = self._kept(inst, recording.question(inst, request, placement))
        if recording.is_in_full(kept):
            return recording.read_in_full(kept, inst.d.dtype)
        d = recording.read_by_difference(kept, np.asarray(expected()))
        if d is None:
            why = "the recording keeps how these answers differ from another model's, not the answers"
            raise NotRecorded(f"{self._path}: {inst.name}: {why}")
        return d

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        return self._facts(inst).settings

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        """As recorded. Raises NotRecorded where this was not asked then."""
        return recording.read_in_full(self._kept(inst, recording.question(inst, request, 0, setting)), inst.d.dtype)

    def _kept(self, inst: Instruction, key: bytes) -> bytes:
        answers = self._recording.exchanges.get(key)
        if answers is None:
            raise self._not_recorded(inst)
        time = self._times.get(key, 0)
        self._times[key] = time + 1
        return answers[min(time, len(answers) - 1)]

    def _facts(self, inst: Instruction) -> Facts:
        return self._recording.instructions.get(inst.name, Facts(inst.name))

    def _not_recorded(self, inst: Instruction) -> NotRecorded:
        has = self._recording
        return NotRecorded(
            f"{self._path} does not hold an answer that this run asks for, of {inst.name}: it answers what"
            f" `accprobe run {has.asked}` of accprobe {has.accprobe} asked; give the same options, or record again"
        )
