"""The findings of a callable by name, its status, and its row of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accprobe.gemm.checks.regions import PRODUCTS_REPEATED, REPEATS, ranges
from accprobe.gemm.checks.repeatability import FirstCalls
from accprobe.gemm.layout import Ints, shows_subnormals
from accprobe.gemm.outcome import ProductOutcome, RegionOutcome
from accprobe.gemm.plans import AlternativePlan, ProductPlan, subnormal_results
from accprobe.gemm.scaling import scaling_in_words
from accprobe.gemm.spec import Spec
from accprobe.gemm.steps import HOPPER, instructions_of, one_sum
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction, width
from accprobe.gemm.tree.structures import Structure, members, name_members, order_in_words, shared_products
from accprobe.gemm.verification import PlanVerification
from accprobe.infer.findings import Finding
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.products import KernelRecord, ProductAlternatives, ProductRow, ProductVerification, RegionRecord
from accprobe.report.rows import Status

# Findings that only a product of several slices, or chunks, has.
BETWEEN_SLICES = ("partial_format", "reduction_order", "slice_sizes", "promotion_rounding")

# Findings that were observed directly and need no plan.
OBSERVED = ("each_product_once", "repeatable", "first_calls", "depends_on", "same_everywhere")


def row(
    outcome: ProductOutcome,
    callable_: str,
    options: Mapping[str, Any] | None = None,
    kernels: tuple[KernelRecord, ...] = (),
    libraries: Mapping[str, str] | None = None,
    seconds: float | None = None,
    probed_part: str = "",
    device: str = "",
) -> ProductRow:
    """Return the row of a report. callable_, options: as on the command line; others: see `ProductRow`."""
    spec, (state, reason) = outcome.spec, status(outcome)
    verification = outcome.verification
    sparse = next((found.counterexample for found in outcome.found if found.counterexample), "")
    fresh = verification.first[0].in_words(spec.out) if verification.first else ""
    return ProductRow(
        callable=callable_,
        options=dict(options or {}),
        probed_part=probed_part,
        m=spec.m,
        n=spec.n,
        k=spec.k,
        a=spec.a.name,
        b=spec.b.name,
        out=spec.out.name,
        scale=spec.scale,
        status=state,
        reason=reason,
        regions=tuple(_region(outcome, found) for found in outcome.found),
        verification=ProductVerification(
            elements=verification.elements,
            mismatches=verification.mismatches,
            seed=outcome.seed,
            kinds=verification.kinds,
            results=outcome.checked,
            contradicting=outcome.contradicting,
            counterexample=sparse or fresh,
        ),
        kernels=kernels,
        libraries=dict(libraries or {}),
        calls=outcome.calls,
        seconds=seconds,
        device=device,
    )


def _region(outcome: ProductOutcome, found: RegionOutcome) -> RegionRecord:
    surviving = tuple(f"{alternative.property}: {alternative.how}" for alternative in found.surviving)
    return RegionRecord(
        where=str(found.region),
        elements=found.region.elements,
        findings=findings(outcome, found),
        model=None if found.is_far_off else found.model,
        alternatives=ProductAlternatives(tested=found.alternatives, surviving=surviving)
        if found.plan and not found.is_far_off
        else None,
        chains=found.coverage.chains if found.coverage else 0,
        chains_probed=found.coverage.reached if found.coverage else 0,
    )


def status(outcome: ProductOutcome) -> tuple[Status, str]:
    """Return the status, and the reason if it is not "confirmed"."""
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
    verification = outcome.verification
    for found in outcome.found:
        if found.plan is None or found.mismatches:
            far = ["the nearest plan is too far off to be suggested"] if found.is_far_off else []
            fresh = [_fresh_mismatches(verification)] if found.mismatches and verification.mismatches else []
            return "; ".join([f"{found.region}: {found.reason}", *fresh, *far])
    if (outcome.contradicting or verification.mismatches) and _only_subnormal(outcome):
        compared = f"{verification.mismatches:,} of {verification.elements:,} fresh ones"
        differ = f"{outcome.contradicting:,} of {outcome.checked:,} kept results and {compared} differ"
        return f"{differ}, and all of these are subnormal: only subnormal results are in doubt"
    if outcome.contradicting and outcome.fits_in_range and not verification.mismatches:
        overflow = sorted({words for found in outcome.found for words in found.overflow})
        return f"sums beyond the range of {outcome.spec.out} give {' and '.join(overflow)}"
    if outcome.contradicting:
        return f"{outcome.contradicting} of {outcome.checked} kept results contradict the plan"
    if verification.mismatches:
        return _fresh_mismatches(verification)
    rest = [str(region) for region in outcome.region_map.regions if all(region is not found.region for found in outcome.found)]
    return f"elements with other bits than the rest were not probed: {'; '.join(rest[:3])}"


def _fresh_mismatches(verification: PlanVerification) -> str:
    """Return the mismatches of fresh operands by operand distribution."""
    kinds = (f"{kind} {verification.mismatches_of.get(kind, 0):,} of {count:,}" for kind, count in verification.kinds.items())
    differ = f"{verification.mismatches} of {verification.elements} fresh elements"
    return f"{differ} differ from the plan ({', '.join(kinds)})"


def findings(outcome: ProductOutcome, found: RegionOutcome | None = None) -> dict[str, Finding]:
    """Return the findings of a region (None: the largest) by name."""
    found = found or outcome.main
    named = dict(_findings(outcome, found))
    for name in dict.fromkeys(alternative.property for alternative in found.surviving if not found.is_far_off):
        if name == "slice_sizes" and name not in named:  # borders of promoted parts, or of lanes
            which = "order" if named["promote_every"].value is None else "promote_every"
            named[which] = replace(named[which], bound="undetermined")
            continue
        finding = named.get(name) or Finding(_value(name, found.plan))
        others = (_value(name, alternative.plan) for alternative in _surviving(found, name))
        candidates = tuple(dict.fromkeys((*finding.candidates, finding.value, *others)))
        named[name] = Finding(finding.value, "undetermined", candidates, finding.note)
    if not is_verified(outcome, found):
        in_doubt = set(named) - set(OBSERVED)
    else:
        subnormal = found.subnormal or outcome.verification.subnormal
        in_doubt = {"subnormal_operands", "subnormal_results"} if subnormal else set()
    return {name: replace(finding, bound="suggested") if name in in_doubt else finding for name, finding in named.items()}


def _only_subnormal(outcome: ProductOutcome) -> bool:
    """Return whether both words of every mismatch are subnormal."""
    kept = all(found.fits_in_range and not found.overflowed for found in outcome.found)
    return kept and outcome.verification.mismatches == outcome.verification.subnormal


def is_verified(outcome: ProductOutcome, found: RegionOutcome) -> bool:
    """Return whether at most subnormal results of this region contradict its plan. Other regions do not matter."""
    if outcome.explained:
        return True
    done = outcome.verification
    verified = done.elements > 0 and done.mismatches == done.subnormal and not outcome.stopped
    return status(outcome)[0] == "inferred" and found.fits_in_range and not found.overflowed and verified


def _surviving(found: RegionOutcome, name: str) -> Iterator[AlternativePlan]:
    return (alternative for alternative in found.surviving if alternative.property == name)


def _value(name: str, plan: ProductPlan | None) -> Value:
    """Return a finding's value in another plan, also of a field that is no finding, or if the plan has no slices."""
    assert plan is not None
    named = dict(plan_findings(plan))
    if name in named:
        return named[name].value
    if name in BETWEEN_SLICES:
        return plan.added_in.name if name == "partial_format" else None
    value: Value = getattr(plan.step.root.arithmetic, name)
    return value


