"""What published models explain of words that others recorded, as every form of a report and of a comparison tells it."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from accprobe.compare.diff import diff
from accprobe.render.content.changes import sides
from accprobe.render.content.overview import legend
from accprobe.render.data import diff_json
from accprobe.render.html import diff_page, report_page
from accprobe.render.markdown import diff_markdown, report_markdown, rows_markdown
from accprobe.render.terminal.details import row_details
from accprobe.render.terminal.report import report_table
from accprobe.report.published import published
from accprobe.report.report import Report

B200 = published("b200")
TCGEN05 = "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3"
FP8 = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"
SOURCE = "(MATLAB-tensor-core b12b5a7)"


def printed(what: object) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return " ".join(capture.get().split())


def of(name: str) -> object:
    return next(row for row in B200.instructions if row.name == name)


@pytest.mark.parametrize("form", [lambda report: printed(report_table(report, 160)), report_markdown, report_page])
def test_a_table_says_which_models_explain_what(form: object) -> None:
    *_, sentence = legend(B200.measured, [])
    assert sentence.startswith(
        f"Each published model explains 5,000 words recorded on a B200 {SOURCE}, 0 wrong: mma.sync.m16n8k"
    )
    assert "tcgen05" not in sentence
    assert sentence in form(B200).replace("\\", "")  # type: ignore[operator]


def test_an_instruction_in_full_says_it_where_it_has_been_verified() -> None:
    line = f"the published model explains 5,000 words recorded on a B200 {SOURCE}, 0 wrong"
    assert f"verification {line}" in printed(row_details(of(FP8)))  # type: ignore[arg-type]
    assert line in rows_markdown(B200).replace("\\", "")
    assert "recorded" not in printed(row_details(of(TCGEN05)))  # type: ignore[arg-type]


def test_a_side_of_a_comparison_says_which_family_it_is_of() -> None:
    found = diff(Report.load("h200"), B200)
    line = f"; 8 of mma.sync explain 40,000 words recorded on a B200 {SOURCE}"
    a, b = sides(found)
    assert "explain" not in a
    assert b.endswith(f"nothing was measured{line}")
    assert line in diff_markdown(found).replace("\\", "")
    assert line in diff_page(found)


def test_programs_read_it_of_each_pair() -> None:
    told = json.loads(diff_json(diff(Report.load("h200"), B200)))
    word = {"words": 5000, "chip": "B200", "source": SOURCE.strip("()")}
    pairs = {pair["b"]: pair["explains"] for pair in told["pairs"] if pair["b"]}
    assert pairs[FP8] == {"a": [], "b": [word]}
    assert pairs[TCGEN05] == {"a": [], "b": []}
    assert (told["a"]["explains"], told["b"]["explains"]) == ([], [word] * 8)
