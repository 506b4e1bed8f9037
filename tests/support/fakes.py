"""Simulated GPUs that tests measure, reports made by hand, and the content of reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accprobe.build.lowerings import Lowering
from accprobe.devices.simulated import SimulatedDevice
from accprobe.isa import tile
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.isa.opcodes import kind_of
from accprobe.model.notation import dot_json
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.protocol import Device, DeviceKind
from accprobe.operands.request import Request
from accprobe.report.report import SCHEMA, Report

DENSE = "mma.sync.m16n8k16.s32.s8.s8.s32"
WIDE = "mma.sync.m16n8k32.s32.s8.s8.s32"
SPARSE = "mma.sp.m16n8k32.s32.s8.s8.s32"

Spoil = Callable[[Instruction, Bits], Bits]


class FakeDevice(Device):
    """Integer sums that wrap, computed by numpy; `spoil` may change the results or raise."""

    kind = "cuda"
    pure = False
    name = "Fake GPU"
    architecture = "sm_90a"

    def __init__(self, spoil: Spoil = lambda _, d: d, opcodes: tuple[str, ...] | None = ("IMMA.16816.S8.S8",)) -> None:
        self.spoil, self.opcodes = spoil, opcodes

    def describe(self) -> dict[str, object]:
        return {"compute_capability": "9.0", "sm_count": 3}

    def environment(self) -> dict[str, str]:
        return {"driver": "1.2"}

    def instructions(self) -> Sequence[Instruction]:
        return [parse(name) for name in (SPARSE, DENSE, WIDE)]

    def explain_unavailable(self, inst: Instruction) -> str | None:
        return "no probe" if inst.sparse else None

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        products = inst.a.integers(request.a) * inst.b.integers(request.b)
        total = request.c.astype(np.uint32).view(np.int32) + products.sum(axis=1)
        return self.spoil(inst, total.astype(np.int64).astype(np.uint32))

    def placements(self, inst: Instruction) -> int:
        return 1

    def lowering(self, inst: Instruction) -> Lowering | None:
        if self.opcodes is None:
            return None
        return Lowering(self.opcodes, tuple((opcode, 1) for opcode in self.opcodes), "nvdisasm", "ab" * 32)


class Measured(SimulatedDevice):
    """A GPU that computes the models and is not a pure function.

    lowerings: of instructions; others become one opcode of the expected unit.
    """

    kind: DeviceKind = "cuda"
    pure = False

    def __init__(self, models: Mapping[Instruction, DotModel], lowerings: Mapping[Instruction, Lowering] | None = None) -> None:
        lowered = {inst: native(inst) for inst in models} | dict(lowerings or {})
        super().__init__(models, "Fake GPU", "sm_90a", lowered)

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


def float_row(name: str, bits: int, sequence: dict[str, int], **changes: Any) -> dict[str, Any]:
    """Return a confirmed row of a floating-point instruction, as JSON values."""
    inst = parse(name)
    nan = 0x7FFF if inst.d.bits == 16 else 0x7FFFFFFF
    model = DotModel(chain([range(inst.k)], FloatArithmetic(inst.d, bits, "RZ", bits, nan=nan)))
    values = {
        "order": model.order,
        "addend": "first sum",
        "products_per_sum": inst.k,
        "alignment_bits": bits,
        "alignment_rounding": "truncate",
        "result_bits": bits,
        "result_rounding": "RZ",
        "effective_bits": bits,
    }
    a, c, d = (fmt.storage_bits // 4 for fmt in (inst.a, inst.c, inst.d))
    one = f"{inst.a.encode(False, 1, 0):0{a}x}"
    zeros = "0" * a * (inst.k - 1)
    return {
        "name": name,
        "status": "confirmed",
        "opcodes": [opcode for opcode in sequence if "MMA" in opcode],
        "lowering": [[opcode, count] for opcode, count in sequence.items()],
        "opcode_source": "nvdisasm",
        "cubin_sha256": "ab" * 32,
        "findings": {feature: {"value": value, "bound": "exact"} for feature, value in values.items()},
        "model": dot_json(model),
        "verification": {"compared": 10_000_000, "mismatches": 0, "seed": 0, "kinds": {"uniform": 10_000_000}},
        "alternatives": {"tested": 40},
        "seconds": 0.5,
        "evidence": {"alignment_bits": [[one + zeros, one + zeros, "0" * c, "3f800000"[:d].ljust(d, "0")]]},
        **changes,
    }


HMMA_OF_FP8 = {"F2FP.F16.E4M3.UNPACK_B": 12, "HMMA.16816.F32": 2, "FADD": 4}


def report_data(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a report, as JSON values; by default of a GPU whose wgmma keeps 13 bits and whose mma.sync of fp8 runs as HMMA."""
    rows = rows or (
        {"name": SPARSE, "status": "skipped", "reason": "no probe"},
        float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 23, HMMA_OF_FP8),
        float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA.64x8x32.F32.E4M3.E4M3": 1}),
        float_row("wgmma.m64n8k32.f32.e4m3.e4m3.rs", 13, {"QGMMA.64x8x32.F32.E4M3.E4M3": 1}),
    )
    return {
        "schema": SCHEMA,
        "tool": {"version": "0.1.0"},
        "environment": {"driver": "1.2"},
        "seed": 0,
        "device": {"kind": "cuda", "name": "Fake GPU", "architecture": "sm_90a", "facts": {"sm_count": 3}},
        "run": {"jobs": 1, "seconds": 1.5, "selected": len(rows)},
        "claims": [{"kind": "instruction"} | row for row in rows],
        **changes,
    }


SIMULATED = {"kind": "simulated", "name": "simulated H100", "architecture": "sm_90a"}


def simulated_report(*rows: dict[str, Any], **device: Any) -> Report:
    """Return the report of a simulated device: confirmed rows become simulated."""
    data = report_data(*rows, device=SIMULATED | device)
    for row in data["claims"]:
        row["status"] = {"confirmed": "simulated"}.get(row["status"], row["status"])
    return fake_report(*data["claims"], device=data["device"])


def fake_report(*rows: dict[str, Any], **changes: Any) -> Report:
    return Report.model_validate_json(json.dumps(report_data(*rows, **changes)))


def with_value(data: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy of JSON data with another value at a dotted path; None removes the key."""
    changed = json.loads(json.dumps(data))
    *parents, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    place = changed
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return changed


def content(report: Report) -> dict[str, Any]:
    """Return the content of a report, except times, the kind of device, and `explains`, which no recording has."""
    data = json.loads(report.dumps())
    data["device"].pop("kind")
    data["run"] = data["run"]["selected"]
    data.pop("sweeps", None)
    for row in data["claims"]:
        row.pop("seconds", None)
        row.pop("explains", None)
    return data
