"""Instructions with their published models, and findings as if each field were found."""

from __future__ import annotations

from dataclasses import fields

from planted import instruction

from accprobe.infer.findings import Finding
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, chain

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
F16 = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
CONVERTED = parse("mma.sync.m16n8k32.f32.e4m3.e4m3.f32")
F64 = parse("mma.sync.m8n8k4.f64.f64.f64.f64")
INT8 = instruction(32, "s32", "s8", "s8", "s32")
KNOWN = {inst: known_models("h100")[inst].model for inst in (FP8, F16, CONVERTED, F64)}
TWO_SUMS = DotModel(chain([range(8), range(8, 16)], KNOWN[F16].root.arithmetic))
S32 = FORMATS["s32"]


def found(model: DotModel, **bounds: str) -> dict[str, Finding]:
    """Findings of the arithmetic's fields, exact but where told otherwise."""
    arithmetic = model.root.arithmetic
    values = {field.name: getattr(arithmetic, field.name) for field in fields(arithmetic) if field.name != "result"}
    values["order"] = model.order
    return {name: Finding(value, bounds.get(name, "exact")) for name, value in values.items()}
