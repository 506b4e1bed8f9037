"""Alignment bits, result bits and how both are rounded.

The rows put a power of two M on one slot of a fused sum, and a small t = 2^-j M on another. M - M + t survives exactly while
the alignment keeps j bits (M cancels inside the sum, so the result has room for t whatever its width). M + t is exact while
both the alignment and the result keep it; with 2^g terms M the head moves up g bits and the alignment stays, so the two
limits come apart: exact up to j = min(F, result bits - g).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, DraftNode, Slot, roles
from accprobe.infer.experiments.dense import SEED, dense_roundings
from accprobe.infer.experiments.series import REACH, Family, agree, limit, named, span
from accprobe.infer.experiments.two_terms import two_term_precision, two_term_rows
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, eliminate, fitting, two_to
from accprobe.model.features import Name
from accprobe.model.tree import SUM_BITS, AlignmentRounding, Role, Rounding, UnderflowSign
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw

# Random products that are asked for how they are rounded.
LONE = 100


def precision(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Alignment bits, result bits and both roundings of the sums of each role."""
    findings: Findings = {}
    for role in roles(draft) if draft.inner is None else ():
        draft, found = _of_role(bench, draft, role)
        draft, found = dense_roundings(bench, draft, role, found)
        findings |= {str(Name(feature, role)): finding for feature, finding in found.items()}
    return draft, findings


def _of_role(bench: Workbench, draft: Draft, role: Role) -> tuple[Draft, Findings]:
    """Alignment bits, result bits and both roundings of the sums of one role, measured on the one that shows most.

    The other sums of the role are asked the rows that tell neighbouring values apart: "sums_alike".
    """
    nodes = [node for node in draft.nodes() if node.role == role]
    best = min(nodes, key=lambda node: (-min(len(node.slots), 3), node.depth, -len(node.slots)))
    if len(best.slots) == 1:
        return _of_lone_products(bench, draft, role)
    draft, findings = _precision(bench, draft, best) if len(best.slots) > 2 else two_term_precision(bench, draft, best)
    others = [node for node in nodes if node is not best]
    return draft, findings | ({"sums_alike": _alike(bench, draft, role, others)} if others else {})


def _of_lone_products(bench: Workbench, draft: Draft, role: Role) -> tuple[Draft, Findings]:
    """How products are rounded that have a sum of their own, to all bits of the result."""
    draft = draft.change(role, alignment_bits=None, result_bits=bench.inst.d.mantissa_bits)
    roundings = {rounding: draft.change(role, result_rounding=rounding).model() for rounding in get_args(Rounding)}
    rounding = eliminate(bench, roundings, draw("near one", bench.inst, np.random.default_rng(SEED), LONE))
    found = named(Finding(None), Finding(bench.inst.d.mantissa_bits), rounding)
    return draft.change(role, result_rounding=rounding.value), found


def _precision(bench: Workbench, draft: Draft, node: DraftNode) -> tuple[Draft, Findings]:
    """Of a sum of three terms or more."""
    role = node.role
    limits = {label: limit(bench, family) for label, family in _cancelling(bench, node) if family}
    alignment = agree(limits)
    f = alignment.value if isinstance(alignment.value, int) else 0
    draft = draft.change(role, alignment_bits=min(f, SUM_BITS - 2 - len(node.slots).bit_length()))
    result = _result_bits(bench, node, f)
    r = int(result.value or 0)
    if result.bound == "at_least":
        r = max(r, bench.widest_result(f))
    draft = draft.change(role, result_bits=r)
    roundings = {rounding: draft.change(role, result_rounding=rounding).model() for rounding in get_args(Rounding)}
    rows = fitting(bench, _rounding_rows(bench, node, f, r))
    rounding = eliminate(bench, roundings, rows, "no sum has more bits than the result keeps")
    draft = draft.change(role, result_rounding=rounding.value)
    if alignment.bound == "at_least":
        draft, alignment, f = _further(bench, draft, node, alignment)
    cuts = {cut: draft.change(role, alignment_rounding=cut).model() for cut in get_args(AlignmentRounding)}
    rows = fitting(bench, _cut_rows(bench, node, f) if alignment.bound == "exact" else [])
    cut = eliminate(bench, cuts, rows, "no operand reaches below the cut")
    if cut.candidates and len(rows):
        left = {rounding: cuts[rounding] for rounding in get_args(AlignmentRounding) if rounding in cut.candidates}
        cut = eliminate(bench, left, fitting(bench, _cut_rows(bench, node, f, beyond=True)))
    return draft.change(role, alignment_rounding=cut.value), named(alignment, result, rounding, cut)


