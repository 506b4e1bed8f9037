"""The protocols that devices speak: one that every device does, and what some can do besides.

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

DeviceKind = Literal["cuda", "simulated", "replay", "cpu"]
"""cpu: a processor, its own instructions, or products that a library computed there."""


class Device(Protocol):
    """Runs independent dot products of one instruction."""

    kind: DeviceKind
    name: str
    """Marketing name, e.g. "NVIDIA H200"; for a simulated device "simulated H100"."""
    architecture: str
    """Compile target with its suffix, e.g. "sm_90a"."""
    pure: bool
    """True where the same operands give the same bits by construction, so that asking twice proves nothing."""

    def describe(self) -> dict[str, object]:
        """Facts for the report's `device` table: compute_capability, sm_count, …; no host names, no paths."""

    def environment(self) -> dict[str, str]:
        """Versions for the report's `environment` table: driver, cuda, nvrtc, …"""

    def instructions(self) -> Sequence[Instruction]:
        """Every instruction that the architecture has, those without a probe too."""

    def why_not(self, inst: Instruction) -> str | None:
        """Why this device cannot run `inst`, as a short clause ("no probe"), or None where it can."""

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """The answers to N independent dot products, [N], bit patterns of D's format.

        They fill tile after tile, the first one laid out as `placement` says (`accprobe.isa.tile`); the bits must not depend
        on it.
        Raises DeviceError where the launch fails.
        """

    def placements(self, inst: Instruction) -> int:
        """How many different placements `dot` has for `inst`: those of its tile, or 1 where there is no tile."""

    def lowering(self, inst: Instruction) -> Lowering | None:
        """The SASS that runs, or None where it cannot be told (no disassembler)."""


@runtime_checkable
class Expecting(Protocol):
    """A device that can do with less where the asker knows what to expect: a recorded or a replayed one."""

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        """As `Device.dot`; `expected` gives what a model has."""


@runtime_checkable
class Controlled(Protocol):
    """A device with a control register, whose settings of rounding and subnormals an instruction may obey."""

    def settings(self, inst: Instruction) -> tuple[str, ...]:
        """Names of settings other than the one that `dot` runs under."""

    def dot_under(self, setting: str, inst: Instruction, request: Request) -> Bits:
        """As `Device.dot`, under a setting, which is taken back whatever happens."""


class Passing:
    """A device that passes everything on to another one but the asking, which is its own."""

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


@runtime_checkable
class EvaluatesModels(Protocol):
    """A device that computes by models."""

    def with_models(self, more: Mapping[Instruction, DotModel]) -> Device:
        """The same device with more instructions."""


@runtime_checkable
class Prepares(Protocol):
    """A device that is faster where it is told beforehand what it will run."""

    def prepare(self, insts: Iterable[Instruction]) -> None: ...


@runtime_checkable
class Identifies(Protocol):
    """A device that knows which instructions are computed by the very same function: those of equal identity."""

    def identity(self, inst: Instruction) -> Hashable: ...


@runtime_checkable
class Explains(Protocol):
    """A device of published models: what words that others recorded on the real chip they explain, and what is left open."""

    def explains(self, inst: Instruction) -> tuple[Explained, ...]: ...

    def left(self, inst: Instruction) -> Left: ...


@runtime_checkable
class HasUuid(Protocol):
    """A device that is one board of many, and can say which."""

    def uuid(self) -> str: ...


@runtime_checkable
class OnEverySm(Protocol):
    """A device that can say on which SM a dot product was computed."""

    def dot_on_every_sm(self, inst: Instruction, request: Request) -> Mapping[int, Bits]:
        """As `Device.dot`, computed once on each SM: its number (PTX `%smid`) -> answers [N]."""


@runtime_checkable
class OnGpu(Protocol):
    """A device that lends its GPU: models can be evaluated beside the hardware, and compared there."""

    architecture: str

    def lend(self, what: str) -> AbstractContextManager[Any]:
        """Inside, this is the current GPU, and cupy is what one gets. Errors of CUDA become DeviceError: "cuda:0 WHAT: …"."""


def dot_expecting(
    device: Device, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0
) -> Bits:
    """As `Device.dot`, of dot products whose answers a model predicts."""
    if isinstance(device, Expecting):
        return device.dot_expecting(inst, request, expected, placement)
    return device.dot(inst, request, placement)
