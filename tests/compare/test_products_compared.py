"""Products of two reports, and requirements on products."""

import json
from typing import Any

import pytest
from product_rows import dropped, product_data, product_model, product_report, step, suggested, two_regions

from accprobe.compare.pairs import COMPARED_FIELDS, Pair, paired
from accprobe.compare.requirements import check_requirements, parse_requirement
from accprobe.errors import RequirementError
from accprobe.model.notation import product_json
from accprobe.records.products import ProductRow

Row = dict[str, Any]

SPLIT = product_data(product_model(slices=4, kept="bf16"))
OF_16 = product_data(product_model(of=step(16)))
UNDECIDED = product_data(findings={"split_k": {"value": 1, "bound": "undetermined", "candidates": [1, 4]}})
PARTS = {
    "value": "4 slices of 256, added in f32: chain of [acc 32]",
    "bound": "exact",
    "note": "promotion every 256 or split-K 4",
}
PROMOTED, SLICED = (
    product_data(
        product_model(promote=256),
        findings={
            "order": PARTS,
            "promote_every": {"value": every[0], "bound": "equivalent", "candidates": every},
            "split_k": {"value": slices[0], "bound": "equivalent", "candidates": slices},
        },
    )
    for every, slices in (([256, None], [1, 4]), ([None, 256], [4, 1]))
)
"""Structures of one class: the additions are the same."""
UNKNOWN = product_data(regions=[], status="inferred", reason="no tree", verification=None)


def row(data: Row) -> ProductRow:
    return ProductRow.model_validate_json(json.dumps(data))


def pair(a: Row, b: Row, *fields: str) -> Pair:
    return paired(row(a), row(b), fields or COMPARED_FIELDS["product"])


@pytest.mark.parametrize(
    ("a", "b", "verdict", "changed"),
    [
        (product_data(), product_data(), "same", []),
        (PROMOTED, SLICED, "same", []),
        (product_data(), SLICED, "changed", ["order"]),
        (product_data(), dropped(), "changed", ["each_product_once"]),
        (product_data(), suggested(), "changed", ["status"]),
        (product_data(), UNDECIDED, "undecided", []),
        (SPLIT, UNDECIDED, "changed", ["order"]),
        (suggested(), suggested(model=product_model(promote=64)), "undecided", []),
        (
            product_data(),
            OF_16,
            "changed",
            ["order", "products_per_sum"],
        ),
        (OF_16, two_regions(), "changed", ["order", "products_per_sum", "regions", "same_everywhere"]),
    ],
)
def test_changed_fields(a: Row, b: Row, verdict: str, changed: list[str]) -> None:
    found = pair(a, b)
    assert found.verdict == verdict
    assert sorted(each.field for each in found.differences if each.verdict == "changed") == sorted(changed)


def test_region_that_differs_is_named() -> None:
    other = two_regions()
    other["regions"][1]["findings"]["effective_bits"] = {"value": 20, "bound": "exact"}
    (difference,) = pair(two_regions(), other).differences
    assert difference.title == "effective bits at rows 12-15, columns 0-7"
    assert (difference.a, difference.b) == ("13", "20")


OF_F32 = product_model(a="f32", of=step(1, 23, None))
COMPOSITE = {"finish": "S", "function": "exp in f32"}
OUTER: dict[str, tuple[Row, Row]] = {
    "epilogue": ({"findings": {"epilogue": {"value": "D + bias", "bound": "exact"}}}, {}),
    "factor": ({"factor_exponent": -4}, {}),
    "result": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"finish": "2S"}}),
    "functions": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"function": "exp2 in f32"}}),
    "moments": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"moments": "Welford"}}),
    "eps": ({"composite": COMPOSITE}, {"composite": COMPOSITE | {"eps": 1e-5}}),
    "rows": (
        {"composite": COMPOSITE},
        {"composite": COMPOSITE | {"rows": {"finish": "T", "order": "a chain", "model": product_json(OF_F32)}}},
    ),
}


@pytest.mark.parametrize("field", OUTER)
def test_steps_around_the_sum_are_compared(field: str) -> None:
    a, b = (product_data(OF_F32, **changes) for changes in OUTER[field])
    assert [each.field for each in pair(a, b).changes] == [field]


def test_plan_that_one_side_does_not_know_is_undecided() -> None:
    (difference,) = pair(product_data(), UNKNOWN | {"regions": [{"where": "all", "elements": 128}]}, "split_k").differences
    assert (difference.verdict, difference.a, difference.b) == ("undecided", "1", "not known")


@pytest.mark.parametrize(
    ("data", "line", "found"),
    [
        (product_data(product_model(promote=256)), "torch:mm: promote_every <= 128", ["256"]),
        (product_data(), "torch:mm e4m3: effective_bits >= 23", ["13"]),
        (UNDECIDED, "*:*: split_k == 1", ["1?, candidates: 1 or 4"]),
        (SLICED, "torch:mm: promote_every <= 256", []),
        (SLICED, "torch:mm: promote_every <= 128", ["none or 256"]),
        (UNKNOWN, "*:*: status == confirmed", ["inferred"]),
        (
            suggested(),
            "*:*: each_product_once == yes",
            ["yes, inferred: 3 of 5000 answers that were kept have no explanation"],
        ),
        (two_regions(), "*:*: effective_bits >= 14", ["13"]),
    ],
)
def test_requirements_on_products_pass_or_fail(data: Row, line: str, found: list[str]) -> None:
    (outcome,) = check_requirements(product_report(data), [parse_requirement(line)])
    assert list(outcome.failures) == found
    assert outcome.matched == 1


def test_words_after_an_instruction_are_refused() -> None:
    with pytest.raises(RequirementError, match="write it as"):
        parse_requirement("wgmma.* 1x2x3: effective_bits <= 128")
