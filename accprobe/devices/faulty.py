"""A simulated GPU one of whose SMs errs: what a fault looks like, for those who watch for one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accprobe.devices.protocol import Passing
from accprobe.devices.simulated import SimulatedDevice
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products

SMS = 4
SICK_SM = 2
FLIPPED_BIT = 9
"""Of D."""

ODD_ONE = 3
"""The product whose operands bring the fault about: where the sign and the lowest bit of both are set. A sparse A stores it."""


class SickDevice(Passing):
    """SMS simulated SMs, of which SICK_SM flips a bit of D for some operands of one product: the same ones every time."""

    def __init__(self, simulated: SimulatedDevice) -> None:
        self._simulated = simulated
        super().__init__(simulated)
        self.name = f"{simulated.name}, SM {SICK_SM} of which is made to err"

    def with_models(self, more: Mapping[Instruction, DotModel]) -> SickDevice:
        """As `EvaluatesModels.with_models`."""
        return SickDevice(self._simulated.with_models(more))

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """As `Device.dot`, on an SM that does not err."""
        return self._simulated.dot(inst, request, placement)

    def dot_on_every_sm(self, inst: Instruction, request: Request) -> Mapping[int, Bits]:
        """As `OnEverySm.dot_on_every_sm`."""
        right = self.dot(inst, request)
        wrong = np.where(_errs(inst, request), right ^ inst.d.dtype.type(1 << FLIPPED_BIT), right)
        return dict.fromkeys(range(SMS), right) | {SICK_SM: wrong}


def _errs(inst: Instruction, request: Request) -> NDArray[np.bool_]:
    k = ODD_ONE % inst.stored.k
    met, stored = np.ones(len(request), bool), stored_products(inst, request)
    for fmt, column in ((inst.a, stored.a[:, k]), (inst.b, stored.b[:, k])):
        odd = fmt.dtype.type(1 << (fmt.storage_bits - 1) | 1 << fmt.ignored_low_bits)
        met &= (column & odd) == odd
    return met
