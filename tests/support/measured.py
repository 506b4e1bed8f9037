"""Simulated GPUs: devices of kind "cuda" that evaluate models, with opcodes, a tile and an optional fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from accprobe.devices.protocol import DeviceKind
from accprobe.devices.simulated import SimulatedDevice
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.sass.lowering import Lowering
from accprobe.sass.opcodes import kind_of


class Measured(SimulatedDevice):
    """A GPU that computes the models; a pure function only if `pure`.

    lowerings: of instructions; others become one opcode of the expected unit.
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


class Tiled(Measured):
    """A GPU that computes one instruction in the elements of its tile.

    fault: changes results d [n], given with their rows and columns [n] and the number of results before.
    """

    def __init__(
        self,
        inst: Instruction,
        model: DotModel,
        fault: Callable[..., Bits] = lambda d, **_: d,
        lowering: Lowering | None = None,
    ) -> None:
        super().__init__({inst: model}, lowerings={inst: lowering} if lowering else {})
        self._fault, self._before = fault, 0

    def placements(self, inst: Instruction) -> int:
        return tile.placements(inst)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        rows, columns = tile.cells_of(inst, len(request), placement)
        d = self._fault(super().dot(inst, request), rows=rows, columns=columns, before=self._before)
        self._before += len(request)
        return d.astype(inst.d.dtype)


def native(inst: Instruction) -> Lowering:
    """Return one opcode of the expected unit, as a disassembler would read it."""
    opcode, *_ = kind_of(inst)
    return Lowering((opcode,), ((opcode, 1),), "nvdisasm", "ab" * 32)
