"""Coverage: which events dot products have, which there can be, and that operands are made for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from counting import events, odd_products
from hypothesis import HealthCheck, given, settings
from marks import some
from plants import Plant, float_models, instruction, integer_models

from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import CHIPS, known_models
from accprobe.model.tree import DotModel, FloatArithmetic, IntegerArithmetic, chain
from accprobe.operands.request import Request, joined
from accprobe.report.report import Report
from accprobe.verify.coverage import Coverage
from accprobe.verify.coverage.corpora import tries_of
from accprobe.verify.coverage.coverage import alike
from accprobe.verify.coverage.integers import DRAWS, ODD_PRODUCTS
from accprobe.verify.coverage.search import search
from accprobe.verify.coverage.trace import trace_of
from accprobe.verify.random import batches

H200 = {row.instruction.stored: row.model for row in Report.load("h200").measured if row.model}

COUNTED = (
    "wgmma.m64n8k32.f32.e4m3.e4m3",
    "mma.sync.m16n8k8.f16.f16.f16.f16",
    "mma.sync.m16n8k8.f32.bf16.bf16.f32",
    "mma.sync.m16n8k16.f32.e4m3.e5m2.f32",
    "mma.sync.m16n8k16.f16.e5m2.e5m2.f16",
    "mma.sync.m8n8k4.f64.f64.f64.f64",
)


def by_row(inst: Instruction, model: DotModel, request: Request) -> list[set[str]]:
    """The names of events of each dot product, but for pairs of events and those of operands."""
    trace = trace_of(inst, model)
    found: list[set[str]] = [set() for _ in range(len(request))]
    for key, rows, codes in trace.of(request):
        if key[0] >= 0 and key[1] not in (
            "cancel at",
            "cancel at narrow",
            "carry rounded",
            "beyond",
            "C cancelled",
            "subnormal C",
            "truncated rounded",
            "truncated against",
        ):
            for row, code in zip(rows.ravel().tolist(), codes.ravel().tolist(), strict=True):
                if code >= 0:
                    event = trace.families[key][code]
                    assert event is not None, (key, code)
                    found[row].add(event.name)
    return found


def some_of_all(inst: Instruction, model: DotModel, n: int) -> Request:
    """Random and directed dot products, n of each."""
    random = joined([request for _, request in batches(inst, n, 5)])
    directed = joined(list(Coverage(inst, model).directed()))
    return joined([random, directed[np.random.default_rng(0).permutation(len(directed))[:n]]])


def compare(inst: Instruction, model: DotModel, n: int) -> None:
    """Of more odd terms than are told, too, the counter tells."""
    request = some_of_all(inst, model, n)
    names = {event.name for events in trace_of(inst, model).families.values() for event in events if event}
    for row, found in enumerate(by_row(inst, model, request)):
        every = events(model, inst, request.a[row].tolist(), request.b[row].tolist(), int(request.c[row]))
        expected = {name for name in every if name in names or not name.endswith("a carry shows")}
        assert found == expected, (sorted(found ^ expected), request.a[row], request.b[row], request.c[row])


@pytest.mark.parametrize("name", COUNTED)
def test_slow_counter_agrees(name: str) -> None:
    compare(parse(name), H200[parse(name)], 40)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(float_models(plain=True))
def test_slow_counter_agrees_on_planted_models(planted: Plant) -> None:
    compare(planted.instruction, planted.model, 15)


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


@pytest.mark.parametrize("name", some(["wgmma.m64n8k32.f32.e4m3.e4m3", "mma.sync.m16n8k16.f32.f16.f16.f32"], 2))
def test_search_without_stored_operands_reaches_what_these_reach(name: str) -> None:
    inst, model = alike(parse(name)), H200[parse(name)]
    trace = trace_of(inst, model)
    stored = Coverage(inst, model)
    list(stored.directed())
    reached = trace.covering_rows(search(trace, 1).request)
    events = {trace.families[key][code] for key, code in reached} - {None}
    assert len(events) >= 0.98 * stored.outcome().hit


def nothing_impossible_happens(inst: Instruction, model: DotModel, requests: list[Request]) -> Coverage:
    coverage = Coverage(inst, model)
    for request in requests:
        coverage.see(request)
    assert not [event.name for event, hit, _ in coverage.events() if hit and event.impossible]
    return coverage


def assert_covered(planted: Plant) -> None:
    """Random and directed operands reach every event for which operands are known, and none that is impossible."""
    inst, model = planted.instruction, planted.model
    random = [request for _, request in batches(inst, 2000, 1)]
    directed = list(nothing_impossible_happens(inst, model, random).directed())
    assert nothing_impossible_happens(inst, model, [*random, *directed]).outcome().missing == ()


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(float_models())
def test_planted_models_are_covered(planted: Plant) -> None:
    assert_covered(planted)


@settings(max_examples=12, deadline=None)
@given(integer_models())
def test_planted_integer_models_are_covered(planted: Plant) -> None:
    assert_covered(planted)


@pytest.mark.parametrize("group", [8, 32])
def test_each_number_of_odd_products_has_a_dozen_operands(group: int) -> None:
    inst = instruction(32, "s32", "u8", "s8", "s32")
    groups = [list(range(i, 32, 32 // group)) for i in range(32 // group)]
    model = DotModel(chain(groups, IntegerArithmetic(FORMATS["s32"], "wrap")))
    coverage = Coverage(inst, model)
    asked = joined(list(coverage.directed()))
    of_rows = [odd_products(model, inst, *(x.tolist() for x in (a, b))) for a, b in zip(asked.a, asked.b, strict=True)]
    counted = Counter(name for names in of_rows for name in names)
    events = trace_of(inst, model).families
    names = [event.name for key in events if key[1] == ODD_PRODUCTS for event in events[key] if event]
    assert len(names) == (group + 1) * (32 // group)
    assert min(counted[name] for name in names) >= DRAWS
    told = [np.unique(codes) for (_, family), _, codes in trace_of(inst, model).of(asked[:50]) if family == ODD_PRODUCTS]
    assert {int(n) for codes in told for n in codes} == {
        int(name.split(": ")[1].split()[0]) for s in of_rows[:50] for name in s
    }


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
@pytest.mark.parametrize("k", some([2, 1]))
def test_search_reaches_what_any_operands_reach_and_nothing_impossible(k: int, changes: dict[str, object]) -> None:
    """Every pair of 4-bit codes as one product, or as two, beside C that is anything, or one of a few."""
    inst = instruction(k, "f16", "e2m1", "e2m1", "f16")
    model = DotModel(chain([range(k)], replace(TINY, **changes)))
    codes = np.stack(np.meshgrid(*[np.arange(16, dtype=np.uint8)] * (2 * k), indexing="ij"), axis=-1).reshape(-1, 2 * k)
    every = np.arange(1 << 16, dtype=np.uint16)
    addends = every[:: 1 << 5] if k == 1 else np.array([0, 0x8000, 0x0001, 0x3C00, 0xB801, 0x4BFF], np.uint16)
    a, b = (np.repeat(x, len(addends), axis=0) for x in (codes[:, :k], codes[:, k:]))
    coverage = nothing_impossible_happens(inst, model, [Request(a, b, np.tile(addends, len(codes)))])
    searched = Coverage(inst, model)
    list(searched.directed())
    assert searched.missing() == ()
    assert searched.outcome().hit >= 0.98 * coverage.outcome().hit


def test_reasons_are_of_formats_and_model() -> None:
    inst = parse(COUNTED[0])
    outcome = Coverage(inst, H200[inst]).outcome()
    assert outcome.hit == 0
    assert outcome.possible == len(outcome.missing)
    assert outcome.impossible["e4m3 has no infinity"] == 6 * 36 - 6 * 25 + 6
    assert outcome.impossible["results are rounded toward zero"] == 2
    assert list(outcome.missing) == sorted(outcome.missing)


def test_what_was_seen_is_not_asked_again() -> None:
    inst = parse(COUNTED[0])
    coverage = Coverage(inst, H200[inst])
    directed = joined(list(coverage.directed()))
    again = Coverage(inst, H200[inst])
    again.see(directed)
    assert list(again.directed()) == []
    assert again.outcome() == replace(coverage.outcome(), impossible=again.outcome().impossible)


def test_names_are_short_stable_and_all_different() -> None:
    for inst, model in of_different_arithmetic(H200):
        if not inst.is_integer:
            names = [event.name for events in trace_of(inst, model).families.values() for event in events if event]
            assert max(Counter(names).values()) == 1
            assert max(map(len, names)) < 140
