"""The plan of a check: its duration, its models, and the units with their instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction
    from accprobe.model.tree import DotModel
    from accprobe.operands.protocol import Device

HealthLevel = Literal["quick", "standard", "soak"]

SECONDS: dict[HealthLevel, float] = {"quick": 20.0, "standard": 300.0, "soak": 3600.0}
"""Durations of the levels; a job's prologue can wait for `quick`."""

HANG_SECONDS = 120.0
"""Seconds after the planned end when a GPU counts as hanging; kernels may have to be compiled."""

UNHURRIED = 5.0
"""Longest turn of a unit in seconds; shorter if the check has no time for three turns of each."""


@dataclass(frozen=True)
class CheckPlan:
    """The check of one GPU. seconds: wall time including start-up, unless a unit then gets less than `least`. like: source of
    the models ("h200", "sim:h100", a report's file), None for those that `trusted` chooses. again: repetitions of a
    mismatch on its SM. serial: put the board's serial number in the outcome.
    """

    seconds: float = SECONDS["standard"]
    seed: int = 0
    like: str | None = None
    again: int = 1000
    serial: bool = False

    def turn(self, units: int) -> float:
        """Return the seconds of a turn with so many units."""
        return min(UNHURRIED, self.seconds / (3 * max(units, 1)))

    def least(self, units: int) -> float:
        """Return the minimum seconds of each unit, however long start-up took: three quarters of its share."""
        return 0.75 * self.seconds / max(units, 1)


UNITS = {
    "fp8": ("e4m3", "f32"),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "tf32": ("tf32", "f32"),
    "int8": ("s8", "s32"),
    "f64": ("f64", "f64"),
    "fp8-sparse": ("e4m3", "f32"),
    "f16-sparse": ("f16", "f32"),
}
"""Formats of A and B, and of C and D, of each matrix unit. The sparse ones exercise operand selection for 8 and 16 bits."""

FUNCTION_UNITS = {
    "special function": (
        *(f"{name}.approx.ftz.f32" for name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")),
        "tanh.approx.f32",
    ),
    "conversion": (
        *("cvt.rn.f16.f32", "cvt.rn.bf16.f32", "cvt.rna.tf32.f32", "cvt.rn.satfinite.e4m3x2.f32"),
        *("cvt.rn.satfinite.e5m2x2.f32", "cvt.rn.f16x2.e4m3x2", "cvt.rni.s32.f32", "cvt.rn.f32.s32"),
    ),
}
"""Instructions of each unit; those that a report has a confirmed model of are checked."""


def chosen(device: Device, models: Mapping[Instruction, DotModel]) -> dict[str, Instruction]:
    """Return the instruction of each unit that the device has and `models` covers: of the newest family, the largest."""
    runnable = [inst for inst in device.instructions() if inst in models and device.explain_unavailable(inst) is None]
    plain = [inst for inst in runnable if not (inst.satfinite or inst.a_registers or inst.scale or inst.kind)]
    largest = sorted(plain, key=lambda inst: (inst.family.since, inst.m * inst.n * inst.k))
    by_formats = {(inst.a.name, inst.b.name, inst.c.name, inst.d.name, inst.sparse): inst for inst in largest}
    wanted = {name: (a, a, d, d, name.endswith("sparse")) for name, (a, d) in UNITS.items()}
    return {name: by_formats[formats] for name, formats in wanted.items() if formats in by_formats}
