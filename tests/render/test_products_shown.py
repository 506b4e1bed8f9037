"""Products in words and drawn: what is said and what is not, and nothing of a report that a page would run."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from product_rows import OF_A, TAIL, dropped, product_data, product_model, product_report, step, suggested, two_regions

from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain, Merged, Order, ProductModel, Scales, addition, multiply_add
from accprobe.model.product_error import worst_error
from accprobe.model.tree import DotModel
from accprobe.render.content import products
from accprobe.render.html import report_page
from accprobe.render.markdown import report_markdown
from accprobe.render.pictures.products import MARGIN, WIDTH, levels_drawn, product_picture
from accprobe.report.products import ProductRow

Row = dict[str, Any]

EVIL = "<script>alert(1)</script>|`x`"


def row(data: Row) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))


def said(data: Row) -> dict[str, str]:
    return {line.label: line.said.text for line in products.lines(row(data))}


NOTHING = {"elements": 0, "wrong": 0, "seed": 0}


def only_one() -> Row:
    data = product_data(m=1, n=1)
    data["regions"][0] |= {"where": "rows 0, columns 0", "elements": 1}
    return data


@pytest.mark.parametrize(
    ("data", "label", "words"),
    [
        (product_data(), "runs", "nvjet_qqtst QGMMA.64x128x32.F32.E4M3.E4M3 (torch 2.11)"),
        (product_data(kernels=[]), "runs", "kernels not recorded (torch 2.11)"),
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
        (product_data(asks="P·V along the keys"), "asked", "P·V along the keys"),
        (product_data(), "every k", "counted once: 1024 of 1024"),
        (dropped(), "every k", f"NOT counted once: {TAIL}"),
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
            product_data(findings={"split_k": {"value": 1, "bound": "undetermined", "left": [1, 4]}}),
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
                scale="128x128", findings={"scales": {"value": "sa, then sb", "bound": "undetermined", "left": ["x"]}}
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
        (product_data(), "proven", "1,048,576 fresh outputs, 0 differ; 26 of 26 rival plans contradicted"),
        (
            suggested() | {"verification": {**NOTHING, "answers": 40, "contradicting": 3}},
            "proven",
            "nothing: answers contradict the plan already; 3 of 40 answers have no explanation;"
            " 26 of 26 rival plans contradicted",
        ),
        (
            suggested() | {"verification": NOTHING},
            "proven",
            "nothing: no fresh outputs were asked for; 26 of 26 rival plans contradicted",
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


def surviving(*rivals: str) -> Row:
    data = product_data()
    data["regions"][0]["rivals"]["survived"] = list(rivals)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            product_data(product_model(promote=128)),
            "the error grows with 128, not with K: at this K at most 1.6e-2 of sum |a·b|",
        ),
        (product_data(), "the error grows with K: at this K at most 1.3e-1 of sum |a·b|"),
        (
            product_data(product_model(slices=4, kept="bf16")),
            "of the error 89 % grows with the longest slice, 256 products; 11 % is that of rounding each slice to bf16",
        ),
        (surviving("product_exponent: normalised operands"), "the error grows with K"),
        (product_data(scale="row"), "the error grows with K: at this K at most 1.3e-1 of sum |a·b| with its scales"),
    ],
)
def test_error_in_words_is_a_bound(data: Row, words: str) -> None:
    assert said(data)["in words"].startswith(words)
    assert said(data)["in words"].endswith("(a bound; overflow and tiny numbers aside)")


def of_floats(promote: int | None = None, k: int = 64, **changes: Any) -> Row:
    """Products of f32 that are rounded, and added one after the other."""
    return product_data(product_model(k, "f32", promote=promote, of=multiply_add(product_bits=23), **changes))


def tree(of: DotModel, sizes: int = 2, order: Order = "tree") -> Row:
    """64 products of f32 in slices of that size."""
    starts = range(0, 64, sizes)
    chains = tuple(Chain(i, i + sizes, tuple(range(of.products))) for i in starts)
    model = ProductModel(FORMATS["f32"], FORMATS["f32"], 64, of, Merged(chains, order, addition()), FORMATS["f32"])
    found = {"promote_every": None, "split_k": len(starts), "slice_sizes": ", ".join([str(sizes)] * len(starts))}
    return product_data(model, findings={name: {"value": value, "bound": "exact"} for name, value in found.items()})


def side_by_side() -> Row:
    """Two slices of 32 products, each of two chains that take turns."""
    chains = [Chain(i, i + 32, (0,), 2, shift) for i in (0, 32) for shift in (0, 1)]
    halves = tuple(Merged(tuple(chains[i : i + 2]), "forward", addition()) for i in (0, 2))
    model = ProductModel(
        FORMATS["f32"], FORMATS["f32"], 64, multiply_add(), Merged(halves, "forward", addition()), FORMATS["f32"]
    )
    return product_data(model, findings={"promote_every": {"value": None, "bound": "exact"}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (of_floats(8), "of the error 56 % grows with 8; 44 % grows with K, by its 8 chunks"),
        (of_floats(8, k=512), "of the error 88 % grows with K, by its 64 chunks; 12 % grows with 8"),
        (of_floats(64, k=256), "of the error 96 % grows with 64; 4 % grows with K, by its 4 chunks"),
        (of_floats(2, k=128), "of the error 95 % grows with K, by its 64 chunks; 5 % grows with 2"),
        (
            product_data(product_model(k=256, a="f32", slices=2, promote=16, of=multiply_add())),
            "of the error 67 % grows with 16; 29 % grows with the longest slice, 128 products, by its 8 chunks;"
            " 4 % grows with the sum of 2 slices",
        ),
        (
            product_data(product_model(promote=128, out="bf16")),
            "of the error 80 % grows with 128, not with K; 20 % is that of one rounding to bf16",
        ),
        (
            product_data(product_model(k=1 << 14, a="f16", out="f16", promote=1408, of=step(16, 23, 25))),
            "of the error 90 % is that of one rounding to f16; 10 % grows with 1408",
        ),
        (
            tree(multiply_add()),
            "of the error 71 % grows with the 5 levels of a tree of 32 slices; 29 % grows with the longest slice, 2 products",
        ),
        (
            tree(multiply_add(), order="forward"),
            "of the error 94 % grows with the sum of 32 slices; 6 % grows with the longest slice, 2 products",
        ),
        (
            tree(multiply_add(), sizes=1),
            "of the error 86 % grows with the 6 levels of a tree of 64 slices; 14 % is that of one rounding",
        ),
        (
            tree(multiply_add(product_bits=23), sizes=1),
            "of the error 75 % grows with the 6 levels of a tree of 64 slices; 25 % is that of each product",
        ),
        (
            side_by_side(),
            "of the error 89 % grows with the longest slice, 32 products; 6 % grows with the sum of 2 slices;"
            " 6 % grows with the sum of 2 chains",
        ),
        (product_data(product_model(k=64, a="f16", of=step(64, 23, None))), "the error is that of one rounding"),
        (product_data(product_model(k=32)), "the error is that of a sum of 32 products"),
        (
            product_data(product_model(k=64, a="f32", of=multiply_add(FORMATS["f64"]))),
            "the error is that of one rounding to f32",
        ),
        (
            product_data(product_model(k=512, a="bf16", out="bf16", of=step(16, 23, 25))),
            "the error is that of one rounding to bf16",
        ),
        (
            product_data(product_model(k=16, a="f32", of=multiply_add(), scales=Scales("tensor")), scale="tensor"),
            "of the error 89 % grows with K; 11 % is that of applying the scales",
        ),
    ],
)
def test_what_the_error_grows_with_is_the_bounds(data: Row, words: str) -> None:
    assert said(data)["in words"].partition(": at this K")[0] == words


def test_promotion_ends_the_growth_only_where_the_bound_has_none() -> None:
    """Whether a K eight times as large has about the same bound."""
    for of in (step(), step(16, 23, 25), multiply_add()):
        for promote in (64, 128, 512):
            first, second = (product_data(product_model(k, "f32", promote=promote, of=of)) for k in (1024, 8192))
            bounds = [worst_error(row(data).regions[0].model) for data in (first, second)]
            assert ("not with K" in said(first)["in words"]) == (bounds[1] < 1.1 * bounds[0])


@pytest.mark.parametrize(
    "data",
    [
        suggested(),
        dropped(),
        surviving("alignment_bits: 14"),
        product_data(product_model(k=1 << 14)),
        two_regions(),
    ],
    ids=["suggested", "k is dropped", "a rival is left", "as large as the sum", "regions have their own"],
)
def test_nothing_is_said_of_the_error_that_is_not_proved(data: Row) -> None:
    assert "in words" not in said(data)


def test_regions_have_a_plan_each() -> None:
    plans = [{line.label: line.said.text for line in lines} for _, lines in products.plans(row(two_regions()))]
    assert [plan["inside"].split(",")[0] for plan in plans] == ["sums of 32 products", "sums of 16 products"]
    assert all("in words" in plan for plan in plans)
    assert "inside" not in said(two_regions())


@pytest.mark.parametrize("number", [0.0, 1.0, 0.016113, 6.1e-4, 9.99e-5, 0.3])
def test_bound_is_never_rounded_down(number: float) -> None:
    assert number <= float(products.rounded_up(number)) <= 1.11 * number


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
    page, told = report_page(product_report(*OF_A)), report_markdown(product_report(*OF_A))
    assert page.index("DROPPED PRODUCTS") < page.index('id="products"')
    assert told.index("DROPPED PRODUCTS") < told.index("every k")


def test_nothing_of_a_report_is_markup() -> None:
    evil = product_data(
        name=EVIL, options={EVIL: EVIL}, asks=EVIL, remarks=[EVIL], kernels=[{"name": EVIL}], libraries={EVIL: EVIL}
    )
    evil["regions"][0]["where"] = EVIL
    page = report_page(product_report(evil, two_regions(name=EVIL)))
    assert "<script>alert" not in page
    told = report_markdown(product_report(evil))
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
        page = re.search(r"<svg.*?</svg>", report_page(product_report(data)), re.DOTALL)
        assert page is not None
        return re.findall(r'class="words">([^<]*)', page[0])

    assert words(suggested()) == [f"~{each}" for each in words(product_data())] != []


def test_more_parts_than_can_be_seen_are_not_all_drawn() -> None:
    model = product_model(k=1 << 16, promote=32)
    assert len(product_picture(model)) < 20_000
