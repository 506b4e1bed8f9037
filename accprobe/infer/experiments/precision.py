"""Alignment bits, result bits, and how terms and results are rounded.

Rows put a power of two M on one slot of a fused sum and a small t = 2^-j M on another. M - M + t survives while the alignment
keeps j bits: M cancels inside the sum, so the result has room for t whatever its width. M + t is exact while both the alignment
and the result keep it. 2^g terms M move the head up g bits and leave the alignment. This separates the two limits: exact
up to j = min(F, result bits - g). If that gives only a lower bound of the result bits, random sums of full width narrow it.

In a sum of two terms, M and t, no third term cancels M: the alignment shows only in the rounding of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import get_args

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.infer.draft import REACH, Draft, DraftNode, RowSeries, Slot, agree, choose_word, limit, named, span
from accprobe.infer.workbench import EVIDENCE, Dyadic, LeafValues, Workbench, two_to
from accprobe.model.fields import Name
from accprobe.model.tree import SUM_BITS, Role, Rounding
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw
from accprobe.records.findings import Finding, Findings

SEED = 20_25
LONE = 100  # Random products that show how lone products are rounded.


def precision(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find alignment bits, result bits and both roundings of the sums of each role."""
    findings: Findings = {}
    for role in draft.roles() if draft.inner is None else ():
        draft, found = _of_role(bench, draft, role)
        findings |= {str(Name(feature, role)): finding for feature, finding in found.items()}
    return draft, findings


def _of_role(bench: Workbench, draft: Draft, role: Role) -> tuple[Draft, Findings]:
    """Measure the sum of the role that shows most.

    The other sums of the role get the rows that distinguish neighbouring values: "sums_alike".
    """
    nodes = [node for node in draft.nodes() if node.role == role]
    best = min(nodes, key=lambda node: (-min(len(node.slots), 3), node.depth, -len(node.slots)))
    if len(best.slots) == 1:
        return _of_lone_products(bench, draft, role)
    draft, findings = _precision(bench, draft, best) if len(best.slots) > 2 else two_term_precision(bench, draft, best)
    others = [node for node in nodes if node is not best]
    return draft, findings | ({"sums_alike": _sums_alike(bench, draft, role, others)} if others else {})


def _of_lone_products(bench: Workbench, draft: Draft, role: Role) -> tuple[Draft, Findings]:
    """Find how products that have a sum of their own are rounded to all bits of the result."""
    bits = bench.inst.d.mantissa_bits
    draft = draft.change(role, alignment_bits=None, result_bits=bits)
    operands = draw("near one", bench.inst, np.random.default_rng(SEED), LONE)
    draft, rounding = choose_word(bench, draft, "result_rounding", role, operands)
    return draft, named(Finding(None), Finding(bits), rounding)


def _precision(bench: Workbench, draft: Draft, node: DraftNode) -> tuple[Draft, Findings]:
    role = node.role
    alignment = agree({label: limit(bench, series) for label, series in _cancelling(bench, node) if series})
    f = alignment.value if isinstance(alignment.value, int) else 0
    draft = draft.change(role, alignment_bits=min(f, SUM_BITS - 2 - len(node.slots).bit_length()))
    result = _result_bits(bench, node, f)
    r = int(result.value or 0)
    if result.bound == "at_least":
        r = max(r, bench.widest_result(f))
    rows = bench.fitting(_rounding_rows(bench, node, f, r))
    note = "no sum has more bits than the result keeps"
    draft, rounding = choose_word(bench, draft.change(role, result_bits=r), "result_rounding", role, rows, note)
    if alignment.bound == "at_least":  # the refinement and alternatives find the bits that only decide a rounding
        draft = draft.change(role, alignment_bits=SUM_BITS - 2 - len(node.slots).bit_length())
    rows = bench.fitting(_below_alignment(bench, node, f) if alignment.bound == "exact" else [])
    note = "no operand reaches below the last bit that the alignment keeps"
    draft, terms = choose_word(bench, draft, "alignment_rounding", role, rows, note)
    if terms.candidates and len(rows):
        rows = bench.fitting(_below_alignment(bench, node, f, more=True))
        draft, terms = choose_word(bench, draft, "alignment_rounding", role, rows, words=terms.candidates)
    return draft, named(alignment, result, rounding, terms)


