"""Planted devices of sparse instructions: what they compute is found again, and what is left out and takes part is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from faulty import Fault, Place, PlantedDevice
from marks import some
from outside import Unit
from sparse_semantics import kept

from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, chain
from accprobe.operands.request import Request
from accprobe.records.rows import Row
from accprobe.survey.run import survey

# What becomes of answers [N]: of what B holds where A stores nothing [N, K / 2], and the rows of A [N, K / 2].
Taken = Callable[[Instruction, Bits, Bits, Bits], Bits]


class PlantedSparse(PlantedDevice):
    """One instruction with a sparse A. taken: changes results; exchanged: two metadata codes that mean one another."""

    def __init__(
        self, inst: Instruction, model: DotModel, opcode: str, taken: Taken | None = None, exchanged: tuple[int, int] = (0, 0)
    ) -> None:
        super().__init__(Unit(inst, model), opcode)
        self.inst, self.taken, self.exchanged = inst, taken, exchanged

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        assert request.metadata is not None
        one, other = self.exchanged
        codes = np.where(request.metadata == one, other, np.where(request.metadata == other, one, request.metadata))
        d = super().dot(inst, replace(request, metadata=codes), placement)
        if self.taken is None:
            return d
        is_left = np.ones(request.b.shape, bool)
        np.put_along_axis(is_left, kept(inst, codes), False, axis=1)
        return self.taken(inst, d, request.b[is_left].reshape(len(codes), -1), request.a)


def floats(inst: Instruction, bits: int, groups: int) -> DotModel:
    k = inst.k // 2
    sums = FloatArithmetic(inst.d, min(bits, inst.d.mantissa_bits), "RZ", bits, nan=0x7FFF if inst.d.bits == 16 else 0x7FFFFFFF)
    return DotModel(chain([range(i, i + k // groups) for i in range(0, k, k // groups)], sums))


PLANTED = {
    "mma.sp.m16n8k32.f32.f16.f16.f32": (lambda inst: floats(inst, 25, 2), "HMMA.SP.16832.F32"),
    "mma.sp.m16n8k8.f32.tf32.tf32.f32": (lambda inst: floats(inst, 24, 1), "HMMA.SP.1688.F32.TF32"),
    "wgmma.sp.m64n8k64.f32.e4m3.e5m2": (lambda inst: floats(inst, 13, 1), "QGMMA.SP.64x8x64.F32.E4M3.E5M2"),
    "mma.sp.m16n8k64.satfinite.s32.s4.u4.s32": (
        lambda inst: DotModel(chain([range(32)], IntegerArithmetic(inst.d, "saturate"))),
        "IMMA.SP.16832.S8.U8.SAT",
    ),
}


def planted(name: str, taken: Taken | None = None, exchanged: tuple[int, int] = (0, 0)) -> PlantedSparse:
    inst = parse(name)
    model, opcode = PLANTED[name]
    return PlantedSparse(inst, model(inst), opcode, taken, exchanged)


def row_of(device: PlantedSparse) -> Row:
    (row,) = survey(device, dots=4000).instructions
    return row


@pytest.mark.parametrize("name", some(list(PLANTED), 4))
def test_what_is_planted_is_found_over_the_stored_products(name: str) -> None:
    device = planted(name)
    row = row_of(device)
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.model.order == device.unit.model.order
    assert (row.findings["left_out"].value, row.findings["left_out"].bound) == ("absent", "exact")
    assert not row.verification.events.missing
    codes = device.inst.k // (2 if device.inst.a.name == "tf32" else 4) * (2 if device.inst.a.name == "tf32" else 6)
    assert row.verification.events.hit > codes


def nan_beside(is_special: Callable[[Any], Any]) -> Taken:
    return lambda inst, d, others, a: np.where(is_special(inst.b.values(others)).any(axis=1), d.dtype.type(0x7FFFFFFF), d)


def low_bit_beside_large(inst: Instruction, d: Bits, others: Bits, a: Bits) -> Bits:
    large = (abs(inst.b.values(others)) == inst.b.values(np.array([inst.b.largest], inst.b.dtype))).any(axis=1)
    return np.where(large & (d & 0x7FFFFFFF < 0x7F800000), d & d.dtype.type(0xFFFFFFFE), d)


def sign_of_zero(inst: Instruction, d: Bits, others: Bits, a: Bits) -> Bits:
    negative = (others == inst.b.sign_bit).any(axis=1)
    return np.where(negative & (d == 0), d.dtype.type(0x80000000), d)


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        (nan_beside(np.isnan), "NaN"),
        (nan_beside(np.isinf), "infinity"),
        (low_bit_beside_large, "largest"),
        (sign_of_zero, "zero"),
    ],
)
def test_left_out_numbers_that_take_part_are_found(taken: Taken, named: str) -> None:
    device = planted("mma.sp.m16n8k32.f32.f16.f16.f32", taken)
    row = row_of(device)
    assert (row.status, row.reason) == ("unverified", f"elements of B that a sparse A leaves out change results: {named}")
    assert (row.findings["left_out"].value, row.findings["left_out"].bound) == (named, "suggested")
    without, with_it = row.evidence["left_out"]
    asked = without.request(device.inst)
    assert not np.delete(asked.b[0], kept(device.inst, asked.metadata)[0]).any()
    assert without.d != with_it.d


def rarely(inst: Instruction, d: Bits, others: Bits, a: Bits) -> Bits:
    return np.where((others == 0xFC01).any(axis=1) & (a[:, 0] >> 13 == 5), d ^ d.dtype.type(1), d)


def test_what_takes_part_rarely_is_a_contradiction() -> None:
    row = row_of(planted("mma.sp.m16n8k32.f32.f16.f16.f32", rarely))
    assert row.status not in ("confirmed", "simulated")


def test_codes_that_mean_something_else_are_found_before_anything_is_inferred() -> None:
    row = row_of(planted("mma.sp.m16n8k32.f32.f16.f16.f32", exchanged=(0b1001, 0b1100)))
    assert (row.status, row.model) == ("unverified", None)
    assert "with metadata 0b1001 meets 0 of column" in row.reason or "with metadata 0b1100 meets 1 of column" in row.reason


def test_other_faults_are_not_laid_to_what_is_left_out() -> None:
    device = planted("mma.sp.m16n8k64.satfinite.s32.s4.u4.s32")
    device._fault = Fault(place=Place("cell", 3, 2))
    row = row_of(device)
    assert row.status == "unstable"
    assert row.findings["left_out"].value == "absent"
    assert "cell" in row.reason or "row 3" in row.reason
