"""A report as a flat table, for spreadsheets, data frames and requirements: one record of scalars per instruction.

A finding has three columns: `F`, `F_bound` and `F_candidates` ("a | b" where it is undetermined). An empty `F` whose
`F_bound` is "exact" means none: `alignment_bits` keeps all bits, `min_exponent` has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from accprobe.infer.findings import Finding
from accprobe.model.fields import finding_names, parsed
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import ran_as

Scalar = int | float | str | bool | None
Record = dict[str, Scalar]

SEPARATOR = " | "
"""Between the values of one column."""

_COUNTS = ("dots", "mismatches", "results", "contradicting", "queries", "smallest_query", "largest_query", "unstable", "calls")
_COVERED = ("tile_covered", "tile_total", "events_hit", "events_possible", "alternatives_tested", "alternatives_surviving")
_OF_PRODUCTS = ("split_k", "promote_every", "products_per_sum", "product_bits", "regions", "elements")
_NUMBERS = frozenset(("m", "n", "k", *_COUNTS, *_COVERED, *_OF_PRODUCTS, "results_explained", "seconds"))
"""Columns with numbers, beside the findings whose record says so."""


def records(report: Report) -> Iterator[Record]:
    """Yield a record for each instruction, also for skipped ones. All records have the same keys in the same order."""
    about: Record = {
        "device": report.device.name,
        "device_kind": report.device.kind,
        "architecture": report.device.architecture,
        "driver": report.environment.get("driver"),
        "cuda": report.environment.get("cuda"),
        "accprobe": report.tool.version,
        "seed": report.seed,
    }
    for row in report.instructions:
        yield about | record(row)


def record(row: Row) -> Record:
    """Return the columns of one instruction."""
    inst, done, alternatives = row.instruction, row.verification, row.alternatives
    cells, events, queries = (done.tile, done.events, done.queries) if done else (None, None, None)
    flat: Record = {
        "name": row.name,
        "family": inst.family.name,
        "m": inst.m,
        "n": inst.n,
        "k": inst.k,
        "d": inst.d.name,
        "a": inst.a.name,
        "b": inst.b.name,
        "c": inst.c.name,
        "satfinite": inst.satfinite,
        "sparse": inst.sparse,
        "scale": inst.scale.name if inst.scale else None,
        "status": row.status,
        "reason": row.reason or None,
        "ran_as": ran_as(row) or None,
        "opcodes": SEPARATOR.join(row.opcodes) or None,
        "opcode_source": row.opcode_source,
        "cubin_sha256": row.cubin_sha256,
        "dots": done.dots if done else None,
        "mismatches": done.mismatches if done else None,
        "results": (done.results or None) if done else None,
        "contradicting": done.contradicting if done and done.results else None,
        "tile_covered": cells.covered if cells else None,
        "tile_total": cells.total if cells else None,
        "tile_differing": (cells.differing or None) if cells else None,
        "events_hit": events.hit if events else None,
        "events_possible": events.possible if events else None,
        "events_missing": (SEPARATOR.join(events.missing) or None) if events else None,
        "queries": queries.count if queries else None,
        "smallest_query": queries.smallest if queries else None,
        "largest_query": queries.largest if queries else None,
        "alternatives_tested": alternatives.tested if alternatives else None,
        "alternatives_surviving": len(alternatives.surviving) if alternatives else None,
        "unstable": row.unstable if row.status != "skipped" else None,
        "results_explained": sum(one.words for one in row.explains) or None,
        "seconds": row.seconds,
    }
    for name in finding_names():
        flat |= _finding(name, row.findings.get(name))
    return flat


def product_record(row: ProductRow) -> Record:
    """Return the columns of one product beside its findings."""
    done = row.verification
    alternatives = [region.alternatives for region in row.regions if region.alternatives]
    return {
        "callable": row.callable,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "a": row.a,
        "b": row.b,
        "out": row.out,
        "scale": row.scale,
        "status": row.status,
        "reason": row.reason or None,
        "regions": len(row.regions),
        "elements": done.elements if done else None,
        "mismatches": done.mismatches if done else None,
        "contradicting": done.contradicting if done else None,
        "alternatives_tested": sum(each.tested for each in alternatives) if alternatives else None,
        "alternatives_surviving": sum(len(each.surviving) for each in alternatives) if alternatives else None,
        "calls": row.calls,
        "seconds": row.seconds,
    }


def product_fields() -> list[str]:
    """Return every name that a requirement on products may use."""
    nothing = ProductRow(callable="", m=1, n=1, k=1, a="f32", b="f32", out="f32", status="skipped")
    return [*PRODUCT_FINDINGS, *product_record(nothing)]


def is_number(column: str) -> bool:
    """Return whether a column has numbers; others have words."""
    record = parsed(column).record
    return column in _NUMBERS or (record is not None and record.is_number)


def _finding(name: str, finding: Finding | None) -> Record:
    candidates = SEPARATOR.join(str(value) for value in finding.candidates) if finding else ""
    return {
        name: finding.value if finding else None,
        f"{name}_bound": finding.bound if finding else None,
        f"{name}_candidates": candidates or None,
    }
