"""Models judged as hardware would be: devices that evaluate them, and are no simulated ones to whoever asks."""

from __future__ import annotations

from collections.abc import Mapping

from accprobe.devices.protocol import DeviceKind
from accprobe.devices.simulated import SimulatedDevice
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.sass.lowering import Lowering
from accprobe.sass.opcodes import kind_of


class Measured(SimulatedDevice):
    """A GPU that computes what the models say, of which nobody knows that it is a pure function, unless `pure` says so.

    lowerings: what instructions became; of those that are not named, one opcode of the unit that is expected.
    """

    kind: DeviceKind = "cuda"

    def __init__(
        self,
        models: Mapping[Instruction, DotModel],
        name: str = "Fake GPU",
        architecture: str = "sm_90a",
        lowerings: Mapping[Instruction, Lowering] | None = None,
        pure: bool = False,
    ) -> None:
        super().__init__(models, name, architecture, {inst: native(inst) for inst in models} | dict(lowerings or {}))
        self.pure = pure

    def environment(self) -> dict[str, str]:
        return {"driver": "1.2"}


def native(inst: Instruction) -> Lowering:
    """One opcode of the unit that the instruction is meant for, as a disassembler would tell it."""
    opcode, *_ = kind_of(inst)
    return Lowering((opcode,), ((opcode, 1),), "nvdisasm", "ab" * 32)
