"""Rows of whole products made by hand."""

from __future__ import annotations

import json
from typing import Any

from fakes import report_data

from accprobe.callables.spec import Spec
from accprobe.gemm.findings import plan_findings
from accprobe.isa.formats import FORMATS
from accprobe.model.notation import product_json
from accprobe.model.product import Merged, Node, ProductModel, Scales, addition, in_chunks
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product
from accprobe.records.products import ProductRow
from accprobe.report.report import Report

TAIL = "8 missing: k = 1016-1023"
"""The note of a product that drops its last k."""


def step(products: int = 32, bits: int = 13, cut: int | None = 13) -> DotModel:
    """Return a fused sum of so many products and C; by default that of QGMMA."""
    arithmetic = FloatArithmetic(FORMATS["f32"], bits, "RZ", cut)
    return DotModel(FusedSum((Addend(), *map(Product, range(products))), arithmetic))


def product_model(
    k: int = 1024,
    a: str = "e4m3",
    out: str = "f32",
    promote: int | None = None,
    slices: int = 1,
    kept: str | None = None,
    scales: Scales | None = None,
    of: DotModel | None = None,
) -> ProductModel:
    """Return even slices, each a chain with the promotion interval `promote`."""
    sums = of or step()
    pattern = tuple(range(sums.products))
    size = k // slices
    parts: list[Node] = [in_chunks(range(i, i + size), promote or size, pattern, addition()) for i in range(0, k, size)]
    tree = parts[0] if slices == 1 else Merged(tuple(parts), "forward", addition(), FORMATS[kept] if kept else None)
    return ProductModel(FORMATS[a], FORMATS[a], k, sums, tree, FORMATS[out], scales=scales)


def product_data(model: ProductModel | None = None, name: str = "torch:mm", **changes: Any) -> dict[str, Any]:
    """Return a confirmed row of 16 × 8 elements with one model, as JSON values; `findings` are added."""
    model = model or product_model()
    found = changes.pop("findings", {})
    spec = Spec(16, 8, model.k, model.a, model.b, model.result, model.scales and model.scales.of)
    values = {"repeatable": "yes", "same_everywhere": "yes"}
    values |= {name: finding.value for name, finding in plan_findings(spec, model) if name != "instruction"}
    findings = {"each_product_once": {"value": "yes", "bound": "exact", "note": f"{model.k} of {model.k}"}}
    findings |= {key: {"value": value, "bound": "exact"} for key, value in values.items()}
    region = {
        "where": "rows 0-15, columns 0-7",
        "elements": 128,
        "findings": findings | found,
        "model": product_json(model),
        "alternatives": {"tested": 26},
    }
    return {
        "kind": "product",
        "name": name,
        "m": 16,
        "n": 8,
        "k": model.k,
        "a": model.a.name,
        "b": model.b.name,
        "out": model.result.name,
        "status": "confirmed",
        "regions": [region],
        "verification": {"compared": 1_048_576, "mismatches": 0, "seed": 0, "kinds": {"normal": 1_048_576}, "results": 5000},
        "kernels": [{"name": "nvjet_qqtst", "opcodes": ["QGMMA.64x128x32.F32.E4M3.E4M3"]}],
        "libraries": {"torch": "2.11"},
        "calls": 99,
        "seconds": 1.5,
        **changes,
    }


def dropped(**changes: Any) -> dict[str, Any]:
    """Return a row that does not count its last eight k."""
    return product_data(findings={"each_product_once": {"value": "no", "bound": "exact", "note": TAIL}}, **changes)


def suggested(**changes: Any) -> dict[str, Any]:
    """Return a row whose model some results contradict."""
    row = product_data(**changes) | {"status": "inferred", "reason": "3 of 5000 answers that were kept have no explanation"}
    for name, finding in row["regions"][0]["findings"].items():
        if name not in ("each_product_once", "repeatable", "same_everywhere"):
            finding["bound"] = "suggested"
    row["verification"] |= {"contradicting": 3}
    return row


def two_regions(**changes: Any) -> dict[str, Any]:
    """Return a row of two regions: the last rows have 16 products per fused sum."""
    row, other = product_data(**changes), product_data(product_model(of=step(16)))
    first, second = row["regions"][0], other["regions"][0]
    for region, where, elements in ((first, "rows 0-11, columns 0-7", 96), (second, "rows 12-15, columns 0-7", 32)):
        region |= {"where": where, "elements": elements}
        region["findings"]["same_everywhere"] = {"value": "no", "bound": "exact", "note": "2 plans: 96 elements alike"}
    return row | {"regions": [first, second]}


def product_report(*rows: dict[str, Any], **changes: Any) -> Report:
    """Return a report of products."""
    return Report.model_validate_json(json.dumps(report_data(**{"claims": list(rows), **changes})))


OF_A = (
    product_data(product_model(promote=128)),
    product_data(product_model(slices=4, kept="bf16"), name="torch:addmm"),
    two_regions(name="torch:bmm"),
    suggested(name="mine.py:f", options={"fast": True}),
    dropped(name="torch:odd"),
)
"""Five products, the last of which drops some of K."""

OF_B = (
    product_data(),
    product_data(name="torch:addmm"),
    product_data(name="torch:bmm"),
    suggested(name="mine.py:f", options={"fast": True}),
    product_data(name="new:one"),
)
"""The products of another device."""

REQUIRED = (
    "torch:mm 16x8x1024: promote_every <= 128",
    "torch:addmm: promote_every <= 128",
    "torch:*: each_product_once == yes",
    "torch:bmm: products_per_sum >= 32",
    "mine.py:* fast=True: effective_bits >= 13",
    "torch:mm bf16: effective_bits >= 13",
)
"""Requirements on OF_A: passed, without a value, failed by one, failed in one region, suggested, without a match."""


def product_row(data: dict[str, Any]) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))
