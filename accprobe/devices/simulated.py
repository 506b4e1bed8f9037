"""Simulated devices: they evaluate the published models of a chip, or any mapping of instructions to models."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from importlib.metadata import version
from platform import python_version

import numpy as np
from numpy.typing import NDArray

from accprobe.build.lowerings import Lowering
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, alike_but_n, catalog
from accprobe.model.published import NO_MODEL, Explained, Left, chip, known_models, title, words_explained
from accprobe.model.tree import DotModel
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products


class SimulatedDevice(Device):
    """A device with pure functions as instructions: each evaluates its `DotModel`."""

    kind: DeviceKind = "simulated"
    pure = True

    def __init__(
        self,
        models: Mapping[Instruction, DotModel],
        name: str = "simulated device",
        architecture: str = "sm_90a",
        lowerings: Mapping[Instruction, Lowering] | None = None,
        explained: Mapping[str, tuple[Explained, ...]] | None = None,
        candidates: Mapping[Instruction, Left] | None = None,
    ) -> None:
        self.name, self.architecture = name, architecture
        self._models, self._lowerings = dict(models), dict(lowerings or {})
        self._explained, self._candidates = dict(explained or {}), dict(candidates or {})

    def environment(self) -> dict[str, str]:
        """Return the versions that the evaluation depends on."""
        return {"python": python_version(), "numpy": version("numpy")}

    def instructions(self) -> Sequence[Instruction]:
        """Return the architecture's catalog and everything else that has a model."""
        listed = dict.fromkeys(catalog(self.architecture))
        return list(listed | self._models)

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return None if inst in self._models or self._alike(inst) else NO_MODEL

    def identity(self, inst: Instruction) -> Hashable:
        of_operands = inst.a, inst.b, inst.c, inst.d, inst.k, inst.bit_op, inst.sparse, inst.scale, inst.scale_block
        return self.model(inst), *of_operands

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        """Return results as `Device.dot`; without a tile, all placements are equal."""
        return evaluate(self.model(inst), inst, request)

    def placements(self, inst: Instruction) -> int:
        return 1

    def lowering(self, inst: Instruction) -> Lowering | None:
        return self._lowerings.get(inst) or next(filter(None, map(self._lowerings.get, self._alike(inst))), None)

    def explains(self, inst: Instruction) -> tuple[Explained, ...]:
        return self._explained.get(inst.name, ())

    def candidates(self, inst: Instruction) -> Left:
        return self._candidates.get(inst, {})

    def model(self, inst: Instruction) -> DotModel:
        """Return the model of an instruction, or of the one with the nearest n if the catalog lacks it."""
        return self._models[inst if inst in self._models else self._alike(inst)[0]]

    def _alike(self, inst: Instruction) -> list[Instruction]:
        return [] if inst in catalog(self.architecture) else alike_but_n(inst, self._models)


SMS, FAULTY_SM, FLIPPED_BIT = 4, 2, 9  # A faulty device: its SMs, the faulty one, and the bit of D that this flips.

# The fault occurs if the highest and the lowest bit of both operands of this product are set. A sparse A stores it.
FAULTY_PRODUCT = 3


class FaultyDevice(SimulatedDevice):
    """SMS simulated SMs. FAULTY_SM flips a bit of D for some operands of one product, the same ones every time."""

    def dot_on_every_sm(self, inst: Instruction, request: Request) -> Mapping[int | None, Bits]:
        right = self.dot(inst, request)
        wrong = np.where(_shows_fault(inst, request), right ^ inst.d.dtype.type(1 << FLIPPED_BIT), right)
        return {sm: wrong if sm == FAULTY_SM else right for sm in range(SMS)}


def _shows_fault(inst: Instruction, request: Request) -> NDArray[np.bool_]:
    k = FAULTY_PRODUCT % inst.stored.k
    shows, stored = np.ones(len(request), bool), stored_products(inst, request)
    for fmt, column in ((inst.a, stored.a[:, k]), (inst.b, stored.b[:, k])):
        ends = fmt.dtype.type(1 << (fmt.bits + fmt.ignored_low_bits - 1) | 1 << fmt.ignored_low_bits)
        shows &= (column & ends) == ends
    return shows


def simulated_device(name: str, faulty: bool = False) -> SimulatedDevice:
    """Return the device of a chip's published models: "h100", "sim:v100", … faulty: a `FaultyDevice`. Raises UnknownName."""
    known = known_models(name)
    models = {inst: entry.model for inst, entry in known.items()}
    lowerings = {inst: entry.lowering for inst, entry in known.items()}
    candidates = {inst: entry.candidates for inst, entry in known.items()}
    kind, fault = (FaultyDevice, f", SM {FAULTY_SM} computes wrong results") if faulty else (SimulatedDevice, "")
    named, explained = f"simulated {title(name)}{fault}", words_explained(name)
    return kind(models, named, chip(name).architecture, lowerings, explained, candidates)
