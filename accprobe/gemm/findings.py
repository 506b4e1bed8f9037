"""What is told of a callable: findings by name, and the status that its answers give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from accprobe.gemm.candidates import instructions_of
from accprobe.gemm.characterise import Found, Outcome
from accprobe.gemm.pairs import Ints
from accprobe.gemm.parts import Groups, Merging, every_chain
from accprobe.gemm.plans import MOST_SLICES, Plan
from accprobe.gemm.scaling import told
from accprobe.infer.findings import Bound, Finding
from accprobe.model.product import Order, nested
from accprobe.model.tree import FloatArithmetic
from accprobe.report.rows import Status

PROMOTED = 512
"""Chains of at most so many products that are added up one after the other are chunks of a chain that is promoted; longer
ones are slices. Both are the same bits."""


def status(outcome: Outcome) -> tuple[Status, str]:
    """Whether the plan is proved, and where it is not, why."""
    if outcome.explained:
        return "confirmed", ""
    for found in outcome.found:
        if found.plan is None or found.wrong:
            return ("unstable" if outcome.alike.changed else "inferred"), f"{found.region}: {found.reason}"
    if outcome.contradicting:
        return "inferred", f"{outcome.contradicting} of {outcome.held} answers that were kept have no explanation"
    if outcome.proof.wrong:
        return "inferred", f"{outcome.proof.wrong} of {outcome.proof.elements} fresh elements differ from what the plan gives"
    left = [str(region) for region in outcome.alike.regions if all(region is not found.region for found in outcome.found)]
    return "inferred", f"not computed as the others, and not asked on their own: {'; '.join(left[:3])}"


def findings(outcome: Outcome, found: Found | None = None) -> dict[str, Finding]:
    """By name; of a region, or of the largest."""
    found = found or outcome.main
    proved = status(outcome)[0] == "confirmed"
    open_ = {rival.respect for rival in found.survived}
    return {name: _bounded(name, finding, proved, name in open_) for name, finding in _every(outcome, found)}


def _bounded(name: str, finding: Finding, proved: bool, open_: bool) -> Finding:
    if name in MEASURED:
        return finding
    bound: Bound = "suggested" if not proved else "undetermined" if open_ else finding.bound
    return Finding(finding.value, bound, finding.left, finding.note)


MEASURED = ("each_product_once", "repeatable", "same_everywhere")
"""Findings that need no plan: what was seen is so."""


def _every(outcome: Outcome, found: Found) -> Iterator[tuple[str, Finding]]:
    yield "each_product_once", _once(found.once)
    changed = outcome.alike.changed
    note = f"{changed} of {outcome.spec.m * outcome.spec.n} elements changed, {outcome.alike.values} values" if changed else ""
    yield "repeatable", Finding("no" if changed else "yes", note=note)
    yield "same_everywhere", _everywhere(outcome)
    if found.plan is not None:
        yield from _of_plan(found.plan)
        if found.plan.scales is not None:
            way = told(found.plan.scales)
            bound: Bound = "undetermined" if found.scales_left else "exact"
            yield "scales", Finding(found.misplaced or way, bound, found.scales_left)


def _once(once: Ints) -> Finding:
    wrong = np.flatnonzero(once != 1)
    if not len(wrong):
        return Finding("yes", note=f"{len(once)} of {len(once)}")
    missing, twice = np.flatnonzero(once == 0), np.flatnonzero(once > 1)
    told = [f"{len(missing)} missing: k = {ranges(missing)}"] if len(missing) else []
    told += [f"{len(twice)} counted more than once: k = {ranges(twice)}"] if len(twice) else []
    return Finding("no", note="; ".join(told))


def _everywhere(outcome: Outcome) -> Finding:
    regions = outcome.alike.regions
    if len(regions) == 1:
        return Finding("yes", note=f"all {regions[0].elements} elements")
    others = "; ".join(f"{region.elements} at {region}" for region in regions[1:4])
    return Finding("no", note=f"{len(regions)} plans: {regions[0].elements} elements alike, {others}")


def _of_plan(plan: Plan) -> Iterator[tuple[str, Finding]]:
    arithmetic = plan.step.root.arithmetic
    yield "order", Finding("any" if plan.spec.a.is_integer else order(plan))
    yield "products_per_sum", Finding(plan.step.products)
    if isinstance(arithmetic, FloatArithmetic):
        bits = arithmetic.alignment_bits
        kept = arithmetic.result_bits if bits is None else min(bits, arithmetic.result_bits)
        yield "effective_bits", Finding(kept)
        yield "alignment_bits", Finding(bits)
        yield "result_bits", Finding(arithmetic.result_bits)
        yield "sum_rounding", Finding(arithmetic.result_rounding)
        if arithmetic.product_bits is not None:
            yield "product_bits", Finding(arithmetic.product_bits)
    if plan.spec.rounds_operands:
        yield "operand_rounding", Finding(plan.operand_rounding)
    names = instructions_of(plan.spec.a, plan.spec.b, plan.step)
    yield "instruction", Finding(names[0] if names else None, note=f"and {len(names) - 1} others" if len(names) > 1 else "")
    chunks, slices = levels(plan)
    promoted = None
    if any(len(slice_) > 1 for slice_ in chunks):
        promoted = max(sum(map(len, chunk)) for slice_ in chunks for chunk in slice_)
    yield "promote_every", Finding(promoted)
    if promoted is not None:
        yield "promotion_format", Finding("f32")
        yield "promotion_rounding", Finding(plan.sum_rounding)
    yield "split_k", Finding(len(chunks))
    if len(chunks) > 1:
        yield "slice_sizes", Finding(", ".join(str(sum(len(g) for c in slice_ for g in c)) for slice_ in chunks))
        yield "partial_format", Finding(str(plan.kept or "f32"))
        merged = "unordered" if plan.unordered else "serial" if plan.running.name != "f32" else slices
        yield "merge_order", Finding(merged)
    if plan.spec.out.is_float:
        yield "result_rounding", Finding(plan.result_rounding, note=f"to {plan.spec.out}")


Chunks = Sequence[Groups]


def levels(plan: Plan) -> tuple[list[Chunks], Order | str]:
    """The slices, each as its chunks, and the order in which they are merged."""
    tree = plan.tree
    if not isinstance(tree, Merging):
        return [[tree]], "forward"
    if all(not isinstance(part, Merging) for part in tree.parts):
        parts = [part for part in tree.parts if not isinstance(part, Merging)]
        forward = tree.nested == nested("forward", len(parts))
        longest = max(sum(map(len, part)) for part in parts)
        if forward and plan.kept is None and not plan.unordered and (longest <= PROMOTED or len(parts) > MOST_SLICES):
            return [parts], "forward"
        return [[part] for part in parts], _order_name(tree)
    return [list(every_chain(part)) for part in tree.parts], _order_name(tree)


def _order_name(tree: Merging) -> str:
    from accprobe.gemm.plans import named

    name = named(tree.nested, len(tree.parts))
    return name if isinstance(name, str) else str(name)


def order(plan: Plan) -> str:
    """ "4 slices of 256: chain of [acc 32]"."""
    slices, _ = levels(plan)
    chunk = f"chain of [acc {plan.step.products}]"
    if any(len(slice_) > 1 for slice_ in slices):
        chunk = f"chunks of {sum(map(len, slices[0][0]))}, each a {chunk}"
    if len(slices) == 1:
        return chunk
    sizes = [sum(len(g) for c in slice_ for g in c) for slice_ in slices]
    told = str(sizes[0]) if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    return f"{len(slices)} slices of {told}: {chunk}"


def ranges(ks: Ints) -> str:
    """ "11520-11527", the first few."""
    runs = np.split(ks, np.flatnonzero(np.diff(ks) != 1) + 1)
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:4]]
    return ", ".join(told) + (", …" if len(runs) > 4 else "")
