"""Coverage on planted devices, of block scales too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from accprobe.devices.protocol import InstructionSubject
from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.rounding import encode
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel, FloatArithmetic
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

Whole = NDArray[np.int64]


@dataclass
class Accumulator(SimulatedDevice):
    """One fused sum of all products and C, whose aligned terms [n, K + 1] are added as `add` does."""

    inst: Instruction
    add: Callable[[Whole], Whole]

    def __post_init__(self) -> None:
        super().__init__({self.inst: H200[self.inst]})

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        model = H200[inst]
        x = model.root.arithmetic
        assert isinstance(x, FloatArithmetic)
        with np.errstate(all="ignore"):
            values = np.column_stack([inst.a.values(request.a) * inst.b.values(request.b), inst.c.values(request.c)])
        usual = evaluate(model, inst, request)
        exponents = inst.a.fields(request.a).exponent + inst.b.fields(request.b).exponent
        exponents = np.column_stack([exponents, inst.c.fields(request.c).exponent]).astype(np.int64)
        largest = np.where(values == 0, x.min_exponent or -500, exponents).max(axis=1)
        fine = np.isfinite(values).all(axis=1) & (values != 0).any(axis=1)
        exponent = np.where(fine, np.maximum(largest, x.min_exponent or -500) - x.alignment_bits, 0)
        whole = np.trunc(np.where(fine[:, None], values, 0) * 2.0 ** -exponent[:, None].astype(float)).astype(np.int64)
        total = self.add(whole)
        changed = fine & (total != whole.sum(axis=1))
        return np.where(changed, encode(total < 0, np.abs(total), exponent, x), usual)


def wrapped(bits: int) -> Callable[[Whole], Whole]:
    def add(terms: Whole) -> Whole:
        return (terms.sum(axis=1) + (1 << bits)) % (2 << bits) - (1 << bits)

    return add


def saturated(bits: int) -> Callable[[Whole], Whole]:
    return lambda terms: np.clip(terms.sum(axis=1), 1 - (1 << bits), (1 << bits) - 1)


def without_a_carry(terms: Whole) -> Whole:
    """A carry is lost where 15 or more of the products have the last bit."""
    return terms.sum(axis=1) - 2 * ((terms[:, :-1] & 1).sum(axis=1) >= 15)


def without_a_carry_of(odd: int, negative: int) -> Callable[[Whole], Whole]:
    """A carry is lost where so many terms have the last bit, so many of them negative."""

    def add(terms: Whole) -> Whole:
        has = terms & 1 == 1
        return terms.sum(axis=1) - 2 * ((has.sum(axis=1) == odd) & ((has & (terms < 0)).sum(axis=1) == negative))

    return add


class OverflowBeforeRounding(SimulatedDevice):
    """Whatever is larger than the largest number is infinite, though it be rounded to that."""

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        answers = super().dot(inst, request)
        with np.errstate(all="ignore"):
            exact = (inst.a.values(request.a) * inst.b.values(request.b)).sum(axis=1) + inst.c.values(request.c)
        largest = answers & 0x7FFF == inst.d.largest
        return np.where(largest & (np.abs(exact) > 65504), answers & 0x8000 | inst.d.infinity, answers).astype(inst.d.dtype)


class GroupsOf17Bits(SimulatedDevice):
    """Four products are added in 17 bits."""

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        products = inst.a.integers(request.a) * inst.b.integers(request.b)
        groups = products.reshape(len(products), -1, 4).sum(axis=2)
        kept = (groups + (1 << 16)) % (1 << 17) - (1 << 16)
        return (super().dot(inst, request).astype(np.int64) + (kept - groups).sum(axis=1)).astype(np.uint32)


class HugeCancelWrong(SimulatedDevice):
    """One bit is wrong where a product of 2^250 or more cancels."""

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        d = super().dot(inst, request)
        with np.errstate(all="ignore"):
            products = np.abs(inst.a.values(request.a).astype(float) * inst.b.values(request.b).astype(float))
        huge = (np.isfinite(products) & (products >= 2.0**250)).any(axis=1) & np.isfinite(inst.d.values(d))
        return np.where(huge, d ^ d.dtype.type(1), d)


DEVICES = {
    "wraps one bit short": Accumulator(FP8, wrapped(13 + 6)),
    "saturates one bit short": Accumulator(FP8, saturated(13 + 6)),
    "f16 wraps one bit short": Accumulator(F16, wrapped(25 + 5)),
    "a carry lost among 15 odd terms": Accumulator(F16, without_a_carry),
    "overflow before rounding": OverflowBeforeRounding({HALF: H200[HALF]}),
    "17-bit group sums": GroupsOf17Bits({INT8: H200[INT8]}),
}


@pytest.mark.parametrize("name", DEVICES)
def test_covering_operands_find_it(name: str) -> None:
    device = DEVICES[name]
    (inst,) = (inst for inst in (FP8, F16, HALF, INT8) if device.why_not(inst) is None)
    model: DotModel = H200[inst]
    differ = [
        (device.dot(inst, request) != evaluate(model, inst, request)).any() for request in Coverage(inst, model).directed()
    ]
    assert any(differ)
    assert cover(InstructionSubject(device, inst), model, 0).mismatches > 0


def test_cancellation_of_huge_products_is_covered() -> None:
    """Beside random operands, of which none has any."""
    device = HugeCancelWrong({BF16: H200[BF16]})
    assert cover(InstructionSubject(device, BF16), H200[BF16], 1 << 14).mismatches > 0
    assert verify(device, BF16, H200[BF16], 1 << 14).mismatches == 0


@pytest.mark.parametrize(("inst", "most"), [(FP8, 33), (F16, 16)])
def test_a_carry_lost_among_any_number_of_odd_terms_is_found(inst: Instruction, most: int) -> None:
    """Of one sign; all terms of FP8, whose results show the last kept bit, and all but the largest of F16."""
    asked = joined(list(Coverage(inst, H200[inst]).directed()))
    expected = evaluate(H200[inst], inst, asked)
    for odd in range(most + 1):
        for negative in {0, odd}:
            device = Accumulator(inst, without_a_carry_of(odd, negative))
            assert (device.dot(inst, asked) != expected).any(), (odd, negative)


@pytest.mark.parametrize("inst", [FP8, F16])
def test_the_devices_of_this_test_are_the_model_otherwise(inst: Instruction) -> None:
    done = cover(InstructionSubject(Accumulator(inst, wrapped(50)), inst), H200[inst], 1000)
    assert (done.mismatches, done.events.missing) == (0, ())


NVFP4 = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
FOUR = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0")
MXFP8 = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0")
MODELS = {inst: known_models("rtx5090")[inst].model for inst in (NVFP4, FOUR, MXFP8)}

ONE, SIX, MINUS_SIX = 2, 7, 0xF
"""Codes of e2m1."""


@pytest.mark.parametrize("inst", MODELS, ids=str)
def test_published_models_are_covered_and_nothing_impossible_happens(inst: Instruction) -> None:
    coverage = Coverage(inst, MODELS[inst])
    for _, request in batches(inst, 1000, 5):
        coverage.see(request)
    list(coverage.directed())
    assert not [event.name for event, hit, _ in coverage.events() if hit and event.impossible]
    assert coverage.missing() == ()


def met(products: dict[int, tuple[int, int]], scale_of_a: int = 0x38, c: int = 0) -> set[str]:
    """Events of one dot product of NVFP4, whose first block of A has that scale, and all others one."""
    asked = Request.zeros(NVFP4, 1)
    assert asked.scales_a is not None
    asked.scales_a[0, 0], asked.c[0] = scale_of_a, c
    for k, codes in products.items():
        asked.a[0, k], asked.b[0, k] = codes
    coverage = Coverage(NVFP4, MODELS[NVFP4])
    before = {event.name for event in coverage.missing()}
    coverage.see(asked)
    return before - {event.name for event in coverage.missing()}


@pytest.mark.parametrize(
    ("scale", "word"),
    [(0, "zero"), (7, "subnormal"), (8, "smallest normal"), (9, "normal"), (0x7E, "largest"), (0x7F, "NaN"), (0xFF, "NaN")],
)
def test_classes_of_scales(scale: int, word: str) -> None:
    found = met({3: (ONE, ONE)}, scale)
    assert {f"operands: scales {word} × normal of 0-15", f"operands: the scale of A {word}, B normal"} <= found
    assert not any("of 0-15" in name for name in met({3: (ONE, ONE), 16: (ONE, ONE)}, scale))


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


@pytest.mark.parametrize(("exponent", "words"), [(60, "truncated away"), (39, "truncated in part")])
def test_groups_that_are_cut(exponent: int, words: str) -> None:
    """C is that power of two: beside 2^39 the last kept bit is 2^4, and 6 × 6 + 1 is 32."""
    assert f"sum 0-63: a group {words}, positive" in met({0: (SIX, SIX), 1: (ONE, ONE)}, 0x38, (exponent + 127) << 23)


def test_groups_of_nothing() -> None:
    c = (-45 + 127) << 23 | 1
    assert "sum 0-63: a group of zeros with scales far above every term" in met({}, 0x38, c)
    assert "sum 0-63: a group that cancels the largest term, others truncated" in met(
        {0: (SIX, SIX), 1: (MINUS_SIX, SIX)}, 0x38, c
    )


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
