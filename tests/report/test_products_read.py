"""Products in a report: read as they were written, and refused where they contradict themselves."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes import fake_report, report_data, simulated_report, with_value
from golden import REPORT_FILE, schema
from product_rows import TAIL, dropped, product_data, product_model, product_report, suggested, two_regions

from accprobe.errors import ReportError
from accprobe.model.product import Scales
from accprobe.records.products import ProductRow
from accprobe.report.autosave import with_results
from accprobe.report.report import Report
from accprobe.report.words import miscounted, plan_words

ROWS = {
    "one chain": product_data(),
    "slices, promoted": product_data(product_model(slices=2, promote=128)),
    "scales": product_data(product_model(scales=Scales("row")), scale="row"),
    "dropped": dropped(),
    "suggested": suggested(),
    "two regions": two_regions(),
    "nothing found": product_data(status="inferred", reason="no tree", regions=[], verification=None),
    "options": product_data(options={"use_fast_accum": False, "x": None, "y": 1.5, "z": "w"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_row_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    before = product_report(ROWS[name])
    before.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == before
    jsonschema.Draft202012Validator(schema(REPORT_FILE)).validate(json.loads(before.dumps()))


CONFIRMED = "claims.0.product: status: 'confirmed', yet "
MODEL = "regions.0.model"
BROKEN: dict[str, tuple[str, object, str]] = {
    "no shape": ("k", None, "claims.0.product.k: field required"),
    "fresh elements differ": ("verification.mismatches", 2, f"{CONFIRMED}2 results differ from the model and 0 contradict it"),
    "no model": (MODEL, None, f"{CONFIRMED}regions.0: there is no model"),
    "suggested": ("regions.0.findings.split_k.bound", "suggested", f"{CONFIRMED}regions.0: findings.split_k is suggested"),
    "an element more": ("regions.0.elements", 127, f"{CONFIRMED}its regions have 127 of 128 elements"),
    "model of another K": ("k", 512, "claims.0.product: regions.0.model: of 1024 e4m3 e4m3 f32, and the row of 512"),
    "a tree beyond K": (
        f"{MODEL}.tree.reduction.0.repeat",
        9,
        "claims.0.product.regions.0.model: tree: a chain of the products 1024 to 1152, of 1024",
    ),
}


def broken(path: str, value: object) -> str:
    """Return a report of one product that has this value at a path, or lacks the key if it is None."""
    return json.dumps(report_data(claims=[with_value(product_data(product_model(promote=128)), path, value)]))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_product_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path, value, message = BROKEN[name]
    (tmp_path / "r.json").write_text(broken(path, value))
    with pytest.raises(ReportError) as error:
        Report.load(tmp_path / "r.json")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_row_that_is_not_confirmed_may_have_what_a_confirmed_one_may_not() -> None:
    row = product_data(status="inferred", reason="1 of 9 fresh elements differ from what the plan gives")
    row["verification"] |= {"mismatches": 1, "contradicting": 2}
    row["regions"][0] |= {"alternatives": None, "elements": 3}
    assert product_report(row).products[0].verification is not None


def test_products_of_another_run_replace_those_that_were_asked_the_same() -> None:
    alone = {"run": {"jobs": 1, "seconds": 1.0, "selected": 0}}
    before = product_report(product_data(), product_data(name="torch:addmm"))
    after = with_results(before, product_report(dropped(), product_data(name="numpy:matmul"), **alone))
    assert after is not None
    assert [row.name for row in after.products] == ["torch:mm", "torch:addmm", "numpy:matmul"]
    assert list(miscounted(after.products[0])) == [("rows 0-15, columns 0-7", TAIL)]
    with pytest.raises(ReportError, match="give another file"):
        with_results(simulated_report(), product_report(dropped(), **alone))
    beside_rows = with_results(fake_report(), product_report(dropped(), **alone))
    assert beside_rows is not None
    assert {row.name for row in fake_report().claims} < {claim.name for claim in beside_rows.claims}


@pytest.mark.parametrize(
    ("changes", "globs", "meant"),
    [
        ({}, "torch:mm", True),
        ({}, "torch:addmm", False),
        ({}, "torch:mm 16x8x* e4m3 f32", True),
        ({}, "torch:mm 16x8x512", False),
        ({"options": {"fast": True}}, "*:mm fast=True", True),
        ({"scale": "row"}, "*:mm scale=row", True),
        ({"scale": "row"}, "torch:mm 16x8x1024 e4m3 -> f32 scale=row", True),
        ({"scale": "row"}, "torch:mm, e4m3->f32, scale=row", True),
        ({}, "torch:mm f32 -> f32", False),
        ({}, "torch:mm 16x8x1024 e4m3 x e4m3 -> f32", True),
    ],
)
def test_globs_name_products(changes: dict[str, Any], globs: str, meant: bool) -> None:
    row = ProductRow.model_validate_json(json.dumps(product_data(**changes)))
    assert row.matches(globs) == meant


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (product_data(product_model(slices=2, promote=128)), "2 slices of 512, partials f32, promotion interval 128"),
        (suggested(model=product_model(promote=128)), "~one chain, promotion interval ~128"),
        (product_data(regions=[], status="inferred", reason="no tree"), ""),
        (
            product_data(findings={"split_k": {"value": 1, "bound": "undetermined"}}),
            "one chain?",
        ),
    ],
)
def test_plan_in_words(row: dict[str, Any], words: str) -> None:
    assert plan_words(ProductRow.model_validate_json(json.dumps(row)).findings) == words
