"""Models evaluated in turn on the same dot products give the results of separate evaluations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plants import Plant, float_models, integer_models

from accprobe.evaluate import evaluator, terms
from accprobe.evaluate.evaluator import evaluate
from accprobe.evaluate.reference import Evaluation
from accprobe.infer.neighbours import alternatives, coarser_bounds, field_pairs, floors, groups
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import DotModel
from accprobe.operands.directed import Target, directed
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.records.findings import Finding


def every_kind(inst: Instruction, seed: int, n: int) -> Request:
    rng = np.random.default_rng(seed)
    return joined([draw(kind, inst, rng, n) for kind in kinds(inst)])


def varied_operands(inst: Instruction, model: DotModel, seed: int, n: int) -> Request:
    """Return random operands of every kind, and directed ones for fields that rarely matter."""
    rng = np.random.default_rng(seed)
    sums = tuple(range(len(list(model.root.nodes()))))
    places = (Target("anywhere", sums), Target("products", sums), Target("floor", sums, (-12, -126)))
    return joined([every_kind(inst, seed, n), *(directed(inst, model, place, rng, 16 * n) for place in places)])


def relatives(inst: Instruction, model: DotModel) -> Iterator[DotModel]:
    """Yield the model, models that differ from it in one or several fields, and the model again."""
    yield model
    for alternative in (*alternatives(model, {"order": Finding("")}), *field_pairs(model), *groups(model)):
        yield alternative.model
    for candidates in coarser_bounds(model):
        yield from (alternative.model for alternative in candidates[:3])
    for levels in floors(inst, model):
        yield from (alternative.model for alternative in (*levels.above[:400:20], *levels.below[:3]))
        yield from [levels.none.model] if levels.none else []
    yield model


def assert_same_results(inst: Instruction, models: list[DotModel], operands: Request) -> None:
    together = Evaluation(inst, operands)
    for model in models:
        np.testing.assert_array_equal(together.of(model), Evaluation(inst, operands).of(model), str(model))


@pytest.mark.parametrize("room", [terms.ROOM, 0], ids=["as it is", "without room"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(float_models() | integer_models(), st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_alternatives_to_planted_models_in_any_order(  # type: ignore[no-untyped-def]  # of hypothesis
    monkeypatch: pytest.MonkeyPatch, room: int, planted: Plant, seed: int, random
) -> None:
    """With the usual cache, and with one that evicts at once."""
    monkeypatch.setattr(terms, "ROOM", room)
    inst, models = planted.instruction, list(relatives(planted.instruction, planted.model))
    operands = every_kind(inst, seed, 8) if inst.is_integer else varied_operands(inst, planted.model, seed, 4)
    assert_same_results(inst, random.sample(models, min(len(models), 25)), operands)


def test_changed_operands_are_evaluated_again() -> None:
    """The cache compares contents, not array identities."""
    inst, other = parse("mma.sync.m16n8k32.f32.e4m3.e4m3.f32"), parse("wgmma.m64n8k32.f32.e4m3.e4m3")
    models = {i: known_models("h100")[i].model for i in (inst, other)}
    a, b, c = every_kind(inst, 0, 20).columns

    def alone(i: Instruction) -> Bits:
        return evaluator.with_numpy(models[i], i, Request(a, b, c))

    first = evaluate(models[inst], inst, Request(a, b, c))
    np.testing.assert_array_equal(first, alone(inst))
    np.testing.assert_array_equal(evaluate(models[other], other, Request(a.copy(), b, c)), alone(other))
    for x in (a, b, c):
        x ^= x.dtype.type(1 << (8 * x.itemsize - 1))
        np.testing.assert_array_equal(evaluate(models[inst], inst, Request(a, b, c)), alone(inst))
    assert (evaluate(models[inst], inst, Request(a, b, c)) != first).any()
    np.testing.assert_array_equal(evaluate(models[inst], inst, Request(a[:7], b[:7], c[:7])), alone(inst)[:7])
