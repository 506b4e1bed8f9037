"""What is told of a callable: findings by name, and the status that its answers give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from accprobe.gemm.alternatives import AlternativePlan
from accprobe.gemm.battery import asks_subnormals
from accprobe.gemm.candidates import HOPPER, instructions_of, one_sum
from accprobe.gemm.decomposition import FusedGroups, Reduction, width
from accprobe.gemm.outcome import ProductOutcome, RegionOutcome
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan, subnormal_results
from accprobe.gemm.regions import PRODUCTS_REPEATED, REPEATS, ranges
from accprobe.gemm.repeatability import FirstCalls
from accprobe.gemm.scaling import scaling_in_words
from accprobe.gemm.spec import Spec
from accprobe.gemm.structures import Structure, members, name_members, order_in_words, shared_products
from accprobe.gemm.verification import Proof
from accprobe.infer.findings import Finding
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.rows import Status


def status(outcome: ProductOutcome) -> tuple[Status, str]:
    """Whether the plan is proved, and where it is not, why."""
    if outcome.explained:
        return "confirmed", ""
    if outcome.first.other and not outcome.region_map.changed:
        return "unstable", first_in_words(outcome.first)
    reason = _why_not(outcome)
    if changed := outcome.region_map.changed:
        return "unstable", f"identical calls give other bits in {changed} element{'s' * (changed != 1)}; {reason}"
    return "inferred", reason


def _why_not(outcome: ProductOutcome) -> str:
    if outcome.stopped:
        return outcome.stopped
    for found in outcome.found:
        if found.plan is None or found.wrong:
            far = ["the nearest plan is too far off to be suggested"] if found.is_far_off else []
            fresh = [_of_fresh(outcome.proof)] if found.wrong and outcome.proof.wrong else []
            return "; ".join([f"{found.region}: {found.reason}", *fresh, *far])
    if (outcome.contradicting or outcome.proof.wrong) and _only_subnormal(outcome):
        compared = f"{outcome.checked:,} kept results and {outcome.proof.wrong:,} of {outcome.proof.elements:,} fresh ones"
        differ = f"{outcome.contradicting:,} of {compared} differ"
        return f"{differ}, and all of these are subnormal: only subnormal results are in doubt"
    if outcome.contradicting and outcome.fits_in_range and not outcome.proof.wrong:
        told = sorted({words for found in outcome.found for words in found.on_overflow})
        return f"of sums beyond the range of {outcome.spec.out}: {' and '.join(told)}"
    if outcome.contradicting:
        return f"{outcome.contradicting} of {outcome.checked} answers that were kept have no explanation"
    if outcome.proof.wrong:
        return _of_fresh(outcome.proof)
    left = [str(region) for region in outcome.region_map.regions if all(region is not found.region for found in outcome.found)]
    return f"not computed as the others, and not asked on their own: {'; '.join(left[:3])}"


def _of_fresh(proof: Proof) -> str:
    """How many fresh elements differ, by operand distribution."""
    kinds = (f"{kind} {proof.wrong_kinds.get(kind, 0):,} of {count:,}" for kind, count in proof.kinds.items())
    return f"{proof.wrong} of {proof.elements} fresh elements differ from what the plan gives ({', '.join(kinds)})"


def findings(outcome: ProductOutcome, found: RegionOutcome | None = None) -> dict[str, Finding]:
    """By name; of a region, or of the largest."""
    found = found or outcome.main
    told = dict(_every(outcome, found))
    for name in dict.fromkeys(alternative.respect for alternative in found.surviving if not found.is_far_off):
        if name == "slice_sizes" and name not in told:  # borders of promoted parts, or of lanes
            which = "order" if told["promote_every"].value is None else "promote_every"
            told[which] = replace(told[which], bound="undetermined")
            continue
        finding = told.get(name) or Finding(_value(name, found.plan))
        left = dict.fromkeys(
            (*finding.candidates, finding.value, *(_value(name, alternative.plan) for alternative in _survived(found, name)))
        )
        told[name] = Finding(finding.value, "undetermined", tuple(left), finding.note)
    if not is_proved(outcome, found):
        in_doubt = set(told) - set(OBSERVED)
    else:
        in_doubt = {"subnormal_operands", "subnormal_results"} if found.subnormal or outcome.proof.subnormal else set()
    return {name: replace(finding, bound="suggested") if name in in_doubt else finding for name, finding in told.items()}


def _only_subnormal(outcome: ProductOutcome) -> bool:
    """Whether both words of every mismatch are subnormal."""
    kept = all(found.fits_in_range and not found.overflowed for found in outcome.found)
    return kept and outcome.proof.wrong == outcome.proof.subnormal


def is_proved(outcome: ProductOutcome, found: RegionOutcome) -> bool:
    """Whether only subnormal results of a region contradict its plan. Other regions do not count."""
    if outcome.explained:
        return True
    proof = outcome.proof
    verified = proof.elements > 0 and proof.wrong == proof.subnormal and not outcome.stopped
    return status(outcome)[0] == "inferred" and found.fits_in_range and not found.overflowed and verified


def _survived(found: RegionOutcome, name: str) -> Iterator[AlternativePlan]:
    return (alternative for alternative in found.surviving if alternative.respect == name)


def _value(name: str, plan: ProductPlan | None) -> Value:
    """A finding's value in another plan; also of what is no finding where it is certain, or where there are no slices."""
    assert plan is not None
    told = dict(of_plan(plan))
    if name in told:
        return told[name].value
    if name in BETWEEN_SLICES:
        return plan.added_in.name if name == "partial_format" else None
    value: Value = getattr(plan.step.root.arithmetic, name)
    return value


