import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from fakes import fake_report, float_row

from accprobe.cli import main
from accprobe.report.report import Report

WGMMA = "wgmma.m64n8k32.f32.e4m3.e4m3"
QGMMA = {"QGMMA.64x8x32.F32.E4M3.E4M3": 1}


def diff(*arguments: str, columns: int = 160) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["diff", *arguments])


def saved(folder: Path, name: str, *rows: dict[str, Any], **changes: Any) -> str:
    path = folder / name
    fake_report(*rows, **changes).save(path)
    return str(path)


def test_a_status_that_changed_alone_is_told_as_that_in_every_form(tmp_path: Path) -> None:
    proved = saved(tmp_path, "proved.json", float_row(WGMMA, 13, QGMMA))
    weaker = saved(tmp_path, "weaker.json", float_row(WGMMA, 13, QGMMA, status="inferred", reason="3 differ"))
    shown = diff(proved, weaker)
    assert shown.exit_code == 1
    assert "The same instruction: changed\n" in shown.stdout
    assert "pairs of instructions: 1 status changed\n" in shown.stdout
    told = json.loads(diff(proved, weaker, "--format", "json").stdout)
    assert ([(pair["verdict"], pair["word"]) for pair in told["pairs"]], told["counts"]) == (
        [("changed", "status changed")],
        {"status changed": 1},
    )
    markdown, html = (diff(proved, weaker, "--format", form).stdout for form in ("markdown", "html"))
    assert "### The same instruction: changed\n" in markdown
    assert "1 status changed" in markdown
    assert "<h2>The same instruction: changed</h2>" in html
    assert "1 status changed" in html


def test_exit_zero() -> None:
    assert diff("h200", "sim:b200", "--exit-zero").exit_code == 0


def test_json_has_every_pair_with_both_values() -> None:
    data = json.loads(diff("h200", "sim:b200", "--format", "json").stdout)
    assert data["headline"].startswith("Hopper → Blackwell")
    assert sum(data["counts"].values()) == len(data["pairs"])
    assert all(pair["marks"] == ["B simulated"] for pair in data["pairs"])
    pair = next(pair for pair in data["pairs"] if pair["a"] == WGMMA)
    assert (pair["by"], pair["b"], pair["verdict"]) == ("role", "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3", "changed")
    (bits,) = (field for field in pair["fields"] if field["field"] == "effective_bits")
    assert (bits["a"]["value"], bits["b"]["value"]) == (13, 23)
    assert "promoting" in bits["means"]
    assert {pair["verdict"] for pair in data["pairs"]} == {"changed", "only in A", "only in B", "undecided", "same"}


def test_standard_input_is_one_of_the_two() -> None:
    text = Report.load("h200").dumps()
    assert CliRunner().invoke(main, ["diff", "-", "h200"], input=text).exit_code == 0
    twice = CliRunner().invoke(main, ["diff", "-", "-"], input=text)
    assert (twice.exit_code, twice.stderr) == (2, "accprobe: A and B are both standard input: give one of them as a file\n")
