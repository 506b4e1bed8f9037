"""Products that no plan explains are refused soon; doubtful findings are marked and shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_boxes import FunctionBox, box_of, spec_of
from planted_plans import HOPPER
from planted_sums import Array

from accprobe.callables.spec import Spec
from accprobe.gemm.characterise import characterise
from accprobe.gemm.dots import SparseDots
from accprobe.gemm.findings import findings, status
from accprobe.gemm.fit import fit
from accprobe.gemm.plans import draft
from accprobe.gemm.tree.tree_builder import NoTree
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain


def test_a_contradicted_region_has_suggested_findings_alone() -> None:
    outcome = characterise(box_of(replace(HOPPER, m=8, n=8, k=16)), elements=1 << 8)
    outcome.verification.count("normal", 64, 3)
    assert findings(outcome)["order"].bound == "suggested"
    assert f"fresh elements differ from the plan (normal 3 of {outcome.verification.kinds['normal']:,}" in status(outcome)[1]


def test_no_arithmetic_is_searched_of_a_sum_wider_than_any_known() -> None:
    spec = Spec(8, 8, 512, *[FORMATS["bf16"]] * 2, FORMATS["f32"])
    nothing = SparseDots(np.zeros((1, 6), np.int64), *(np.zeros((1, 6), np.uint16) for _ in range(2)), np.zeros(1, np.uint32))
    with pytest.raises(NoTree, match="512 products seem to be added in one fused sum; accprobe searches"):
        fit(spec, draft(spec, Chain(0, 512, tuple(range(512))), 512), nothing, nothing)


def test_wrong_subnormal_results_leave_the_other_findings_exact() -> None:
    plan = replace(HOPPER, m=8, n=8, k=16)

    def odd_below_the_normal_range(a: Array, b: Array) -> Array:
        d = plan(a, b).view(np.uint32)
        return np.where((d & 0x7FFFFFFF < 0x400000) & (d & 0xFF != 0), d ^ np.uint32(1), d)

    outcome = characterise(FunctionBox(spec_of(plan), odd_below_the_normal_range), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert reason.endswith("all of these are subnormal: only subnormal results are in doubt")
    told = findings(outcome)
    assert {name for name, finding in told.items() if finding.bound == "suggested"} == {
        "subnormal_operands",
        "subnormal_results",
    }
    assert told["effective_bits"].bound == "exact"
