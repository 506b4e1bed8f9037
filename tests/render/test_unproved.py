"""What was not confirmed: no form states it as a fact, or as measured; what was covered is told in each."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes import fake_report, float_row, simulated_report
from long_tail import some
from rich.console import Console

from accprobe.cli import main
from accprobe.compare.diff import diff
from accprobe.compare.headline import headline
from accprobe.isa.instructions import parse
from accprobe.render.content.verification import Verified, excluded_faults
from accprobe.render.data import comma_separated, diff_json, verified_data
from accprobe.render.html import diff_page, report_page
from accprobe.render.markdown import diff_markdown, report_markdown, rows_markdown
from accprobe.render.terminal.comparison import diff_report
from accprobe.render.terminal.details import row_details
from accprobe.render.terminal.report import report_table
from accprobe.render.terminal.verification import verification_table
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.verify.outcome import Events, TileCoverage, Verification

NAME = "wgmma.m64n8k32.f32.e4m3.e4m3"
FACT = "The running sum keeps 13 (e8m13)"
COVERAGE: dict[str, Any] = {
    "results": 48_213,
    "contradicting": 17,
    "tile": {"covered": 69, "total": 512, "differing": "row 3"},
    "events": {"hit": 410, "possible": 412, "impossible": {"no operand is subnormal": 3}, "missing": ["tie up", "carry 5"]},
}


QUERIES = {"count": 412, "smallest": 1, "largest": 65_537}
AGREEING = COVERAGE | {"contradicting": 0, "tile": {"covered": 69, "total": 512}, "queries": QUERIES}
"""Nothing contradicts the model, and not all of it was covered."""


def not_confirmed(status: str = "inferred", **changes: Any) -> dict[str, Any]:
    row = float_row(NAME, 13, {"QGMMA": 1}, status=status, reason="17 answers differ")
    row["findings"] = {name: finding | {"bound": "suggested"} for name, finding in row["findings"].items()}
    row["verification"] |= COVERAGE
    return row | changes


def simulated() -> Report:
    return simulated_report(float_row(NAME, 13, {"QGMMA": 1}))


def one(row: dict[str, Any]) -> Row:
    return fake_report(row).instructions[0]


def text(what: Any, width: int = 400) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def every_form(report: Report) -> list[str]:
    return [text(report_table(report, 400)), report_markdown(report).replace("\\", ""), report_page(report)]


@pytest.mark.parametrize("status", ["inferred", "unstable", "unverified"])
def test_no_form_states_what_is_suggested_as_a_fact(status: str) -> None:
    for shown in every_form(fake_report(not_confirmed(status))):
        assert FACT not in shown
        assert "~13 (e8m13)" in shown
        assert "~: suggested, what explains most answers in a row that is not confirmed: no fact" in shown
        assert f"{status}: 17 answers differ" in shown.replace(f'<span class="{status}">{status}</span>', status)
    assert FACT in every_form(fake_report())[0]


@pytest.mark.parametrize("status", ["inferred", "unstable", "unverified"])
def test_even_an_exact_finding_is_no_fact_where_the_row_is_not_confirmed(status: str) -> None:
    assert FACT not in every_form(fake_report(float_row(NAME, 13, {"QGMMA": 1}, status=status, reason="x")))[0]


def test_in_full_every_suggested_value_has_its_mark() -> None:
    terminal, markdown = text(row_details(one(not_confirmed()))), rows_markdown(fake_report(not_confirmed()))
    for shown in (terminal, markdown.replace("\\", "")):
        assert "What follows is suggested, no fact" in shown
        assert "alignment bits ~13, alignment rounding ~truncate, product exponent ~unnormalised" in shown
        assert "~13 (e8m13)" in shown
    assert "suggested" in terminal.split("findings")[1]


@pytest.mark.parametrize("form", [0, 1, 2])
def test_what_no_hardware_answered_is_called_simulated(form: int) -> None:
    for report in (simulated(), simulated_report()):
        shown = every_form(report)[form]
        assert f"Simulated: t{FACT[1:]}" in shown
        assert FACT not in shown
        assert "SIMULATED: these are published models, nothing was measured" in shown
        assert "measured in" not in shown
    assert "simulated: wgmma" not in every_form(simulated())[form]


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
@pytest.mark.parametrize("rows", some([[], ["*.f32.e4m3.e4m3*"]]), ids=["table", "in full"])
def test_that_nothing_was_measured_is_said_once(form: str, rows: list[str]) -> None:
    shown = CliRunner().invoke(main, ["show", "sim:b200", *rows, "--format", form]).stdout
    assert shown.count("nothing was measured") == 1
    assert "SIMULATED: these are published models, nothing was measured" in shown
    assert shown.count("simulated") > 2
    assert "nothing was measured" not in CliRunner().invoke(main, ["show", "h200", *rows, "--format", form]).stdout


def test_why_a_simulated_row_would_not_be_confirmed_is_told_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    simulated_report(float_row(NAME, 13, {"QGMMA": 1}, reason="17 answers differ")).save(path)
    for rows in ([], [NAME]):
        assert "simulated: 17 answers differ" in CliRunner().invoke(main, ["show", str(path), *rows]).stdout


def test_details_say_what_was_covered() -> None:
    for shown in (text(row_details(one(not_confirmed()))), rows_markdown(fake_report(not_confirmed())).replace("\\", "")):
        assert "17 of 48,213 answers contradict the model" in shown
        assert "read 69 of 512 cells; wrong: row 3" in shown
        assert "coverage does not count: results contradict the model" in shown
        assert "excluded" not in shown
    row = not_confirmed(verification=not_confirmed()["verification"] | AGREEING)
    for shown in (text(row_details(one(row))), rows_markdown(fake_report(row)).replace("\\", "")):
        assert "412 queries of 1 to 65,537 dot products" in shown
        assert "410 of 412 events; 3 cannot occur because no operand is subnormal; missing: tie up, carry 5" in shown
    excluded = "no mismatch in 10,000,000: faults in more than 3 in 10,000,000 of such operands are excluded at 95 %"
    assert excluded in text(row_details(fake_report().instructions[1]))


@pytest.mark.parametrize(
    "done",
    [
        Verification(10, 1, 0),
        Verification(10, 0, 0, results=20, contradicting=1),
        Verification(10, 0, 0, tile=TileCoverage(1, 1, "row 3")),
        Verification(3, 0, 0),
    ],
)
def test_nothing_is_excluded_where_anything_differs_or_few_were_tried(done: Verification) -> None:
    assert excluded_faults(done) == ""
    assert excluded_faults(Verification(10, 0, 0)) == "faults in more than 3 in 10 of such operands are excluded at 95 %"


def test_overview_says_what_was_covered() -> None:
    for shown in every_form(fake_report(not_confirmed())):
        assert "69 of 512 cells read, 17 of 48,213 answers contradict their model" in shown
        assert "69/512, some wrong" in shown
        assert "410 of 412" not in shown
        assert "410/412" not in shown
    for shown in every_form(fake_report(not_confirmed(verification=not_confirmed()["verification"] | AGREEING))):
        assert "410 of 412 events met, 69 of 512 cells read, 0 of 48,213 answers contradict their model" in shown
        assert "410/412" in shown
    whole = {"tile": {"covered": 512, "total": 512}, "events": {"hit": 9, "possible": 9}}
    row = float_row(NAME, 13, {"QGMMA": 1})
    row["verification"] |= whole
    (line,) = (line for line in text(report_table(fake_report(row), 400)).splitlines() if line.startswith(NAME))
    assert line.split()[-4:] == ["all", "all", "0/40", "confirmed"]


def test_rows_alike_show_each_coverage_that_they_have() -> None:
    rows = []
    for suffix, read in (("", 512), (".rs", 69)):
        row = float_row(f"{NAME}{suffix}", 13, {"QGMMA": 1}, status="inferred", reason="cells were not read")
        row["verification"] |= {"tile": {"covered": read, "total": 512}}
        rows.append(row)
    assert "all, 69/512" in text(report_table(fake_report(*rows), 400))


def test_flat_forms_have_a_column_for_each_count() -> None:
    (line,) = csv.DictReader(io.StringIO(comma_separated(fake_report(not_confirmed()))))
    found = {key: line[key] for key in ("results", "contradicting", "tile_covered", "tile_total", "tile_differing")}
    assert list(found.values()) == ["48213", "17", "69", "512", "row 3"]
    assert (line["events_hit"], line["events_possible"], line["events_missing"]) == ("410", "412", "tie up | carry 5")
    (covered,) = csv.DictReader(
        io.StringIO(comma_separated(fake_report(not_confirmed(verification=not_confirmed()["verification"] | AGREEING))))
    )
    assert [covered[key] for key in ("queries", "smallest_query", "largest_query")] == ["412", "1", "65537"]
    assert line["queries"] == ""
    assert line["effective_bits_bound"] == "suggested"
    (line,) = csv.DictReader(io.StringIO(comma_separated(simulated())))
    assert {line[key] for key in found} == {""}


def narrow_and_wide(a: dict[str, Any], b_status: str = "confirmed") -> tuple[Report, Report]:
    return fake_report(a), fake_report(float_row(NAME, 23, {"QGMMA": 1}, status=b_status))


def test_comparison_decides_nothing_from_what_is_suggested() -> None:
    found = diff(*narrow_and_wide(not_confirmed()))
    assert found.pairs[0].verdict == "changed"
    assert [d.field for d in found.pairs[0].differences if d.verdict == "changed"] == ["status"]
    assert "13" not in headline(found)
    assert found.pairs[0].marks == ("A inferred",)
    for shown in (text(diff_report(found, 400)), diff_markdown(found), diff_page(found), diff_json(found)):
        assert "inferred" in shown
    assert "17 of 48,213 answers contradict their model" in text(diff_report(found, 400))


def test_headline_of_what_one_side_alone_has_names_no_suggested_bits() -> None:
    nothing = fake_report(float_row("mma.sync.m16n8k16.f32.f16.f16.f32", 23, {"HMMA": 1}), device=_device("sm_80"))
    assert "FP8 → f32 (QGMMA, 13 bits)" in headline(diff(fake_report(float_row(NAME, 13, {"QGMMA": 1})), nothing))
    assert "FP8 → f32 (QGMMA)" in headline(diff(fake_report(not_confirmed()), nothing))


def _device(architecture: str) -> dict[str, Any]:
    return {"kind": "cuda", "name": "Other GPU", "architecture": architecture}


@pytest.mark.parametrize("status", ["inferred", "unstable", "unverified"])
def test_every_side_that_is_not_confirmed_is_marked(status: str) -> None:
    row = float_row(NAME, 13, {"QGMMA": 1}, status=status)
    assert diff(*narrow_and_wide(row)).pairs[0].marks == (f"A {status}",)


def test_a_simulated_side_is_marked() -> None:
    assert diff(simulated(), fake_report(float_row(NAME, 23, {"QGMMA": 1}))).pairs[0].marks == ("A simulated",)


def test_requirement_on_what_is_suggested_is_broken(tmp_path: Any) -> None:
    path = tmp_path / "r.json"
    fake_report(not_confirmed()).save(path)
    result = CliRunner().invoke(main, ["check", str(path), "--require", "*: effective_bits >= 10"])
    assert result.exit_code == 1
    assert "found ~13" in result.stdout


def test_verification_of_a_device_shows_what_was_covered() -> None:
    cells, events = TileCoverage(69, 512, "row 3"), Events(410, 412, {}, ("tie up",))
    done = Verification(1000, 0, 0, results=5, contradicting=1, tile=cells, events=events)
    clean = Verified(parse(NAME), Verification(1000, 0, 0), 1.0)
    shown = " ".join(text(verification_table([Verified(parse(NAME), done, 1.0)])).split())
    assert "69 of 512" in shown
    assert "410 of 412" not in shown
    assert f"! {NAME}: wrong cells: row 3" in shown
    agreeing = Verification(1000, 0, 0, results=5, tile=TileCoverage(69, 512), events=events)
    shown = " ".join(text(verification_table([Verified(parse(NAME), agreeing, 1.0)])).split())
    assert "69 of 512 410 of 412" in shown
    assert "missing: tie up" in shown
    assert "of each instruction: faults in more than 3 in 1,000 of such operands" in text(verification_table([clean]))
    data = verified_data(Verified(parse(NAME), done, 1.0))
    assert data["tile"] == {"covered": 69, "total": 512, "differing": "row 3"}
    assert data["contradicting"] == 1
    assert json.dumps(data)
    plain = verified_data(Verified(parse(NAME), Verification(9, 1, 0), 1.0))
    assert not {"results", "tile", "events"} & plain.keys()
    assert "excluded" not in text(verification_table([Verified(parse(NAME), Verification(9, 1, 0), 1.0)]))
