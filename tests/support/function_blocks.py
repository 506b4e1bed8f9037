"""Generated parts of docs/functions.md."""

from __future__ import annotations

from block_forms import fenced, filled, printed, tabled

from accprobe.report.functions import TableModelRecord
from accprobe.report.report import Report


def square_root() -> str:
    """Return what the command prints."""
    return fenced(printed("function", "numpy:sqrt", "--dtype", "f16", "--device", "cpu"))


def functions_measured() -> str:
    """Return how many functions were compared, and on how many operands."""
    report = Report.load("functions-h200")
    rows = [row for row in report.functions if row.status != "skipped"]
    confirmed = [row for row in rows if row.status == "confirmed"]
    tables = [row for row in confirmed if isinstance(row.model, TableModelRecord)]
    return (
        filled(
            f"`accprobe function --device cuda:0` on an {report.device.name}: {len(rows)} instructions,"
            f" {sum(row.is_exhaustive for row in rows)} of them on every operand. {len(confirmed)} are confirmed: 0 of"
            f" {sum(row.verification.compared for row in confirmed):,} results differ from the model."
            f" {len(tables)} have a table model."
        )
        + "\n"
    )


def functions() -> str:
    """Return a line for each function of the special function unit, and for each that no model explains on every operand."""
    measured = [row for row in Report.load("functions-h200").functions if row.opcodes and row.status != "skipped"]
    rows = [row for row in measured if isinstance(row.model, TableModelRecord) or row.status != "confirmed"]
    header = ("function", "ran as", "largest ulp", "correctly rounded", "computes", "results that differ")
    table = []
    for row in rows:
        errors = row.errors
        largest = f"{errors.largest:.4g}" if errors else ""
        share = f"{100 * errors.correct / errors.words:.4g} %" if errors else ""
        differ = f"{row.verification.mismatches:,}"
        table.append((f"`{row.name}`", " + ".join(row.opcodes), largest, share, row.computes or row.reason, differ))
    return tabled(header, table)


def numpy_sum() -> str:
    """Return the lines of a report of `reduce` that do not depend on the machine."""
    lines = printed("reduce", "numpy:sum", "--shape", "8x96", "--elements", "4096", "--device", "cpu")
    end = next(i for i, line in enumerate(lines) if line.startswith("device"))
    kept = ("every k", "additions", "along K", "everywhere", "repeatable", "verified")
    return fenced([*lines[:end], *(line for line in lines[end:] if line.startswith(kept))])
