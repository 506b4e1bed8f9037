"""Matrix units, and the instruction by which each is kept busy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from accprobe.devices.protocol import Device
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel


class MatrixUnit(NamedTuple):
    """operands: the format of A and B; result: that of C and D; sparse: whether half of A is stored."""

    operands: str
    result: str
    sparse: bool = False


UNITS = {
    "fp8": MatrixUnit("e4m3", "f32"),
    "f16": MatrixUnit("f16", "f32"),
    "bf16": MatrixUnit("bf16", "f32"),
    "tf32": MatrixUnit("tf32", "f32"),
    "int8": MatrixUnit("s8", "s32"),
    "f64": MatrixUnit("f64", "f64"),
    "fp8-sparse": MatrixUnit("e4m3", "f32", sparse=True),
    "f16-sparse": MatrixUnit("f16", "f32", sparse=True),
}
"""By name. Sparse ones stand for what selects operands: of 8 bits, and of 16."""


def chosen(device: Device, models: Mapping[Instruction, DotModel]) -> dict[str, Instruction]:
    """The instruction of each unit that the device has and somebody has a model of: the newest family's, the largest."""
    runnable = [inst for inst in device.instructions() if inst in models and device.why_not(inst) is None]
    found = {name: max(_of(unit, runnable), key=_worth, default=None) for name, unit in UNITS.items()}
    return {name: inst for name, inst in found.items() if inst}


def _of(unit: MatrixUnit, among: list[Instruction]) -> list[Instruction]:
    plain = (inst for inst in among if not (inst.satfinite or inst.a_registers or inst.scale or inst.kind))
    formats = (unit.operands, unit.operands, unit.result, unit.result, unit.sparse)
    return [inst for inst in plain if (inst.a.name, inst.b.name, inst.c.name, inst.d.name, inst.sparse) == formats]


def _worth(inst: Instruction) -> tuple[tuple[int, int], int]:
    return inst.family.since, inst.m * inst.n * inst.k
