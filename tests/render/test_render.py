import itertools
import re

import pytest
from fakes import DENSE, HMMA_OF_FP8, fake_report, float_row, simulated_report
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from accprobe.isa.instructions import catalog
from accprobe.render.content.cells import cells, compact
from accprobe.render.content.patterns import brace_patterns
from accprobe.render.terminal.details import row_details
from accprobe.render.terminal.report import report_table
from accprobe.report.evidence import load_with_evidence
from accprobe.report.report import Report

NAMES = [inst.name for inst in catalog("sm_90a")]


def text(what: RenderableType, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def expand(pattern: str) -> list[str]:
    pieces = [piece[1:-1].split(",") if piece[:1] == "{" else [piece] for piece in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(choice) for choice in itertools.product(*pieces)]


@given(st.sets(st.sampled_from(NAMES)))
def test_patterns_expand_to_just_the_names(names: set[str]) -> None:
    found = [name for pattern in brace_patterns(sorted(names)) for name in expand(pattern)]
    assert sorted(found) == sorted(names)


def test_like_instructions_become_one_pattern() -> None:
    names = [name for name in NAMES if re.fullmatch(r"wgmma\.m64n\d+k32\.f32\.e4m3\.e4m3(\.rs)?", name)]
    assert brace_patterns(names) == ["wgmma.m64n{8,256}k32.f32.e4m3.e4m3{,.rs}"]


def test_whole_table() -> None:
    assert text(report_table(fake_report(), 160)) == WHOLE.strip("\n")


WHOLE = """
Fake GPU: FP8 wgmma accumulates in 13 fraction bits (e8m13), truncated (RZ); 3 of 3 instructions confirmed

                                                           effective   align.  align.    result    products             dots      rivals
instruction                          ran as                bits        bits F  rounding  rounding  a sum     C joins    verified  left/tried  status
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
mma.sync.m16n8k32.f32.e4m3.e4m3.f32  F2FP + 2×HMMA + FADD  23 (f32)    23      truncate  RZ        32        first sum  10M       0/40        confirmed

wgmma.m64n8k32.f32.e4m3.e4m3{,.rs}   QGMMA                 13 (e8m13)  13      truncate  RZ        32        first sum  10M       0/40        confirmed
! The running sum keeps 13 (e8m13) of the 23 fraction bits of f32: wgmma.m64n8k32.f32.e4m3.e4m3{,.rs}.
! Computed by HMMA on converted operands, not by a unit of their own format: mma.sync.m16n8k32.f32.e4m3.e4m3.f32.
no probe: 1 of 4 instructions (`accprobe list --instructions sm_90a` names them)
3 instructions measured in 1.5 s: 3 confirmed; 1 skipped; like ones share a line (2 lines, --all has each)
Fake GPU, sm_90a; 3 SMs
accprobe 0.1.0, seed 0; driver 1.2
"""  # noqa: E501


@pytest.mark.parametrize("width", [40, 80, 120, 160, 300])
@pytest.mark.parametrize("all_of_them", [False, True])
def test_every_width_shows_bits_opcode_and_status(width: int, all_of_them: bool) -> None:
    """The status of all rows alike is told above the table, and in it where there is room."""
    shown = text(report_table(fake_report(), width, all_of_them), width)
    assert max(map(len, shown.splitlines())) <= width
    if width >= 80:
        lines = [line for line in shown.splitlines() if "QGMMA" in line]
        assert len(lines) == (2 if all_of_them else 1)
        assert all("13 (e8m13)" in line for line in lines)
        assert "3 confirmed" in shown
        assert all("confirmed" in line for line in lines) == (width > 80)
        assert "F2FP + 2×HMMA" in shown


def test_reader_is_told_that_another_unit_ran() -> None:
    shown = text(report_table(fake_report(), 160))
    assert (
        "Computed by HMMA on converted operands, not by a unit of their own format: mma.sync.m16n8k32.f32.e4m3.e4m3.f32."
        in shown
    )
    native = fake_report(float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 13, {"QMMA.16832.F32.E4M3.E4M3": 1}))
    assert "converted operands" not in text(report_table(native, 160))