def _sums_alike(bench: Workbench, draft: Draft, role: Role, others: list[DraftNode]) -> Finding:
    """Find whether the model predicts the rows that distinguish F - 1, F, F + 1 and the roundings in the other sums, too."""
    arithmetic = draft.arithmetic(role)
    bits = arithmetic.alignment_bits, arithmetic.result_bits
    operands = bench.fitting(chain.from_iterable(_distinguishing_rows(bench, node, *bits) for node in others))
    d, wrong = bench.mismatches(operands, draft.model())
    if not len(wrong):
        return Finding("yes", evidence=bench.exchanges(operands, d, range(min(EVIDENCE, len(d)))))
    evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
    return Finding("no", "undetermined", note="some sums differ from the one measured", evidence=evidence)


def _distinguishing_rows(bench: Workbench, node: DraftNode, f: int | None, r: int) -> Iterator[LeafValues]:
    if len(node.slots) < 3 or f is None:
        yield from two_term_rows(bench, node, f, r) if len(node.slots) == 2 else ()
        return
    for _, series in _cancelling(bench, node):
        yield from (row for j, row in series if abs(j - f) <= 2)
    for _, series in _headed(bench, node, f):
        yield from (row for j, row in series if j <= f)
    yield from _rounding_rows(bench, node, f, r)
    yield from _below_alignment(bench, node, f)


def _cancelling(bench: Workbench, node: DraftNode) -> Iterator[tuple[str, RowSeries]]:
    """Return rows with M - M + t, for every kind of slot by which M and t can enter."""
    first_of_kind = {slot.kind: slot for slot in reversed(node.slots)}
    for head_kind, tail_kind in product(sorted(first_of_kind), repeat=2):
        head = first_of_kind[head_kind]
        tail = next((slot for slot in node.slots if slot.kind == tail_kind and slot != head), None)
        if tail is None:
            continue
        against = [slot for slot in node.slots if slot not in (head, tail)][-1]
        largest = min(span(bench, tail)[-1], bench.inst.d.max_exponent)
        top = min(span(bench, head)[-1], span(bench, against)[-1])
        big = min(top, largest + 1)
        low = max(span(bench, tail)[0], bench.result_exponents()[0], big - REACH)
        # t falls to `low`, then M, which cancels, rises to `top`.
        exponents = [(big, e) for e in range(big - 1, low - 1, -1)]
        exponents += [(m, low) for m in range(big + 1, min(top, low + REACH) + 1) if low < big]
        rows = [(m - e, {head.leaf: two_to(m), against.leaf: -two_to(m), tail.leaf: two_to(e)}) for m, e in exponents]
        yield f"{tail_kind} against {head_kind}", rows


def _result_bits(bench: Workbench, node: DraftNode, f: int) -> Finding:
    """Read the result bits from 2^g M + t: exact up to j = min(f, bits - g)."""
    most = bench.inst.d.mantissa_bits
    evidence: tuple[Exchange, ...] = ()
    reached = 0
    for g, series in _headed(bench, node, f):
        found = limit(bench, series)
        evidence += found.evidence
        if found.exact and found.bits < f:
            return Finding(found.bits + g, evidence=evidence)
        reached = max(reached, found.bits + g)
        if reached >= most:
            return Finding(most, evidence=evidence)
    note = f"the alignment keeps {f} bits, and no sum of {len(node.slots)} terms has more than {reached} to round"
    return Finding(reached, "at_least", (), note, evidence)


def _headed(bench: Workbench, node: DraftNode, f: int) -> Iterator[tuple[int, RowSeries]]:
    tail, heads = _tail_and_heads(bench, node)
    for g in range(len(heads).bit_length()):
        used = heads[: 1 << g]
        tops = (*(span(bench, slot)[-1] for slot in used), span(bench, tail)[-1] + 1, bench.inst.d.max_exponent - g - 1)
        big = min(tops)
        low = max(span(bench, tail)[0], big - min(f + 2, REACH))
        rows: RowSeries = [
            (big - e, {**{s.leaf: two_to(big) for s in used}, tail.leaf: two_to(e)}) for e in range(big - 1, low - 1, -1)
        ]
        if rows:
            yield g, rows