BETWEEN_SLICES = ("partial_format", "reduction_order", "slice_sizes", "promotion_rounding")
"""Findings that only a product of several slices, or chunks, has."""

OBSERVED = ("each_product_once", "repeatable", "first_calls", "depends_on", "same_everywhere")
"""Findings that need no plan: what was seen is so."""


def _every(outcome: ProductOutcome, found: RegionOutcome) -> Iterator[tuple[str, Finding]]:
    if found.mispaired:
        yield "each_product_once", Finding("no", note=found.mispaired)
    elif found.multiplicity.size:
        yield "each_product_once", _once(found.multiplicity)
    yield from _repeated(outcome)
    if outcome.depends is not None:
        yield "depends_on", Finding(outcome.depends.value, note=outcome.depends.note)
    yield "same_everywhere", _everywhere(outcome)
    if found.plan is not None and not found.is_far_off:
        yield from of_plan(found.plan)
        if found.plan.scales is not None:
            way = scaling_in_words(found.plan.scales)
            left = (way, *found.scales_left) if found.scales_left else ()
            yield "scales", Finding(way, "undetermined" if left else "exact", left, found.misplaced)
    elif found.tree is not None:
        yield from _of_tree(outcome.spec, found.tree)


def _of_tree(spec: Spec, tree: FusedGroups | Reduction) -> Iterator[tuple[str, Finding]]:
    """The order alone, before the bits of its sums are known. Any step of that width shows it."""
    products = width(tree)
    plan = ProductPlan(spec, tree, one_sum(HOPPER, products))
    known = dict(_of_the_order(plan))
    yield "order", Finding(order_in_words(plan))
    yield "products_per_sum", Finding(products)
    yield from ((name, known[name]) for name in ("promote_every", "split_k", "slice_sizes") if name in known)


def _repeated(outcome: ProductOutcome) -> Iterator[tuple[str, Finding]]:
    """Whether identical calls give the same bits: any, and the first ones."""
    changed, first = outcome.region_map.changed, outcome.first
    if changed:
        note = f"{changed} element{'s' * (changed != 1)} changed, {outcome.region_map.values} values"
        yield "repeatable", Finding("no", note=note)
    elif first.other:
        yield "repeatable", Finding("no", note=first_in_words(first))
        yield "first_calls", Finding("other bits", note=first_in_words(first))
    else:
        yield "repeatable", Finding("yes", note=f"in {REPEATS} calls each of {PRODUCTS_REPEATED} products")
        yield "first_calls", Finding("same bits", note=f"{first.calls} calls at the beginning, 1 at the end")


def first_in_words(first: FirstCalls) -> str:
    """ "the first 3 calls give other bits: 512 of 1,024 outputs"."""
    calls = "call gives" if first.other == 1 else f"{first.other} calls give"
    return f"the first {calls} other bits than later ones: {first.elements:,} of {first.call.d.size:,} outputs"


