"""Fields of claims, for requirements and as the columns of a table: findings, and scalars of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from accprobe.model.fields import finding_names, parsed
from accprobe.records.rows import Row
from accprobe.report.report import AnyClaim, Report
from accprobe.report.words import PRODUCT_FINDINGS, ran_as

Scalar = int | float | str | None

CLAIM_FIELDS: dict[str, Callable[[AnyClaim], Scalar]] = {
    "status": lambda claim: claim.status,
    "ran_as": lambda claim: ran_as(claim) or None if isinstance(claim, Row) else None,
    "computes": lambda claim: getattr(claim, "computes", None) or None,
    "compared": lambda claim: getattr(claim.verification, "compared", None),
    "mismatches": lambda claim: getattr(claim.verification, "mismatches", None),
    "contradicting": lambda claim: getattr(claim.verification, "contradicting", None),
    "errors_largest": lambda claim: getattr(getattr(claim, "errors", None), "largest", None),
    "alternatives_surviving": lambda claim: _surviving(claim),
}
"""Fields that are not findings; None if a claim does not have one."""


def _surviving(claim: AnyClaim) -> int | None:
    tried = [part.alternatives for part in claim.parts if part.alternatives]
    return sum(len(each.surviving) for each in tried) if tried else None


_MEANINGS = {
    "computes": "model of a function, in words",
    "compared": "results compared with the model",
    "mismatches": "compared results that differ from the model",
    "contradicting": "results, of all, that contradict the model",
    "errors_largest": "largest error of a function, in units in the last place",
    "alternatives_surviving": "alternative models that no result contradicts",
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
    return tuple(dict.fromkeys([*CLAIM_FIELDS, *finding_names(), *PRODUCT_FINDINGS]))


def records(report: Report) -> Iterator[dict[str, Scalar]]:
    """Yield a record for each claim, with equal columns: its subject, the fields, and the findings F of its first part.

    F_bound: how far F is known, in the words of `Finding.bound`, such as "exact".
    """
    found = dict.fromkeys(name for claim in report.claims for part in claim.parts for name in part.findings)
    for claim in report.claims:
        record: dict[str, Scalar] = {"device": report.device.name, "architecture": report.device.architecture}
        record |= {"kind": claim.kind, "name": claim.name, "title": claim.title}
        record |= {name: value_of(claim) for name, value_of in CLAIM_FIELDS.items()}
        findings = claim.parts[0].findings if claim.parts else {}
        for name in found:
            finding = findings.get(name)
            record |= {name: finding.value, f"{name}_bound": finding.bound} if finding else {name: None, f"{name}_bound": None}
        yield record
