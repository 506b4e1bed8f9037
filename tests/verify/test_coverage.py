"""Coverage: which events dot products have, which there can be, and that operands are made for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from marks import some
from plants import Plant, float_models, instruction, integer_models

from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.request import Request
from accprobe.report.report import Report
from accprobe.verify.corpora import tries_of
from accprobe.verify.coverage import Coverage
from accprobe.verify.coverage.trace import trace_of
from accprobe.verify.random import batches

H200 = {row.instruction.stored: row.model for row in Report.load("h200").measured if row.model}

FP8 = parse("wgmma.m64n8k32.f32.e4m3.e4m3")
HALF = parse("mma.sync.m16n8k8.f16.f16.f16.f16")
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


def of_different_arithmetic(models: dict[Instruction, DotModel]) -> Iterator[tuple[Instruction, DotModel]]:
    seen = set()
    for inst, model in models.items():
        if (alike := (inst.a, inst.b, inst.c, inst.d, inst.k, model)) not in seen:
            seen.add(alike)
            yield inst, model


def recorded_events() -> dict[Instruction, int]:
    """Events that the recorded run on an H200 reached, by instruction."""
    rows = (row for row in Report.load("h200").measured if row.verification and row.verification.events)
    return {row.instruction: row.verification.events.hit for row in rows if not row.instruction.sparse}


@pytest.mark.parametrize("family", some(["wgmma", "mma"]))
def test_stored_operands_reach_no_fewer_events_than_the_recorded_run(family: str) -> None:
    recorded = recorded_events()
    for inst, model in of_different_arithmetic({inst: H200[inst] for inst in recorded if inst.name.startswith(family)}):
        coverage = Coverage(inst, model)
        asked = sum(map(len, coverage.directed()))
        outcome = coverage.outcome()
        assert outcome.missing == ()
        assert outcome.hit >= recorded[inst], inst.name
        assert asked < 3 * outcome.hit or inst.is_integer


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
