"""The comparison of two traces: the first difference and its cause, the origins, and on a page every operation of both runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from accprobe.render.document import Column, Element, Grid, Heading, Paragraph, Phrase, Said, Tone, table
from accprobe.trace.compare import DifferenceOrigin, OperationState, TraceComparison
from accprobe.trace.records import TracedOperation
from accprobe.trace.summary import (
    count_operations,
    differs_in_dtype,
    find_uncomparable,
    list_limits,
    operand_shapes,
    trace_headline,
)

_TONES: dict[OperationState, Tone] = {"equal": "good", "origin": "bad", "consequence": "warning"}
"""Tones of states; the others are quiet."""


def trace_blocks(found: TraceComparison) -> Iterator[Element]:
    """Yield the headline, what the record lacks, counts that the headline does not have, and a row for each origin."""
    yield Heading(Phrase(trace_headline(found), "good" if found.equal else "bad"), 1)
    if lacks := list_limits(found):
        yield Paragraph(Phrase(lacks, "warning"))
    if lacks or not found.equal:
        yield Paragraph(count_operations(found))
    if found.origins and (reason := find_uncomparable(found)):
        yield Paragraph(f"not comparable: {reason}")
    if found.origins:
        yield origin_table(found.origins)


def trace_page(found: TraceComparison) -> Iterator[Element]:
    """Yield `trace_blocks` under headings, and the operations of both runs in their order; a page filters them by module."""
    *verdict, last = trace_blocks(found)
    yield from verdict
    if isinstance(last, Grid):
        yield Heading("Origins", 2, "origins")
    yield last
    yield Heading("Operations", 2, "operations")
    yield Paragraph(
        "An origin computes other bits from equal inputs. A consequence has inputs that differ already. The counts leave out"
        " `return`, the results of the run."
    )
    yield _timeline(found)


def origin_table(origins: Sequence[DifferenceOrigin]) -> Grid:
    """Return a row for each origin; equal rows are one, with their number before the operation."""
    columns = (
        Column("module"),
        Column("operation", least=14),
        Column("operands", need="detail"),
        Column("elements\nthat differ", need="context"),
        Column("cause", least=28, once=True),
        Column("verified", whole=True),
    )
    counts = Counter(map(_origin, origins))
    rows = ((row[0], f"{count} × {row[1]}" if count > 1 else row[1], *row[2:]) for row, count in counts.items())
    return table(columns, rows)


def _origin(each: DifferenceOrigin) -> tuple[str, ...]:
    differing = "not saved" if each.differing is None else f"{each.differing:,} of {each.of:,}"
    differing = "dtype only" if differs_in_dtype(each) else differing
    fixes = "; no change that accprobe tries makes both sides equal" if each.cause.fixes_tried else ""
    if each.cause.fixes:
        fixes = f"; fix: {' or '.join(each.cause.fixes)}"
    verified = "yes" if each.cause.verified else "no"
    return each.module, each.operation, operand_shapes(each), differing, each.cause.text + fixes, verified


def _timeline(found: TraceComparison) -> Grid:
    columns = (
        Column("module"),
        Column("operation"),
        Column("state", whole=True),
        Column("result"),
        Column("phase", need="detail"),
        Column("A", number=True),
        Column("B", number=True),
    )
    return table(columns, _rows(found), filtered=True)


def _rows(found: TraceComparison) -> Iterator[tuple[Said, ...]]:
    """Yield the operations of both runs in their order; corresponding ones are one row."""
    a, b = (trace.operations for trace in found.traces)
    before = (0, 0)
    for i, j in (*found.pairs, (len(a), len(b))):
        for operation in a[before[0] : i]:
            yield _row((operation,), found.states[0][operation.number], str(operation.number), "")
        for operation in b[before[1] : j]:
            yield _row((operation,), found.states[1][operation.number], "", str(operation.number))
        if i < len(a):
            yield _row((a[i], b[j]), found.states[0][i], str(i), str(j))
        before = i + 1, j + 1


def _row(same: Sequence[TracedOperation], state: OperationState, first: str, second: str) -> tuple[Said, ...]:
    operation, results = same[0], " against ".join(dict.fromkeys(map(_results, same)))
    shown = Phrase(state, _TONES.get(state, "quiet"))
    return operation.module, operation.packet, shown, results, operation.phase, first, second


def _results(operation: TracedOperation) -> str:
    return " ".join(f"{value.dtype}[{','.join(map(str, value.shape))}]" for value in operation.outputs if value.dtype)
