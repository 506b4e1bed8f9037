"""Whole products of two reports: matched by what was asked, compared finding by finding, region by region."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from accprobe.compare.possible import overlap, possible
from accprobe.infer.findings import Bound, Finding
from accprobe.model.features import title
from accprobe.model.product import same_additions
from accprobe.report.product_words import PRODUCT_FINDINGS, STRUCTURE, found_words, miscounted, plan_words
from accprobe.report.products import ProductRow, RegionRecord
from accprobe.report.report import Report

ProductVerdict = Literal["changed", "only in A", "only in B", "undecided", "same"]

VerdictWord = ProductVerdict | Literal["status changed"]
"""A verdict as readers are told it: of rows whose status alone changed, and no value, that."""

ONCE = "each_product_once"
STATUS, REGIONS = "status", "regions"
"""Fields that a row has of its own."""


def verdict_word(verdict: ProductVerdict, changed: Iterable[str]) -> VerdictWord:
    """changed: the fields that did."""
    return "status changed" if verdict == "changed" and {*changed} == {STATUS} else verdict


@dataclass(frozen=True)
class ProductDifference:
    """One field in which two rows are not the same, as tables show it. where: of other elements than most."""

    field: str
    verdict: Literal["changed", "undecided"]
    a: str
    b: str
    where: str = ""

    @property
    def title(self) -> str:
        return title(self.field) + (f" at {self.where}" if self.where else "")


@dataclass(frozen=True)
class ProductPair:
    """A product of A and one of B that was asked the same; None where a side has none. marks: sides that nobody proved."""

    a: ProductRow | None
    b: ProductRow | None
    verdict: ProductVerdict
    differences: tuple[ProductDifference, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def row(self) -> ProductRow:
        """That of A, or of B where A has none."""
        row = self.a or self.b
        assert row is not None
        return row

    @property
    def word(self) -> VerdictWord:
        return verdict_word(self.verdict, (each.field for each in self.differences if each.verdict == "changed"))


def fields_compared(a: Report, b: Report) -> list[str]:
    """Every field of products, those that no accprobe knows too."""
    seen = (name for report in (a, b) for row in report.products for region in row.regions for name in region.findings)
    return list(dict.fromkeys([*PRODUCT_FINDINGS, *seen, REGIONS, STATUS]))


def product_pairs(a: Report, b: Report, fields: Sequence[str]) -> Iterator[ProductPair]:
    """In the order of A, then what B alone has; nothing where no field is asked for."""
    of_a, of_b = ({row.key: row for row in report.products} for report in (a, b))
    for key in dict.fromkeys([*of_a, *of_b]) if fields else ():
        yield product_pair(of_a.get(key), of_b.get(key), fields)


def product_pair(a: ProductRow | None, b: ProductRow | None, fields: Sequence[str]) -> ProductPair:
    """The two with their verdict, whatever they were asked."""
    marks = tuple(f"{side} {row.status}" for side, row in (("A", a), ("B", b)) if row and row.status != "confirmed")
    if a is None or b is None:
        return ProductPair(a, b, "only in B" if a is None else "only in A", (), marks)
    differences = tuple(_differences(a, b, fields))
    changed = any(difference.verdict == "changed" for difference in differences)
    return ProductPair(a, b, "changed" if changed else "undecided" if differences else "same", differences, marks)


def apart(pair: ProductPair) -> tuple[str, str]:
    """What the two are in few words: "4 slices of 1024, partials bf16", "one chain"; of like plans the fields that changed."""
    if pair.a is None or pair.b is None:
        return "", ""
    a, b = _plans(pair.a), _plans(pair.b)
    if a != b:
        return a, b
    changed = [each for each in pair.differences if each.verdict == "changed"]
    return ", ".join(f"{each.title} {each.a}" for each in changed), ", ".join(f"{each.title} {each.b}" for each in changed)


def _plans(row: ProductRow) -> str:
    """The plan of all elements, or of each region where they differ."""
    every = [plan_words(region.findings) or "not known" for region in row.regions]
    if len(set(every)) == 1:
        return every[0]
    return " / ".join(f"{each} at {region.where}" for each, region in zip(every, row.regions, strict=True)) or "not known"


def _differences(a: ProductRow, b: ProductRow, fields: Sequence[str]) -> Iterator[ProductDifference]:
    if STATUS in fields and a.status != b.status:
        yield ProductDifference(STATUS, "changed", a.status, b.status)
    if REGIONS in fields and _where(a) != _where(b):
        verdict: Literal["changed", "undecided"] = "changed" if a.holds and b.holds else "undecided"
        yield ProductDifference(REGIONS, verdict, _where(a) or "none", _where(b) or "none")
    counted = [_miscounted_elsewhere(row) for row in (a, b)]
    if ONCE in fields and counted[0] != counted[1]:
        yield ProductDifference(ONCE, "changed", *(words or "yes" for words in counted))
    for where, of_a, of_b in _matched(a.regions, b.regions):
        alike = a.holds and b.holds and _adds_alike(of_a, of_b)
        for field in fields:
            verdict_ = _verdict(of_a.findings, of_b.findings, field)
            if verdict_ is None or (alike and field in STRUCTURE and _bounds(field, of_a, of_b) <= {"exact", "equivalent"}):
                continue
            if verdict_ == "changed" or "order" not in fields or "equivalent" not in _bounds(field, of_a, of_b):
                shown = _shown(of_a.findings, field), _shown(of_b.findings, field)
                yield ProductDifference(field, verdict_, *shown, where)


def _miscounted_elsewhere(row: ProductRow) -> str:
    """What regions beside the largest drop or double."""
    return "; ".join(f"{which}, at {where}" for where, which in miscounted(row) if where != row.regions[0].where)


def _where(row: ProductRow) -> str:
    return "; ".join(region.where for region in row.regions)


def _adds_alike(a: RegionRecord, b: RegionRecord) -> bool:
    return a.model is not None and b.model is not None and same_additions(a.model, b.model)


def _bounds(field: str, a: RegionRecord, b: RegionRecord) -> set[Bound]:
    return {each.findings[field].bound for each in (a, b) if field in each.findings}


def _matched(a: Sequence[RegionRecord], b: Sequence[RegionRecord]) -> Iterator[tuple[str, RegionRecord, RegionRecord]]:
    """The largest regions of both, and others that lie at the same place."""
    if a and b:
        yield "", a[0], b[0]
    others = {region.where: region for region in b[1:]}
    yield from ((region.where, region, others[region.where]) for region in a[1:] if region.where in others)


def _shown(findings: Mapping[str, Finding], field: str) -> str:
    return found_words(findings, field) or "not known"


def _verdict(a: Mapping[str, Finding], b: Mapping[str, Finding], field: str) -> Literal["changed", "undecided"] | None:
    """Of a finding that one side alone has nothing is said where the other's plan has none: one slice has no partial sums."""
    of_a, of_b = a.get(field), b.get(field)
    if of_a is None or of_b is None:
        return "undecided" if of_a is not of_b and not ("order" in a and "order" in b) else None
    if (of_a.value, of_a.bound, of_a.candidates) == (of_b.value, of_b.bound, of_b.candidates):
        return None
    return "undecided" if overlap(possible(of_a, field), possible(of_b, field)) else "changed"
