"""The protocol of devices: the base class, and what a GPU adds to it.

An `InstructionSubject` is one instruction of one device: what inference and verification see. Bit patterns, never floats, cross
the protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accprobe.build.lowerings import Lowering
from accprobe.errors import DeviceError
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.published import Explained, Left
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, laid_out, own_layouts

# cpu: a processor's own instructions, or products that a library computed on it.
DeviceKind = Literal["cuda", "simulated", "replay", "cpu"]


class Device(ABC):
    """Runs independent dot products of one instruction. A device implements the abstract methods; the others have a default.

    name: marketing name, e.g. "NVIDIA H200" or "simulated H100". architecture: compile target with its suffix, e.g. "sm_90a".
    pure: whether the same operands give the same bits by construction, so that repeating a query shows nothing.
    """

    kind: DeviceKind
    name: str
    architecture: str
    pure: bool

    def describe(self) -> dict[str, object]:
        """Return facts for the report's `device` table: compute_capability, sm_count, …; no host names, no paths."""
        return {}

    def environment(self) -> dict[str, str]:
        """Return versions for the report's `environment` table: driver, cuda, nvrtc, …"""
        return {}

    @abstractmethod
    def instructions(self) -> Sequence[Instruction]:
        """Return every instruction of the architecture, including those without a probe."""

    @abstractmethod
    def explain_unavailable(self, inst: Instruction) -> str | None:
        """Return why this device cannot run `inst`, as a short clause ("no probe"), or None if it can."""

    @abstractmethod
    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """Return the results of N independent dot products, [N], bit patterns of D's format.

        They fill tile after tile, the first one laid out as `placement` says (`accprobe.isa.tile`); the bits must not depend on
        it. Raises DeviceError if the launch fails.
        """

    def dot_expecting(self, inst: Instruction, request: Request, expected: Bits, placement: int = 0) -> Bits:
        """Return results as `dot`, for dot products that a model predicts; a recording keeps the differing ones."""
        return self.dot(inst, request, placement)

    def dot_on_every_sm(self, inst: Instruction, request: Request) -> Mapping[int | None, Bits]:
        """Return by SM the results of `dot` once on each SM, [N]; the key None is any SM, if the device does not report it."""
        return {None: self.dot(inst, request)}

    def placements(self, inst: Instruction) -> int:
        """Return the number of placements of `dot` in the tile of `inst`, 1 if it has no tile."""
        return tile.placements(inst)

    @abstractmethod
    def lowering(self, inst: Instruction) -> Lowering | None:
        """Return the SASS that runs, or None without a disassembler."""

    def prepare(self, insts: Iterable[Instruction]) -> None:
        """Compile several instructions at once, if that is faster than one at a time."""
        return  # most devices compile nothing

    def identity(self, inst: Instruction) -> Hashable:
        """Return equal values for instructions that the same function computes."""
        return inst.name

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        """Return the settings of a control register, other than the one that `dot` runs under, that an instruction may obey."""
        return ()

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        """Return results as `dot` under one of `settings`, and restore the usual one. Raises DeviceError without settings."""
        raise DeviceError(f"{self.name} has no setting {setting}")

    def explains(self, inst: Instruction) -> tuple[Explained, ...]:
        """Return the results that others recorded on the real chip and the published model predicts."""
        return ()

    def candidates(self, inst: Instruction) -> Left:
        """Return the values of the features that no public result of the real chip determines."""
        return {}

    def uuid(self) -> str | None:
        """Return the board's UUID, None without a board. Raises DeviceError if the driver does not report it."""
        return None


@runtime_checkable
class OnGpu(Protocol):
    """A device that lends its GPU: models can be evaluated beside the hardware, and compared there."""

    architecture: str

    def lend(self, what: str) -> AbstractContextManager[Any]:
        """Make this the current GPU and yield cupy. Errors of CUDA become DeviceError: "cuda:0 WHAT: …"."""


class InstructionSubject:
    """An instruction of a device. Each `query` starts one placement after the last tile of the one before, so that all
    elements are covered.

    runs: the instruction. inst: the instruction of the requests, `runs` unless A is sparse. Callers then make dense requests of
    the stored products, as the model has them. `accprobe.operands.sparse` lays them out.
    used: marks of the layouts that were sent, [LAYOUTS].
    """

    def __init__(self, device: Device, runs: Instruction) -> None:
        self.device, self.runs, self.inst, self.pure = device, runs, runs.stored, device.pure
        self.used: NDArray[np.bool_] = np.zeros(LAYOUTS, bool)
        self._placements, self._tiles = device.placements(runs), 0

    @property
    def place(self) -> int:
        """Return the placement of the next query (`accprobe.isa.tile`)."""
        return self._tiles % self._placements

    def query(self, request: Request, expected: Bits | None = None) -> Bits:
        """Return the results, [N]. expected: what a model predicts, if known."""
        d = self._sent(self.place, request, expected)
        self._tiles += tile.tiles(self.inst, len(d))
        return d

    def query_at(self, place: int, request: Request, expected: Bits | None = None) -> Bits:
        """Return the results of a request, with its first tile at this placement."""
        return self._sent(place, request, expected)

    def _sent(self, place: int, request: Request, expected: Bits | None) -> Bits:
        if self.runs.sparse and request.metadata is None:
            which = own_layouts(request)
            self.used[which] = True
            request = laid_out(self.runs, request, which)
        if expected is None:
            return self.device.dot(self.runs, request, place)
        return self.device.dot_expecting(self.runs, request, expected, place)

    def instruction(self, has_metadata: bool) -> Instruction:
        """Return the instruction of a request or an exchange."""
        return self.runs if has_metadata else self.inst

    def in_full(self, found: Counterexample) -> Counterexample:
        """Return a counterexample as one of `runs`."""
        return replace(found, exchange=self.sparse(found.exchange))

    def sparse(self, exchange: Exchange) -> Exchange:
        """Return an exchange as one of `runs`."""
        if exchange.metadata or not self.runs.sparse:
            return exchange
        request = laid_out(self.runs, exchange.request(self.inst))
        return Exchange.of(request, 0, exchange.result(self.runs))
