"""Scalar functions: a line for each, and what it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.render.document import Column, Element, List, Paragraph, Phrase, tabulate
from accprobe.report.functions import FunctionRow

COLUMNS = (
    Column("function", lambda row: row.title, least=22),
    Column("computes", lambda row: row.computes or "unknown", least=24),
    Column("largest\nulp", lambda row: f"{row.errors.largest:.4g}" if row.errors else "", number=True),
    Column("correctly\nrounded", lambda row: _share(row), number=True),
    Column("ran as", lambda row: " + ".join(row.opcodes), need="context"),
    Column("results", lambda row: f"{row.verification.compared:,}" if row.verification else "", need="detail", number=True),
    Column("differ", lambda row: f"{row.verification.mismatches:,}" if row.computes and row.verification else "", number=True),
    Column("status", lambda row: Phrase(row.status, row.status), whole=True),
)


def function_blocks(rows: Sequence[FunctionRow]) -> Iterator[Element]:
    """Yield the headline, the table of several rows, and remarks."""
    yield Paragraph(Phrase(function_headline(rows), "strong"))
    if len(rows) > 1:
        yield tabulate(COLUMNS, rows)
    remarks = [remark for row in rows for remark in remarks_of(row, len(rows) > 1)]
    if remarks:
        yield List(tuple(remarks), mark="-")


def function_headline(rows: Sequence[FunctionRow]) -> str:
    """Return "torch:exp bf16: exp, rounded once (RNE); all 65,536 operands compared, 0 differ"."""
    if len(rows) == 1:
        (row,) = rows
        done = row.verification
        if not row.computes or done is None:
            return f"{row.title}: {row.reason}"
        where = f"all {done.of:,} operands" if row.is_exhaustive else f"{done.compared:,} of {done.of:,} operands"
        if done.mismatches:
            return f"{row.title}: {row.computes}, except for {done.mismatches:,} of {done.compared:,} results"
        return f"{row.title}: {row.computes}; {where} compared, 0 differ"
    confirmed = sum(row.status == "confirmed" for row in rows)
    exhaustive = sum(row.is_exhaustive and row.status == "confirmed" for row in rows)
    skipped = sum(row.status == "skipped" for row in rows)
    rest = f"; {skipped} skipped" if skipped else ""
    return f"{confirmed} of {len(rows) - skipped} functions confirmed, {exhaustive} of them on every operand{rest}"


def remarks_of(row: FunctionRow, named: bool) -> Iterator[str]:
    """Yield what a reader must know beyond the table."""
    start = f"{row.title}: " if named else ""
    if not named and row.errors:
        errors = row.errors
        yield (
            f"error against {errors.function} in float64: largest {errors.largest:.4g} ulp at {errors.at},"
            f" mean {errors.mean:.3g}; {errors.words:,} normal results, {_share(row)} correctly rounded"
        )
        if errors.against:
            yield f"not monotonic: {errors.against:,} pairs of neighbouring results change against the function"
    if not named and row.opcodes:
        yield f"ran as {' + '.join(row.opcodes)}"
    if not named and row.specials:
        yield "special operands: " + ", ".join(f"f({name}) = {word}" for name, word in row.specials.items())
    if row.verification and row.verification.mismatch:
        yield f"{start}{row.verification.mismatch}"
    if not named and row.contradicted:
        yield f"contradicted: {'; '.join(row.contradicted[:4])}" + f"; and {len(row.contradicted) - 4} more" * (
            len(row.contradicted) > 4
        )


def _share(row: FunctionRow) -> str:
    if row.errors is None or not row.errors.words:
        return ""
    share = row.errors.correct / row.errors.words
    return "100 %" if row.errors.correct == row.errors.words else f"{min(100 * share, 99.99):.4g} %"