def _tail_and_heads(bench: Workbench, node: DraftNode) -> tuple[Slot, list[Slot]]:
    """Return the slot that takes the smallest numbers, and the others."""
    tail = min(node.slots, key=lambda slot: (span(bench, slot)[0], slot.kind != "addend"))
    return tail, [slot for slot in node.slots if slot != tail]


def _rounding_rows(bench: Workbench, node: DraftNode, f: int, r: int) -> Iterator[LeafValues]:
    """Return rows with ties below an even and an odd last bit, of both signs: each rounding gives other results."""
    tail, heads = _tail_and_heads(bench, node)
    g = max(0, r + 1 - f)
    if 1 << g > len(heads):
        return
    used = heads[: 1 << g]
    big = min(*(span(bench, slot)[-1] for slot in used), bench.inst.d.max_exponent - g - 2)
    half = big + g - r - 1
    for sign, t in product((1, -1), (1, 3, -1, -3)):
        yield {**{slot.leaf: Dyadic(sign, big) for slot in used}, tail.leaf: Dyadic(t, half)}


def _below_alignment(bench: Workbench, node: DraftNode, f: int, more: bool = False) -> Iterator[LeafValues]:
    """Return rows with a quarter and three quarters of the last kept bit, of both signs, beside an M that cancels.

    more: a half, and somewhat more than the bit itself, which distinguish the roundings that the quarters do not.
    """
    lowest, _ = _tail_and_heads(bench, node)
    for tail in dict.fromkeys((lowest, *(slot for slot in node.slots if slot.kind == "addend"))):
        heads = [slot for slot in node.slots if slot != tail]
        big = min(span(bench, heads[0])[-1], span(bench, heads[-1])[-1])
        for t in (2, -2, 5, -5, 6, -6) if more else (1, 3, -1, -3):
            yield {heads[0].leaf: two_to(big), heads[-1].leaf: -two_to(big), tail.leaf: Dyadic(t, big - f - 2)}


EVERY = 8  # Step, in bits, between the depths of rows if nothing is truncated.


def two_term_precision(bench: Workbench, draft: Draft, node: DraftNode) -> tuple[Draft, Findings]:
    """Find alignment bits, result bits and both roundings of a sum with two slots.

    For t = M · 2^-j, M + t is exact if the alignment and the result keep j bits. M - t needs only j - 1 bits of the result. If
    the result is the limit, M - t stays exact for one more j than M + t.
    """
    role = node.role
    adding, subtracting = (agree({k: limit(bench, series) for k, series in _pairs(bench, node, sign)}) for sign in (1, -1))
    kept, kept_subtracting = adding.value, subtracting.value
    if not isinstance(kept, int) or not isinstance(kept_subtracting, int):
        raise AccprobeError("the limits of a sum of two terms were not found")
    if kept_subtracting <= kept < bench.inst.d.mantissa_bits:
        note = "the alignment is the limit; no sum of two terms has more bits to round"
        draft = draft.change(role, alignment_bits=kept, result_bits=max(kept, bench.widest_result(kept)))
        result = Finding(kept, "at_least", (), note, adding.evidence)
        rounding = Finding("RZ", "undetermined", get_args(Rounding), "no sum has more bits than the result keeps")
        draft, terms = _alignment_rounding(bench, draft, node, kept)
        return draft, named(adding, result, rounding, terms)
    result = Finding(kept, evidence=adding.evidence + subtracting.evidence)
    draft = draft.change(role, alignment_bits=None, result_bits=kept)
    rows = bench.fitting(_ties(bench, node, kept))
    draft, rounding = choose_word(bench, draft, "result_rounding", role, rows, "no ties can be made")
    limits = [limit(bench, series, draft.model()) for _, series in _below_ties(bench, node, kept) if series]
    exact = [limit for limit in limits if limit.exact]
    if not exact:
        reach = max((limit.bits for limit in limits), default=kept)
        alignment = Finding(None, note=f"exact: every bit that can decide a rounding is kept ({reach} tried)")
        return draft, named(alignment, result, rounding)
    f = min(limit.bits for limit in exact)
    alignment = Finding(f, evidence=tuple(e for limit in exact for e in limit.evidence))
    draft, terms = _alignment_rounding(bench, draft.change(role, alignment_bits=f), node, f)
    return draft, named(alignment, result, rounding, terms)


