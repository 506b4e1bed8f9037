"""Coverage on planted devices, of block scales too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from departures import Packing, Wide
from faulty import Fault, PlantedDevice
from outside import Unit

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request, joined
from accprobe.report.report import Report
from accprobe.verify.code_pairs import every_scale
from accprobe.verify.coverage import Coverage, cover
from accprobe.verify.random import batches, verify

H200 = {row.instruction: row.model for row in Report.load("h200").measured if row.model}
FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
F16 = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
BF16 = parse("mma.sync.m16n8k16.f32.bf16.bf16.f32")
HALF = parse("mma.sync.m16n8k16.f16.f16.f16.f16")
INT8 = parse("mma.sync.m16n8k32.s32.s8.s8.s32")

DEVICES = {
    "wraps one bit short": (FP8, Wide(accumulator=("wrap", 6))),
    "saturates one bit short": (FP8, Wide(accumulator=("saturate", 6))),
    "f16 wraps one bit short": (F16, Wide(accumulator=("wrap", 5))),
    "overflow before rounding": (HALF, Wide(packing=Packing(overflow="before"))),
    "17-bit group sums": (INT8, Wide(integers=("wrap", 17, 4))),
}


@pytest.mark.parametrize("name", DEVICES)
def test_covering_operands_find_it(name: str) -> None:
    inst, wide = DEVICES[name]
    device = PlantedDevice(Unit(inst, H200[inst], wide), "")
    assert any((device.dot(inst, asked) != evaluate(H200[inst], inst, asked)).any() for asked in directed(inst))
    assert cover(InstructionSubject(device, inst), H200[inst], 0).mismatches > 0


def directed(inst: Instruction) -> Iterator[Request]:
    return Coverage(inst, H200[inst]).directed()


def test_cancellation_of_huge_products_is_covered() -> None:
    """Beside random operands, of which none has any."""
    device = PlantedDevice(Unit(BF16, H200[BF16]), "", Fault("huge cancels", 250))
    assert cover(InstructionSubject(device, BF16), H200[BF16], 1 << 14).mismatches > 0
    assert verify(device, BF16, H200[BF16], 1 << 14).mismatches == 0


@pytest.mark.parametrize(("inst", "most"), [(FP8, 33), (F16, 16)])
def test_a_carry_lost_among_any_number_of_odd_terms_is_found(inst: Instruction, most: int) -> None:
    """All terms of FP8, whose results show the last kept bit, and all but the largest of F16."""
    asked = joined(list(directed(inst)))
    expected = Unit(inst, H200[inst]).dot(asked)
    for odd in range(most + 1):
        assert (Unit(inst, H200[inst], Wide(lost_carry=(odd, 1))).dot(asked) != expected).any(), odd


NVFP4 = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
FOUR = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0")
MXFP8 = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0")
MODELS = {inst: known_models("rtx5090")[inst].model for inst in (NVFP4, FOUR, MXFP8)}

ONE, SIX, MINUS_SIX = 2, 7, 0xF
"""Codes of e2m1."""


@pytest.mark.parametrize("inst", MODELS, ids=str)
def test_published_models_are_covered(inst: Instruction) -> None:
    coverage = Coverage(inst, MODELS[inst])
    for _, request in batches(inst, 1000, 5):
        coverage.see(request)
    list(coverage.directed())
    assert coverage.outcome().missing == ()


def met(products: dict[int, tuple[int, int]], scale_of_a: int = 0x38, c: int = 0) -> set[str]:
    """Events of one dot product of NVFP4, whose first block of A has that scale, and all others one."""
    asked = Request.zeros(NVFP4, 1)
    assert asked.scales_a is not None
    asked.scales_a[0, 0], asked.c[0] = scale_of_a, c
    for k, codes in products.items():
        asked.a[0, k], asked.b[0, k] = codes
    coverage = Coverage(NVFP4, MODELS[NVFP4])
    before = set(coverage.outcome().missing)
    coverage.see(asked)
    return before - set(coverage.outcome().missing)


def test_scales_count_where_their_block_alone_has_products() -> None:
    named = {"operands: scales NaN × normal of 0-15", "operands: the scale of A NaN, B normal"}
    assert named <= met({3: (ONE, ONE)}, 0x7F)
    assert not any("of 0-15" in name for name in met({3: (ONE, ONE), 16: (ONE, ONE)}, 0x7F))


def test_what_a_group_does_before_it_is_scaled() -> None:
    largest = met(dict.fromkeys(range(16, 32), (SIX, SIX)))
    assert {
        "sum 0-63: 16-31 added, positive, carry 4 bits",
        "sum 0-63: 16-31 added, positive, 2^9 before its scales",
    } <= largest
    assert "sum 0-63: 0-15 added, cancelled to nothing" in met({0: (SIX, SIX), 1: (MINUS_SIX, SIX)})
    small = met({4: (SIX, SIX), 5: (MINUS_SIX, 6), 6: (MINUS_SIX, ONE)})  # 36 - 24 - 6
    assert {"sum 0-63: 0-15 added, cancelled 3 bits", "sum 0-63: 4 the largest of those that are scaled with it"} <= small
    assert not any("added" in name for name in met({0: (ONE, ONE), 16: (ONE, ONE)}))


@pytest.mark.parametrize("inst", MODELS, ids=str)
def test_every_code_of_a_scale_is_asked_in_every_block(inst: Instruction) -> None:
    asked = every_scale(inst)
    assert asked is not None
    assert inst.scale is not None
    assert inst.scale_block is not None
    shape = len(asked), -1, inst.scale_block
    alone = ((asked.a != 0) & (asked.b != 0)).reshape(shape).any(axis=2)
    for scales in (asked.scales_a, asked.scales_b):
        assert scales is not None
        assert all(len(np.unique(scales[there, block])) == inst.scale.largest + 2 for block, there in enumerate(alone.T))