def test_reader_is_told_which_sums_keep_fewer_bits() -> None:
    assert "The running sum keeps 13 (e8m13) of the 23 fraction bits of f32: wgmma.m64n8k32.f32.e4m3.e4m3{,.rs}." in text(
        report_table(fake_report(), 160)
    )


def with_finding(feature: str, **finding: object) -> Report:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    row["findings"][feature] = finding
    return fake_report(row)


@pytest.mark.parametrize(
    ("feature", "finding", "shown"),
    [
        ("effective_bits", {"value": 13, "bound": "at_least"}, "≥13 (e8m13)"),
        ("effective_bits", {"value": 23, "bound": "exact"}, "23 (f32)"),
        ("alignment_bits", {"value": None, "bound": "exact"}, "exact"),
        (
            "alignment_rounding",
            {"value": "truncate", "bound": "undetermined", "candidates": ["truncate", "floor"]},
            "truncate?",
        ),
        ("products_per_sum", {"value": "8+4", "bound": "exact"}, "8+4"),
        ("products_per_sum", {"value": 32, "bound": "undetermined"}, "32?"),
    ],
)
def test_cell_says_how_far_a_value_is_known(feature: str, finding: dict[str, object], shown: str) -> None:
    (row,) = with_finding(feature, **finding).instructions
    assert getattr(cells(row), feature) == shown


@pytest.mark.parametrize(
    ("name", "bits", "shown"),
    [
        ("wgmma.m64n8k32.f16.e4m3.e4m3", 10, "10 (f16)"),
        ("wgmma.m64n8k32.f16.e4m3.e4m3", 8, "8 (e5m8)"),
        ("mma.sync.m8n8k4.f64.f64.f64.f64", 46, "46 (e11m46)"),
    ],
)
def test_effective_bits_name_the_float_that_has_as_many(name: str, bits: int, shown: str) -> None:
    row = float_row(name, bits, {"QGMMA": 1}, evidence={})
    row["model"]["arithmetics"][0]["alignment_bits"] = None
    assert cells(fake_report(row).instructions[0]).effective_bits == shown


def test_like_instructions_share_a_line_however_hard_they_were_tried() -> None:
    tried = [(0, 40, 1000), (2, 41, 1000)]
    rows = []
    for suffix, (left, alternatives, dots) in zip(("", ".rs"), tried, strict=True):
        row = float_row(f"wgmma.m64n8k32.f32.e4m3.e4m3{suffix}", 13, {"QGMMA": 1})
        row["alternatives"] = {"tested": alternatives, "surviving": [{"changes": [["zero_sign", str(i)]]} for i in range(left)]}
        row["verification"] = {"dots": dots, "mismatches": 0, "seed": 0}
        rows.append(row)
    (line,) = (
        line for line in text(report_table(fake_report(*rows), 160)).splitlines() if "{,.rs}" in line and "QGMMA" in line
    )
    assert line.split()[-3:] == ["1k", "0-2/40-41", "confirmed"]


def test_facts_about_the_device_are_in_words() -> None:
    facts = {"compute_capability": "9.0", "sm_count": 132, "memory_gib": 139.8, "max_clock_mhz": 1980, "other_fact": 1}
    device = {"kind": "cuda", "name": "GPU", "architecture": "sm_90a", "facts": facts}
    *_, facts_line, _ = text(report_table(fake_report(device=device), 160)).splitlines()
    assert facts_line == "GPU, sm_90a; compute capability 9.0, 132 SMs, 139.8 GiB, 1980 MHz at most, other fact 1"


def test_detail_marks_what_is_undetermined_in_the_arithmetic() -> None:
    (row,) = with_finding("zero_sign", value="positive", bound="undetermined", candidates=["positive", "ieee"]).instructions
    shown = " ".join(text(row_details(row), 160).split())
    assert "zero terms ignored, zero sign positive?, underflow sign kept, overflow" in shown


