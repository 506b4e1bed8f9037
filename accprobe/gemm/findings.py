"""What is told of a callable: findings by name, and the status that its answers give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from accprobe.gemm.again import FirstCalls
from accprobe.gemm.battery import asks_subnormals
from accprobe.gemm.candidates import HOPPER, instructions_of, one_sum
from accprobe.gemm.characterise import ProductOutcome, RegionOutcome
from accprobe.gemm.direction import direction
from accprobe.gemm.pairs import Ints
from accprobe.gemm.parts import Groups, Merging, width
from accprobe.gemm.plans import ProductPlan, named_order, subnormal_results
from accprobe.gemm.regions import PRODUCTS_REPEATED, REPEATS, ranges
from accprobe.gemm.rivals import RivalPlan
from accprobe.gemm.scaling import scaling_in_words
from accprobe.gemm.slices import KSlice, chunks, is_even, k_slice, sizes, slice_readings
from accprobe.gemm.spec import Spec
from accprobe.infer.findings import Finding
from accprobe.model.record import Value
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.report.rows import Status

PROMOTED, MOST_SLICES = 512, 8
"""Chains of one size that are added up one after the other, in f32, are chunks that are promoted, or slices: the same bits.
They are told as chunks where they have at most so many products or are more than so many, and the note has the other reading.
"""


def status(outcome: ProductOutcome) -> tuple[Status, str]:
    """Whether the plan is proved, and where it is not, why."""
    if outcome.explained:
        return "confirmed", ""
    if outcome.first.other and not outcome.alike.changed:
        return "unstable", first_in_words(outcome.first)
    reason = _why_not(outcome)
    if changed := outcome.alike.changed:
        return "unstable", f"identical calls give other bits in {changed} element{'s' * (changed != 1)}; {reason}"
    return "inferred", reason


def _why_not(outcome: ProductOutcome) -> str:
    if outcome.stopped:
        return outcome.stopped
    for found in outcome.found:
        if found.plan is None or found.wrong:
            return f"{found.region}: {found.reason}"
    if outcome.contradicting and outcome.fits_in_range and not outcome.proof.wrong:
        told = sorted({words for found in outcome.found for words in found.instead})
        return f"of sums beyond the range of {outcome.spec.out}: {' and '.join(told)}"
    if outcome.contradicting:
        return f"{outcome.contradicting} of {outcome.held} answers that were kept have no explanation"
    if outcome.proof.wrong:
        return f"{outcome.proof.wrong} of {outcome.proof.elements} fresh elements differ from what the plan gives"
    left = [str(region) for region in outcome.alike.regions if all(region is not found.region for found in outcome.found)]
    return f"not computed as the others, and not asked on their own: {'; '.join(left[:3])}"


def findings(outcome: ProductOutcome, found: RegionOutcome | None = None) -> dict[str, Finding]:
    """By name; of a region, or of the largest."""
    found = found or outcome.main
    proved = status(outcome)[0] == "confirmed"
    told = dict(_every(outcome, found))
    for name in dict.fromkeys(rival.respect for rival in found.survived):
        if name == "slice_sizes" and told["promote_every"].value is not None and name not in told:  # borders of chunks
            told["promote_every"] = replace(told["promote_every"], bound="undetermined")
            continue
        finding = told.get(name) or Finding(_value(name, found.plan))
        left = dict.fromkeys((*finding.left, finding.value, *(_value(name, rival.plan) for rival in _survived(found, name))))
        told[name] = Finding(finding.value, "undetermined", tuple(left), finding.note)
    proved = status(outcome)[0] == "confirmed"
    return {
        name: finding if proved or name in OBSERVED else replace(finding, bound="suggested") for name, finding in told.items()
    }


def _survived(found: RegionOutcome, name: str) -> Iterator[RivalPlan]:
    return (rival for rival in found.survived if rival.respect == name)


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


BETWEEN_SLICES = ("partial_format", "merge_order", "slice_sizes", "promotion_rounding")
"""Findings that only a product of several slices, or chunks, has."""

OBSERVED = ("each_product_once", "repeatable", "first_calls", "depends_on", "same_everywhere")
"""Findings that need no plan: what was seen is so."""


def _every(outcome: ProductOutcome, found: RegionOutcome) -> Iterator[tuple[str, Finding]]:
    if found.mispaired:
        yield "each_product_once", Finding("no", note=found.mispaired)
    elif found.once.size:
        yield "each_product_once", _once(found.once)
    yield from _repeated(outcome)
    if outcome.depends is not None:
        yield "depends_on", Finding(outcome.depends.value, note=outcome.depends.note)
    yield "same_everywhere", _everywhere(outcome)
    if found.plan is not None:
        yield from of_plan(found.plan)
        if found.plan.scales is not None:
            way = scaling_in_words(found.plan.scales)
            left = (way, *found.scales_left) if found.scales_left else ()
            yield "scales", Finding(way, "undetermined" if left else "exact", left, found.misplaced)
    elif found.tree is not None:
        yield from _of_tree(outcome.spec, found.tree)


def _of_tree(spec: Spec, tree: Groups | Merging) -> Iterator[tuple[str, Finding]]:
    """The order alone, before the bits of its sums are known. Any step of that width shows it."""
    products = width(tree)
    plan = ProductPlan(spec, tree, one_sum(HOPPER, products))
    known = dict(_of_the_order(plan))
    yield "order", Finding(order_in_words(plan))
    yield "products_per_sum", Finding(products)
    yield from ((name, known[name]) for name in ("promote_every", "split_k", "slice_sizes") if name in known)


def _repeated(outcome: ProductOutcome) -> Iterator[tuple[str, Finding]]:
    """Whether identical calls give the same bits: any, and the first ones."""
    changed, first = outcome.alike.changed, outcome.first
    if changed:
        note = f"{changed} element{'s' * (changed != 1)} changed, {outcome.alike.values} values"
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
    regions = outcome.alike.regions
    if len(regions) == 1:
        return Finding("yes", note=f"all {regions[0].elements} elements")
    shown = "; ".join(f"{region.elements} at {region}" for region in regions[:4])
    return Finding("no", note=f"{len(regions)} plans: {shown}{'; …' if len(regions) > 4 else ''}")


def of_plan(plan: ProductPlan) -> Iterator[tuple[str, Finding]]:
    """What a plan is, whether it is proved or not."""
    arithmetic = plan.step.root.arithmetic
    yield "order", Finding("any" if plan.spec.a.is_integer else order_in_words(plan))
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
    slices, merged = levels(plan)
    every, also, twice = promoted_every(slices), _also(plan), _twice(slices)
    yield "promote_every", Finding(every, note="; ".join(filter(None, (also if every else "", twice if every else ""))))
    if every is not None:
        yield "promotion_format", Finding(plan.added_in.name)
        yield "promotion_rounding", Finding(plan.sum_rounding)
    yield "split_k", Finding(len(slices), note="" if every else also)
    if len(slices) > 1:
        yield "slice_sizes", Finding(", ".join(map(str, sizes([each.groups for each in slices]))), note=twice)
        yield "partial_format", Finding(str(plan.kept or plan.added_in))
        serial = plan.running.name != "f32"
        yield "merge_order", Finding("unordered" if plan.unordered else "serial" if serial else merged)


def levels(plan: ProductPlan) -> tuple[list[KSlice], str]:
    """The slices, and the order in which they are merged."""
    tree = plan.tree
    if not isinstance(tree, Merging):
        return [k_slice(tree)], "forward"
    if (whole := _one_slice(plan)) and (max(sizes(whole)) <= PROMOTED or len(whole) > MOST_SLICES):
        return [KSlice(whole, chunked=True)], "forward"
    return [k_slice(part) for part in tree.parts], str(named_order(tree.nested, len(tree.parts)))


def _one_slice(plan: ProductPlan) -> list[Groups] | None:
    """The chains, if they may be chunks of one slice: as well as slices whose f32 sums are added forward."""
    whole = chunks(plan.tree)
    even = whole is not None and len(whole) > 1 and is_even(sizes(whole))
    return whole if even and plan.kept is None and plan.running.name == "f32" and not plan.unordered else None


def promoted_every(slices: Sequence[KSlice]) -> int | None:
    """Products of a chunk, of slices that have several; None where none has."""
    return max((chunk for each in slices if (chunk := each.chunk)), default=None)


def _also(plan: ProductPlan) -> str:
    """Another reading of the same additions."""
    if plan.kept is not None or plan.unordered or not isinstance(plan.tree, Merging):
        return ""
    slices, _ = levels(plan)
    if whole := _one_slice(plan):
        each = max(sizes(whole))
        if len(slices) == 1:
            last = "" if (rest := sizes(whole)[-1]) == each else f", the last {rest},"
            return f"{len(whole)} slices of {each}{last} whose {plan.added_in} sums are added forward are the same bits"
        return f"one chain that is promoted every {each} is the same bits"
    for reading in slice_readings(plan.tree) if promoted_every(slices) is None else ():
        several = [k_slice(part) for part in reading.parts] if isinstance(reading, Merging) else []
        every = promoted_every(several)
        if every is not None and all(each.chunked for each in several):
            return f"{len(several)} slices that are promoted every {every} are the same bits"
    return ""


def _twice(slices: Sequence[KSlice]) -> str:
    """Products that two chains have."""
    count = Counter(k for each in slices for group in each.groups for k in group)
    both = np.array([k for k, times in count.items() if times > 1], np.int64)
    return f"k = {ranges(both)} in two of them" if len(both) else ""


def order_in_words(plan: ProductPlan) -> str:
    """ "4 slices of 256: chain of [acc 32]"; behind a comma how chains take K, where not as it comes."""
    slices, _ = levels(plan)
    how = filter(None, (_side_by_side(slices), direction([chain for each in slices for chain in each.chains])))
    chunk = ", ".join([f"chain of [acc {plan.step.products}]", *how])
    if every := promoted_every(slices):
        chunk = f"chunks of {every}, each a {chunk}"
    if len(slices) == 1:
        return chunk
    of = sizes([each.groups for each in slices])
    told = str(of[0]) if len(set(of)) == 1 else ", ".join(map(str, of))
    return f"{len(slices)} slices of {told}: {chunk}"


def _side_by_side(slices: Sequence[KSlice]) -> str:
    """How many chains a slice has that are no chunks: they take turns along K, or are not added as K goes."""
    counts = {1 if each.chunked else len(each.chains) for each in slices}
    if counts == {1}:
        return ""
    return f"in {'' if len(counts) == 1 else 'up to '}{max(counts)} chains"
