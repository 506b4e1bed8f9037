"""Model against device on random operands, sparse ones too; a counterexample is made as small as it can be, and stays one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from marks import some
from plants import Plant, float_models, instruction
from sparse_semantics import kept

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa import tile
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic, IntegerArithmetic, chain
from accprobe.operands.exchange import Counterexample
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request, joined
from accprobe.records.verification import Verification
from accprobe.report.names import named_models
from accprobe.verify import random as module
from accprobe.verify.bulk import LaidOut, MatrixProduct, batches, recipes, verify
from accprobe.verify.coverage import cover
from accprobe.verify.shrink import shrink

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


INST = parse("mma.sp.m16n8k16.f32.f16.f16.f32")


def model(bits: int) -> DotModel:
    return DotModel(chain([range(8)], FloatArithmetic(INST.d, 23, "RZ", bits)))


DEVICE = SimulatedDevice({INST: model(25)})


OF_H200 = {(inst.stored.k, inst.a, inst.b, inst.d): inst for inst in named_models("h200") if inst.sparse and not inst.satfinite}


@pytest.mark.parametrize("seed", some(range(3)))
def test_every_event_is_met_though_no_operands_are_random(seed: int) -> None:
    """One row for all that are laid out alike, and no dot product but those that are made for events."""
    for inst in OF_H200.values():
        known = named_models("h200")[inst]
        done = cover(InstructionSubject(SimulatedDevice({inst: known}), inst), known, 0, seed)
        assert (inst.name, done.events.missing, done.mismatches) == (inst.name, (), 0)


def test_a_wrong_model_is_shown_a_sparse_question_that_shrinks() -> None:
    done = verify(DEVICE, INST, model(22), 2000)
    found = done.counterexample
    request = found.exchange.request(INST)
    request.check(INST)
    smallest = shrink(partial(DEVICE.dot, INST), partial(evaluate, model(22), INST), INST, found)
    small = smallest.exchange.request(INST)
    assert small.metadata.tolist() == request.metadata.tolist()
    assert (small.a != 0).sum() <= (request.a != 0).sum()
    assert DEVICE.dot(INST, small).tolist() == smallest.exchange.result(INST).tolist()
    assert evaluate(model(22), INST, small).tolist() == [int(smallest.expected, 16)]
    stored = kept(INST, request.metadata)[0].tolist()
    left = [k for k in range(INST.k) if k not in stored]
    assert small.b[0, left].tolist() == request.b[0, left].tolist()


def test_no_dot_products_need_no_matrix_product() -> None:
    assert not list(batches(FP8, 0))


def test_matrix_products_are_laid_out_alike_in_every_row() -> None:
    on_gpu = LaidOut(np, INST)
    stored = draw("normal", INST.stored, np.random.default_rng(1), 128).b
    seen = set()
    for number in range(3):
        batch = MatrixProduct(number, "normal", recipes(INST.stored)["normal"], 96, 128)
        metadata, b = on_gpu.metadata(batch), on_gpu.b(batch, stored)
        assert metadata.shape == (96, INST.k // 4)
        assert (metadata == metadata[0]).all()
        np.testing.assert_array_equal(b[:, kept(INST, metadata)[0]], stored)
        left = [k for k in range(INST.k) if k not in kept(INST, metadata)[0]]
        assert len(np.unique(b[:, left], axis=0)) > 100
        seen.add(metadata.tobytes())
    assert len(seen) == 3


BF16_OF_16 = instruction(16, "f32", "bf16", "bf16", "f32")
MODEL = DotModel(chain([range(16)], FloatArithmetic(FORMATS["f32"], 23, "RZ", 25)))


def first_difference(inst: Instruction, one: DotModel, other: DotModel, seed: int = 0) -> Counterexample | None:
    """What `one` answers where `other` expects something else."""
    rng = np.random.default_rng(seed)
    operands = joined([draw(kind, inst, rng, 200) for kind in kinds(inst)])
    got, expected = evaluate(one, inst, operands), evaluate(other, inst, operands)
    wrong = np.flatnonzero(got != expected)
    return Counterexample.of(operands, int(wrong[0]), got, expected, "any") if len(wrong) else None


def assert_minimal(inst: Instruction, device: DotModel, model: DotModel, small: Counterexample) -> int:
    """It is a counterexample, and without any of its products it is none. Gives the number of products."""
    a, b, c = small.exchange.request(inst).columns
    assert evaluate(device, inst, Request(a, b, c))[0] == int(small.exchange.d, 16)
    assert evaluate(model, inst, Request(a, b, c))[0] == int(small.expected, 16)
    assert small.expected != small.exchange.d
    products = np.flatnonzero((a[0] != 0) | (b[0] != 0))
    for k in products:
        fewer = [np.where(np.arange(inst.k) == k, x.dtype.type(0), x) for x in (a, b)]
        assert evaluate(device, inst, Request(*fewer, c)) == evaluate(model, inst, Request(*fewer, c))
    return len(products)


@settings(max_examples=10, deadline=None)
@given(float_models(), st.sampled_from(["alignment_bits", "result_bits", "result_rounding", "nan"]), st.integers(0, 99))
def test_any_planted_fault_is_shrunk(planted: Plant, field: str, seed: int) -> None:
    values: dict[str, object] = {"alignment_bits": 4, "result_bits": 5, "result_rounding": "RNE", "nan": 0x7C01}

    def changed(arithmetic: Arithmetic) -> Arithmetic:
        return arithmetic if getattr(arithmetic, field, None) is None else replace(arithmetic, **{field: values[field]})

    inst, device = planted.instruction, planted.model.with_arithmetic(changed)
    found = first_difference(inst, device, planted.model, seed)
    assume(found is not None)
    small = shrink(partial(evaluate, device, inst), partial(evaluate, planted.model, inst), inst, found)
    assert_minimal(inst, device, planted.model, small)


@pytest.mark.parametrize(
    "fields", [{"alignment_bits": 24}, {"result_rounding": "RNE"}, {"result_bits": 22}, {"nan": 0x7FC00000}], ids=str
)
def test_no_choice_of_fewer_products_shows_it(fields: dict[str, object]) -> None:
    """All 2^17 choices of the 16 products and C are tried."""
    device = MODEL.with_arithmetic(lambda has: replace(has, **fields))
    found = first_difference(BF16_OF_16, device, MODEL)
    small = shrink(partial(evaluate, device, BF16_OF_16), partial(evaluate, MODEL, BF16_OF_16), BF16_OF_16, found)
    choices = np.arange(1 << 17)
    bits = (choices[:, None] >> np.arange(17)) & 1 == 1
    asked = found.exchange.request(BF16_OF_16)
    a, b = (np.where(bits[:, :16], x, np.uint16(0)) for x in (asked.a, asked.b))
    c = np.where(bits[:, 16], asked.c, np.uint32(0))
    wrong = evaluate(device, BF16_OF_16, Request(a, b, c)) != evaluate(MODEL, BF16_OF_16, Request(a, b, c))
    fewest = ((a != 0) | (b != 0)).sum(axis=1)[wrong].min()
    assert assert_minimal(BF16_OF_16, device, MODEL, small) == fewest