def _once(once: Ints) -> Finding:
    wrong = np.flatnonzero(once != 1)
    if not len(wrong):
        return Finding("yes", note=f"{len(once)} of {len(once)}")
    return Finding("no", note="; ".join(f"{len(ks)} {what}: k = {ranges(ks)}" for what, ks in miscounts(once)))


def miscounts(once: Ints) -> Iterator[tuple[str, Ints]]:
    """Which k are not counted once, and what is wrong with them."""
    for what, there in (("missing", once == 0), ("counted more than once", once > 1), ("subtracted", once < 0)):
        if there.any():
            yield what, np.flatnonzero(there)


def _everywhere(outcome: ProductOutcome) -> Finding:
    regions = outcome.region_map.regions
    if len(regions) == 1:
        return Finding("yes", note=f"all {regions[0].elements} elements")
    shown = "; ".join(f"{region.elements} at {region}" for region in regions[:4])
    return Finding("no", note=f"{len(regions)} plans: {shown}{'; …' if len(regions) > 4 else ''}")


def of_plan(plan: ProductPlan) -> Iterator[tuple[str, Finding]]:
    """What a plan is, whether it is proved or not."""
    arithmetic = plan.step.root.arithmetic
    every = members(plan)
    note = name_members(every) if len(every) > 1 else ""
    yield "order", Finding("any") if plan.spec.a.is_integer else Finding(order_in_words(plan), note=note)
    yield "products_per_sum", Finding(plan.step.products)
    if isinstance(arithmetic, FloatArithmetic):
        bits = arithmetic.alignment_bits
        kept = arithmetic.result_bits if bits is None else min(bits, arithmetic.result_bits)
        yield "effective_bits", Finding(kept)
        yield "alignment_bits", Finding(bits)
        yield "result_bits", Finding(arithmetic.result_bits)
        yield "sum_rounding", Finding(arithmetic.result_rounding)
        if (rounded := _product_bits(plan.step)) is not None:
            yield "product_bits", Finding(rounded)
        if plan.spec.a_exponent is None:
            yield "subnormal_operands", Finding(plan.step.subnormal_operands)
        if asks_subnormals(plan.spec):
            yield "subnormal_results", Finding(subnormal_results(plan))
    if plan.spec.rounds_operands:
        yield "operand_rounding", Finding(plan.operand_rounding)
    names = instructions_of(plan.spec.a, plan.spec.b, plan.step)
    yield "instruction", Finding(names[0] if names else None, note=f"and {len(names) - 1} others" if len(names) > 1 else "")
    yield from _of_the_order(plan)
    if plan.spec.out.is_float:
        yield "result_rounding", Finding(plan.result_rounding, note=f"to {plan.spec.out}")


def _product_bits(step: DotModel) -> int | None:
    """Bits that each product is rounded to, by its sum or as a sum of its own; None where it is not."""
    root = step.root
    rounding = root.arithmetic if root.products else root.children[0].arithmetic
    if not isinstance(rounding, FloatArithmetic):
        return None
    return rounding.product_bits if root.products else rounding.result_bits


def _of_the_order(plan: ProductPlan) -> Iterator[tuple[str, Finding]]:
    every = members(plan)
    structure, shared = every[0], shared_products(every[0])
    promoted = structure.promote_every
    yield "promote_every", _of_class(every, "promote_every", shared if promoted else "")
    if promoted is not None:
        yield "promotion_format", Finding(plan.added_in.name)
        yield "promotion_rounding", Finding(plan.sum_rounding)
    yield "split_k", _of_class(every, "split_k")
    if structure.split_k > 1:
        yield "slice_sizes", _of_class(every, "slice_sizes", shared)
    if len(structure.slices) > 1:
        yield "partial_format", Finding(str(plan.kept or plan.added_in))
        named = [structure, *(x for x in every[1:] if (x.reduction_order or "").isalpha())]
        yield "reduction_order", _of_class(named, "reduction_order")


def _of_class(every: Sequence[Structure], name: str, note: str = "") -> Finding:
    """A finding of the canonical structure: exact where all members of the class have its value."""
    left = tuple(dict.fromkeys(getattr(each, name) for each in every))
    return Finding(left[0], "equivalent", left, note) if len(left) > 1 else Finding(left[0], note=note)
