"""Verification of many dot products: on the device itself where it lends its GPU and compiled code knows the model."""

from __future__ import annotations

from collections.abc import Mapping

from accprobe.build.probes import multiplies_matrices
from accprobe.devices.protocol import Device, OnGpu
from accprobe.evaluate.cuda.source import not_compiled
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.verify import random
from accprobe.verify.outcome import Advance, Verification, silent


def prepare_to_verify(device: Device, models: Mapping[Instruction, DotModel]) -> None:
    """What can be done for many at once, such as compiling; `verify_in_bulk` does what is missing."""
    if isinstance(device, OnGpu):
        from accprobe.verify import on_gpu

        on_gpu.prepare_to_verify(device, {inst: model for inst, model in models.items() if _all_there(inst, model)})


def verify_in_bulk(
    device: Device, inst: Instruction, model: DotModel, dots: int, seed: int = 0, advance: Advance = silent
) -> Verification:
    """As `random.verify`, with pairs of codes; `dots` may be rounded up."""
    if isinstance(device, OnGpu) and _all_there(inst, model):
        from accprobe.verify import on_gpu

        return on_gpu.verify(device, inst, model, dots, seed, advance)
    return random.verify(device, inst, model, dots, seed, True, advance)


def _all_there(inst: Instruction, model: DotModel) -> bool:
    """Whether a GPU can do all of it: matrix products by the instruction, and by the model."""
    return multiplies_matrices(inst) and not not_compiled(model)
