"""Alignment bits, result bits and how both are rounded.

The rows put a power of two M on one slot of a fused sum, and a small t = 2^-j M on another. M - M + t survives exactly while
the alignment keeps j bits (M cancels inside the sum, so the result has room for t whatever its width). M + t is exact while
both the alignment and the result keep it; with 2^g terms M the head moves up g bits and the alignment stays, so the two
limits come apart: exact up to j = min(F, result bits - g).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.experiments.draft import Draft, Node, Role, Slot
from accprobe.experiments.elimination import eliminate, fitting
from accprobe.experiments.findings import Exchange, Finding
from accprobe.experiments.workbench import Dyadic, Row, Workbench, power
from accprobe.model import SUM_BITS, AlignmentRounding, DotModel, Rounding

REACH = 70
"""Bits below M that are tried at most."""
WINDOW = 100
"""Exponents beyond +-WINDOW are not used: no need to come near overflow or the smallest exponents."""

Family = list[tuple[int, Row]]
"""Rows by j, ascending."""


@dataclass(frozen=True)
class Limit:
    """Up to which j the rows of a family came out as foretold."""

    bits: int
    exact: bool
    evidence: tuple[Exchange, ...]


def precision(bench: Workbench, draft: Draft, role: Role) -> tuple[Draft, list[Finding]]:
    """Alignment bits, result bits and both roundings of the sums of one role."""
    node = _best_node(draft, role)
    return _wide_node(bench, draft, node) if len(node.slots) > 2 else _narrow_node(bench, draft, node)


def _best_node(draft: Draft, role: Role) -> Node:
    nodes = [node for node in draft.nodes() if node.role == role]
    return min(nodes, key=lambda node: (-min(len(node.slots), 3), node.depth, -len(node.slots)))


def _wide_node(bench: Workbench, draft: Draft, node: Node) -> tuple[Draft, list[Finding]]:
    """Three slots or more: M - M + t is possible."""
    role = node.role
    limits = {label: _limit(bench, family) for label, family in _cancelling(bench, node) if family}
    alignment = _agree("alignment_bits", limits)
    f = alignment.value if isinstance(alignment.value, int) else 0
    keep = min(f, SUM_BITS - 2 - len(node.slots).bit_length())
    draft = draft.change(role, alignment_bits=keep)
    result = _result_bits(bench, node, f)
    kept = bench.inst.d.mantissa_bits if result.bound == "at least" else result.value
    draft = draft.change(role, result_bits=kept)
    rounding = _result_rounding(bench, draft, node, f, result)
    draft = draft.change(role, result_rounding=rounding.value)
    cut = _alignment_rounding(bench, draft, node, f, alignment)
    return draft.change(role, alignment_rounding=cut.value), [alignment, result, rounding, cut]


def _cancelling(bench: Workbench, node: Node) -> Iterator[tuple[str, Family]]:
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
            big = min(_span(bench, head)[-1], _span(bench, against)[-1])
            low = max(_span(bench, tail)[0], bench.result_exponents()[0], big - REACH)
            rows = [
                (big - e, {head.leaf: power(big), against.leaf: -power(big), tail.leaf: power(e)}) for e in range(big - 1, low - 1, -1)
            ]
            yield f"{tail_kind} against {head_kind}", rows


def _take(slots: list[Slot], kind: str) -> Slot | None:
    for slot in slots:
        if slot.kind == kind:
            slots.remove(slot)
            return slot
    return None


def _span(bench: Workbench, slot: Slot) -> range:
    """Exponents of the powers of two that can enter a sum by this slot."""
    leaf = bench.addend_exponents() if slot.leaf == bench.addend else bench.product_exponents()
    low, high = max(leaf[0], -WINDOW), min(leaf[-1], WINDOW)
    if slot.kind == "sum":
        results = bench.result_exponents()
        low, high = max(low, results[0]), min(high, results[-1])
    return range(low, high + 1)


def _limit(bench: Workbench, family: Family, model: DotModel | None = None) -> Limit:
    """The last j up to which the device gives the exact sum (or what `model` foretells)."""
    operands = bench.rows([row for _, row in family])
    d = bench.ask(operands)
    if model is None:
        foretold = np.array([_exact(bench, row) for _, row in family], np.int64)
        wrong = np.flatnonzero(d.astype(np.int64) != foretold)
    else:
        wrong = np.flatnonzero(d != model.evaluate(bench.inst, *operands))
    if not len(wrong):
        return Limit(family[-1][0], False, bench.exchanges(operands, d, [len(family) - 1]))
    first = int(wrong[0])
    return Limit(family[first][0] - 1, True, bench.exchanges(operands, d, [i for i in (first - 1, first) if i >= 0]))


def _exact(bench: Workbench, row: Row) -> int:
    """Bit pattern of the exact sum of a row, -1 where the result's format does not hold it."""
    lowest = min(value.exponent for value in row.values())
    total = sum(value.significand << (value.exponent - lowest) for value in row.values())
    pattern = bench.result(Dyadic(total, lowest))
    return -1 if pattern is None else pattern