def test_detail_of_an_exact_sum_says_nothing_of_alignment() -> None:
    row = float_row("mma.sync.m8n8k4.f64.f64.f64.f64", 52, {"DMMA": 1}, evidence={})
    row["model"]["arithmetics"][0]["alignment_bits"] = None
    shown = " ".join(text(row_details(fake_report(row).instructions[0]), 160).split())
    assert "alignment bits exact, zero sign positive" in shown


def test_notes_of_several_findings_stand_below_the_table() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    for feature in ("zero_sign", "overflow"):
        row["findings"][feature] = {"value": "x", "bound": "undetermined", "candidates": ["x", "y"], "note": "nothing found"}
    row["findings"]["carries"] = {"value": "kept", "bound": "exact", "note": "alone"}
    shown = text(row_details(fake_report(row).instructions[0]), 160)
    assert shown.count("left: x or y (1)") == 2
    assert shown.count("nothing found") == shown.count("  (1) nothing found") == 1
    assert re.search(r"^  carries +kept +exact +alone$", shown, re.MULTILINE)


def test_detail_shows_a_long_order_as_a_tree_alone() -> None:
    row = float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 23, HMMA_OF_FP8)
    order = "[[[0-1 4-5 8-9 12-13] 2-3 6-7 10-11 14-31] c]"
    row["model"]["order"] = row["findings"]["order"]["value"] = order
    shown = text(row_details(fake_report(row).instructions[0]), 160)
    assert order not in shown
    assert "  sum of C and the sum below\n    sum of products 2-3, 6-7, 10-11, 14-31 and the sum below\n" in shown
    assert "the tree above" in shown


def test_detail_goes_on_below_further_in() -> None:
    lines = text(row_details(fake_report().instructions[2]), 52).splitlines()
    start = lines.index("    k 0: 0x38 (1) × 0x38 (1); C 0x00000000 (0)")
    assert lines[start + 1] == "        → 0x3f800000 (1)"
    assert all(line == line.rstrip() for line in lines)


def test_detail_shows_evidence_of_several_features_once() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1})
    row["evidence"]["carries"] = row["evidence"]["alignment_bits"]
    shown = text(row_details(fake_report(row).instructions[0]), 160)
    assert "  alignment_bits, carries: M - M and an ever smaller term" in shown
    assert shown.count("k 0: 0x38") == 1


def test_columns_that_tell_little_go_before_names_are_broken() -> None:
    shown = text(report_table(fake_report(), 130), 130)
    assert "mma.sync.m16n8k32.f32.e4m3.e4m3.f32  F2FP + 2×HMMA + FADD" in shown
    left_out = "align. rounding (truncate everywhere), dots verified (10M everywhere), rivals left/tried (0/40 everywhere)"
    assert f"Left out at this width: {left_out}." in " ".join(shown.split())


def test_what_all_rows_have_alike_goes_before_what_tells_them_apart() -> None:
    """At 80 columns F and rounding stay, a status that all rows share does not; one that they do not share does."""
    rows = [float_row(f"wgmma.m64n{n}k32.f32.e4m3.e4m3", bits, {"QGMMA": 1}) for n, bits in ((8, 13), (16, 14))]
    shown = text(report_table(fake_report(*rows), 80), 80)
    (first,) = (line for line in shown.splitlines() if "13 (e8m13)" in line and "QGMMA" in line)
    assert first.split()[1:6] == ["QGMMA", "13", "(e8m13)", "13", "RZ"]
    converted = float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 23, HMMA_OF_FP8)
    shown = text(report_table(fake_report(*rows, converted), 80), 80)
    assert "status (confirmed everywhere)" in shown
    assert "align.  result" in shown
    shown = text(report_table(fake_report(*rows, converted | {"status": "inferred", "reason": "x"}), 80), 80)
    (line,) = (line for line in shown.splitlines() if "F2FP" in line)
    assert line.endswith("inferred")


def test_simulated_instructions_are_not_said_to_be_measured() -> None:
    shown = text(report_table(simulated_report(), 160))
    assert "3 instructions simulated in 1.5 s: 3 simulated; 1 skipped" in shown
    assert "confirmed" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("simulated: ")]
    assert "accprobe list" not in shown


