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
    "kind": "kind of row: instruction, product, reduction or function",
    "title": "name with shape, formats and options",
    "name": "instruction, callable or function, as `show` prints it",
    "family": "family of the instruction: mma.sync, mma.sp, wgmma, …",
    "m": "rows of D",
    "n": "columns of D",
    "k": "products of each element of D",
    "d": "format of D of an instruction",
    "a": "format of A",
    "b": "format of B",
    "c": "format of the addend C of an instruction",
    "out": "format of D of a product, or of the result of a reduction",
    "satfinite": "whether the instruction saturates finite results (`.satfinite`)",
    "sparse": "whether A is sparse (2:4, 4:8 or 1:2)",
    "scale": "format of an instruction's block scales; scope of a product's scales",
    "operand": "format of a function's operand",
    "result": "format of a function's result",
    "computes": "model of a function, in words",
    "digest": "hash of all results of a function that was measured on every operand",
    "reason": "why the row is not confirmed, or was skipped",
    "opcodes": "matrix opcodes that ran",
    "opcode_source": "where the opcodes come from: nvdisasm, ncu, a known model or machine code",
    "cubin_sha256": "SHA-256 of the machine code that ran",
    "unstable": "dot products that gave different bits when repeated",
    "calls": "calls of the callable",
    "seconds": "time that the row took, in seconds",
    "compared": "results compared with the model",
    "of": "operands that a function has; 0: they cannot all be tried",
    "mismatches": "compared results that differ from the model",
    "results": "all results that the subject returned, including results of experiments",
    "contradicting": "results, of all, that contradict the model",
    "promote_every": "products between two promotions",
    "promotion_format": "format of the sum to which partial sums are promoted",
    "promotion_rounding": "how the sum to which partial sums are promoted is rounded",
    "split_k": "number of slices of K, each with a sum of its own",
    "slice_sizes": "products of each slice of K",
    "partial_format": "format of the partial sums of slices",
    "reduction_order": "order in which the partial sums of slices are added",
    "product_bits": "fraction bits of a rounded product",
    "sum_rounding": "how each fused sum is rounded",
    "operand_rounding": "how operands are rounded to the format that the unit reads, such as f32 to tf32",
    "scales": "where the scales of A and B are applied",
    "epilogue": "operations after the product, such as a bias",
    "instruction": "a known instruction that computes the same fused sum",
    "same_everywhere": "whether all elements of D have one plan",
    "each_product_once": "whether each product is counted exactly once",
    "depends_on": "what an element of D depends on: its own row of A and column of B, or more",
    "repeatable": "whether identical calls return the same bits",
    "first_calls": "whether the first calls return the same bits as later ones",
    "errors_largest": "largest error, in units in the last place",
    "errors_mean": "mean error, in units in the last place",
    "errors_at": "bit pattern of the operand with the largest error",
    "errors_words": "results with a computed error",
    "errors_correct": "correctly rounded results",
    "errors_against": "neighbouring results that move against the function",
    "tile_covered": "tile elements that were compared with the model",
    "tile_total": "all tile elements of the instruction",
    "tile_differing": "tile elements that differ from the model, in words",
    "events_hit": "events of functional coverage that the operands reached",
    "events_possible": "events of functional coverage that can occur",
    "events_missing": "names of possible events that were not reached",
    "alternatives_tested": "alternative models that were tested",
    "alternatives_surviving": "alternative models that no result contradicts",
}
"""Definitions, with units, of fields that are not features of an instruction."""


def meaning_of(name: str) -> str:
    """Return the definition of a field, with its unit."""
    what = parsed(name)
    added = "separate add: " if what.role == "add" else ""
    return f"{added}{what.record.says}" if what.record else _MEANINGS[name]


@cache
def field_names() -> tuple[str, ...]:
    """Return every name that a requirement may use."""
    some = record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped"))
    return tuple(dict.fromkeys([*some, *(name for found in FINDINGS.values() for name in found)]))
