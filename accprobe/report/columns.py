"""A report as a flat table, for spreadsheets, data frames and requirements: one record of scalars for each row.

A finding has three columns: `F`, `F_bound` and `F_candidates` ("a | b" where it is undetermined). An empty `F` whose
`F_bound` is "exact" means none: `alignment_bits` keeps all bits, `min_exponent` has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.isa.formats import Format
from accprobe.model.fields import finding_names, parsed
from accprobe.report.functions import FunctionRow
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import ran_as

Scalar = int | float | str | bool | None
Record = dict[str, Scalar]

SEPARATOR = " | "
"""Between the values of one column."""

_SHAPE = ("m", "n", "k")
_FORMATS = ("d", "a", "b", "c", "satfinite", "sparse", "scale")
_OF_INSTRUCTION = ("status", "reason", "opcodes", "opcode_source", "cubin_sha256", "unstable", "seconds")
_OF_PRODUCT = ("title", "callable", "a", "b", "out", "scale", "status", "reason", "calls", "seconds")
_OF_FUNCTION = (
    "title", "operand", "result", "status", "reason", "opcodes", "computes", "words", "of", "mismatches", "digest", "seconds",
)  # fmt: skip
_OF_ERRORS = ("largest", "mean", "at", "words", "correct", "against")
_COUNTS = ("dots", "mismatches", "results", "contradicting", "elements", "unstable", "seconds", "calls")
_COVERED = ("tile_covered", "tile_total", "events_hit", "events_possible", "alternatives_tested", "alternatives_surviving")
_OF_FUNCTIONS = ("words", "of", *(f"errors_{name}" for name in _OF_ERRORS if name != "at"))
_NUMBERS = frozenset(
    (*_SHAPE, *_COUNTS, *_COVERED, *_OF_FUNCTIONS, "split_k", "promote_every", "products_per_sum", "product_bits")
)
"""Columns with numbers, beside the findings whose record says so."""


def records(report: Report) -> Iterator[Record]:
    """Yield a record for each instruction, also for skipped ones; without instructions for each product, or function."""
    about: Record = {
        "device": report.device.name,
        "device_kind": report.device.kind,
        "architecture": report.device.architecture,
        "driver": report.environment.get("driver"),
        "cuda": report.environment.get("cuda"),
        "accprobe": report.tool.version,
        "seed": report.seed,
    }
    for row in report.instructions or report.products:
        flat = about | record(row)
        for name in finding_names() if isinstance(row, Row) else PRODUCT_FINDINGS:
            found = row.findings.get(name)
            flat |= {name: found.value if found else None} | _values(found, ("bound", "candidates"), f"{name}_")
        yield flat
    if not report.instructions and not report.products:
        yield from (about | record(row) for row in report.functions)


def record(row: Row | ProductRow | FunctionRow) -> Record:
    """Return the columns of a row beside its findings."""
    if isinstance(row, FunctionRow):
        compared = {} if row.computes else {"mismatches": None}
        return _values(row, _OF_FUNCTION) | _values(row.errors, _OF_ERRORS, "errors_") | compared
    done = row.verification
    flat: Record = _of_instruction(row) if isinstance(row, Row) else _values(row, (*_OF_PRODUCT, *_SHAPE))
    flat |= _values(done, ("dots" if isinstance(row, Row) else "elements", "mismatches", "results", "contradicting"))
    tried = [part.alternatives for part in row.parts if part.alternatives]
    return flat | {
        "alternatives_tested": sum(each.tested for each in tried) if tried else None,
        "alternatives_surviving": sum(len(each.surviving) for each in tried) if tried else None,
    }


def _of_instruction(row: Row) -> Record:
    done = row.verification
    return {
        "name": row.name,
        "family": row.instruction.family.name,
        **_values(row.instruction, (*_SHAPE, *_FORMATS)),
        **_values(row, _OF_INSTRUCTION),
        "ran_as": ran_as(row) or None,
        **_values(done and done.tile, ("covered", "total", "differing"), "tile_"),
        **_values(done and done.events, ("hit", "possible", "missing"), "events_"),
    }


def _values(data: object, names: Sequence[str], prefix: str = "") -> Record:
    """Return the attributes as scalars; None of empty ones and where there is no record."""
    found: Record = {}
    for name in names:
        value = getattr(data, name, None)
        if isinstance(value, Format):
            value = value.name
        elif isinstance(value, tuple):
            value = SEPARATOR.join(map(str, value))
        found[f"{prefix}{name}"] = None if value == "" else value
    return found


def column_names() -> dict[str, list[str]]:
    """Return every name that a requirement on instructions, products and functions may use."""
    product = ProductRow(callable="", m=1, n=1, k=1, a="f32", b="f32", out="f32", status="skipped")
    return {
        "instructions": [*record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped")), *finding_names()],
        "products": [*PRODUCT_FINDINGS, *record(product)],
        "functions": [*record(FunctionRow(name="", operand="f32", result="f32", status="skipped"))],
    }


def is_number(column: str) -> bool:
    """Return whether a column has numbers; others have words."""
    of_finding = parsed(column).record
    return column in _NUMBERS or (of_finding is not None and of_finding.is_number)
