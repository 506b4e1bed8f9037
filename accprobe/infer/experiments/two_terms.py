"""Precision of a sum of two terms.

M is the large term and t the other one. No third term cancels M, so the alignment shows only in the rounding of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import get_args

from accprobe.errors import AccprobeError
from accprobe.infer.draft import Draft, DraftNode, Slot, choose_word
from accprobe.infer.experiments.series import REACH, RowSeries, agree, limit, named, span
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Dyadic, Row, Workbench, two_to
from accprobe.model.tree import Rounding

EVERY = 8  # Step, in bits, between the depths of rows if nothing is truncated.


def two_term_precision(bench: Workbench, draft: Draft, node: DraftNode) -> tuple[Draft, Findings]:
    """Find alignment bits, result bits and both roundings of a sum with two slots.

    For t = M · 2^-j, M + t is exact if the alignment and the result keep j bits. M - t needs only j - 1 bits of the result. If
    the result is the limit, it stays exact for one more j.
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


def two_term_rows(bench: Workbench, node: DraftNode, f: int | None, kept: int) -> Iterator[Row]:
    """Yield rows that distinguish roundings and alignment bits: near f, or at every depth if nothing is truncated."""
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


def _ties(bench: Workbench, node: DraftNode, kept: int) -> Iterator[Row]:
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
    def rows(multiples: range) -> Iterator[Row]:
        for _, head, tail, big in _arrangements(bench, node):
            for sign, t in product((1, -1), multiples):
                yield {head.leaf: Dyadic(sign, big), tail.leaf: Dyadic(t, big - f - 2)}

    note = "no row distinguishes the alignment roundings of two terms"
    odd, even = bench.fitting(rows(range(-15, 16, 2))), bench.fitting(rows(range(-14, 15, 4)))
    draft, terms = choose_word(bench, draft, "alignment_rounding", node.role, odd, note)
    if not terms.candidates:
        return draft, terms
    return choose_word(bench, draft, "alignment_rounding", node.role, even, terms.note, terms.candidates)
