"""The precision of a sum of two terms.

Nothing can cancel M there but t itself, so the alignment shows only in how the result is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from accprobe.errors import AccprobeError
from accprobe.infer.draft import Draft, DraftNode, Slot
from accprobe.infer.experiments.series import REACH, Family, agree, limit, named, span
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Dyadic, Row, Workbench, eliminate, fitting, two_to
from accprobe.model.tree import AlignmentRounding, Rounding

# Bits from one row to the next where rows are asked of sums that should be exact as another one is.
EVERY = 8


def two_term_precision(bench: Workbench, draft: Draft, node: DraftNode) -> tuple[Draft, Findings]:
    """Two slots: nothing can cancel M but t itself, so the alignment shows only in how the result is rounded.

    M - t is exact while the alignment keeps j bits and the result j - 1: one more than M + t where the result is the limit.
    """
    role = node.role
    adding = agree({k: limit(bench, f) for k, f in _pairs(bench, node, 1)})
    taking = agree({k: limit(bench, f) for k, f in _pairs(bench, node, -1)})
    most = bench.inst.d.mantissa_bits
    kept, lent = adding.value, taking.value
    if not isinstance(kept, int) or not isinstance(lent, int):
        raise AccprobeError("the limits of a two-term sum cannot be told")
    if lent <= kept < most:
        note = "the alignment is the limit; no sum of two terms has more bits to round"
        draft = draft.change(role, alignment_bits=kept, result_bits=max(kept, bench.widest_result(kept)))
        result = Finding(kept, "at_least", (), note, adding.evidence)
        rounding = Finding("RZ", "undetermined", get_args(Rounding), "no sum has more bits than the result keeps")
        cut = _narrow_cut(bench, draft, node, kept)
        return draft.change(role, alignment_rounding=cut.value), named(adding, result, rounding, cut)
    result = Finding(kept, evidence=adding.evidence + taking.evidence)
    draft = draft.change(role, alignment_bits=None, result_bits=kept)
    roundings = {rounding: draft.change(role, result_rounding=rounding).model() for rounding in get_args(Rounding)}
    rounding = eliminate(bench, roundings, fitting(bench, list(_ties(bench, node, kept))), "no ties can be made")
    draft = draft.change(role, result_rounding=rounding.value)
    limits = {k: limit(bench, f, draft.model()) for k, f in _below_ties(bench, node, kept) if f}
    exact = [limit for limit in limits.values() if limit.exact]
    reach = max((limit.bits for limit in limits.values()), default=kept)
    if not exact:
        alignment = Finding(None, note=f"exact: every bit that can decide a rounding is kept ({reach} tried)")
        return draft, named(alignment, result, rounding)
    f = min(limit.bits for limit in exact)
    alignment = Finding(f, evidence=tuple(e for limit in exact for e in limit.evidence))
    draft = draft.change(role, alignment_bits=f)
    cut = _narrow_cut(bench, draft, node, f)
    return draft.change(role, alignment_rounding=cut.value), named(alignment, result, rounding, cut)


def two_term_rows(bench: Workbench, node: DraftNode, f: int | None, kept: int) -> Iterator[Row]:
    """The rows that tell roundings and alignment bits of such a sum apart: those about f, or some wherever it may be cut."""
    yield from _ties(bench, node, kept)
    for _, family in _below_ties(bench, node, kept, lambda j: j % EVERY == 0 if f is None else abs(j - f) <= 2):
        yield from (row for _, row in family)


def _arrangements(bench: Workbench, node: DraftNode) -> Iterator[tuple[str, Slot, Slot, int]]:
    first, second = node.slots
    for head, tail in ((first, second), (second, first)):
        big = min(span(bench, head)[-1], bench.inst.d.max_exponent - 2, span(bench, tail)[-1])
        yield f"{tail.kind} {tail.leaf} against {head.kind} {head.leaf}", head, tail, big


def _pairs(bench: Workbench, node: DraftNode, sign: int) -> Iterator[tuple[str, Family]]:
    for label, head, tail, big in _arrangements(bench, node):
        low = max(span(bench, tail)[0], big - bench.inst.d.mantissa_bits - 2)
        rows: Family = [(big - e, {head.leaf: two_to(big), tail.leaf: Dyadic(sign, e)}) for e in range(big - 1, low - 1, -1)]
        if rows:
            yield label, rows


def _ties(bench: Workbench, node: DraftNode, kept: int) -> Iterator[Row]:
    for _, head, tail, big in _arrangements(bench, node):
        for sign in (1, -1):
            for t in (1, 3, -1, -3):
                yield {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - kept - 1)}


def _below_ties(
    bench: Workbench, node: DraftNode, kept: int, wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[str, Family]]:
    """Rows in which only the bit 2^-j M decides: alone, beside half of the last bit, or left over when M cancels."""
    for label, head, tail, big in _arrangements(bench, node):
        over: Family = []
        for j in filter(wanted, range(1, REACH)):
            left_over = {head.leaf: Dyadic(-1, big), tail.leaf: Dyadic((1 << j) + 1, big - j)}
            over += [(j, left_over)] if bench.fits(left_over) else []
        yield f"{label}, left over", over
        for sign in (1, -1):
            for tail_sign in (1, -1):
                alone: Family = []
                beside: Family = []
                for j in filter(wanted, range(kept + 3, kept + REACH)):
                    lone = {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(tail_sign, big - j)}
                    tie = {
                        head.leaf: Dyadic(sign, big),
                        tail.leaf: Dyadic(tail_sign * ((1 << (j - kept - 1)) + 1), big - j),
                    }
                    alone += [(j, lone)] if bench.fits(lone) else []
                    beside += [(j, tie)] if bench.fits(tie) else []
                yield f"{label}, {sign} {tail_sign} alone", alone
                yield f"{label}, {sign} {tail_sign} beside half", beside


def _narrow_cut(bench: Workbench, draft: Draft, node: DraftNode, f: int) -> Finding:
    rows: list[Row] = []
    ties: list[Row] = []
    for _, head, tail, big in _arrangements(bench, node):
        for sign in (1, -1):
            rows += [{head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - f - 2)} for t in range(-15, 16, 2)]
            ties += [{head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - f - 2)} for t in range(-14, 15, 4)]
    candidates = {r: draft.change(node.role, alignment_rounding=r).model() for r in get_args(AlignmentRounding)}
    cut = eliminate(bench, candidates, fitting(bench, rows), "no row tells the cuts of two terms apart")
    if not cut.candidates:
        return cut
    left = {r: candidates[r] for r in get_args(AlignmentRounding) if r in cut.candidates}
    return eliminate(bench, left, fitting(bench, ties), cut.note)
