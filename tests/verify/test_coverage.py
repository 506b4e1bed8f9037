"""Coverage: events and pairs of codes that dot products have and can have, operands for all, and the devices that they find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from departures import Entry, Packing, Wide
from faulty import Fault, PlantedDevice
from hypothesis import HealthCheck, given, settings
from marks import some
from outside import Unit
from plants import OPCODES, Plant, float_models, instruction, integer_models

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request, joined
from accprobe.records.verification import CODE_PAIRS
from accprobe.report.report import Report
from accprobe.verify import bulk
from accprobe.verify.bulk import verify
from accprobe.verify.code_pairs import every_pair, every_scale
from accprobe.verify.corpora import tries_of
from accprobe.verify.coverage import Coverage, cover
from accprobe.verify.coverage.trace import trace_of
from accprobe.verify.random import batches

H200 = {row.instruction.stored: row.model for row in Report.load("h200").measured if row.model}

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
HALF = parse("mma.sync.m16n8k8.f16.f16.f16.f16")
WIDE_HALF = parse("mma.sync.m16n8k16.f16.f16.f16.f16")
F16 = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
BF16 = parse("mma.sync.m16n8k16.f32.bf16.bf16.f32")
INT8 = parse("mma.sync.m16n8k32.s32.s8.s8.s32")
F64 = parse("mma.sync.m8n8k4.f64.f64.f64.f64")
ONE, MINUS_ONE, TINY_FP8 = 0x38, 0xB8, 0x01
"""Codes of e4m3; the last is 2^-9."""

EVENTS = {
    "1 + 1": (
        FP8,
        [(0, ONE, ONE), (1, ONE, ONE)],
        0,
        "carry 1 bits, positive; product shifted 0; the largest term: several products",
    ),
    "1 - 1": (FP8, [(0, ONE, ONE), (1, MINUS_ONE, ONE)], 0, "a sum of zero, exact cancellation"),
    "1 + 2^-18, F = 13": (
        FP8,
        [(0, ONE, ONE), (31, TINY_FP8, TINY_FP8)],
        0,
        "1 product truncated; product shifted 12; the largest term: the first product alone; rounded, exact, positive",
    ),
    "1.125^2 + 1": (FP8, [(0, 0x39, 0x39)], 0x3F800000, "the largest term: several, C among them; no product truncated"),
    "NaN": (FP8, [(0, 0x7F, ONE)], 0, "a NaN"),
    "C infinite": (FP8, [], 0x7F800000, "an infinity, positive"),
    "C = -0": (FP8, [], 0x80000000, "a sum of zero, zeros of both signs"),
    "inf - inf": (HALF, [(0, 0x7C00, 0x3C00)], 0xFC00, "infinities of both signs"),
    "65504 x 2": (HALF, [(0, 0x7BFF, 0x4000)], 0, "beyond the largest exponent, positive"),
    "2^-24": (HALF, [(0, 0x0001, 0x3C00)], 0, "the smallest subnormal number, positive"),
    "1 + 2^-53": (
        F64,
        [(0, 0x3FF << 52, 0x3FF << 52)],
        0x3CA << 52,
        "C shifted 53; rounded, half beside an even bit, positive",
    ),
}
"""Products as k, code of A, code of B; C; and some events of the first sum, worked out by hand."""


@pytest.mark.parametrize("name", EVENTS)
def test_a_dot_product_has_the_events_of_its_first_sum(name: str) -> None:
    inst, products, c, expected = EVENTS[name]
    asked = Request.zeros(inst, 1)
    asked.c[0] = c
    for k, x, y in products:
        asked.a[0, k], asked.b[0, k] = x, y
    trace = trace_of(inst, H200[inst])
    found = [trace.families[key][code] for key, _, codes in trace.of(asked) for code in codes.ravel() if key[0] == 0 <= code]
    met = {name.partition(": ")[2] for name in found if name}
    assert set(expected.split("; ")) <= met
    assert len(met) == 1 or not met & {"a NaN", "infinities of both signs", "an infinity, positive"}


@pytest.mark.parametrize("chip", some(CHIPS))
def test_operands_are_stored_for_every_published_model(chip: str) -> None:
    models = {inst: known.model for inst, known in known_models(chip).items() if not inst.is_integer}
    assert [inst.name for inst, model in models.items() if tries_of(inst.stored, model) is None] == []


def seen(inst: Instruction, model: DotModel, requests: list[Request]) -> Coverage:
    coverage = Coverage(inst, model)
    for request in requests:
        coverage.see(request)
    return coverage


def assert_covered(planted: Plant) -> None:
    """Random and directed operands reach every event for which operands are known."""
    inst, model = planted.instruction, planted.model
    random = [request for _, request in batches(inst, 2000, 1)]
    directed = list(seen(inst, model, random).directed())
    assert seen(inst, model, [*random, *directed]).outcome().missing == ()


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(float_models())
def test_planted_models_are_covered(planted: Plant) -> None:
    assert_covered(planted)


@settings(max_examples=12, deadline=None)
@given(integer_models())
def test_planted_integer_models_are_covered(planted: Plant) -> None:
    assert_covered(planted)


TINY = FloatArithmetic(FORMATS["f16"], 10, "RNE", 6, min_exponent=-16)


@pytest.mark.parametrize(
    "changes",
    some(
        [
            {},
            {"alignment_bits": 13, "result_rounding": "RZ", "min_exponent": None},
            {"product_exponent": "normalised product", "alignment_rounding": "sticky"},
            {"alignment_bits": 3, "alignment_rounding": "floor", "result_bits": 6, "zero_terms": "aligned"},
            {"alignment_bits": None, "zero_sign": "ieee"},
            {"alignment_bits": 0},
        ],
        2,
    ),
    ids=str,
)
@pytest.mark.parametrize("k", some([1, 2]))
def test_search_reaches_what_any_operands_reach(k: int, changes: dict[str, object]) -> None:
    """Every pair of 4-bit codes as one product, or as two, beside C that is anything, or one of a few."""
    inst = instruction(k, "f16", "e2m1", "e2m1", "f16")
    model = DotModel(chain([range(k)], replace(TINY, **changes)))
    codes = np.stack(np.meshgrid(*[np.arange(16, dtype=np.uint8)] * (2 * k), indexing="ij"), axis=-1).reshape(-1, 2 * k)
    every = np.arange(1 << 16, dtype=np.uint16)
    addends = every[:: 1 << 5] if k == 1 else np.array([0, 0x8000, 0x0001, 0x3C00, 0xB801, 0x4BFF], np.uint16)
    a, b = (np.repeat(x, len(addends), axis=0) for x in (codes[:, :k], codes[:, k:]))
    coverage = seen(inst, model, [Request(a, b, np.tile(addends, len(codes)))])
    searched = Coverage(inst, model)
    list(searched.directed())
    assert searched.outcome().missing == ()
    assert searched.outcome().hit >= 0.98 * coverage.outcome().hit


DEVICES = {
    "wraps one bit short": (FP8, Wide(accumulator=("wrap", 6))),
    "saturates one bit short": (FP8, Wide(accumulator=("saturate", 6))),
    "f16 wraps one bit short": (F16, Wide(accumulator=("wrap", 5))),
    "overflow before rounding": (WIDE_HALF, Wide(packing=Packing(overflow="before"))),
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

ONE_FP4, SIX, MINUS_SIX = 2, 7, 0xF
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
    asked.scales_a[0, 0], asked.c[0] = scale_of_a, c
    for k, codes in products.items():
        asked.a[0, k], asked.b[0, k] = codes
    coverage = Coverage(NVFP4, MODELS[NVFP4])
    before = set(coverage.outcome().missing)
    coverage.see(asked)
    return before - set(coverage.outcome().missing)


def test_scales_count_where_their_block_alone_has_products() -> None:
    named = {"operands: scales NaN × normal of 0-15", "operands: the scale of A NaN, B normal"}
    assert named <= met({3: (ONE_FP4, ONE_FP4)}, 0x7F)
    assert not any("of 0-15" in name for name in met({3: (ONE_FP4, ONE_FP4), 16: (ONE_FP4, ONE_FP4)}, 0x7F))


def test_what_a_group_does_before_it_is_scaled() -> None:
    largest = met(dict.fromkeys(range(16, 32), (SIX, SIX)))
    assert {
        "sum 0-63: 16-31 added, positive, carry 4 bits",
        "sum 0-63: 16-31 added, positive, 2^9 before its scales",
    } <= largest
    assert "sum 0-63: 0-15 added, cancelled to nothing" in met({0: (SIX, SIX), 1: (MINUS_SIX, SIX)})
    small = met({4: (SIX, SIX), 5: (MINUS_SIX, 6), 6: (MINUS_SIX, ONE_FP4)})  # 36 - 24 - 6
    assert {"sum 0-63: 0-15 added, cancelled 3 bits", "sum 0-63: 4 the largest of those that are scaled with it"} <= small
    assert not any("added" in name for name in met({0: (ONE_FP4, ONE_FP4), 16: (ONE_FP4, ONE_FP4)}))


@pytest.mark.parametrize("inst", MODELS, ids=str)
def test_every_code_of_a_scale_is_asked_in_every_block(inst: Instruction) -> None:
    asked = every_scale(inst)
    shape = len(asked), -1, inst.scale_block
    alone = ((asked.a != 0) & (asked.b != 0)).reshape(shape).any(axis=2)
    for scales in (asked.scales_a, asked.scales_b):
        assert all(len(np.unique(scales[there, block])) == inst.scale.largest + 2 for block, there in enumerate(alone.T))


OF_H100 = {inst: known.model for inst, known in known_models("h100").items()}
OF_FEW_CODES = [name for name in OPCODES if parse(name) in OF_H100 and parse(name).a.bits == 8]


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_every_pair_of_codes_is_asked(name: str) -> None:
    """Those with an infinity or a NaN alone."""
    inst = parse(name)
    asked = every_pair(inst, OF_H100[inst])
    pairs = asked.a.astype(np.int64) << 8 | asked.b
    assert len(np.unique(pairs)) == 1 << 16
    assert not asked.c.any()
    assert len(asked) < 6100
    assert np.bincount(np.nonzero(pairs)[1], minlength=inst.k).min() > 900
    if not inst.is_integer:
        special = (asked.a & 0x7F > inst.a.largest) | (asked.b & 0x7F > inst.b.largest)
        some = asked[special.any(axis=1)]
        assert len(some) == 65536 - (2 * inst.a.largest + 2) * (2 * inst.b.largest + 2)
        assert ((some.a | some.b) != 0).sum(axis=1).max() == 1


@pytest.mark.parametrize("name", OF_FEW_CODES)
def test_one_wrong_entry_of_the_product_table_shows(name: str) -> None:
    inst = parse(name)
    model = OF_H100[inst]
    asked = every_pair(inst, model)
    expected = evaluate(model, inst, asked)
    rng = np.random.default_rng(3)
    for off in (1, -1, 2) * 3:
        a, b = (int(rng.integers(0x20, 0x58)) ^ int(rng.choice([0, 0x80])) for _ in range(2))
        assert (Unit(inst, model, Wide(entry=Entry(a, b, off))).dot(asked) != expected).any(), (a, b, off)


def test_a_device_with_one_wrong_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification of many dot products has every pair too."""
    inst = parse("wgmma.m64n8k32.f16.e5m2.e5m2")
    device = Plant(inst, OF_H100[inst], Wide(entry=Entry(0x45, 0x3B, 1))).device()
    done = cover(InstructionSubject(device, inst), OF_H100[inst], dots=0)
    assert done.kinds[CODE_PAIRS] > 4096
    assert done.mismatches
    assert done.counterexample.kind == CODE_PAIRS
    monkeypatch.setattr(bulk, "PAIRS_FROM", 0)
    done = bulk.verify(device, inst, OF_H100[inst], 0)
    assert done.kinds[CODE_PAIRS] == done.compared
    assert done.mismatches


def test_other_formats_have_too_many_codes() -> None:
    inst = parse("mma.sync.m16n8k16.f32.f16.f16.f32")
    assert every_pair(inst, OF_H100[inst]) is None
