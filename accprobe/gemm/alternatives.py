"""Plans beside the one that was found. Each must be contradicted by some answer; one that is not leaves something open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.battery import Answered, Sparse, asks_subnormals, predicted, unexplained, wrong
from accprobe.gemm.candidates import flushing_otherwise
from accprobe.gemm.decomposition import FusedGroups, Reduction
from accprobe.gemm.fit import FIRST
from accprobe.gemm.plans import ProductPlan, plan_alternatives, same_order, subnormal_results
from accprobe.gemm.spec import Spec
from accprobe.infer.alternatives.single import alternatives
from accprobe.model.product import nested
from accprobe.model.tree import DotModel

FIELDS = (
    "alignment_bits",
    "alignment_rounding",
    "result_bits",
    "result_rounding",
    "product_exponent",
    "product_bits",
    "addend_place",
)
"""Fields of the fused sum that are told of a product, and so must be proved."""

OF_TINY = ("subnormal_results", "product_bits")
"""Respects in which rivals differ only where sums, or products that are sums of their own, are subnormal."""


@dataclass(frozen=True)
class AlternativePlan:
    """A plan that differs in one respect: the finding's name, and how."""

    plan: ProductPlan
    respect: str
    how: str


def alternative_plans(plan: ProductPlan) -> Iterator[AlternativePlan]:
    """Every plan that differs in one respect."""
    for alternative in alternatives(plan.step, {}):
        respect, how = alternative.field, "none" if alternative.value is None else str(alternative.value)
        if _of_the_products(plan.step, alternative.model):
            respect, how = "product_bits" if respect in ("result_bits", "result_rounding") else "", f"rounded {how}"
        elif respect == "result_rounding":
            respect = "sum_rounding"
        if respect in (*FIELDS, "sum_rounding", *_of_subnormals(plan.spec)):
            yield AlternativePlan(replace(plan, step=alternative.model), respect, how)
    if plan.step.root.children and asks_subnormals(plan.spec):
        for step in flushing_otherwise(plan.step):
            other = replace(plan, step=step)
            yield AlternativePlan(other, "subnormal_results", subnormal_results(other))
    for respect, how, other in plan_alternatives(plan):
        yield AlternativePlan(other, respect, how)
    yield from _of_the_tree(plan)


def _of_subnormals(spec: Spec) -> Iterator[str]:
    """Respects that are asked of such operands."""
    if spec.a_exponent is None:
        yield "subnormal_operands"
    if asks_subnormals(spec):
        yield from OF_TINY


def _of_the_products(step: DotModel, other: DotModel) -> bool:
    """Whether they differ in how products are rounded that are sums of their own."""
    return step.root.arithmetic == other.root.arithmetic and set(step.arithmetics) != set(other.arithmetics)


def _of_the_tree(plan: ProductPlan) -> Iterator[AlternativePlan]:
    tree = plan.tree
    if not isinstance(tree, Reduction):
        half = len(tree) // 2
        if half:
            yield AlternativePlan(replace(plan, tree=Reduction((tree[:half], tree[half:]), (0, 1))), "split_k", "2 slices")
        return
    for order in ("forward", "backward", "tree") if not plan.unordered else ():
        other = nested(order, len(tree.parts))
        if not same_order(other, tree.nested):
            yield AlternativePlan(replace(plan, tree=replace(tree, nested=other)), "reduction_order", f"partial sums {order}")
    for i, (first, second) in enumerate(zip(tree.parts, tree.parts[1:], strict=False)):
        for moved in _moved(first, second):
            parts = (*tree.parts[:i], *moved, *tree.parts[i + 2 :])
            yield AlternativePlan(replace(plan, tree=replace(tree, parts=parts)), "slice_sizes", f"border {i} one sum further")
            break
        if i >= 2:
            break
    first, second = tree.parts[:2]
    if not isinstance(first, Reduction) and not isinstance(second, Reduction) and len(tree.parts) == 2:
        yield AlternativePlan(replace(plan, tree=(*first, *second)), "promote_every", "never")


def _moved(first: FusedGroups | Reduction, second: FusedGroups | Reduction) -> Iterator[tuple[FusedGroups, FusedGroups]]:
    """The two with one fused sum more in the first, or in the second."""
    if isinstance(first, Reduction) or isinstance(second, Reduction):
        return
    if len(second) > 1:
        yield (*first, second[0]), second[1:]
    if len(first) > 1:
        yield first[:-1], (first[-1], *second)


def contradicted(plan: ProductPlan, answers: Sequence[Answered]) -> bool:
    """Whether some answer is not the plan's; also where it cannot be evaluated. Most rivals fail at the first few."""
    try:
        model = plan.model()
        return any(wrong(model, answered[part]) for part in (slice(FIRST), slice(FIRST, None)) for answered in answers)
    except AccprobeError:
        return True


def contradicting(plan: ProductPlan, answers: Sequence[Answered]) -> list[Answered]:
    """Return some results that the plan does not explain, at most `FIRST` of each battery."""
    model = plan.model()
    found = (answered[np.flatnonzero(unexplained(model, answered))[:FIRST]] for answered in answers)
    return [each for each in found if len(each)]


def telling(plan: ProductPlan, alternative: ProductPlan, dots: Sparse) -> Sparse:
    """Those of the dot products on which the two differ."""
    mine, other = (predicted(each.model(), dots) for each in (plan, alternative))
    return dots[np.flatnonzero(mine != other)]