def _findings(outcome: ProductOutcome, found: RegionOutcome) -> Iterator[tuple[str, Finding]]:
    if found.mispaired:
        yield "each_product_once", Finding("no", note=found.mispaired)
    elif found.multiplicity.size:
        yield "each_product_once", _each_once(found.multiplicity)
    yield from _repeated(outcome)
    if outcome.depends is not None:
        yield "depends_on", Finding(outcome.depends.value, note=outcome.depends.note)
    yield "same_everywhere", _everywhere(outcome)
    if found.plan is not None and not found.is_far_off:
        yield from plan_findings(found.plan)
        if found.plan.scales is not None:
            way = scaling_in_words(found.plan.scales)
            candidates = (way, *found.other_scalings) if found.other_scalings else ()
            yield "scales", Finding(way, "undetermined" if candidates else "exact", candidates, found.misplaced)
    elif found.tree is not None:
        yield from _tree_findings(outcome.spec, found.tree)


def _tree_findings(spec: Spec, tree: FusedGroups | Reduction) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of the order alone, before the bits of its sums are known. Any step of that width shows it."""
    products = width(tree)
    plan = ProductPlan(spec, tree, one_sum(HOPPER, products))
    known = dict(_order_findings(plan))
    yield "order", Finding(order_in_words(plan))
    yield "products_per_sum", Finding(products)
    yield from ((name, known[name]) for name in ("promote_every", "split_k", "slice_sizes") if name in known)


def _repeated(outcome: ProductOutcome) -> Iterator[tuple[str, Finding]]:
    """Yield whether identical calls give the same bits, at any time and at the start."""
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
    """Return "the first 3 calls give other bits than later ones: 512 of 1,024 outputs"."""
    calls = "call gives" if first.other == 1 else f"{first.other} calls give"
    return f"the first {calls} other bits than later ones: {first.elements:,} of {first.call.d.size:,} outputs"


def _each_once(multiplicity: Ints) -> Finding:
    wrong = np.flatnonzero(multiplicity != 1)
    if not len(wrong):
        return Finding("yes", note=f"{len(multiplicity)} of {len(multiplicity)}")
    return Finding("no", note="; ".join(f"{len(ks)} {what}: k = {ranges(ks)}" for what, ks in miscounts(multiplicity)))


def miscounts(multiplicity: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield the k that are not counted once, by what is wrong with them."""
    for what, there in (
        ("missing", multiplicity == 0),
        ("counted more than once", multiplicity > 1),
        ("subtracted", multiplicity < 0),
    ):
        if there.any():
            yield what, np.flatnonzero(there)


