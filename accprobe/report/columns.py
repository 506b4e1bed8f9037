"""A report as a flat table, for spreadsheets, data frames and requirements: one record of scalars for each claim.

A finding has three columns: `F`, `F_bound` and `F_candidates` ("a | b" where it is undetermined). An empty `F` whose
`F_bound` is "exact" means none: `alignment_bits` keeps all bits, `min_exponent` has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from accprobe.isa.families import Family
from accprobe.isa.formats import Format
from accprobe.model.fields import finding_names, parsed
from accprobe.report.report import AnyClaim, Report
from accprobe.report.rows import Row
from accprobe.report.words import PRODUCT_FINDINGS, ran_as

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


_MEANINGS = {
    "m": "rows of D",
    "n": "columns of D",
    "k": "products of each element of D",
    "seconds": "seconds",
    "promote_every": "products between two promotions",
    "split_k": "slices",
    "slice_sizes": "products of each slice",
    "product_bits": "fraction bits of a rounded product",
    "errors_largest": "largest error, in units in the last place",
    "errors_mean": "mean error, in units in the last place",
    "tile_covered": "elements of the tile",
    "tile_total": "elements of the tile",
    "tile_differing": "elements of the tile",
}
"""Definitions, with units, of fields that are no features of an instruction."""


def meaning_of(name: str) -> str:
    """Return the definition of a field with its unit; "" if its name says it."""
    what = parsed(name)
    added = "separate add: " if what.role == "add" else ""
    return f"{added}{what.record.says}" if what.record else _MEANINGS.get(name, "")


@cache
def field_names() -> tuple[str, ...]:
    """Return every name that a requirement may use."""
    some = record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped"))
    return tuple(dict.fromkeys([*some, *(name for found in FINDINGS.values() for name in found)]))
