"""The protocols of devices: one that every device implements, and optional ones.

Bit patterns, never floats, cross them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, runtime_checkable

from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.explained import Explained
from accprobe.model.published import Left
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.sass.lowering import Lowering

# cpu: a processor's own instructions, or products that a library computed on it.
DeviceKind = Literal["cuda", "simulated", "replay", "cpu"]


class Device(Protocol):
    """Runs independent dot products of one instruction.

    name: marketing name, e.g. "NVIDIA H200" or "simulated H100". architecture: compile target with its suffix, e.g. "sm_90a".
    pure: whether the same operands give the same bits by construction, so that repeating a query shows nothing.
    """

    kind: DeviceKind
    name: str
    architecture: str
    pure: bool

    def describe(self) -> dict[str, object]:
        """Return facts for the report's `device` table: compute_capability, sm_count, …; no host names, no paths."""

    def environment(self) -> dict[str, str]:
        """Return versions for the report's `environment` table: driver, cuda, nvrtc, …"""

    def instructions(self) -> Sequence[Instruction]:
        """Return every instruction of the architecture, including those without a probe."""

    def why_not(self, inst: Instruction) -> str | None:
        """Return why this device cannot run `inst`, as a short clause ("no probe"), or None if it can."""

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """Return the results of N independent dot products, [N], bit patterns of D's format.

        They fill tile after tile, the first one laid out as `placement` says (`accprobe.isa.tile`); the bits must not depend on
        it. Raises DeviceError if the launch fails.
        """

    def placements(self, inst: Instruction) -> int:
        """Return how many placements `dot` has for `inst`: those of its tile, or 1 if there is no tile."""

    def lowering(self, inst: Instruction) -> Lowering | None:
        """Return the SASS that runs, or None without a disassembler."""


@runtime_checkable
class Expecting(Protocol):
    """A device that uses the expected results: a recorded or a replayed one."""

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        """As `Device.dot`; `expected` returns the results that a model predicts."""


@runtime_checkable
class Controlled(Protocol):
    """A device with a control register, whose settings of rounding and subnormals an instruction may obey."""

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        """Return the names of the settings other than the one that `dot` runs under."""

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        """As `Device.dot`, under a setting, which is restored whatever happens."""


@runtime_checkable
class EvaluatesModels(Protocol):
    """A device that computes by models."""

    def with_models(self, more: Mapping[Instruction, DotModel]) -> Device:
        """Return the same device with more instructions."""


@runtime_checkable
class Prepares(Protocol):
    """A device that is faster if it knows beforehand what it will run."""

    def prepare(self, insts: Iterable[Instruction]) -> None: ...


@runtime_checkable
class Identifies(Protocol):
    """A device that knows which instructions the same function computes: those of equal identity."""

    def identity(self, inst: Instruction) -> Hashable: ...


@runtime_checkable
class Explains(Protocol):
    """A device of published models.

    explains: results that others recorded on the real chip and the model predicts. candidates: values of the features that no
    public result determines.
    """

    def explains(self, inst: Instruction) -> tuple[Explained, ...]: ...

    def candidates(self, inst: Instruction) -> Left: ...


@runtime_checkable
class HasUuid(Protocol):
    """A device that identifies its board."""

    def uuid(self) -> str: ...


@runtime_checkable
class OnEverySm(Protocol):
    """A device that reports on which SM a dot product was computed."""

    def dot_on_every_sm(self, inst: Instruction, request: Request) -> Mapping[int, Bits]:
        """As `Device.dot`, once on each SM. Return its number (PTX `%smid`) -> results [N]."""


@runtime_checkable
class OnGpu(Protocol):
    """A device that lends its GPU: models can be evaluated beside the hardware, and compared there."""

    architecture: str

    def lend(self, what: str) -> AbstractContextManager[Any]:
        """Make this the current GPU and yield cupy. Errors of CUDA become DeviceError: "cuda:0 WHAT: …"."""


class Passing:
    """A device that passes everything except `dot` on to another one."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.kind, self.name, self.architecture, self.pure = device.kind, device.name, device.architecture, device.pure

    def describe(self) -> dict[str, object]:
        return self._device.describe()

    def environment(self) -> dict[str, str]:
        return self._device.environment()

    def instructions(self) -> Sequence[Instruction]:
        return self._device.instructions()

    def why_not(self, inst: Instruction) -> str | None:
        return self._device.why_not(inst)

    def placements(self, inst: Instruction) -> int:
        return self._device.placements(inst)

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._device.lowering(inst)

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        return self._device.settings(inst) if isinstance(self._device, Controlled) else ()

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        assert isinstance(self._device, Controlled)
        return self._device.dot_under(setting, inst, request)


def dot_expecting(
    device: Device, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0
) -> Bits:
    """As `Device.dot`, for dot products whose results a model predicts."""
    if isinstance(device, Expecting):
        return device.dot_expecting(inst, request, expected, placement)
    return device.dot(inst, request, placement)
