"""Scalar functions: a line for each, and what it computes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accprobe.records.functions import FunctionRow
from accprobe.render.document import Column, Element, List, Paragraph, Phrase, tabulate
from accprobe.report.words import percent, so_many

COLUMNS = (
    Column("function", lambda row: row.title, least=22),
    Column("computes", lambda row: row.computes or "unknown", least=24),
    Column("largest\nulp", lambda row: f"{row.errors.largest:.4g}" if row.errors else "", number=True, missing="–"),
    Column("correctly\nrounded", lambda row: _share(row), "context", number=True, missing="–"),
    Column("ran as", lambda row: " + ".join(row.opcodes), missing="–"),
    Column("results", lambda row: f"{row.verification.compared:,}" if row.verification else "", "detail", number=True),
    Column("differ", lambda row: f"{row.verification.mismatches:,}" if row.computes and row.verification else "", number=True),
    Column("status", lambda row: Phrase(row.status, row.status), whole=True),
)

IN_SHORT = (
    replace(COLUMNS[0], least=16),
    Column("computes", lambda row: computes_in_short(row.computes), least=31),
    *COLUMNS[2:4],
    Column("ran as", lambda row: _main_opcode(row), least=12, missing="–"),
)
"""The columns of a table with one line for each of many functions."""

MOST_OPERANDS = 1 << 32
"""Largest number of operands of one argument; functions of several have more, and quantisers state none."""

MOST_IN_FULL = 8
"""Largest number of functions with complete columns without --all."""


def function_blocks(rows: Sequence[FunctionRow], expand: bool = False, where: str = "") -> Iterator[Element]:
    """Yield the headline, the table of several rows, and remarks.

    expand: complete columns, also for many functions. where: begins the headline of several, such as "NVIDIA H200: ".
    """
    start = (Phrase(rows[0].status, rows[0].status), Phrase(": ")) if len(rows) == 1 else (Phrase(where, "strong"),)
    yield Paragraph((*start, Phrase(function_headline(rows), "strong")))
    if expand or len(rows) <= MOST_IN_FULL:
        if len(rows) > 1:
            yield tabulate(COLUMNS, rows)
    else:
        yield tabulate(IN_SHORT, [row for row in rows if row.status == "confirmed"])
        for (status, reason), count in Counter((row.status, row.reason) for row in rows if row.status != "confirmed").items():
            yield Paragraph((Phrase(f"{status}: ", status), Phrase(f"{reason or 'see below'}: {so_many(count, 'function')}")))
        yield Paragraph(Phrase("A function's name, or --all, shows its special operands, opcodes and model in full.", "quiet"))
    remarks = [remark for row in rows for remark in remarks_of(row, len(rows) > 1)]
    if remarks:
        yield List(tuple(remarks), mark="-")


def computes_in_short(computes: str) -> str:
    """Return "a · b + c, RNE, FTZ": the function, its rounding, and whether subnormals are flushed."""
    first, *clauses = computes.partition(";")[0].split(", ")
    rounding = [found[1] for each in clauses if (found := _ROUNDING.match(each.replace("truncated to", "RZ to")))]
    return ", ".join([first, *rounding, *["FTZ"] * ("subnormal operands and results flushed" in clauses)])


_ROUNDING = re.compile(r"(?:rounded once \()?((?:RNE|RNA|RZ|RD|RU)\b(?: to \w+)?|exact)")


def _main_opcode(row: FunctionRow) -> str:
    """Return "MUFU.EX2 + 2 others"."""
    if len(row.opcodes) < 3:
        return " + ".join(row.opcodes)
    main = next((opcode for opcode in row.opcodes if "MUFU" in opcode), row.opcodes[0])
    return f"{main} + {len(row.opcodes) - 1} others"


def function_headline(rows: Sequence[FunctionRow]) -> str:
    """Return "torch:exp bf16: exp, rounded once (RNE); largest error 0.5 ulp; all 65,536 operands compared, 0 differ"."""
    if len(rows) == 1:
        (row,) = rows
        done = row.verification
        if not row.computes or done is None or row.status == "unstable":
            return f"{row.title}: {row.reason}"
        where = f"all {done.of:,} operands" if row.is_exhaustive else f"{done.compared:,} of {done.of:,} operands"
        if not 0 < done.of <= MOST_OPERANDS:
            where = f"{done.compared:,} combinations of operands"
        if done.mismatches:
            return f"{row.title}: {row.computes}, except for {done.mismatches:,} of {done.compared:,} results"
        error = f"; largest error {row.errors.largest:.4g} ulp" if row.errors else ""
        stopped = f"; {row.reason}" if row.reason else ""
        return f"{row.title}: {row.computes}{error}; {where} compared, 0 differ{stopped}"
    confirmed = sum(row.status == "confirmed" for row in rows)
    exhaustive = sum(row.is_exhaustive and row.status == "confirmed" for row in rows)
    skipped = sum(row.status == "skipped" for row in rows)
    every = [row.verification for row in rows if row.verification]
    compared, differ = sum(each.compared for each in every), sum(each.mismatches for each in every)
    rest = f"; {skipped} skipped" if skipped else ""
    counts = f"{confirmed} of {len(rows) - skipped} functions confirmed, {exhaustive} of them on every operand"
    return f"{counts}: {differ:,} of {compared:,} results differ from their models{rest}"


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
            yield f"not monotonic: {so_many(errors.against, 'pair')} of neighbouring results against the function"
    if not named and row.opcodes:
        yield f"ran as {' + '.join(row.opcodes)}"
    if not named and row.specials:
        yield "special operands: " + ", ".join(
            f"f({'smallest subnormal' if name == 'subnormal' else name}) = {word}" for name, word in row.specials.items()
        )
    if row.verification and row.verification.mismatch:
        yield f"{start}{row.verification.mismatch}"
    if not named and row.contradicted:
        yield f"contradicted: {'; '.join(row.contradicted[:4])}" + f"; and {len(row.contradicted) - 4} more" * (
            len(row.contradicted) > 4
        )


def _share(row: FunctionRow) -> str:
    if row.errors is None or not row.errors.words:
        return ""
    return percent(row.errors.correct / row.errors.words, digits=4)
