"""Whole products of two reports: matched by their request, compared finding by finding, region by region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from accprobe.compare.differences import NOT_KNOWN, Compared, Difference, FieldVerdict, finding_verdict, overall
from accprobe.infer.findings import Bound, Finding
from accprobe.model.product import same_additions
from accprobe.report.product_words import PLAN_FINDINGS, PRODUCT_FINDINGS, miscounted, plan_words
from accprobe.report.products import ProductRow, RegionRecord
from accprobe.report.report import Report
from accprobe.report.words import found_words

ProductPair: TypeAlias = Compared[ProductRow]

ONCE = "each_product_once"
# Fields of a row that are not findings.
STATUS, REGIONS = "status", "regions"


def fields_compared(a: Report, b: Report) -> list[str]:
    """Return every field of products, including findings that this version does not know."""
    seen = (name for report in (a, b) for row in report.products for region in row.regions for name in region.findings)
    return list(dict.fromkeys([*PRODUCT_FINDINGS, *seen, REGIONS, STATUS]))


def product_pairs(a: Report, b: Report, fields: Sequence[str]) -> Iterator[ProductPair]:
    """Yield pairs in the order of A, then the rows of B alone; none without fields."""
    of_a, of_b = ({row.key: row for row in report.products} for report in (a, b))
    for key in dict.fromkeys([*of_a, *of_b]) if fields else ():
        yield product_pair(of_a.get(key), of_b.get(key), fields)


def product_pair(a: ProductRow | None, b: ProductRow | None, fields: Sequence[str]) -> ProductPair:
    """Compare two rows, whatever their requests."""
    marks = tuple(f"{side} {row.status}" for side, row in (("A", a), ("B", b)) if row and row.status != "confirmed")
    if a is None or b is None:
        return ProductPair(a=a, b=b, verdict="only in B" if a is None else "only in A", marks=marks)
    differences = tuple(_differences(a, b, fields))
    return ProductPair(a=a, b=b, verdict=overall(differences), differences=differences, marks=marks)


def contrast(pair: ProductPair) -> tuple[str, str]:
    """Return both plans in words: "4 slices of 1024, partials bf16", "one chain"; for equal plans the changed fields."""
    a, b = both_plans(pair)
    if a != b:
        return a, b
    changed = [each for each in pair.differences if each.verdict == "changed"]
    return ", ".join(f"{each.title} {each.a}" for each in changed), ", ".join(f"{each.title} {each.b}" for each in changed)


def both_plans(pair: ProductPair) -> tuple[str, str]:
    """Return the plans of both rows, "" of a row of one side alone."""
    a, b = (_plans(row) if row else "" for row in (pair.a, pair.b))
    return a, b


def _plans(row: ProductRow) -> str:
    """Return the plan of all elements, or of each region if they differ."""
    every = [plan_words(region.findings) or NOT_KNOWN for region in row.regions]
    if len(set(every)) == 1:
        return every[0]
    return " / ".join(f"{each} at {region.where}" for each, region in zip(every, row.regions, strict=True)) or NOT_KNOWN


def _differences(a: ProductRow, b: ProductRow, fields: Sequence[str]) -> Iterator[Difference]:
    if STATUS in fields and a.status != b.status:
        yield Difference(STATUS, "changed", a.status, b.status)
    if REGIONS in fields and _where(a) != _where(b):
        verdict: FieldVerdict = "changed" if a.holds and b.holds else "undecided"
        yield Difference(REGIONS, verdict, _where(a) or "none", _where(b) or "none")
    counted = [_miscounted_elsewhere(row) for row in (a, b)]
    if ONCE in fields and counted[0] != counted[1]:
        yield Difference(ONCE, "changed", *(words or "yes" for words in counted))
    for where, of_a, of_b in _matched(a.regions, b.regions):
        mine, other = of_a.model, of_b.model
        alike = a.holds and b.holds and mine is not None and other is not None and same_additions(mine, other)
        for field in fields:
            verdict_ = _verdict(of_a.findings, of_b.findings, field)
            if verdict_ is None or (alike and field in PLAN_FINDINGS and _bounds(field, of_a, of_b) <= {"exact", "equivalent"}):
                continue
            if verdict_ == "changed" or "order" not in fields or "equivalent" not in _bounds(field, of_a, of_b):
                shown = [found_words(each.findings, field) or NOT_KNOWN for each in (of_a, of_b)]
                yield Difference(field, verdict_, shown[0], shown[1], where=where)


def _miscounted_elsewhere(row: ProductRow) -> str:
    """Return the k that regions other than the largest drop or repeat."""
    return "; ".join(f"{which}, at {where}" for where, which in miscounted(row) if where != row.regions[0].where)


def _where(row: ProductRow) -> str:
    return "; ".join(region.where for region in row.regions)


def _bounds(field: str, a: RegionRecord, b: RegionRecord) -> set[Bound]:
    return {each.findings[field].bound for each in (a, b) if field in each.findings}


def _matched(a: Sequence[RegionRecord], b: Sequence[RegionRecord]) -> Iterator[tuple[str, RegionRecord, RegionRecord]]:
    """Yield the largest regions of both, and others with the same elements."""
    if a and b:
        yield "", a[0], b[0]
    others = {region.where: region for region in b[1:]}
    yield from ((region.where, region, others[region.where]) for region in a[1:] if region.where in others)


def _verdict(a: Mapping[str, Finding], b: Mapping[str, Finding], field: str) -> FieldVerdict | None:
    """Return the verdict. A finding that the other side's plan cannot have does not differ."""
    of_a, of_b = a.get(field), b.get(field)
    if of_a is None or of_b is None:
        return "undecided" if of_a is not of_b and not ("order" in a and "order" in b) else None
    return finding_verdict(of_a, of_b, field)
