"""A report as a flat table, for spreadsheets, data frames and requirements: one record of scalars for each claim.

A finding has three columns: `F`, `F_bound` and `F_candidates` ("a | b" where it is undetermined). An empty `F` whose
`F_bound` is "exact" means none: `alignment_bits` keeps all bits, `min_exponent` has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from accprobe.isa.families import Family
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import finding_names, parsed
from accprobe.report.functions import FunctionRow
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow
from accprobe.report.report import AnyClaim, Report
from accprobe.report.rows import Row
from accprobe.report.words import ran_as

Scalar = int | float | str | bool | None
Record = dict[str, Scalar]

SEPARATOR = " | "
"""Between the values of one column."""

FINDINGS = {"instruction": tuple(finding_names()), "product": PRODUCT_FINDINGS, "reduction": PRODUCT_FINDINGS, "function": ()}
"""The findings of each kind of claims."""

_SUBJECT = ("family", "m", "n", "k", "d", "a", "b", "c", "out", "satfinite", "sparse", "scale", "operand", "result")
_CLAIM = ("computes", "digest", "status", "reason", "opcodes", "opcode_source", "cubin_sha256", "unstable", "calls", "seconds")
_VERIFICATION = ("compared", "of", "mismatches", "results", "contradicting")
_TILE, _EVENTS = ("covered", "total", "differing"), ("hit", "possible", "missing")
_ERRORS = ("largest", "mean", "at", "words", "correct", "against")
_NUMBERS = frozenset(
    (
        *("m", "n", "k", "unstable", "calls", "seconds", *_VERIFICATION, "tile_covered", "tile_total"),
        *("events_hit", "events_possible", "alternatives_tested", "alternatives_surviving"),
        *(f"errors_{name}" for name in _ERRORS if name != "at"),
        *("split_k", "promote_every", "products_per_sum", "product_bits"),
    )
)
"""Columns with numbers, beside the findings whose record says so."""


def records(report: Report) -> Iterator[Record]:
    """Yield a record for each claim, also for skipped ones."""
    about: Record = {
        "device": report.device.name,
        "device_kind": report.device.kind,
        "architecture": report.device.architecture,
        "driver": report.environment.get("driver"),
        "cuda": report.environment.get("cuda"),
        "accprobe": report.tool.version,
        "seed": report.seed,
    }
    for claim in report.claims:
        flat = about | record(claim)
        findings = claim.parts[0].findings if claim.parts else {}
        for name in FINDINGS[claim.kind]:
            found = findings.get(name)
            flat |= {name: found.value if found else None} | _values(found, ("bound", "candidates"), f"{name}_")
        yield flat


def record(claim: AnyClaim) -> Record:
    """Return the columns of a claim beside its findings."""
    done, row = claim.verification, claim if isinstance(claim, Row) else None
    tried = [part.alternatives for part in claim.parts if part.alternatives]
    return {
        **_values(claim, ("kind", "title", "name")),
        **_values(row.instruction if row else claim, _SUBJECT),
        **_values(claim, _CLAIM),
        "ran_as": ran_as(row) or None if row else None,
        **_values(done, _VERIFICATION),
        **_values(getattr(claim, "errors", None), _ERRORS, "errors_"),
        **_values(done and done.tile, _TILE, "tile_"),
        **_values(done and done.events, _EVENTS, "events_"),
        "alternatives_tested": sum(each.tested for each in tried) if tried else None,
        "alternatives_surviving": sum(len(each.surviving) for each in tried) if tried else None,
    }


def _values(data: object, names: Sequence[str], prefix: str = "") -> Record:
    """Return the attributes as scalars; None of empty ones and where there is no record."""
    found: Record = {}
    for name in names:
        value = getattr(data, name, None)
        if isinstance(value, Format | Family):
            value = value.name
        elif isinstance(value, tuple):
            value = SEPARATOR.join(map(str, value))
        found[f"{prefix}{name}"] = None if value == "" else value
    return found


@cache
def fields() -> dict[str, list[str]]:
    """Return every name that a requirement may use, and the kinds of claims that have the field."""
    some = record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped"))
    of_kind = {kind: {*_of_kind(kind), *FINDINGS[kind]} for kind in FINDINGS}
    names = dict.fromkeys([*some, *(name for found in FINDINGS.values() for name in found)])
    return {name: [kind for kind, known in of_kind.items() if name in known] for name in names}


def _of_kind(kind: str) -> Iterator[str]:
    """Yield the columns beside findings that a claim of this kind has."""
    claim: type[AnyClaim] = Row if kind == "instruction" else FunctionRow if kind == "function" else ProductRow
    for of, names in ((Instruction if claim is Row else claim, _SUBJECT), (claim, ("kind", "title", "name", *_CLAIM))):
        known = {*dir(of), *getattr(of, "model_fields", ()), *getattr(of, "__dataclass_fields__", ())}
        yield from known.intersection(names)
    yield from _VERIFICATION
    if kind == "function":
        yield from (f"errors_{name}" for name in _ERRORS)
    else:
        yield from ("alternatives_tested", "alternatives_surviving")
    if kind == "instruction":
        yield from ("ran_as", *(f"tile_{name}" for name in _TILE), *(f"events_{name}" for name in _EVENTS))


def is_number(column: str) -> bool:
    """Return whether a column has numbers; others have words."""
    of_finding = parsed(column).record
    return column in _NUMBERS or (of_finding is not None and of_finding.is_number)
