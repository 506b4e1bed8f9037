"""Two reports compared: every verdict, by name and by role, on reports in which one thing was changed on purpose."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import HMMA_OF_FP8, fake_report, float_row, simulated_report
from hypothesis import given
from hypothesis import strategies as st

from accprobe.compare.diff import Diff, diff, headline, marked
from accprobe.compare.differences import OPERATORS, UNKNOWN, holds, overlap, possible
from accprobe.compare.pairs import Pair
from accprobe.errors import AccprobeError
from accprobe.model.fields import finding_names
from accprobe.records.findings import Finding
from accprobe.render.subjects.comparison import Entry, changed_fields, diff_entries, verdict_counts
from accprobe.report.published import published
from accprobe.report.report import Report

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
MMA = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"
QGMMA = {"QGMMA.64x8x32.F32.E4M3.E4M3": 1}
ADA = {"kind": "cuda", "name": "Old GPU", "architecture": "sm_89"}


def one(name: str = WGMMA, bits: int = 13, opcodes: dict[str, int] | None = None, **findings: Any) -> Report:
    """A report of one instruction; `findings` are values, or whole findings."""
    row = float_row(name, bits, opcodes or QGMMA)
    for feature, value in findings.items():
        row["findings"][feature] = value if isinstance(value, dict) else {"value": value, "bound": "exact"}
    return fake_report(row)


def only_pair(found: Diff) -> Pair:
    (pair,) = found.pairs
    return pair


def test_a_report_and_itself_are_the_same() -> None:
    report = Report.load("h200")
    found = diff(report, report)
    assert (found.differs, verdict_counts(found.pairs)) == (False, {"same": len(report.measured)})
    assert found.environment == ()


@pytest.mark.parametrize("feature", [name for name in finding_names() if name not in ("order", "effective_bits")])
def test_every_feature_that_changes_is_found_with_both_values_and_a_meaning(feature: str) -> None:
    before, after = (7, 5) if feature.endswith("_bits") else ("before", "after")
    pair = only_pair(diff(one(**{feature: before}), one(**{feature: after})))
    assert pair.verdict == "changed"
    (difference,) = pair.differences
    assert (difference.field, difference.a, difference.b) == (feature, str(before), str(after))
    assert difference.means.endswith(".")
    assert difference.means != UNKNOWN


UNDETERMINED = {"value": "kept", "bound": "undetermined", "candidates": ["kept", "flushed"]}


@pytest.mark.parametrize(
    ("feature", "a", "b", "verdict"),
    [
        ("subnormal_results", UNDETERMINED, "flushed", "undecided"),
        ("subnormal_results", UNDETERMINED, UNDETERMINED, "same"),
        ("subnormal_results", UNDETERMINED, "lost", "changed"),
        ("products_per_sum", {"value": 32, "bound": "undetermined"}, 8, "undecided"),
        ("alignment_bits", {"value": 24, "bound": "at_least"}, 25, "undecided"),
        ("alignment_bits", {"value": 24, "bound": "at_least"}, 23, "changed"),
        ("alignment_bits", {"value": 24, "bound": "at_least"}, {"value": None, "bound": "exact"}, "undecided"),
        ("alignment_bits", 25, {"value": None, "bound": "exact"}, "changed"),
        ("min_exponent", {"value": None, "bound": "undetermined", "candidates": ["none", "at most -126"]}, -133, "undecided"),
        ("min_exponent", {"value": None, "bound": "undetermined", "candidates": ["none", "at most -126"]}, -21, "changed"),
        ("min_exponent", {"value": None, "bound": "undetermined", "candidates": ["none", "any"]}, -21, "undecided"),
    ],
)
def test_uncertain_findings_differ_only_without_a_common_value(feature: str, a: Any, b: Any, verdict: str) -> None:
    for first, second in ((a, b), (b, a)):
        assert only_pair(diff(one(**{feature: first}), one(**{feature: second}))).verdict == verdict


def test_undecided_alone_does_not_count_as_a_difference() -> None:
    found = diff(one(subnormal_results=UNDETERMINED), one(subnormal_results="kept"))
    assert (found.differs, verdict_counts(found.pairs)["undecided"]) == (False, 1)
    assert headline(found) == "Fake GPU: no value differs: 1 undecided"


def test_reports_without_common_rows() -> None:
    with pytest.raises(AccprobeError, match=r"^A holds instructions, B products: compare two reports of one kind$"):
        diff(Report.load("h100"), Report.load("products-h200"))
    with pytest.raises(AccprobeError, match=r"^B has sweeps only"):
        diff(Report.load("h200"), Report.load("h200").with_claims(()))
    assert ": no value differs: " in headline(diff(Report.load("h100"), Report.load("h200")))
    h200, h100 = Report.load("functions-h200"), Report.load("functions-h100")
    fewer = h100.model_copy(update={"claims": h100.claims[:10]})
    assert headline(diff(h200, fewer)).endswith(": 146 functions only in A; no value differs: 10 same")


def test_all_results_of_functions_are_equal_on_both_hopper_gpus() -> None:
    """As docs/functions.md says."""
    digests = [{row.name: row.digest for row in Report.load(name).functions} for name in ("functions-h200", "functions-h100")]
    assert digests[0] == digests[1]
    assert sum(map(bool, digests[0].values())) > 50


def test_another_opcode_is_a_change_and_modifiers_are_not() -> None:
    assert only_pair(diff(one(), one(opcodes={"HGMMA.64x8x32": 1}))).values("ran_as") == ("QGMMA", "HGMMA")
    assert only_pair(diff(one(), one(opcodes={"QGMMA.64x8x32.OTHER": 1}))).verdict == "same"


def test_a_finding_of_one_side_only_is_undecided() -> None:
    failed = {"name": WGMMA, "status": "unverified", "reason": "it failed"}
    pair = only_pair(diff(fake_report(failed), simulated_report(float_row(WGMMA, 13, QGMMA))))
    assert pair.verdict == "undecided"
    assert {"ran_as", "effective_bits", "order"} <= {d.field for d in pair.differences}
    assert {d.a for d in pair.differences} == {"not known"}


def test_a_feature_without_meaning_on_one_side_does_not_differ() -> None:
    exact = one(alignment_bits={"value": None, "bound": "exact"}, sums_alike="yes", add_result_bits=23)
    told = [row.model_dump(mode="json", exclude_defaults=True) for row in exact.instructions]
    for row in told:
        del row["findings"]["alignment_rounding"]
    exact = fake_report(*told)
    pair = only_pair(diff(exact, one()))
    assert [d.field for d in pair.differences] == ["alignment_bits"]


def test_ada_to_hopper_is_matched_by_role_and_by_name() -> None:
    a = fake_report(float_row(MMA, 13, {"QMMA.16832.F32.E4M3.E4M3": 1}), device=ADA)
    b = fake_report(float_row(MMA, 23, HMMA_OF_FP8), float_row(WGMMA, 13, QGMMA))
    pairs = {pair.by: pair for pair in diff(a, b).pairs}
    assert list(pairs) == ["role", "name"]
    assert pairs["role"].values("ran_as") == ("QMMA", "QGMMA")
    assert pairs["name"].values("effective_bits") == ("13 (e8m13)", "23 (f32)")


def test_skipped_is_not_measured() -> None:
    skipped = fake_report({"name": WGMMA, "status": "skipped", "reason": "no probe"})
    pair = only_pair(diff(one(), skipped))
    assert (pair.verdict, pair.note) == ("only in A", "no values in B: no probe")
    found = diff(skipped, skipped)
    assert (found.pairs, found.unmeasured) == ((), 1)


@pytest.mark.parametrize("status", ["inferred", "unverified"])
def test_weaker_proof_is_a_change_and_marked(status: str) -> None:
    row = float_row(WGMMA, 13, QGMMA, status=status, reason="3 differ")
    pair = only_pair(diff(one(), fake_report(row)))
    assert [(d.field, d.a, d.b) for d in pair.differences] == [("status", "confirmed", status)]
    assert pair.marks == (f"B {status}",)
    found = diff(one(), fake_report(row))
    assert (pair.verdict, pair.word) == ("changed", "status changed")
    assert headline(found) == f"Fake GPU: no value differs; FP8 status confirmed → {status}, QGMMA (B {status})"


def test_a_simulated_side_is_marked_and_its_status_is_not_compared() -> None:
    found = diff(Report.load("h200"), published("h200"))
    assert "changed" not in verdict_counts(found.pairs)
    assert {pair.marks for pair in found.pairs} == {("B simulated",)}
    assert not any(d.field in ("status", "unstable") for pair in found.pairs for d in pair.differences)
    assert found.environment == ()
    assert all(marked(entry[0].marks) == "B simulated" for entry in diff_entries(found))


def changed_pairs(found: Diff, expand: bool = False) -> list[Entry]:
    return [entry for entry in diff_entries(found, expand) if entry[0].verdict == "changed"]


def test_like_changes_are_one_entry() -> None:
    names = [WGMMA, f"{WGMMA}.rs", WGMMA.replace("n8", "n256")]
    a, b = (fake_report(*(float_row(name, bits, QGMMA) for name in names)) for bits in (13, 23))
    (entry,) = changed_pairs(diff(a, b))
    assert len(entry) == 3
    assert [title for title, _, _ in changed_fields(entry[0])][:1] == ["effective bits"]
    assert len(changed_pairs(diff(a, b), expand=True)) == 3


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
        ({"value": None, "bound": "exact"}, "min_exponent", "<=", -1000, True),
        ({"value": None, "bound": "exact"}, "overflow", "==", "none", True),
        ({"value": "RZ", "bound": "exact"}, "result_rounding", "!=", "RNE", True),
        (
            {"value": 24, "bound": "undetermined", "candidates": (22, "at least 24")},
            "alignment_bits",
            ">=",
            22,
            True,
        ),
        ({"value": 32, "bound": "undetermined"}, "products_per_sum", "==", 32, False),
    ],
)
def test_words_and_special_values(
    finding: dict[str, Any], feature: str, operator: str, wanted: int | str, expected: bool
) -> None:
    assert holds(possible(Finding(**finding), feature), operator, wanted) is expected
