"""Products in words: findings with their bounds, and no markup from a report."""

import json
from typing import Any

import pytest
from product_rows import OF_A, TAIL, dropped, product_data, product_model, product_report, suggested, two_regions
from shown import in_markdown, page_of

from accprobe.isa.formats import FORMATS
from accprobe.model.product import multiply_add
from accprobe.model.tree import DotModel
from accprobe.records.products import ProductRow
from accprobe.render.document import text_of
from accprobe.render.subjects import products
from accprobe.render.subjects.report import report_blocks

Row = dict[str, Any]


def row(data: Row) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))


def said(data: Row) -> dict[str, str]:
    return {label: said.text for label, said in products.lines(row(data))}


NOTHING = {"compared": 0, "mismatches": 0, "seed": 0}


@pytest.mark.parametrize(
    ("data", "label", "words"),
    [
        (dropped(), "every k", f"NOT a[i, k]·b[k, j] once: {TAIL}"),
        (suggested(), "fused sums", "~32 products, ~13 fraction bits, ~RZ"),
        (
            product_data(
                scale="128x128", findings={"scales": {"value": "sa, then sb", "bound": "undetermined", "candidates": ["x"]}}
            ),
            "scales",
            "one per block of 128 x 128: sa, then sb?",
        ),
        (two_regions(), "everywhere", "2 plans: 96 elements alike"),
        (
            product_data(findings={"depends_on": {"value": "whole tensor", "bound": "exact", "note": "row 3 changes others"}}),
            "depends on",
            "whole tensor: row 3 changes others",
        ),
        (
            suggested() | {"verification": {**NOTHING, "results": 40, "contradicting": 3}},
            "verified",
            "nothing: results contradict the plan; 3 of 40 results contradict the plan;"
            " 26 of 26 alternative plans contradicted",
        ),
    ],
)
def test_line_says(data: Row, label: str, words: str) -> None:
    assert said(data)[label] == words


def test_sums_in_any_order_are_confirmed_up_to_it() -> None:
    found = {"reduction_order": {"value": "unordered", "bound": "exact"}}
    shown = text_of(products.status_spans(row(product_data(product_model(slices=4), findings=found))))
    assert shown == "confirmed up to the order of atomics"


ROUNDED_FIRST = {"product_bits": {"value": None, "bound": "undetermined", "candidates": [None, 23]}}
"""An alternative rounds products first, which leaves it open whether they are fused."""


@pytest.mark.parametrize(
    ("a", "of", "found", "words"),
    [
        ("f32", multiply_add(), {}, "fused multiply-adds"),
        ("f32", multiply_add(), ROUNDED_FIRST, "fused multiply-adds?"),
        ("f64", multiply_add(FORMATS["f64"]), {}, "fused multiply-adds"),
        ("f16", multiply_add(), {}, "multiply-adds (fused or not: products are exact)"),
        ("bf16", multiply_add(fused=False), {}, "each rounded to 23 bits first"),
    ],
)
def test_multiply_adds_are_fused_where_that_shows(a: str, of: DotModel, found: Row, words: str) -> None:
    assert said(product_data(product_model(a=a, of=of), findings=found))["fused sums"].split(", ")[1] == words


def test_what_is_wrong_comes_first() -> None:
    ordered = products.wrong_first(product_report(*OF_A).products)
    assert [one.name for one in ordered] == ["torch:odd", "torch:mm", "torch:addmm", "torch:bmm", "mine.py:f"]
    assert [alarm.text for alarm in products.alarms(ordered[0])] == [f"DROPPED PRODUCTS: {TAIL}, of 1,024"]
    assert products.status_spans(ordered[0])[0].text == "WRONG RESULT"
    twice = dropped()
    twice["regions"][0]["findings"]["each_product_once"]["note"] = "1 counted more than once: k = 5"
    assert next(products.alarms(row(twice))).text.startswith("DOUBLED PRODUCTS: 1 counted")
    wrong = {"scales": {"value": "block 3 has the scales of block 2", "bound": "exact"}}
    misplaced = row(product_data(scale="128x128", name="torch:misplaced", findings=wrong))
    assert [alarm.text for alarm in products.alarms(misplaced)] == ["WRONG SCALES: block 3 has the scales of block 2"]
    assert products.wrong_first([row(product_data()), misplaced])[0] is misplaced
    page, told = page_of(product_report(*OF_A)), in_markdown(report_blocks(product_report(*OF_A)))
    assert page.index("DROPPED PRODUCTS") < page.index('id="products"')
    assert told.index("DROPPED PRODUCTS") < told.index("accumulation order")