def _agree(feature: str, limits: dict[str, Limit]) -> Finding:
    """One number from several families: the exact ones must agree, and reach as far as every lower bound."""
    if not limits:
        return Finding(feature, 0, "at least", note="no operands reach below the largest term")
    exact = {limit.bits for limit in limits.values() if limit.exact}
    evidence = tuple(e for limit in limits.values() for e in limit.evidence)
    reached = max((limit.bits for limit in limits.values() if not limit.exact), default=0)
    if len(exact) > 1 or (exact and reached > min(exact)):
        seen = ", ".join(f"{label}: {limit.bits}{'' if limit.exact else ' or more'}" for label, limit in limits.items())
        return Finding(feature, min(exact), "undetermined", tuple(sorted(exact)), f"differs by term ({seen})", evidence)
    if exact:
        return Finding(feature, exact.pop(), evidence=evidence)
    return Finding(feature, reached, "at least", note="no operand reaches further below the largest term", evidence=evidence)


def _result_bits(bench: Workbench, node: Node, f: int) -> Finding:
    """From 2^g M + t: exact up to j = min(f, bits - g)."""
    most = bench.inst.d.mantissa_bits
    evidence: tuple[Exchange, ...] = ()
    reached = 0
    for g, family in _headed(bench, node, f):
        limit = _limit(bench, family)
        evidence += limit.evidence
        if limit.exact and limit.bits < f:
            return Finding("result_bits", limit.bits + g, evidence=evidence)
        reached = max(reached, limit.bits + g)
        if reached >= most:
            return Finding("result_bits", most, evidence=evidence)
    note = f"the alignment keeps {f} bits, and no sum of {len(node.slots)} terms has more than {reached} to round"
    return Finding("result_bits", reached, "at least", (), note, evidence)


def _headed(bench: Workbench, node: Node, f: int) -> Iterator[tuple[int, Family]]:
    tail, heads = _tail_and_heads(bench, node)
    g = 0
    while 1 << g <= len(heads):
        used = heads[: 1 << g]
        big = min(*(_span(bench, slot)[-1] for slot in used), bench.inst.d.max_exponent - g - 1)
        low = max(_span(bench, tail)[0], big - min(f + 2, REACH))
        rows = [(big - e, {**{s.leaf: power(big) for s in used}, tail.leaf: power(e)}) for e in range(big - 1, low - 1, -1)]
        if rows:
            yield g, rows
        g += 1


def _tail_and_heads(bench: Workbench, node: Node) -> tuple[Slot, list[Slot]]:
    """The slot that takes the smallest numbers, and the others."""
    tail = min(node.slots, key=lambda slot: (_span(bench, slot)[0], slot.kind != "addend"))
    return tail, [slot for slot in node.slots if slot != tail]


def _result_rounding(bench: Workbench, draft: Draft, node: Node, f: int, result: Finding) -> Finding:
    """Ties below an even and an odd last bit, both signs: each rounding answers otherwise."""
    assert isinstance(result.value, int)
    tail, heads = _tail_and_heads(bench, node)
    g = max(0, result.value + 1 - f)
    rows: list[Row] = []
    if 1 << g <= len(heads):
        used = heads[: 1 << g]
        big = min(*(_span(bench, slot)[-1] for slot in used), bench.inst.d.max_exponent - g - 2)
        half = big + g - result.value - 1
        for head in (power(big), -power(big)):
            rows += [{**{s.leaf: head for s in used}, tail.leaf: Dyadic(t, half)} for t in (1, 3, -1, -3)]
    note = "no sum has more bits than the result keeps"
    return _eliminate_rounding(bench, draft, node.role, rows, note)


def _eliminate_rounding(bench: Workbench, draft: Draft, role: Role, rows: list[Row], note: str) -> Finding:
    candidates = {r: draft.change(role, result_rounding=r).model() for r in get_args(Rounding)}
    return eliminate(bench, "result_rounding", candidates, fitting(bench, rows), note)


def _alignment_rounding(bench: Workbench, draft: Draft, node: Node, f: int, alignment: Finding) -> Finding:
    """A quarter and three quarters of the last kept bit, both signs, beside an M that cancels."""
    rows: list[Row] = []
    slots = list(node.slots)
    tail, heads = _tail_and_heads(bench, node)
    for tail in (tail, *(slot for slot in slots if slot.kind == "addend")):
        heads = [slot for slot in slots if slot != tail]
        big = min(_span(bench, heads[0])[-1], _span(bench, heads[-1])[-1])
        quarter = big - f - 2
        for t in (1, 3, -1, -3):
            rows.append({heads[0].leaf: power(big), heads[-1].leaf: -power(big), tail.leaf: Dyadic(t, quarter)})
    if alignment.bound != "exact":
        rows = []
    candidates = {r: draft.change(node.role, alignment_rounding=r).model() for r in get_args(AlignmentRounding)}
    return eliminate(bench, "alignment_rounding", candidates, fitting(bench, rows), "no operand reaches below the cut")


