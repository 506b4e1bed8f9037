"""Devices whose sums of block-scaled products an evaluator of another make computes: found again, and told from their like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from measured import Tiled
from outside_scales import Rules, evaluated

from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.report.rows import Row
from accprobe.survey.row import Surveyor
from accprobe.verify.coverage import Coverage, cover

MIXED = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0")
SMALL = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m3.e3m2.f32.ue8m0")
NVFP4 = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
FOUR = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0")
TWO = parse("tcgen05.m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0")

USUAL = {
    MIXED: Rules(25, floor=-133),
    SMALL: Rules(25, floor=-133),
    NVFP4: Rules(35, 16),
    FOUR: Rules(35, 16),
    TWO: Rules(35, 16),
}

# Scales of the others are not that small, or the two products of a block that show it lie too far apart.
SHOW_A_FLOOR = (FOUR, TWO, MIXED)

DEVIATIONS = {
    "one significand bit of scales": (NVFP4, {"scale_bits": 2}),
    "scales are powers of two": (NVFP4, {"scale_bits": 0}),
    "a NaN of ue4m3 is 480": (NVFP4, {"nan_scales": "a number"}),
    "a NaN of ue8m0 is 2^128": (FOUR, {"nan_scales": "a number"}),
    "a NaN scale of fp8 is 2^128": (MIXED, {"nan_scales": "a number"}),
    "subnormal scales are zero": (NVFP4, {"subnormal_scales": "zero"}),
    "the last block has the scale of B twice": (NVFP4, {"last_scale_of_a": "that of B"}),
    "the same of ue8m0": (TWO, {"last_scale_of_a": "that of B"}),
    "groups are cut a bit earlier than C": (NVFP4, {"groups_cut": 1}),
    "the same with ue8m0": (FOUR, {"groups_cut": 1}),
    "products are cut a bit earlier than C": (SMALL, {"groups_cut": 1}),
    "sums of products lose their last bit": (NVFP4, {"group_bits": 1}),
    "groups of zeros lead": (FOUR, {"zero_groups_lead": True}),
    "two scales are 2^127 at most": (TWO, {"largest_exponent_of_scales": 127}),
    "zero scales make zeros of infinities": (MIXED, {"zero_times_infinity": "zero"}),
}


def published(inst: Instruction) -> DotModel:
    rules = USUAL[inst]
    arithmetic = FloatArithmetic(FORMATS["f32"], 23, "RZ", rules.bits, min_exponent=rules.floor, underflow_sign="positive")
    if rules.at_once > 1:
        arithmetic = replace(arithmetic, scaled_products=rules.at_once)
    return DotModel(chain([range(inst.k)], arithmetic))


class Planted(Tiled):
    """A device of one instruction that follows rules of its own."""

    def __init__(self, inst: Instruction, rules: Rules) -> None:
        super().__init__(inst, published(inst), lambda d, **_: d)
        self.rules = rules

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        assert request.scales_a is not None
        assert request.scales_b is not None
        assert inst.scale is not None
        names = inst.a.name, inst.b.name, inst.scale.name
        return evaluated(self.rules, request.a, request.b, request.c, (request.scales_a, request.scales_b), names)


def row_of(device: Planted, inst: Instruction) -> Row:
    return Surveyor(device).row(inst, 2000, 0)


@pytest.mark.parametrize("inst", USUAL, ids=lambda inst: f"{inst.kind} {inst.a}.{inst.scale}")
def test_the_evaluator_of_these_tests_agrees_with_the_published_models(inst: Instruction) -> None:
    rng = np.random.default_rng(3)
    asked = joined([*(draw(kind, inst, rng, 200) for kind in kinds(inst)), *Coverage(inst, published(inst)).directed()])
    assert (Planted(inst, USUAL[inst]).dot(inst, asked) == evaluate(published(inst), inst, asked)).all()


@pytest.mark.parametrize(
    ("inst", "rules"),
    [
        pytest.param(NVFP4, Rules(35, 16), id="NVFP4"),
        pytest.param(NVFP4, Rules(33, 8), id="NVFP4 of eight", marks=pytest.mark.slow),
        pytest.param(FOUR, Rules(36, 16, -137), id="another floor", marks=pytest.mark.slow),
        pytest.param(TWO, Rules(30, 32, -130), id="blocks of 32", marks=pytest.mark.slow),
        pytest.param(MIXED, Rules(25, floor=-133), id="fp8"),
        pytest.param(SMALL, Rules(20, floor=-140), id="fp6", marks=pytest.mark.slow),
    ],
)
def test_what_was_planted_is_confirmed(inst: Instruction, rules: Rules) -> None:
    row = row_of(Planted(inst, rules), inst)
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.model is not None
    assert row.verification is not None
    assert row.verification.events is not None
    assert row.verification.events.missing == ()
    arithmetic = row.model.root.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    assert (arithmetic.alignment_bits, arithmetic.scaled_products or 1) == (rules.bits, rules.at_once)
    floor = row.findings["min_exponent"]
    assert (floor.value, floor.bound) == (rules.floor, "exact") if inst in SHOW_A_FLOOR else floor.bound == "undetermined"


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_differs_on_operands_that_cover_the_model(name: str) -> None:
    inst, changes = DEVIATIONS[name]
    done = cover(Planted(inst, replace(USUAL[inst], **changes)), inst, published(inst), 0)
    assert done.mismatches > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_is_never_confirmed_as_the_model_without(name: str) -> None:
    inst, changes = DEVIATIONS[name]
    row = row_of(Planted(inst, replace(USUAL[inst], **changes)), inst)
    if "zero_groups_lead" in changes:  # the grammar has that
        assert row.findings["zero_terms"].value == "aligned"
        return
    assert row.status != "confirmed"
    assert not any(finding.bound == "exact" for finding in row.findings.values())