def _further(bench: Workbench, draft: Draft, node: DraftNode, alignment: Finding) -> tuple[Draft, Finding, int]:
    """More alignment bits, where results are too coarse to show t itself: its sign may still decide a rounding.

    The first row that differs from the model with as many bits as a sum can have tells, whatever the sign of a t that
    rounds to zero.
    """
    role, most = node.role, SUM_BITS - 2 - len(node.slots).bit_length()
    widest = draft.change(role, alignment_bits=most)
    models = [widest.change(role, underflow_sign=sign).model() for sign in get_args(UnderflowSign)]
    tail, heads = _tail_and_heads(bench, node)
    leaf = bench.addend_exponents() if tail.leaf == bench.addend else bench.product_exponents()
    big = min(span(bench, heads[0])[-1], span(bench, heads[-1])[-1], leaf[-1] + 1)
    reached = int(alignment.value or 0)
    low = max(leaf[0], big - REACH)
    for sign in (1, -1):
        rows: Family = [
            (big - e, {heads[0].leaf: two_to(big), heads[-1].leaf: -two_to(big), tail.leaf: Dyadic(sign, e)})
            for e in range(big - reached - 1, low - 1, -1)
        ]
        found = max((limit(bench, rows, model) for model in models), key=lambda x: (not x.exact, x.bits)) if rows else None
        if found is not None and found.exact:
            exact = Finding(found.bits, evidence=found.evidence)
            return draft.change(role, alignment_bits=min(found.bits, most)), exact, found.bits
    return widest, alignment, reached


def _alike(bench: Workbench, draft: Draft, role: Role, others: list[DraftNode]) -> Finding:
    """Whether the other sums answer as the model has it, to the rows that tell F - 1, F and F + 1 apart, and the roundings."""
    arithmetic = draft.arithmetic(role)
    rows = list(
        chain.from_iterable(_telling_rows(bench, node, arithmetic.alignment_bits, arithmetic.result_bits) for node in others)
    )
    operands = fitting(bench, rows)
    d = bench.query(operands)
    wrong = np.flatnonzero(d != evaluate(draft.model(), bench.inst, operands))
    if not len(wrong):
        return Finding("yes", evidence=bench.exchanges(operands, d, range(min(EVIDENCE, len(d)))))
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    return Finding("no", "undetermined", note="some sums differ from the one measured", evidence=evidence)


def _telling_rows(bench: Workbench, node: DraftNode, f: int | None, r: int) -> Iterator[Row]:
    if len(node.slots) < 3 or f is None:
        yield from two_term_rows(bench, node, f, r) if len(node.slots) == 2 else ()
        return
    for _, family in _cancelling(bench, node):
        yield from (row for j, row in family if abs(j - f) <= 2)
    for _, family in _headed(bench, node, f):
        yield from (row for j, row in family if j <= f)
    yield from _rounding_rows(bench, node, f, r)
    yield from _cut_rows(bench, node, f)


def _cancelling(bench: Workbench, node: DraftNode) -> Iterator[tuple[str, Family]]:
    """M - M + t, for every kind of slot that M and t can enter by."""
    kinds = sorted({slot.kind for slot in node.slots})
    for head_kind in kinds:
        for tail_kind in kinds:
            slots = list(node.slots)
            head = _take(slots, head_kind)
            tail = _take(slots, tail_kind) if head else None
            if head is None or tail is None:
                continue
            against = slots[-1]
            largest = min(span(bench, tail)[-1], bench.inst.d.max_exponent)
            top = min(span(bench, head)[-1], span(bench, against)[-1])
            big = min(top, largest + 1)
            low = max(span(bench, tail)[0], bench.result_exponents()[0], big - REACH)
            rows: Family = [
                (m - e, {head.leaf: two_to(m), against.leaf: -two_to(m), tail.leaf: two_to(e)})
                for m, e in _apart(big, low, min(top, low + REACH))
            ]
            yield f"{tail_kind} against {head_kind}", rows