def _narrow_node(bench: Workbench, draft: Draft, node: Node) -> tuple[Draft, list[Finding]]:
    """Two slots: nothing can cancel M but t itself, so the alignment shows only in how the result is rounded.

    M - t is exact while the alignment keeps j bits and the result j - 1: one more than M + t where the result is the limit.
    """
    role = node.role
    adding = _agree("result_bits", {k: _limit(bench, f) for k, f in _pairs(bench, node, 1)})
    taking = _agree("result_bits", {k: _limit(bench, f) for k, f in _pairs(bench, node, -1)})
    most = bench.inst.d.mantissa_bits
    kept, lent = adding.value, taking.value
    if not isinstance(kept, int) or not isinstance(lent, int):
        raise AccprobeError("the limits of a two-term sum cannot be told")
    if lent <= kept < most:
        note = "the alignment is the limit; no sum of two terms has more bits to round"
        draft = draft.change(role, alignment_bits=kept, result_bits=most)
        alignment = replace(adding, feature="alignment_bits")
        result = Finding("result_bits", kept, "at least", (), note, adding.evidence)
        rounding = Finding("result_rounding", "RZ", "undetermined", get_args(Rounding), "no sum has more bits than the result keeps")
        cut = _narrow_cut(bench, draft, node, kept)
        return draft.change(role, alignment_rounding=cut.value), [alignment, result, rounding, cut]
    result = Finding("result_bits", kept, evidence=adding.evidence + taking.evidence)
    draft = draft.change(role, alignment_bits=None, result_bits=kept)
    rounding = _eliminate_rounding(bench, draft, role, list(_ties(bench, node, kept)), "no ties can be made")
    draft = draft.change(role, result_rounding=rounding.value)
    limits = {k: _limit(bench, f, draft.model()) for k, f in _below_ties(bench, node, kept) if f}
    exact = [limit for limit in limits.values() if limit.exact]
    reach = max((limit.bits for limit in limits.values()), default=kept)
    if not exact:
        alignment = Finding("alignment_bits", None, note=f"exact: every bit that can decide a rounding is kept ({reach} tried)")
        return draft, [alignment, result, rounding]
    f = min(limit.bits for limit in exact)
    alignment = Finding("alignment_bits", f, evidence=tuple(e for limit in exact for e in limit.evidence))
    draft = draft.change(role, alignment_bits=f)
    cut = _narrow_cut(bench, draft, node, f)
    return draft.change(role, alignment_rounding=cut.value), [alignment, result, rounding, cut]


def _arrangements(bench: Workbench, node: Node) -> Iterator[tuple[str, Slot, Slot, int]]:
    first, second = node.slots
    for head, tail in ((first, second), (second, first)):
        big = min(_span(bench, head)[-1], bench.inst.d.max_exponent - 2, _span(bench, tail)[-1])
        yield f"{tail.kind} {tail.leaf} against {head.kind} {head.leaf}", head, tail, big


def _pairs(bench: Workbench, node: Node, sign: int) -> Iterator[tuple[str, Family]]:
    for label, head, tail, big in _arrangements(bench, node):
        low = max(_span(bench, tail)[0], big - bench.inst.d.mantissa_bits - 2)
        rows: Family = [(big - e, {head.leaf: power(big), tail.leaf: Dyadic(sign, e)}) for e in range(big - 1, low - 1, -1)]
        if rows:
            yield label, rows


def _ties(bench: Workbench, node: Node, kept: int) -> Iterator[Row]:
    for _, head, tail, big in _arrangements(bench, node):
        for sign in (1, -1):
            for t in (1, 3, -1, -3):
                yield {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - kept - 1)}


def _below_ties(bench: Workbench, node: Node, kept: int) -> Iterator[tuple[str, Family]]:
    """Rows in which only the bit 2^-j M decides the rounding: alone, or beside half of the last bit."""
    for label, head, tail, big in _arrangements(bench, node):
        for sign in (1, -1):
            for tail_sign in (1, -1):
                alone: Family = []
                beside: Family = []
                for j in range(kept + 3, kept + REACH):
                    lone = {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(tail_sign, big - j)}
                    tie = {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(tail_sign * ((1 << (j - kept - 1)) + 1), big - j)}
                    alone += [(j, lone)] if bench.fits(lone) else []
                    beside += [(j, tie)] if bench.fits(tie) else []
                yield f"{label}, {sign} {tail_sign} alone", alone
                yield f"{label}, {sign} {tail_sign} beside half", beside


def _narrow_cut(bench: Workbench, draft: Draft, node: Node, f: int) -> Finding:
    rows: list[Row] = []
    for _, head, tail, big in _arrangements(bench, node):
        for sign in (1, -1):
            rows += [{head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - f - 2)} for t in range(-15, 16, 2)]
    candidates = {r: draft.change(node.role, alignment_rounding=r).model() for r in get_args(AlignmentRounding)}
    return eliminate(bench, "alignment_rounding", candidates, fitting(bench, rows), "no row tells the cuts of two terms apart")
