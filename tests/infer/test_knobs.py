"""Why the search asks as much as it does: of each of its numbers, a case in which less of it is not enough.

All devices here compute the model that is challenged, or looked for; what differs is how hard its alternatives are looked at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from inferred import separating
from plants import instruction

from accprobe.devices.simulated import SimulatedDevice
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternatives.neighbours import groups
from accprobe.infer.characterise import characterise
from accprobe.infer.distinguishing import Results, Search
from accprobe.infer.falsification import Falsification, falsify
from accprobe.infer.findings import Characterisation, Finding
from accprobe.infer.query_log import Budget
from accprobe.infer.refine import improvements
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, chain
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined

F32 = FORMATS["f32"]


def held(inst: Instruction, model: DotModel, device: DotModel | None = None) -> Falsification:
    """The alternatives of a model against a device that computes it, or another one."""
    result = Characterisation(inst, {"order": Finding(model.order)}, model)
    return falsify(SimulatedDevice({inst: device or model}), inst, result)


def every_kind(inst: Instruction, seed: int, n: int) -> Request:
    rng = np.random.default_rng(seed)
    return joined([draw(kind, inst, rng, n) for kind in kinds(inst)])


def test_c_leads_in_some() -> None:
    """Products of f16 end far above the smallest results: where C does not lead, no sum is small enough for this floor."""
    inst = instruction(16, "f32", "f16", "f16", "f32")
    sums = FloatArithmetic(
        *(F32, 11, "RZ", 29, "nearest", "normalised product", -160),
        zero_sign="ieee",
        underflow_sign="positive",
        overflow="largest",
        subnormal_results="flushed",
    )
    surviving = held(inst, DotModel(chain([range(16)], sums), "flushed", "flushed")).surviving
    floors = [alternative.value for alternative in surviving if alternative.field == "min_exponent"]
    assert None in floors
    assert -114 not in floors


@pytest.mark.parametrize(
    "changes", [{"zero_terms": "aligned"}, {"product_exponent": "normalised product"}], ids=lambda x: next(iter(x))
)
def test_terms_meet_in_the_last_sum_more_often(changes: dict[str, str]) -> None:
    """Of 64 sums one after another, what the first ones lose is rounded away by those after them."""
    inst = instruction(64, "f32", "e4m3", "e4m3", "f32")
    model = DotModel(chain([[k] for k in range(64)], FloatArithmetic(F32, 5, "RZ", 20), "last"))
    alternative = model.with_arithmetic(lambda sums: replace(sums, **changes))  # type: ignore[arg-type]
    assert separating(Search(inst, model), alternative, list(changes), 1024) is not None


def test_three_fields_are_changed_at_once() -> None:
    """A zero's sign passes through three rules: that of the sum, that of the separate add, and of how C is read."""
    sums = FloatArithmetic(F32, 23, "RZ", 24)
    add = FloatArithmetic(F32, 23, "RNE", None, zero_sign="ieee")
    changed = [
        {name for name, _ in alternative.changes}
        for alternative in groups(DotModel(chain([range(4)], sums, "separate add", add)))
    ]
    assert {"zero_sign", "add_zero_sign", "subnormal_addend"} in changed
    assert max(map(len, changed)) == 3


def test_every_neighbour_is_screened_by_many_answers() -> None:
    """One wrong answer that a neighbour puts right says little: here it leads to models from which no step is better."""
    inst = instruction(8, "f32", "e4m3", "e4m3", "f32")
    sums = FloatArithmetic(F32, 17, "RZ", 4, "sticky", min_exponent=-127, overflow="largest")
    truth = DotModel(chain([range(8)], sums))
    draft = DotModel(chain([range(8)], replace(sums, alignment_bits=6, alignment_rounding="floor", result_rounding="RNE")))
    answers = Results(inst, every_kind(inst, 0, 60), truth)
    *_, last = improvements(inst, draft, {"order": Finding(truth.order)}, answers, thorough=False, budget=Budget())
    assert answers.explained_by(last)


def test_the_pool_is_large_enough_for_what_rows_leave_open() -> None:
    """A sum that keeps 4 bits of its terms, and more of its result, shows most of its rules in one of hundreds alone."""
    inst = instruction(8, "f32", "e4m3", "e4m3", "f32")
    sums = FloatArithmetic(F32, 17, "RZ", 4, "sticky", min_exponent=-127, overflow="largest", nan=0x7FC00000)
    truth = DotModel(chain([range(8)], sums))
    found = characterise(SimulatedDevice({inst: truth}), inst).model
    assert found is not None
    fresh = every_kind(inst, 7, 500)
    np.testing.assert_array_equal(evaluate(found, inst, fresh), evaluate(truth, inst, fresh))
