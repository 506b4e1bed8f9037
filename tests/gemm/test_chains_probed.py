"""Every chain of a plan, and every addition of its sum, is probed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planted_boxes import PlantedBox
from planted_plans import HOPPER

from accprobe.gemm.dots import wrong
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.steps import HOPPER as HOPPER_SUM
from accprobe.gemm.steps import one_sum
from accprobe.gemm.characterise import characterise
from accprobe.gemm.probes import probe_chains
from accprobe.gemm.tree.decomposition import Reduction
from accprobe.gemm.findings import status
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.checks.regions import Region
from accprobe.gemm.findings import row
from accprobe.model.product import nested

PROMOTED = replace(HOPPER, m=16, n=16, k=160, promote_every=16, out="bf16")
"""10 chains; what f32 sums round shows in few results of dense operands, as these are bf16."""


def test_one_promotion_that_truncates_is_not_confirmed() -> None:
    outcome = characterise(PlantedBox(replace(PROMOTED, truncated_step=6)), elements=1 << 8)
    found, reason = status(outcome)
    assert found == "inferred"
    assert "dot products that reach every chain" in reason
    (region,) = row(outcome, "planted").regions
    assert (region.chains_probed, region.chains) == (10, 10)


def test_of_many_chains_a_sample_is_probed() -> None:
    plan = replace(PROMOTED, k=1120)
    box = PlantedBox(plan)
    chains = [tuple(tuple(range(k, k + 16)) for k in [start]) for start in range(0, plan.k, 16)]
    tree = Reduction(tuple(chains), nested("forward", len(chains)))
    region = Region(np.arange(plan.m), np.arange(plan.n), plan.m * plan.n)
    coverage = probe_chains(RecordedCallable(box), region, ProductPlan(box.spec, tree, one_sum(HOPPER_SUM, 16)), seed=0)
    assert (coverage.probed, coverage.chains) == (64, 70)
    assert not wrong(ProductPlan(box.spec, tree, one_sum(HOPPER_SUM, 16)).model(), coverage.answered)