def two_term_rows(bench: Workbench, node: DraftNode, f: int | None, kept: int) -> Iterator[LeafValues]:
    """Yield rows that distinguish roundings and alignment bits: near f, or at every EVERY-th depth if nothing is truncated."""
    yield from _ties(bench, node, kept)
    for _, series in _below_ties(bench, node, kept, lambda j: j % EVERY == 0 if f is None else abs(j - f) <= 2):
        yield from (row for _, row in series)


def _arrangements(bench: Workbench, node: DraftNode) -> Iterator[tuple[str, Slot, Slot, int]]:
    first, second = node.slots
    for head, tail in ((first, second), (second, first)):
        big = min(span(bench, head)[-1], bench.inst.d.max_exponent - 2, span(bench, tail)[-1])
        yield f"{tail.kind} {tail.leaf} against {head.kind} {head.leaf}", head, tail, big


def _pairs(bench: Workbench, node: DraftNode, sign: int) -> Iterator[tuple[str, RowSeries]]:
    for label, head, tail, big in _arrangements(bench, node):
        low = max(span(bench, tail)[0], big - bench.inst.d.mantissa_bits - 2)
        rows: RowSeries = [(big - e, {head.leaf: two_to(big), tail.leaf: Dyadic(sign, e)}) for e in range(big - 1, low - 1, -1)]
        if rows:
            yield label, rows


def _ties(bench: Workbench, node: DraftNode, kept: int) -> Iterator[LeafValues]:
    for _, head, tail, big in _arrangements(bench, node):
        for sign, t in product((1, -1), (1, 3, -1, -3)):
            yield {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - kept - 1)}


def _below_ties(
    bench: Workbench, node: DraftNode, kept: int, wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[str, RowSeries]]:
    """Yield rows in which only the bit 2^-j · M decides a rounding: alone, beside half of the last bit, or after M cancels."""

    def fitting(rows: RowSeries) -> RowSeries:
        return [(j, row) for j, row in rows if bench.fits(row)]

    for label, head, tail, big in _arrangements(bench, node):
        remains: RowSeries = [
            (j, {head.leaf: Dyadic(-1, big), tail.leaf: Dyadic((1 << j) + 1, big - j)}) for j in filter(wanted, range(1, REACH))
        ]
        yield f"{label}, remains", fitting(remains)
        depths = list(filter(wanted, range(kept + 3, kept + REACH)))
        for sign, tail_sign in product((1, -1), (1, -1)):
            for name, beside in (("alone", 0), ("beside half", 1)):
                tails = [(j, Dyadic(tail_sign * ((beside << (j - kept - 1)) + 1), big - j)) for j in depths]
                rows: RowSeries = [(j, {head.leaf: Dyadic(sign, big), tail.leaf: value}) for j, value in tails]
                yield f"{label}, {sign} {tail_sign} {name}", fitting(rows)


def _alignment_rounding(bench: Workbench, draft: Draft, node: DraftNode, f: int) -> tuple[Draft, Finding]:
    def rows(multiples: range) -> Iterator[LeafValues]:
        for _, head, tail, big in _arrangements(bench, node):
            for sign, t in product((1, -1), multiples):
                yield {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - f - 2)}

    note = "no row distinguishes the alignment roundings of two terms"
    odd, even = bench.fitting(rows(range(-15, 16, 2))), bench.fitting(rows(range(-14, 15, 4)))
    draft, terms = choose_word(bench, draft, "alignment_rounding", node.role, odd, note)
    if not terms.candidates:
        return draft, terms
    return choose_word(bench, draft, "alignment_rounding", node.role, even, terms.note, terms.candidates)
