"""The outcome of a characterisation: of each region of D and of the callable; its findings by name, status and row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from accprobe.callables.operands import Ints, shows_subnormals
from accprobe.callables.spec import Spec
from accprobe.gemm.checks.contract import Dependence
from accprobe.gemm.checks.regions import PRODUCTS_REPEATED, REPEATS, FirstCalls, Region, ranges
from accprobe.gemm.fit import KeptResults
from accprobe.gemm.plans import AlternativePlan, added_in, additions_of, instructions_of, subnormal_results
from accprobe.gemm.scaling import scaling_in_words
from accprobe.gemm.tree.structures import Structure, members, name_members, order_in_words, shared_products
from accprobe.gemm.verification import PlanVerification
from accprobe.model.product import ProductModel
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.records.claims import Alternatives, Status
from accprobe.records.findings import Finding
from accprobe.records.products import CompositeRecord, ProductRow, RegionRecord
from accprobe.records.verification import Verification

# A plan is not shown if more than one of so many results of sparse probes contradicts it (`SparseDots`: nonzero at only a few
# k).
FAR_OFF = 10


@dataclass
class RegionOutcome:
    """The findings of one region.

    multiplicity: how often each k is counted, empty if not known yet; mispaired: which other products are added. order: a plan
    of the tree as last measured, whose arithmetic is not known. plan: None if none was found; `reason` says why. mismatches:
    results of sparse probes that contradict the plan, of `results`; counterexample: up to three of them. kept: the comparison
    with the results of earlier calls, which were kept for it. overflow: results beyond the range of D that differ from the
    plan's, such as "NaN for -Inf": NaN where the plan gives -Inf. alternatives: how many were tested; surviving: those that no
    result contradicts. other_scalings: other ways to scale that explain everything; misplaced: which block has the scales of
    another one, "" if none does. chains: how many the plan has; chains_reached: how many of them probes reached. compared: the
    plan that was last compared with the kept results, and the number of their calls.
    """

    region: Region
    multiplicity: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    reason: str = ""
    mispaired: str = ""
    order: ProductModel | None = None
    plan: ProductModel | None = None
    counterexample: str = ""
    mismatches: int = 0
    results: int = 0
    kept: KeptResults = field(default_factory=KeptResults)
    overflow: tuple[str, ...] = ()
    alternatives: int = 0
    surviving: list[AlternativePlan] = field(default_factory=list)
    other_scalings: tuple[str, ...] = ()
    misplaced: str = ""
    chains: int = 0
    chains_reached: int = 0
    compared: tuple[ProductModel, int] | None = None

    @property
    def is_far_off(self) -> bool:
        """Return whether so many results contradict the plan that it suggests nothing."""
        return self.mismatches * FAR_OFF > self.results

    @property
    def fits_in_range(self) -> bool:
        """Return whether the plan explains all sparse probes, and all kept results in the normal range of D."""
        return self.plan is not None and not self.mismatches and self.kept.only_range_errors


@dataclass
class ProductOutcome:
    """The findings of a callable for one shape.

    regions: the largest first. first: identical calls at the start of the run. depends: what an output depends on, None if
    results change or it is unknown. calls, elements: probed in all. stopped: why the run ended early or
    found no way to compute the epilogue, "" if neither. epilogue: its finding, None without one.
    """

    spec: Spec
    regions: tuple[Region, ...]
    first: FirstCalls
    depends: Dependence | None
    found: list[RegionOutcome] = field(default_factory=list)
    verification: PlanVerification = field(default_factory=PlanVerification)
    calls: int = 0
    elements: int = 0
    seed: int = 0
    stopped: str = ""
    epilogue: Finding | None = None

    @property
    def main(self) -> RegionOutcome:
        return self.found[0]

    @property
    def kept(self) -> KeptResults:
        """Return the comparison with the kept results of all regions."""
        return KeptResults(*map(sum, zip(*(found.kept for found in self.found), strict=True)))

    @property
    def explained(self) -> bool:
        """Return whether every element of D has a plan that no result contradicts, from the first call on."""
        return not self.first.other and not not_explained(self)


# Findings that only a product of several slices, or chunks, has.
BETWEEN_SLICES = ("partial_format", "reduction_order", "slice_sizes", "promotion_rounding")
# Findings that were observed directly and need no plan.
OBSERVED = ("each_product_once", "repeatable", "first_calls", "depends_on", "same_everywhere")


def row(
    outcome: ProductOutcome,
    callable_: str,
    options: Mapping[str, Any] | None = None,
    composite: CompositeRecord | None = None,
) -> ProductRow:
    """Return the row of a report. callable_, options: as on the command line."""
    spec, (state, reason), verification = outcome.spec, status(outcome), outcome.verification
    sparse = next((found.counterexample for found in outcome.found if found.counterexample), "")
    return ProductRow(
        name=callable_,
        options=dict(options or {}),
        composite=composite,
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
        verification=Verification(
            compared=verification.elements,
            mismatches=verification.mismatches,
            seed=outcome.seed,
            kinds=verification.kinds,
            results=outcome.kept.results,
            contradicting=outcome.kept.contradicting,
            mismatch=sparse or (verification.first[0].in_words(spec.out) if verification.first else ""),
        ),
        calls=outcome.calls,
    )


def _region(outcome: ProductOutcome, found: RegionOutcome) -> RegionRecord:
    surviving = tuple(f"{alternative.property}: {alternative.how}" for alternative in found.surviving)
    return RegionRecord(
        where=found.region.where,
        elements=found.region.elements,
        findings=findings(outcome, found),
        model=None if found.is_far_off else found.plan,
        alternatives=Alternatives(tested=found.alternatives, surviving=surviving)
        if found.plan and not found.is_far_off
        else None,
        chains=found.chains,
        chains_probed=found.chains_reached,
    )


def status(outcome: ProductOutcome) -> tuple[Status, str]:
    """Return the status, and the reason if it is not "confirmed"."""
    reason, changed = not_explained(outcome), outcome.first.changed
    if outcome.first.other and not changed:
        return "unstable", first_in_words(outcome.first)
    if changed and (reason or outcome.first.other):
        words = f"identical calls give other bits in {changed:,} of {outcome.spec.m * outcome.spec.n:,} elements"
        return "unstable", f"{words}; {reason}" if reason else words
    return ("inferred", reason) if reason else ("confirmed", "")


def not_explained(outcome: ProductOutcome) -> str:
    """Return why the plans do not explain every element of D, "" if they do."""
    if outcome.stopped:
        return outcome.stopped
    verification, kept = outcome.verification, outcome.kept
    contradict = f"{kept.contradicting:,} of {kept.results:,} kept results"
    for found in outcome.found:
        if found.plan is None or found.mismatches:
            far = ["the nearest plan is too far off to be suggested"] if found.is_far_off else []
            fresh = [_fresh_mismatches(verification)] if found.mismatches and verification.mismatches else []
            where = "" if found.region.changing else f"{found.region}: "  # the whole result: more than what changes
            return "; ".join([f"{where}{found.reason}", *fresh, *far])
    in_range = all(found.fits_in_range and not found.kept.overflowed for found in outcome.found)
    if (kept.contradicting or verification.mismatches) and in_range and verification.mismatches == verification.subnormal:
        compared = f"{verification.mismatches:,} of {verification.elements:,} fresh ones"
        return f"{contradict} and {compared} differ, and all of these are subnormal: only subnormal results are in doubt"
    if kept.contradicting and kept.only_range_errors and not verification.mismatches:
        overflow = sorted({words for found in outcome.found for words in found.overflow})
        beyond = f"beyond the range of {outcome.spec.out}"
        if not overflow:
            return f"{contradict} contradict the plan, all {beyond}"
        return f"sums {beyond} give {' and '.join(overflow)}"
    if kept.contradicting:
        return f"{contradict} contradict the plan"
    if verification.mismatches:
        return _fresh_mismatches(verification)
    if sum(found.region.elements for found in outcome.found) < outcome.spec.m * outcome.spec.n:
        probed = [found.region for found in outcome.found]
        rest = [str(region) for region in outcome.regions if all(region is not each for each in probed)]
        return f"elements with other bits than the rest were not probed: {'; '.join(rest[:3])}"
    return "" if verification.elements else "nothing was verified"


def _fresh_mismatches(verification: PlanVerification) -> str:
    """Return the mismatches of fresh operands by operand distribution."""
    kinds = (f"{kind} {verification.mismatches_of.get(kind, 0):,} of {count:,}" for kind, count in verification.kinds.items())
    differ = f"{verification.mismatches:,} of {verification.elements:,} fresh elements"
    return f"{differ} differ from the plan ({', '.join(kinds)})"


def findings(outcome: ProductOutcome, found: RegionOutcome | None = None) -> dict[str, Finding]:
    """Return the findings of a region (None: the largest) by name."""
    found = found or outcome.main
    named = dict(_findings(outcome, found))
    surviving = [] if found.is_far_off else [(x.property, x.plan) for x in found.surviving]
    surviving += [("effective_bits", plan) for name, plan in surviving if name in ("alignment_bits", "result_bits")]
    for name in dict.fromkeys(name for name, _ in surviving):
        if name == "slice_sizes" and name not in named:  # one slice: the other sizes are of its promoted parts or its lanes
            which = "order" if named["promote_every"].value is None else "promote_every"
            named[which] = replace(named[which], bound="undetermined")
            continue
        finding = named.get(name) or Finding(_value(name, outcome.spec, found.plan))
        others = (_value(name, outcome.spec, plan) for of, plan in surviving if of == name)
        candidates = tuple(dict.fromkeys((*finding.candidates, finding.value, *others)))
        if name == "effective_bits" and len(candidates) == 1:
            continue
        named[name] = Finding(finding.value, "undetermined", candidates, finding.note)
    if not _is_verified(outcome, found):
        in_doubt = set(named) - set(OBSERVED)
    else:
        subnormal = found.kept.subnormal or outcome.verification.subnormal
        in_doubt = {"subnormal_operands", "subnormal_results"} if subnormal else set()
    return {name: replace(finding, bound="suggested") if name in in_doubt else finding for name, finding in named.items()}


def _is_verified(outcome: ProductOutcome, found: RegionOutcome) -> bool:
    """Return whether only subnormal results contradict the plan of this region.

    Sparse probes and kept results of other regions do not matter. Mismatches of fresh operands do, in any region: they are
    counted for all regions together.
    """
    done = outcome.verification
    verified = done.elements > 0 and done.mismatches == done.subnormal and not outcome.stopped
    in_range = found.fits_in_range and not found.kept.overflowed
    return outcome.explained or (status(outcome)[0] == "inferred" and in_range and verified)


def _value(name: str, spec: Spec, plan: ProductModel | None) -> Value:
    """Return the value that `plan` gives to a finding. If it has no such finding, return that field of its arithmetic.

    A plan of one slice has no value between slices: None.
    """
    assert plan is not None
    named = dict(plan_findings(spec, plan))
    if name in named:
        return named[name].value
    if name in BETWEEN_SLICES:
        return added_in(plan.step).name if name == "partial_format" else None
    value: Value = getattr(plan.step.root.arithmetic, name)
    return value


def _findings(outcome: ProductOutcome, found: RegionOutcome) -> Iterator[tuple[str, Finding]]:
    if found.mispaired:
        yield "each_product_once", Finding("no", note=found.mispaired)
    elif found.multiplicity.size:
        wrong = "; ".join(f"{len(ks)} {what}: k = {ranges(ks)}" for what, ks in miscounts(found.multiplicity))
        every = f"{len(found.multiplicity)} of {len(found.multiplicity)}"
        yield "each_product_once", Finding("no", note=wrong) if wrong else Finding("yes", note=every)
    yield from _repeated(outcome)
    if outcome.depends is not None:
        yield "depends_on", Finding(outcome.depends.value, note=outcome.depends.note)
    yield "same_everywhere", _everywhere(outcome)
    if outcome.epilogue is not None:
        yield "epilogue", outcome.epilogue
    if found.plan is not None and not found.is_far_off:
        yield from plan_findings(outcome.spec, found.plan)
        if found.plan.scales is not None:
            way = scaling_in_words(found.plan.scales)
            candidates = (way, *found.other_scalings) if found.other_scalings else ()
            yield "scales", Finding(way, "undetermined" if candidates else "exact", candidates, found.misplaced)
    elif found.order is not None and not found.is_far_off:
        known = dict(_order_findings(found.order))  # the bits of the sums are not known
        yield "order", Finding(order_in_words(found.order))
        yield "products_per_sum", Finding(found.order.step.products)
        yield from ((name, known[name]) for name in ("promote_every", "split_k", "slice_sizes") if name in known)


def _repeated(outcome: ProductOutcome) -> Iterator[tuple[str, Finding]]:
    """Yield whether identical calls give the same bits, at any time and at the start."""
    first = outcome.first
    if first.changed:
        note = f"{first.changed} element{'s' * (first.changed != 1)} changed, {first.values} values"
        yield "repeatable", Finding("no", note=note)
    elif first.other:
        yield "repeatable", Finding("no", note=first_in_words(first))
        yield "first_calls", Finding("other bits", note=first_in_words(first))
    else:
        yield "repeatable", Finding("yes", note=f"{PRODUCTS_REPEATED} pairs of operands, {REPEATS} calls each")
        yield "first_calls", Finding("same bits", note=f"{first.calls} calls at the beginning, 1 at the end")


def first_in_words(first: FirstCalls) -> str:
    """Return "the first 3 calls give other bits than later ones: 512 of 1,024 outputs"."""
    calls = "call gives" if first.other == 1 else f"{first.other} calls give"
    return f"the first {calls} other bits than later ones: {first.elements:,} of {first.call.d.size:,} outputs"


def miscounts(multiplicity: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield the k that are not counted once, by what is wrong with them."""
    wrong = {"missing": multiplicity == 0, "counted more than once": multiplicity > 1, "subtracted": multiplicity < 0}
    yield from ((what, np.flatnonzero(there)) for what, there in wrong.items() if there.any())


