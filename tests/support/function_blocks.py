"""Generated parts of docs/functions.md."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from benchmark import RESULTS
from block_forms import COLUMNS, fenced, filled, printed, tabled

from accprobe.function.records import function_words
from accprobe.function.reference import errors_in_ulp, exact_values
from accprobe.isa.formats import FORMATS
from accprobe.render.subjects.functions import computes_in_short
from accprobe.report.functions import FunctionRow, TableModelRecord
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
    header = ("function", "ran as", "largest ulp", "correctly rounded", "computes")
    table = []
    for row in rows:
        errors = row.errors
        largest = f"{errors.largest:.4g}" if errors else ""
        share = f"{100 * errors.correct / errors.words:.4g} %" if errors else ""
        computes = computes_in_short(row.computes) or row.reason
        table.append((f"`{row.name}`", " + ".join(row.opcodes), largest, share, computes.replace("|", "\\|")))
    return tabled(header, table)


def functions_speed() -> str:
    """Return the recorded rates of predictions, and the seconds of measurements."""
    results = _recorded("cpu")["results"]
    rates = [each["words_per_second"] for each in results if each.get("operands") == "normal"]
    by_numpy = [each["words_per_second_by_numpy"] for each in results if each.get("operands") == "normal"]
    seconds = [each["seconds"] for each in results if "seconds" in each]
    return filled(
        f"On one core it computes {min(rates) / 1e6:.0f} to {max(rates) / 1e6:.0f} million results a second with numba"
        f" (extra `fast`), {min(by_numpy) / 1e6:.0f} to {max(by_numpy) / 1e6:.0f} million without, of standard-normal"
        f" values. Measuring an f32 function of numpy on 2^26 operands takes {min(seconds):.1f}"
        f" to {max(seconds):.1f} s of one core."
    )


def functions_of_kernels() -> str:
    """Return a line for each recorded callable of a GPU, and the differences of two."""
    data = _recorded("h200")
    rows = [(each["function"], each["computes"]) for each in data["results"]]
    exps, quantisers = data["versus"]
    return (
        tabled(("function", "computes"), rows)
        + "\n"
        + filled(
            f"All {exps['compared']:,} operands of each were compared on an {data['host']['device']} (torch"
            f" {data['host']['torch']}, Triton {data['host']['triton']}): 0 differ. Triton's and torch's `exp` differ for"
            f" {exps['differ']:,} operands, by at most {exps['ulp']} ulp. Triton's `x / scale` in a quantiser to fp8 is"
            f" `div.full`: it differs from torch's for {quantisers['differ']} of {quantisers['compared']:,}"
            f" pairs of operand and scale, by"
            f" {quantisers['ulp']} ulp."
        )
    )


def _recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "functions" / f"{name}.json").read_text(encoding="utf-8"))
    return found


DOMAINS = {
    "ex2": (0, 1),
    "lg2": (1, 2),
    "rcp": (1, 2),
    "rsqrt": (1, 4),
    "sqrt": (1, 4),
    "sin": (0, 6),
    "cos": (0, 6),
    "tanh": (0, 6),
}
"""Operands between which the errors of a function are shown: its reduction repeats them elsewhere."""

POINTS, LEVELS = 1 << 16, "▁▂▃▄▅▆▇█"


def function_errors() -> str:
    """Return a picture of the errors of each table model, which gives the results of all operands."""
    lines = []
    for row in Report.load("functions-h200").functions:
        domain = DOMAINS.get(row.name.partition(".")[0])
        is_unit = row.result == "f32" and (row.name.startswith("tanh") or ".ftz" in row.name)
        if domain and is_unit and row.errors and row.status == "confirmed" and isinstance(row.model, TableModelRecord):
            lines += [*_picture(row, row.errors.function, *domain), ""]
    return fenced(lines[:-1])


def _picture(row: FunctionRow, function: str, low: float, high: float) -> list[str]:
    """Return the largest error of each part of a domain; a full block is the scale, or more."""
    f32 = FORMATS["f32"]
    words = np.linspace(low, high, POINTS, endpoint=False, dtype=np.float32).view(np.uint32)
    ulps = errors_in_ulp(function_words(row, words), exact_values(function, f32)(words), f32)
    parts = np.array([np.nanmax(part) for part in np.array_split(ulps, COLUMNS)])
    scale = 2.0 ** np.ceil(np.log2(np.quantile(parts, 0.9)))
    levels = np.minimum(parts / scale * len(LEVELS), len(LEVELS) - 1).astype(int)
    return [f"{row.name}, x from {low:g} to {high:g}; █ is {scale:g} ulp", "".join(LEVELS[level] for level in levels)]


def numpy_sum() -> str:
    """Return the lines of a report of `reduce` that do not depend on the machine."""
    lines = printed("reduce", "numpy:sum", "--shape", "8x96", "--elements", "4096", "--device", "cpu")
    end = next(i for i, line in enumerate(lines) if line.startswith("device"))
    kept = ("every k", "additions", "along K", "everywhere", "repeatable", "verified")
    return fenced([*lines[:end], *(line for line in lines[end:] if line.startswith(kept))])
