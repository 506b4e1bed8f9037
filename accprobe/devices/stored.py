"""An instruction with a sparse A, queried as the dense one of the products that are stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accprobe.devices.protocol import Device, Passing, dot_expecting
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Exchange
from accprobe.operands.request import Request
from accprobe.operands.sparse import LAYOUTS, laid_out, own_layouts
from accprobe.sass.lowering import Lowering


class StoredProducts(Passing):
    """A device that takes dense requests of `inst.stored` and sends them as requests of `inst` (`accprobe.operands.sparse`).

    Requests of `inst` are passed on unchanged. The inferred model has the stored products. used: the layouts of all requests.
    """

    def __init__(self, device: Device, inst: Instruction) -> None:
        super().__init__(device)
        self.inst, self.used = inst, np.zeros(LAYOUTS, bool)

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self._device.dot(self.inst, self._laid_out(inst, request), placement)

    def dot_expecting(self, inst: Instruction, request: Request, expected: Callable[[], Bits], placement: int = 0) -> Bits:
        return dot_expecting(self._device, self.inst, self._laid_out(inst, request), expected, placement)

    def placements(self, inst: Instruction) -> int:
        return self._device.placements(self.inst)

    def why_not(self, inst: Instruction) -> str | None:
        return self._device.why_not(self.inst)

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._device.lowering(self.inst)

    def sparse(self, exchange: Exchange) -> Exchange:
        """Return a dense exchange as that of `inst`."""
        request = laid_out(self.inst, exchange.request(self.inst.stored))
        return Exchange.of(request, 0, exchange.answer(self.inst))

    def _laid_out(self, inst: Instruction, request: Request) -> Request:
        if inst.sparse:
            return request
        which = own_layouts(request)
        self.used[which] = True
        return laid_out(self.inst, request, which)


def dense(device: Device, inst: Instruction) -> Device:
    """Return the device for requests of `inst.stored`; `device` itself if A is dense."""
    return StoredProducts(device, inst) if inst.sparse else device
