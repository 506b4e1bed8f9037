"""The protocol that every device speaks: bit patterns, never floats, cross it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.sass.lowering import Lowering

DeviceKind = Literal["cuda", "simulated", "replay"]


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
        """Why this device cannot run `inst`, as a short clause ("no probe yet"), or None where it can."""

    def dot(self, inst: Instruction, a: Bits, b: Bits, c: Bits, placement: int = 0) -> Bits:
        """N independent dot products d = a · b + c.

        a, b: [N, K] unsigned bit patterns of the instruction's A and B formats; c: [N] of its C format; returns [N] of its
        D format. `placement` moves the problems to other places in the tile; the bits must not depend on it.
        Raises DeviceError where the launch fails.
        """

    def placements(self, inst: Instruction) -> int:
        """How many different placements `dot` has for `inst`."""

    def lowering(self, inst: Instruction) -> Lowering | None:
        """The SASS that runs, or None where it cannot be told (no disassembler)."""


@runtime_checkable
class Expecting(Protocol):
    """A device that can do with less where the asker knows what to expect: a recorded or a replayed one."""

    def dot_expecting(
        self, inst: Instruction, a: Bits, b: Bits, c: Bits, expected: Callable[[], Bits], placement: int = 0
    ) -> Bits:
        """As `Device.dot`; `expected` gives what a model has."""


def dot_expecting(
    device: Device, inst: Instruction, a: Bits, b: Bits, c: Bits, expected: Callable[[], Bits], placement: int = 0
) -> Bits:
    """As `Device.dot`, of dot products whose answers a model predicts."""
    if isinstance(device, Expecting):
        return device.dot_expecting(inst, a, b, c, expected, placement)
    return device.dot(inst, a, b, c, placement)