def _everywhere(outcome: ProductOutcome) -> Finding:
    regions = outcome.region_map.regions
    if len(regions) == 1:
        return Finding("yes", note=f"all {regions[0].elements} elements")
    shown = "; ".join(f"{region.elements} at {region}" for region in regions[:4])
    return Finding("no", note=f"{len(regions)} plans: {shown}{'; …' if len(regions) > 4 else ''}")


def plan_findings(plan: ProductPlan) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of a plan, verified or not."""
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
        if shows_subnormals(plan.spec):
            yield "subnormal_results", Finding(subnormal_results(plan))
    if plan.spec.rounds_operands:
        yield "operand_rounding", Finding(plan.operand_rounding)
    names = instructions_of(plan.spec.a, plan.spec.b, plan.step)
    yield "instruction", Finding(names[0] if names else None, note=f"and {len(names) - 1} others" if len(names) > 1 else "")
    yield from _order_findings(plan)
    if plan.spec.out.is_float:
        yield "result_rounding", Finding(plan.result_rounding, note=f"to {plan.spec.out}")


def _product_bits(step: DotModel) -> int | None:
    """Return the bits to which each product is rounded before or by its sum; None if it is not."""
    root = step.root
    rounding = root.arithmetic if root.products else root.children[0].arithmetic
    if not isinstance(rounding, FloatArithmetic):
        return None
    return rounding.product_bits if root.products else rounding.result_bits


def _order_findings(plan: ProductPlan) -> Iterator[tuple[str, Finding]]:
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
    """Return a finding of the canonical structure: exact if all members of the class have its value."""
    values = tuple(dict.fromkeys(getattr(each, name) for each in every))
    return Finding(values[0], "equivalent", values, note) if len(values) > 1 else Finding(values[0], note=note)
