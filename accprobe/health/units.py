"""Matrix units, and the instruction by which each is kept busy."""

from __future__ import annotations

from collections.abc import Mapping

from accprobe.devices.protocol import Device
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel

UNITS = {
    "fp8": ("e4m3", "f32"),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "tf32": ("tf32", "f32"),
    "int8": ("s8", "s32"),
    "f64": ("f64", "f64"),
}
"""By name: the format of A and B, and that of D."""


def chosen(device: Device, models: Mapping[Instruction, DotModel]) -> dict[str, Instruction]:
    """The instruction of each unit that the device has and somebody has a model of: the newest family's, the largest."""
    runnable = [inst for inst in device.instructions() if inst in models and device.why_not(inst) is None]
    found = {name: max(_of(unit, runnable), key=_worth, default=None) for name, unit in UNITS.items()}
    return {name: inst for name, inst in found.items() if inst}


def _of(unit: tuple[str, str], among: list[Instruction]) -> list[Instruction]:
    operand, result = unit
    plain = (inst for inst in among if not (inst.sparse or inst.satfinite or inst.a_registers or inst.scale or inst.kind))
    return [
        inst for inst in plain if (inst.a.name, inst.b.name, inst.c.name, inst.d.name) == (operand, operand, result, result)
    ]


def _worth(inst: Instruction) -> tuple[tuple[int, int], int]:
    return inst.family.since, inst.m * inst.n * inst.k
