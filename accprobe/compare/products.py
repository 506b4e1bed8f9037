"""Whole products of two reports: matched by what was asked, compared finding by finding, region by region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from accprobe.compare.possible import overlap, possible
from accprobe.infer.findings import Finding
from accprobe.model.features import title
from accprobe.report.product_words import PRODUCT_FINDINGS, plan, told
from accprobe.report.products import ProductRow, RegionRecord
from accprobe.report.report import Report

ProductVerdict = Literal["changed", "only in A", "only in B", "undecided", "same"]

STATUS, REGIONS = "status", "regions"
"""Fields that a row has of its own."""


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


def fields_compared(a: Report, b: Report) -> list[str]:
    """Every field of products, those that no accprobe knows too."""
    seen = (name for report in (a, b) for row in report.products for region in row.regions for name in region.findings)
    return list(dict.fromkeys([*PRODUCT_FINDINGS, *seen, REGIONS, STATUS]))


def product_pairs(a: Report, b: Report, fields: Sequence[str]) -> Iterator[ProductPair]:
    """In the order of A, then what B alone has; nothing where no field is asked for."""
    of_a, of_b = ({row.key: row for row in report.products} for report in (a, b))
    for key in dict.fromkeys([*of_a, *of_b]) if fields else ():
        row_a, row_b = of_a.get(key), of_b.get(key)
        marks = tuple(f"{side} {row.status}" for side, row in (("A", row_a), ("B", row_b)) if row and row.status != "confirmed")
        if row_a is None or row_b is None:
            yield ProductPair(row_a, row_b, "only in B" if row_a is None else "only in A", (), marks)
            continue
        differences = tuple(_differences(row_a, row_b, fields))
        changed = any(difference.verdict == "changed" for difference in differences)
        yield ProductPair(row_a, row_b, "changed" if changed else "undecided" if differences else "same", differences, marks)


def why(pair: ProductPair, names: tuple[str, str]) -> str:
    """ "H100: 4 slices of 1024, partials bf16; H200: one chain"; "" where the plans are the same. names: of A and of B."""
    if pair.a is None or pair.b is None:
        return ""
    plans = tuple(_plans(row) for row in (pair.a, pair.b))
    if plans[0] == plans[1]:
        told_apart = [each for each in pair.differences if each.verdict == "changed"]
        plans = tuple(", ".join(f"{each.title} {getattr(each, side)}" for each in told_apart) for side in ("a", "b"))
    return "; ".join(f"{name}: {plan_}" for name, plan_ in zip(names, plans, strict=True)) if any(plans) else ""


def _plans(row: ProductRow) -> str:
    """The plan of all elements, or of each region where they differ."""
    every = [plan(region.findings) or "not known" for region in row.regions]
    if len(set(every)) == 1:
        return every[0]
    return " / ".join(f"{each} at {region.where}" for each, region in zip(every, row.regions, strict=True)) or "not known"


def _differences(a: ProductRow, b: ProductRow, fields: Sequence[str]) -> Iterator[ProductDifference]:
    if STATUS in fields and a.status != b.status:
        yield ProductDifference(STATUS, "changed", a.status, b.status)
    if REGIONS in fields and _where(a) != _where(b):
        verdict: Literal["changed", "undecided"] = "changed" if a.holds and b.holds else "undecided"
        yield ProductDifference(REGIONS, verdict, _where(a) or "none", _where(b) or "none")
    for where, of_a, of_b in _matched(a.regions, b.regions):
        for field in fields:
            if (verdict_ := _verdict(of_a, of_b, field)) is not None:
                yield ProductDifference(field, verdict_, _shown(of_a, field), _shown(of_b, field), where)


def _where(row: ProductRow) -> str:
    return "; ".join(region.where for region in row.regions)


def _matched(
    a: Sequence[RegionRecord], b: Sequence[RegionRecord]
) -> Iterator[tuple[str, Mapping[str, Finding], Mapping[str, Finding]]]:
    """The largest regions of both, and others that lie at the same place."""
    if a and b:
        yield "", a[0].findings, b[0].findings
    others = {region.where: region for region in b[1:]}
    yield from ((region.where, region.findings, others[region.where].findings) for region in a[1:] if region.where in others)


def _shown(findings: Mapping[str, Finding], field: str) -> str:
    return told(findings, field) or "not known"


def _verdict(a: Mapping[str, Finding], b: Mapping[str, Finding], field: str) -> Literal["changed", "undecided"] | None:
    """A finding that one side alone has says nothing where another one says why: one slice has no partial sums' format."""
    of_a, of_b = a.get(field), b.get(field)
    if of_a is None or of_b is None or (of_a.value, of_a.bound, of_a.left) == (of_b.value, of_b.bound, of_b.left):
        return None
    return "undecided" if overlap(possible(of_a, field), possible(of_b, field)) else "changed"
