"""Products in words and drawn: what is said and what is not, and nothing of a report that a page would run."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from product_rows import OF_A, TAIL, dropped, product_data, product_model, product_report, step, suggested, two_regions
from shown import in_markdown, page_of

from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged, ProductModel, addition, multiply_add
from accprobe.model.tree import Addend, DotModel, FusedSum, Product
from accprobe.render.document import text_of
from accprobe.render.markdown import markdown_text
from accprobe.render.subjects import products
from accprobe.render.subjects.product_picture import MARGIN, WIDTH, levels_drawn, product_picture
from accprobe.render.subjects.report import report_blocks
from accprobe.report.products import ProductRow

Row = dict[str, Any]

EVIL = "<script>alert(1)</script>|`x`"


def row(data: Row) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))


def said(data: Row) -> dict[str, str]:
    return {line.label: line.said.text for line in products.lines(row(data))}


NOTHING = {"elements": 0, "mismatches": 0, "seed": 0}


def only_one() -> Row:
    data = product_data(m=1, n=1)
    data["regions"][0] |= {"where": "rows 0, columns 0", "elements": 1}
    return data


@pytest.mark.parametrize(
    ("data", "label", "words"),
    [
        (product_data(), "runs", "nvjet_qqtst QGMMA.64x128x32.F32.E4M3.E4M3 (torch 2.11)"),
        (product_data(kernels=[]), "runs", "kernels not recorded; loaded: torch 2.11"),
        (product_data(kernels=[{"name": "k", "launches": 3}], libraries={}), "runs", "k, 3 launches"),
        (
            product_data(
                kernels=[
                    {"name": "void (anonymous namespace)::copy<int, f(float)>(int, f)", "opcodes": []},
                    {"name": "void (anonymous namespace)::copy<bool>(int)", "launches": 2},
                    {"name": "void flash::forward(Params<8>)", "opcodes": ["HMMA.1688"]},
                ]
            ),
            "runs",
            "copy<…>, 3 launches; flash::forward HMMA.1688 (torch 2.11)",
        ),
        (product_data(probed_part="P·V along the keys"), "asked", "P·V along the keys"),
        (product_data(), "every k", "counted once: 1024 of 1024"),
        (dropped(), "every k", f"NOT a[i, k]·b[k, j] once: {TAIL}"),
        (
            product_data(
                findings={
                    "order": {"value": "2 parts of 256, added in f32: chain of [acc 32]", "bound": "exact", "note": "either"},
                    "split_k": {"value": 2, "bound": "equivalent", "candidates": [2, 1]},
                }
            ),
            "K",
            "2 parts of 256, added in f32: either",
        ),
        (product_data(), "inside", "sums of 32 products, 13 fraction bits, cut"),
        (
            product_data(findings={"order": {"value": "chain of [acc 32], from the last k to the first", "bound": "exact"}}),
            "inside",
            "sums of 32 products, from the last k to the first, 13 fraction bits, cut",
        ),
        (
            product_data(
                product_model(of=step(16, 23, 25)),
                findings={"instruction": {"value": "h200:x", "bound": "exact", "note": "and 3 others"}},
            ),
            "inside",
            "sums of 16 products, 23 fraction bits, aligned at 25, cut (as h200:x and 3 others)",
        ),
        (suggested(), "inside", "sums of ~32 products, ~13 fraction bits, ~cut"),
        (
            suggested(model=product_model(a="f32", of=multiply_add())),
            "inside",
            "~one product after the other, ~fused multiply-adds, ~23 fraction bits, ~cut",
        ),
        (
            product_data(product_model(a="tf32"), findings={"operand_rounding": {"value": "RNE", "bound": "exact"}}),
            "operands",
            "RNE to tf32",
        ),
        (
            product_data(product_model(a="tf32"), findings={"operand_rounding": {"value": "RZ", "bound": "exact"}}),
            "operands",
            "cut to tf32",
        ),
        (product_data(product_model(promote=128)), "promoted", "every 128 products into f32, RNE"),
        (product_data(), "promoted", "no"),
        (product_data(), "split K", "no"),
        (
            product_data(product_model(slices=4, kept="bf16")),
            "split K",
            "4 slices of 256; partial sums in bf16, merged forward",
        ),
        (
            product_data(findings={"split_k": {"value": 1, "bound": "undetermined", "candidates": [1, 4]}}),
            "split K",
            "no?",
        ),
        (
            product_data(scale="tensor", findings={"scales": {"value": "RNE(sa·sb), applied once", "bound": "exact"}}),
            "scales",
            "one a tensor: RNE(sa·sb), applied once",
        ),
        (
            product_data(
                scale="128x128", findings={"scales": {"value": "sa, then sb", "bound": "undetermined", "candidates": ["x"]}}
            ),
            "scales",
            "one a block of 128 x 128: sa, then sb?",
        ),
        (product_data(scale="row"), "scales", "one a row of A and one a column of B: how they are applied is not known"),
        (product_data(product_model(out="bf16")), "result", "RNE to bf16"),
        (product_data(), "everywhere", "all 128 outputs by the same plan"),
        (only_one(), "everywhere", "the only output"),
        (two_regions(), "everywhere", "NO: 2 plans: 96 elements alike"),
        (product_data(), "repeatable", "yes"),
        (
            product_data(findings={"depends_on": {"value": "whole tensor", "bound": "exact", "note": "row 3 changes others"}}),
            "depends on",
            "whole tensor: row 3 changes others",
        ),
        (product_data(), "proven", "1,048,576 fresh outputs, 0 differ; 26 of 26 rival plans contradicted"),
        (
            suggested() | {"verification": {**NOTHING, "results": 40, "contradicting": 3}},
            "proven",
            "nothing: answers contradict the plan already; 3 of 40 answers have no explanation;"
            " 26 of 26 rival plans contradicted",
        ),
        (
            suggested() | {"verification": NOTHING},
            "proven",
            "nothing: no fresh outputs were compared; 26 of 26 rival plans contradicted",
        ),
        (
            suggested(),
            "proven",
            "1,048,576 fresh outputs, 0 differ; 3 of 5,000 answers have no explanation; 26 of 26 rival plans contradicted",
        ),
    ],
)
def test_line_says(data: Row, label: str, words: str) -> None:
    assert said(data)[label] == words


def test_an_output_of_its_own_row_and_column_needs_no_line() -> None:
    assert "depends on" not in said(product_data(findings={"depends_on": {"value": "own row and column", "bound": "exact"}}))


def test_sums_in_any_order_are_confirmed_up_to_it() -> None:
    found = {"reduction_order": {"value": "unordered", "bound": "exact"}}
    shown = text_of(products.status_spans(row(product_data(product_model(slices=4), findings=found))))
    assert shown == "confirmed up to the order of atomics"


def as_its_own_sum() -> DotModel:
    """A product that is rounded on its own, then added."""
    arithmetic = multiply_add().root.arithmetic
    return DotModel(FusedSum((FusedSum((Product(0),), arithmetic), Addend()), arithmetic))


@pytest.mark.parametrize(
    ("a", "of", "words"),
    [
        ("f32", multiply_add(), "fused multiply-adds"),
        ("f16", multiply_add(FORMATS["f16"]), "fused multiply-adds"),
        ("f64", multiply_add(FORMATS["f64"]), "fused multiply-adds"),
        ("f16", multiply_add(), "multiply-adds (fused or not: products are exact in f32)"),
        ("e4m3", multiply_add(), "multiply-adds (fused or not: products are exact in f32)"),
        ("e5m2", multiply_add(), "multiply-adds (fused or not: products are exact in f32)"),
        ("f32", multiply_add(FORMATS["f64"]), "multiply-adds (fused or not: products are exact in f64)"),
        ("bf16", multiply_add(), "multiply-adds (fused or not: products are exact in the range of f32)"),
        ("tf32", multiply_add(), "multiply-adds (fused or not: products are exact in the range of f32)"),
        ("e4m3", multiply_add(FORMATS["f16"]), "multiply-adds (fused or not: products are exact in the range of f16)"),
        ("bf16", as_its_own_sum(), "a multiply and then an add"),
    ],
)
def test_multiply_adds_are_fused_where_that_shows(a: str, of: DotModel, words: str) -> None:
    assert said(product_data(product_model(a=a, of=of)))["inside"].split(", ")[1] == words


def test_a_rival_that_rounds_products_first_leaves_it_open_whether_they_are_fused() -> None:
    left = {"product_bits": {"value": None, "bound": "undetermined", "candidates": [None, 23]}}
    data = product_data(product_model(a="f32", of=multiply_add()), findings=left)
    assert said(data)["inside"].split(", ")[1] == "fused multiply-adds?"


def test_regions_have_a_plan_each() -> None:
    plans = [{line.label: line.said.text for line in lines} for _, lines in products.plans(row(two_regions()))]
    assert [plan["inside"].split(",")[0] for plan in plans] == ["sums of 32 products", "sums of 16 products"]
    assert all("in words" in plan for plan in plans)
    assert "inside" not in said(two_regions())


def test_what_is_wrong_comes_first() -> None:
    ordered = products.wrong_first(product_report(*OF_A).products)
    assert [one.callable for one in ordered] == ["torch:odd", "torch:mm", "torch:addmm", "torch:bmm", "mine.py:f"]
    assert [alarm.text for alarm in products.alarms(ordered[0])] == [f"DROPPED PRODUCTS: {TAIL}, of 1,024"]
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


def test_nothing_of_a_report_is_markup() -> None:
    evil = product_data(
        name=EVIL, options={EVIL: EVIL}, probed_part=EVIL, remarks=[EVIL], kernels=[{"name": EVIL}], libraries={EVIL: EVIL}
    )
    evil["regions"][0]["where"] = EVIL
    page = page_of(product_report(evil, two_regions(name=EVIL)))
    assert "<script>alert" not in page
    told = markdown_text(report_blocks(product_report(evil)))
    assert not re.search(r"(?<!\\)<script>", re.sub(r"`[^`]*`", "", told))


BOXES = {
    "one chain": (product_model(), [1, 1]),
    "promoted": (product_model(promote=128), [1, 8]),
    "slices, promoted": (product_model(slices=2, promote=128), [1, 2, 8]),
    "slices": (product_model(slices=4, kept="bf16"), [1, 4]),
}


@pytest.mark.parametrize("name", BOXES)
def test_each_level_of_the_tree_is_drawn(name: str) -> None:
    model, counts = BOXES[name]
    drawn = list(levels_drawn(model))
    assert [len(level.parts) for level in drawn] == counts
    assert all(sum(stop - start for runs in level.parts for start, stop in runs) == model.k for level in drawn)
    svg = ElementTree.fromstring(product_picture(model))
    sums = model.k // counts[-1] // 32
    assert len(svg.findall("rect")) == sum(counts) + sums


def test_words_of_the_picture() -> None:
    model = product_model(k=1000, promote=128)
    words = [level.words for level in levels_drawn(model)]
    assert words == ["result: RNE to f32", "7 of 128 products and one of 104, added forward in f32"]
    assert "sums of 32 products of the first part, 4 of them; 13 bits, RZ" in product_picture(model)


def test_interleaved_chain_is_drawn_where_its_products_are() -> None:
    chains = tuple(Chain(0, 1024, tuple(range(64)), 256, first) for first in range(0, 256, 64))
    whole = product_model()
    model = ProductModel(whole.a, whole.b, 1024, step(), Merged(chains, "tree", addition()), whole.result)
    *_, last = levels_drawn(model)
    assert last.parts[1] == ((64, 128), (320, 384), (576, 640), (832, 896))
    assert len(ElementTree.fromstring(product_picture(model)).findall("rect")) == 1 + 16 + 8


def test_a_chain_from_the_last_k_on_is_drawn_within_the_strip() -> None:
    whole = product_model()
    model = ProductModel(whole.a, whole.b, 1024, step(), Chain(0, 1024, tuple(reversed(range(1024)))), whole.result)
    svg = ElementTree.fromstring(product_picture(model))
    drawn = [(float(box.attrib["x"]), float(box.attrib["width"])) for box in svg.findall("rect")]
    assert all(x >= MARGIN and x + width <= MARGIN + WIDTH + 0.01 for x, width in drawn)


def test_a_plan_that_nobody_proved_is_drawn_as_such() -> None:
    def words(data: Row) -> list[str]:
        page = re.search(r"<svg.*?</svg>", page_of(product_report(data)), re.DOTALL)
        assert page is not None
        return re.findall(r'class="words">([^<]*)', page[0])

    assert words(suggested()) == [f"~{each}" for each in words(product_data())] != []


def test_more_parts_than_can_be_seen_are_not_all_drawn() -> None:
    model = product_model(k=1 << 16, promote=32)
    assert len(product_picture(model)) < 20_000
