"""A device that is no pure function: a model evaluated in the cells of a tile, and a fault that may depend on place or time."""

from __future__ import annotations

from collections.abc import Callable

from accprobe.devices.protocol import DeviceKind
from accprobe.devices.simulated import SimulatedDevice
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request


class Tiled(SimulatedDevice):
    """fault: of answers d [n], given with their rows and columns [n], and how many were given before."""

    kind: DeviceKind = "cuda"
    pure = False

    def __init__(self, inst: Instruction, model: DotModel, fault: Callable[..., Bits] = lambda d, **_: d) -> None:
        super().__init__({inst: model})
        self._fault, self._before = fault, 0

    def placements(self, inst: Instruction) -> int:
        return tile.placements(inst)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        rows, columns = tile.cells_of(inst, len(request), placement)
        d = self._fault(super().dot(inst, request), rows=rows, columns=columns, before=self._before)
        self._before += len(request)
        return d.astype(inst.d.dtype)
