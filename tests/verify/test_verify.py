"""Model against device on random operands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plants import instruction

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa import tile
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, IntegerArithmetic, chain
from accprobe.operands.kinds import kinds
from accprobe.operands.request import Request
from accprobe.records.verification import Verification
from accprobe.verify import random as module
from accprobe.verify.random import verify

BF16 = parse("mma.sync.m16n8k16.f32.bf16.bf16.f32")
FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
INT8 = instruction(32, "s32", "s8", "s8", "s32")
HOPPER = {inst: known_models("h100")[inst].model for inst in (BF16, FP8)}
HOPPER[INT8] = DotModel(chain([range(32)], IntegerArithmetic(FORMATS["s32"], "wrap")))


def changed(inst: Instruction, **fields: object) -> DotModel:
    return HOPPER[inst].with_arithmetic(lambda arithmetic: replace(arithmetic, **fields))


def against(model: DotModel, inst: Instruction, dots: int = 4000, seed: int = 0) -> Verification:
    """The device computes `model`; it is held against Hopper's."""
    return verify(SimulatedDevice({inst: model}), inst, HOPPER[inst], dots, seed)


@pytest.mark.parametrize(
    ("inst", "fields"),
    [
        (BF16, {"alignment_bits": 24}),
        (BF16, {"result_rounding": "RNE"}),
        (BF16, {"min_exponent": -126}),
        (BF16, {"underflow_sign": "kept"}),
        (BF16, {"overflow": "largest"}),
        (BF16, {"nan": 0x7FC00000}),
        (FP8, {"alignment_bits": 14}),
        (INT8, {"overflow": "saturate"}),
        (FP8, {"subnormal_operands": "flushed"}),
        (BF16, {"root": chain([range(8), range(8, 16)], HOPPER[BF16].root.arithmetic)}),
    ],
    ids=str,
)
def test_one_changed_field_is_caught(inst: Instruction, fields: dict[str, object]) -> None:
    """Device and model give the words of the counterexample again."""
    of_model = set(fields) <= {"subnormal_operands", "subnormal_addend", "root"}
    device = replace(HOPPER[inst], **fields) if of_model else changed(inst, **fields)
    result = against(device, inst)
    assert 0 < result.mismatches < result.compared
    assert result.counterexample is not None
    found = result.counterexample.exchange
    operands = found.request(inst)
    assert evaluate(device, inst, operands).tolist() == [int(found.d, 16)]
    assert evaluate(HOPPER[inst], inst, operands).tolist() == [int(result.counterexample.expected, 16)]
    assert found.d != result.counterexample.expected
    assert result.counterexample.kind in kinds(inst)


@pytest.mark.parametrize("dots", [0, 11, 4001])
@pytest.mark.parametrize("inst", [BF16, INT8], ids=str)
def test_counts_of_kinds_add_up(inst: Instruction, dots: int) -> None:
    result = against(HOPPER[inst], inst, dots)
    assert sum(result.kinds.values()) == result.compared == dots
    assert (result.mismatches, result.counterexample) == (0, None)
    assert list(result.kinds) == list(kinds(inst))
    assert dots < len(result.kinds) or min(result.kinds.values()) == dots // len(result.kinds)


def test_every_dot_product_is_asked_and_every_mismatch_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a kind needs several batches."""
    monkeypatch.setattr(module, "BATCH", 64)
    device = Spoiled()
    result = verify(device, BF16, HOPPER[BF16], 3000, 5)
    assert sum(device.asked) == result.compared == 3000
    assert max(device.asked) == 64
    assert result.mismatches == 3000
    tiles = [tile.tiles(BF16, count) for count in device.asked]
    assert device.places == [sum(tiles[:batch]) % 3 for batch in range(len(tiles))]


class Spoiled(SimulatedDevice):
    """Every answer has its lowest bit turned."""

    def __init__(self) -> None:
        super().__init__(HOPPER)
        self.asked: list[int] = []
        self.places: list[int] = []

    def placements(self, inst: Instruction) -> int:
        return 3

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        self.asked.append(len(request))
        self.places.append(placement)
        return super().dot(inst, request) ^ inst.d.dtype.type(1)