def test_undetermined_and_at_least_are_explained_only_where_they_are() -> None:
    assert "≥" not in text(report_table(fake_report(), 160))
    assert "≥: a lower bound" in text(report_table(with_finding("effective_bits", value=13, bound="at_least"), 160))
    undetermined = with_finding("zero_sign", value="ieee", bound="undetermined", candidates=["ieee", "positive"])
    assert "instructions by feature: zero_sign 1." in text(report_table(undetermined, 160))


def test_marks_are_explained_only_where_their_columns_are_shown() -> None:
    h200 = load_with_evidence("h200")
    two = tuple(row for row in h200.instructions if row.name in (DENSE, "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"))
    report = h200.model_copy(update={"instructions": two, "sweeps": ()})
    assert "any: the bits are the same" in text(report_table(report, 160))
    narrow = text(report_table(report, 80), 80)
    assert "products a sum" in narrow.partition("Left out at this width: ")[2]
    assert "any: " not in narrow


def test_what_is_unknown_of_a_float_row_is_not_any() -> None:
    row = float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 23, HMMA_OF_FP8)
    row["findings"]["products_per_sum"] = {"value": 32, "bound": "undetermined"}
    shown = text(report_table(fake_report(row), 160))
    assert "any: " not in shown
    assert "products_per_sum 1" in shown


def test_rows_that_are_not_confirmed_give_their_reasons() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1}, status="inferred", reason="3 of 9 dot products differ")
    assert "inferred: 3 of 9 dot products differ: wgmma.m64n8k32.f32.e4m3.e4m3" in text(report_table(fake_report(row), 160))


def test_report_that_was_cut_short_says_so() -> None:
    cut = fake_report(run={"jobs": 1, "seconds": 1.0, "selected": 9})
    assert "The run was cut short: 5 of 9 instructions missing" in text(report_table(cut, 160))


def test_stand_in_for_a_gpu_is_loud() -> None:
    first, *_ = text(report_table(simulated_report(reason="there is no NVIDIA driver"), 160)).splitlines()
    assert first == "SIMULATED: no GPU found (there is no NVIDIA driver); these are published models, nothing was measured"


def test_detail_shows_the_evidence_in_hex_and_in_values() -> None:
    row = fake_report().instructions[2]
    shown = text(row_details(row), 160)
    assert "k 0: 0x38 (1) × 0x38 (1); C 0x00000000 (0) → 0x3f800000 (1)" in shown
    assert "sum of C and products 0-31" in shown
    assert "40 tried, 0 left: none" in shown


def test_detail_of_a_counterexample() -> None:
    row = float_row("wgmma.m64n8k32.f32.e4m3.e4m3", 13, {"QGMMA": 1}, status="inferred", reason="1 of 9 differ")
    exchange = row["evidence"]["alignment_bits"][0]
    row["verification"] = {
        "dots": 9,
        "mismatches": 1,
        "seed": 0,
        "counterexample": {"kind": "tiny", "exchange": exchange, "expected": "3f800001"},
    }
    shown = text(row_details(fake_report(row).instructions[0]), 160)
    assert "1 of 9 dot products differ from the model, seed 0" in shown
    assert "the first that differs, tiny: k 0: 0x38 (1) × 0x38 (1); C 0x00000000 (0) → 0x3f800000 (1)" in shown
    assert "expected 0x3f800001 (1.00000012)" in shown


def test_detail_says_that_operands_were_converted() -> None:
    row = float_row("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", 23, HMMA_OF_FP8)
    shown = text(row_details(fake_report(row).instructions[0]), 160)
    assert "12×F2FP.F16.E4M3.UNPACK_B, 2×HMMA.16816.F32, 4×FADD" in shown
    assert "a unit of other formats" in shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1k"), (16384, "16k"), (999_999, "999k"), (10**7, "10M"), (2 * 10**9, "2G")],
)
def test_compact(count: int, shown: str) -> None:
    assert compact(count) == shown
