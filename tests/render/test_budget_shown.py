"""An account as a table, in words, drawn, and as a page that runs nothing of what names hold."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from shown import in_markdown

from accprobe.budget.accumulation import of_named
from accprobe.budget.data import OwnData
from accprobe.budget.error_report import BudgetRequest, ErrorReport, ErrorRow, entries
from accprobe.budget.errors import Interval
from accprobe.render.charts import chart_picture
from accprobe.render.html import html_page
from accprobe.render.markdown import markdown_text
from accprobe.render.subjects.budget import (
    BUDGET_COLUMNS,
    SIMULATED,
    budget_blocks,
    budget_charts,
    budget_notes,
    by_data,
    columns_of,
)

QGMMA = of_named("QGMMA")
EVIL = "<script>alert(1)</script>|`x`.npy"


@pytest.fixture(scope="module")
def account() -> ErrorReport:
    asked = BudgetRequest(ks=(256, 1024, 4096), intervals=(None, 32, 128), outputs=256)
    return ErrorReport(asked, (QGMMA,), tuple(entries(QGMMA, asked)), ("K = 4096: promote.",))


def entry(account: ErrorReport, k: int, every: int | None, data: str) -> ErrorRow:
    return next(each for each in account.entries if (each.k, each.promote_every, each.data) == (k, every, data))


def cell(name: str, of: ErrorRow) -> str:
    return BUDGET_COLUMNS[name].cell(of).text


def test_cells_say_what_the_numbers_are(account: ErrorReport) -> None:
    never, promoted = (entry(account, 4096, every, "positive") for every in (None, 128))
    assert [cell(name, never) for name in ("data", "k", "promote_every", "split_k", "tflops")] == [
        "positive",
        "4,096",
        "never",
        "",
        "",
    ]
    assert cell("error", never) == "6.6 %"
    assert cell("bias", never) == "-6.6 %"
    assert BUDGET_COLUMNS["bias"].cell(never).tone == "narrow"
    assert (cell("promote_every", promoted), cell("tflops", promoted), cell("error", promoted)) == ("128", "650", "0.049 %")
    assert cell("bound", promoted) == "1.6e-02"
    errors = promoted.errors
    assert errors.bound_over_sum is not None
    assert errors.max_error_over_sum is not None
    assert cell("below", promoted) == f"{errors.bound_over_sum / errors.max_error_over_sum:.0f}"


def test_a_bias_whose_sign_is_open_has_none(account: ErrorReport) -> None:
    of = entry(account, 4096, 128, "positive")
    unsure = replace(of, errors=replace(of.errors, bias=-1e-3, bias_interval=Interval(-2e-3, 1e-4)))
    assert (cell("bias", of), cell("bias", unsure)) == ("-0.049 %", "~0")
    high = replace(of, errors=replace(of.errors, bias=1e-3, bias_interval=Interval(1e-4, 2e-3)))
    assert cell("bias", high) == "+0.1 %"


def test_what_is_not_known_is_an_empty_cell(account: ErrorReport) -> None:
    of = account.entries[0]
    nothing = dict.fromkeys(("relative_error", "relative_error_worst", "bias", "max_error_over_sum", "bound_over_sum"))
    unknown = replace(of, errors=replace(of.errors, relative_error_interval=None, **nothing))
    assert {cell(name, unknown) for name in ("error", "interval", "worst", "bias", "over_sum", "bound", "below")} == {""}


def test_columns_of_scales_stand_where_scales_are_asked(account: ErrorReport) -> None:
    assert "scale" not in columns_of(account)
    scaled = replace(account, entries=(replace(account.entries[0], scale="1x128", is_scaled=False),))
    assert {"scale", "snr"} <= set(columns_of(scaled))
    assert cell("scale", scaled.entries[0]) == "1x128 *"
    assert any(note.startswith("*: scales of blocks") for note in budget_notes(scaled))


def test_what_has_to_be_known_is_noted(account: ErrorReport) -> None:
    notes = list(budget_notes(account))
    assert notes[0].startswith("Of D in f32 against exact sums x; 256 outputs a row, of 16 draws of operands, seed 0.")
    assert any("2048x2048x2048, NVIDIA H200" in note for note in notes)
    over = replace(account.entries[0], scale="nv16", errors=replace(account.entries[0].errors, outputs=250, overflowed=6))
    told = list(budget_notes(replace(account, entries=(over,))))
    assert any(note.startswith("Up to 6 outputs") for note in told)
    assert any(note.startswith("nv16: e2m1 numbers") for note in told)
    assert not list(budget_notes(replace(account, entries=())))


def test_rows_of_one_kind_of_data_stand_together(account: ErrorReport) -> None:
    mixed = [entry(account, 256, None, "positive"), entry(account, 256, None, "normal"), entry(account, 256, 128, "positive")]
    assert [[each.data for each in group] for group in by_data(mixed)] == [["positive", "positive"], ["normal"]]


def test_errors_are_drawn_against_k_and_speed_beside_them(account: ErrorReport) -> None:
    walk, drift, error, speed = budget_charts(account)
    assert (walk.title, drift.title) == ("normal", "positive")
    assert (walk.counted, drift.counted) == ("relative error; a walk, of no sign", "relative error; a drift, of one sign")
    assert (walk.x, walk.y) == (drift.x, drift.y)
    assert [curve.label for curve in drift.curves] == ["never promoted", "promoted every 32", "promoted every 128"]
    assert drift.curves[0].points[-1] == (4096, entry(account, 4096, None, "positive").errors.relative_error)
    assert [x for x, _ in error.curves[0].points] == [x for x, _ in speed.curves[0].points] == [32, 128]
    assert speed.curves[0].points[-1] == (128, 650.28)
    for chart in (walk, drift, error, speed):
        ElementTree.fromstring(chart_picture(chart))


def test_one_interval_has_no_chart_of_its_own(account: ErrorReport) -> None:
    few = tuple(each for each in account.entries if each.promote_every != 32)
    assert [chart.title for chart in budget_charts(replace(account, entries=few))] == ["normal", "positive"]
    zero = replace(few[0], errors=replace(few[0].errors, relative_error=0.0))
    assert budget_charts(replace(account, entries=(zero,))) == []


def test_the_page_runs_nothing_that_a_file_s_name_holds(account: ErrorReport) -> None:
    own = OwnData(EVIL, None, np.ones((2, 64), np.float32))
    asked = BudgetRequest(data=(own,), outputs=16)
    evil = ErrorReport(asked, (QGMMA,), tuple(entries(QGMMA, asked)), (f"{EVIL} data",), interrupted=True)
    page = html_page("budget", list(budget_blocks(evil)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Interrupted" in page
    assert "`x`" not in markdown_text(budget_blocks(evil)).replace("\\`x\\`", "")


def test_the_page_has_all_rows_charts_and_words(account: ErrorReport) -> None:
    page = html_page("budget", list(budget_blocks(account)))
    assert page.count("<tr>") == len(account.entries) + 1
    assert page.count('class="chart"') == 4
    assert "K = 4096: promote." in page
    assert re.search(r"default-src &#39;none&#39;|default-src 'none'", page)
    assert SIMULATED not in page


def test_what_was_not_measured_says_so_in_every_form() -> None:
    simulated = of_named("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3")
    asked = BudgetRequest(ks=(64,), outputs=16)
    account = ErrorReport(asked, (simulated, QGMMA), tuple(entries(simulated, asked)))
    assert account.simulated == [simulated.name]
    assert SIMULATED in html_page("budget", list(budget_blocks(account)))
    assert SIMULATED in in_markdown(budget_blocks(account))
