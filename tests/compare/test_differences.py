from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accprobe.compare.differences import OPERATORS, holds, overlap, possible
from accprobe.infer.findings import Finding

exact = st.builds(Finding, value=st.integers(0, 40), bound=st.just("exact"))
at_least = st.builds(Finding, value=st.integers(0, 40), bound=st.just("at_least"))
several = st.lists(st.integers(0, 40), min_size=2).map(
    lambda left: Finding(value=left[0], bound="undetermined", candidates=tuple(left))
)
findings = exact | at_least | several
FEATURE = "alignment_bits"


def members(finding: Finding) -> set[int]:
    """Every value possible up to 100, counted one by one."""
    if finding.bound == "at_least":
        assert isinstance(finding.value, int)
        return set(range(finding.value, 101))
    return {value for value in finding.candidates or (finding.value,) if isinstance(value, int)}


@given(findings, findings)
def test_two_overlap_where_they_share_a_member(a: Finding, b: Finding) -> None:
    assert overlap(possible(a, FEATURE), possible(b, FEATURE)) == bool(members(a) & members(b))


@given(findings, st.sampled_from(sorted(OPERATORS)), st.integers(0, 40))
def test_operator_holds_where_it_holds_of_every_member(finding: Finding, operator: str, wanted: int) -> None:
    every = all(eval(f"{value} {operator} {wanted}") for value in members(finding))
    assert holds(possible(finding, FEATURE), operator, wanted) == every


@pytest.mark.parametrize(
    ("finding", "feature", "operator", "wanted", "expected"),
    [
        ({"value": None, "bound": "exact"}, "alignment_bits", ">=", 1000, True),
        ({"value": None, "bound": "exact"}, "add_alignment_bits", ">=", 1000, True),
        ({"value": None, "bound": "exact"}, "min_exponent", "<=", -1000, True),
        ({"value": None, "bound": "exact"}, "overflow", "==", "none", True),
        ({"value": "RZ", "bound": "exact"}, "result_rounding", "==", "RZ", True),
        ({"value": "RZ", "bound": "exact"}, "result_rounding", "!=", "RNE", True),
        ({"value": "RZ", "bound": "exact"}, "result_rounding", ">=", 3, False),
        ({"value": 13, "bound": "exact"}, "effective_bits", "==", "RZ", False),
        ({"value": "a", "bound": "undetermined", "candidates": ("a", "b")}, "overflow", "!=", "c", True),
        ({"value": "a", "bound": "undetermined", "candidates": ("a", "b")}, "overflow", "==", "a", False),
        (
            {"value": 24, "bound": "undetermined", "candidates": (22, "at least 24")},
            "alignment_bits",
            ">=",
            22,
            True,
        ),
        ({"value": 32, "bound": "undetermined"}, "products_per_sum", "==", 32, False),
        ({"value": 32, "bound": "undetermined"}, "products_per_sum", ">=", 0, False),
    ],
)
def test_words_and_special_values(
    finding: dict[str, Any], feature: str, operator: str, wanted: int | str, expected: bool
) -> None:
    assert holds(possible(Finding(**finding), feature), operator, wanted) is expected


def test_candidates_at_least_a_number_overlap_with_every_number_above() -> None:
    known = possible(Finding(value=25, bound="undetermined", candidates=("at least 24",)), FEATURE)
    assert overlap(possible(Finding(25), FEATURE), known)
    assert not overlap(possible(Finding(23), FEATURE), known)