def _apart(big: int, low: int, top: int) -> Iterator[tuple[int, int]]:
    """Exponents of M and t, ever further apart: t falls to `low`, then M, which cancels, rises to `top`."""
    yield from ((big, e) for e in range(big - 1, low - 1, -1))
    yield from ((m, low) for m in range(big + 1, top + 1) if low < big)


def _take(slots: list[Slot], kind: str) -> Slot | None:
    for slot in slots:
        if slot.kind == kind:
            slots.remove(slot)
            return slot
    return None


def _result_bits(bench: Workbench, node: DraftNode, f: int) -> Finding:
    """From 2^g M + t: exact up to j = min(f, bits - g)."""
    most = bench.inst.d.mantissa_bits
    evidence: tuple[Exchange, ...] = ()
    reached = 0
    for g, family in _headed(bench, node, f):
        found = limit(bench, family)
        evidence += found.evidence
        if found.exact and found.bits < f:
            return Finding(found.bits + g, evidence=evidence)
        reached = max(reached, found.bits + g)
        if reached >= most:
            return Finding(most, evidence=evidence)
    note = f"the alignment keeps {f} bits, and no sum of {len(node.slots)} terms has more than {reached} to round"
    return Finding(reached, "at_least", (), note, evidence)


def _headed(bench: Workbench, node: DraftNode, f: int) -> Iterator[tuple[int, Family]]:
    tail, heads = _tail_and_heads(bench, node)
    g = 0
    while 1 << g <= min(len(heads), bench.reach.max_same_sign):
        used = heads[: 1 << g]
        tops = (*(span(bench, slot)[-1] for slot in used), span(bench, tail)[-1] + 1, bench.inst.d.max_exponent - g - 1)
        big = min(tops)
        low = max(span(bench, tail)[0], big - min(f + 2, REACH))
        rows: Family = [
            (big - e, {**{s.leaf: two_to(big) for s in used}, tail.leaf: two_to(e)}) for e in range(big - 1, low - 1, -1)
        ]
        if rows:
            yield g, rows
        g += 1


def _tail_and_heads(bench: Workbench, node: DraftNode) -> tuple[Slot, list[Slot]]:
    """The slot that takes the smallest numbers, and the others."""
    tail = min(node.slots, key=lambda slot: (span(bench, slot)[0], slot.kind != "addend"))
    return tail, [slot for slot in node.slots if slot != tail]


def _rounding_rows(bench: Workbench, node: DraftNode, f: int, r: int) -> Iterator[Row]:
    """Ties below an even and an odd last bit, of both signs: each rounding answers otherwise."""
    tail, heads = _tail_and_heads(bench, node)
    g = max(0, r + 1 - f)
    if 1 << g > min(len(heads), bench.reach.max_same_sign):
        return
    used = heads[: 1 << g]
    big = min(*(span(bench, slot)[-1] for slot in used), bench.inst.d.max_exponent - g - 2)
    half = big + g - r - 1
    for head in (two_to(big), -two_to(big)):
        for t in (1, 3, -1, -3):
            yield {**{slot.leaf: head for slot in used}, tail.leaf: Dyadic(t, half)}


def _cut_rows(bench: Workbench, node: DraftNode, f: int, beyond: bool = False) -> Iterator[Row]:
    """A quarter and three quarters of the last kept bit, of both signs, beside an M that cancels.

    beyond: a half, and some more than the bit itself, which tell those apart that the quarters do not.
    """
    lowest, _ = _tail_and_heads(bench, node)
    for tail in dict.fromkeys((lowest, *(slot for slot in node.slots if slot.kind == "addend"))):
        heads = [slot for slot in node.slots if slot != tail]
        big = min(span(bench, heads[0])[-1], span(bench, heads[-1])[-1])
        for t in (2, -2, 5, -5, 6, -6) if beyond else (1, 3, -1, -3):
            yield {heads[0].leaf: two_to(big), heads[-1].leaf: -two_to(big), tail.leaf: Dyadic(t, big - f - 2)}
