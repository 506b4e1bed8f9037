"""Generated parts of docs/functions.md."""

from __future__ import annotations

from block_forms import fenced, filled, printed, tabled

from accprobe.report.functions import TableModelRecord
from accprobe.report.report import Report


def silu() -> str:
    """Return what the command prints."""
    return fenced(printed("function", "torch:silu", "--dtype", "bf16", "--device", "cpu", status=0))


def functions_measured() -> str:
    """Return how many functions were compared, and on how many operands."""
    report = Report.load("functions-h200")
    rows = [row for row in report.functions if row.status != "skipped"]
    confirmed = [row for row in rows if row.status == "confirmed"]
    tables = [row for row in confirmed if isinstance(row.model, TableModelRecord)]
    return filled(
        f"`accprobe function --device cuda:0` on an {report.device.name}: {len(rows)} instructions, each on every operand,"
        f" {sum(row.words for row in rows):,} results. {len(confirmed)} are confirmed: 0 results differ from the model."
        f" {len(tables)} of them have a table model."
    )


def functions() -> str:
    """Return a line for each function."""
    rows = [row for row in Report.load("functions-h200").functions if row.status != "skipped"]
    header = ("function", "ran as", "largest ulp", "correctly rounded", "computes", "results that differ")
    table = []
    for row in rows:
        errors = row.errors
        largest = f"{errors.largest:.4g}" if errors else ""
        share = f"{100 * errors.correct / errors.words:.4g} %" if errors else ""
        table.append(
            (f"`{row.name}`", " + ".join(row.opcodes), largest, share, row.computes or row.reason, f"{row.mismatches:,}")
        )
    return tabled(header, table)