def _everywhere(outcome: ProductOutcome) -> Finding:
    regions = outcome.regions
    if len(regions) == 1:
        return Finding("yes", note=f"all {regions[0].elements} elements")
    shown = "; ".join(f"{region.elements} at {region}" for region in regions[:4])
    return Finding("no", note=f"{len(regions)} plans: {shown}{'; …' if len(regions) > 4 else ''}")


def plan_findings(spec: Spec, plan: ProductModel) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of a plan, verified or not."""
    arithmetic = plan.step.root.arithmetic
    every = members(plan)
    note = name_members(every) if len(every) > 1 else ""
    yield "order", Finding("any") if spec.a.is_integer else Finding(order_in_words(plan), note=note)
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
        if spec.a_exponent is None:
            yield "subnormal_operands", Finding(plan.step.subnormal_operands)
        if shows_subnormals(spec):
            yield "subnormal_results", Finding(subnormal_results(plan))
    if spec.rounds_operands:
        yield "operand_rounding", Finding(plan.operand_rounding)
    names = instructions_of(spec.a, spec.b, plan.step)
    yield "instruction", Finding(names[0] if names else None, note=f"and {len(names) - 1} others" if len(names) > 1 else "")
    yield from _order_findings(plan)
    if spec.out.is_float:
        yield "result_rounding", Finding(plan.result_rounding, note=f"to {spec.out}")


def _product_bits(step: DotModel) -> int | None:
    """Return the bits to which each product is rounded before it is added; None if it is not."""
    rounding = None if step.root.products else step.root.children[0].arithmetic
    return rounding.result_bits if isinstance(rounding, FloatArithmetic) else None


def _order_findings(plan: ProductModel) -> Iterator[tuple[str, Finding]]:
    every, how = members(plan), additions_of(plan)
    structure = every[0]
    promoted, overlap = structure.promote_every, shared_products(structure)
    yield "promote_every", _of_structures(every, "promote_every", overlap if promoted else "")
    if promoted is not None:
        yield "promotion_format", Finding(added_in(plan.step).name)
        yield "promotion_rounding", Finding(how.rounding)
    yield "split_k", _of_structures(every, "split_k")
    if structure.split_k > 1:
        yield "slice_sizes", _of_structures(every, "slice_sizes", overlap)
    if len(structure.slices) > 1:
        yield "partial_format", Finding(str(how.kept or added_in(plan.step)))  # those not rounded keep the format of their sums
        # All structures add the same partial sums. An order without a name only describes these additions in more words.
        named = [structure, *(x for x in every[1:] if (x.reduction_order or "").isalpha())]
        yield "reduction_order", _of_structures(named, "reduction_order")


def _of_structures(every: Sequence[Structure], name: str, note: str = "") -> Finding:
    """Return a finding of structures with the same bits for all operands, the canonical one first.

    It is exact if all have the same value, otherwise "equivalent" with every value.
    """
    values = tuple(dict.fromkeys(getattr(each, name) for each in every))
    return Finding(values[0], "equivalent", values, note) if len(values) > 1 else Finding(values[0], note=note)
