"""An error report as a table, in words, and as a page that runs nothing of its names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shown import on_terminal

from accprobe.budget.accumulation import of_named
from accprobe.budget.error_report import BudgetRequest, ErrorReport, ErrorRow, entries
from accprobe.budget.errors import Interval
from accprobe.render.document import Phrase, line, on_one_line, tabulate
from accprobe.render.subjects.budget import COLUMNS, SIMULATED, budget_blocks, budget_notes

QGMMA = of_named("QGMMA")
EVIL = "<script>alert(1)</script>|`x`.npy"


@pytest.fixture(scope="module")
def account() -> ErrorReport:
    asked = BudgetRequest(ks=(256, 4096), intervals=(None, 128), outputs=16)
    return ErrorReport(asked, (QGMMA,), tuple(entries(QGMMA, asked)), ("K = 4096: promote.",))


def entry(account: ErrorReport, k: int, every: int | None, data: str) -> ErrorRow:
    return next(each for each in account.entries if (each.k, each.promote_every, each.data) == (k, every, data))


def phrase(header: str, of: ErrorRow) -> Phrase:
    (column,) = (column for column in COLUMNS if on_one_line(column.header) == header)
    assert column.cell is not None
    (found,) = line(column.cell(of))
    return found


def cell(header: str, of: ErrorRow) -> str:
    return phrase(header, of).text


def test_cells(account: ErrorReport) -> None:
    never, promoted = (entry(account, 4096, every, "same-sign") for every in (None, 128))
    headers = ("data", "K", "promotion interval", "split K", "relative error", "bias")
    assert [cell(header, never) for header in headers] == ["same-sign", "4,096", "never", "", "6.6 %", "-6.6 %"]
    assert phrase("bias", never).tone == "narrow"
    assert [cell(header, promoted) for header in headers[2:]] == ["128", "", "0.049 %", "-0.049 %"]
    assert cell("worst case / sum |a·b|", promoted) == "1.6e-02"


def test_a_bias_whose_sign_is_open_has_none(account: ErrorReport) -> None:
    of = entry(account, 4096, 128, "same-sign")
    unsure = replace(of, errors=replace(of.errors, bias=-1e-3, bias_interval=Interval(-2e-3, 1e-4)))
    assert (cell("bias", of), cell("bias", unsure)) == ("-0.049 %", "~0")
    high = replace(of, errors=replace(of.errors, bias=1e-3, bias_interval=Interval(1e-4, 2e-3)))
    assert cell("bias", high) == "+0.1 %"


def test_unknown_numbers_are_empty_cells(account: ErrorReport) -> None:
    of = account.entries[0]
    nothing = dict.fromkeys(("relative_error", "bias", "bound_over_sum"))
    unknown = replace(of, errors=replace(of.errors, relative_error_interval=None, **nothing))
    assert {cell(name, unknown) for name in ("relative error", "95 %", "bias", "worst case / sum |a·b|")} == {""}


def test_columns_of_scales_appear_with_scales(account: ErrorReport) -> None:
    def headers(entries: tuple[ErrorRow, ...]) -> set[str]:
        return {on_one_line(column.header) for column in tabulate(COLUMNS, entries).columns}

    scaled = replace(account, entries=(replace(account.entries[0], scale="1x128", is_scaled=False),))
    assert headers(scaled.entries) - headers(account.entries) >= {"scale", "SNR of A, B dB"}
    assert cell("scale", scaled.entries[0]) == "1x128 *"
    assert any(note.startswith("*: the error of the sum of scaled operands") for note in budget_notes(scaled))


def test_notes(account: ErrorReport) -> None:
    notes = list(budget_notes(account))
    assert notes[0].startswith("D in f32 is compared with exact sums x; 16 outputs per row, of 16 draws of operands, seed 0.")
    over = replace(account.entries[0], scale="nv16", errors=replace(account.entries[0].errors, outputs=250, overflowed=6))
    shown = list(budget_notes(replace(account, entries=(over,))))
    assert any(note.startswith("Up to 6 outputs") for note in shown)
    assert any(note.startswith("nv16: e2m1 numbers") for note in shown)
    assert not list(budget_notes(replace(account, entries=())))


def test_what_was_not_measured_says_so() -> None:
    simulated = of_named("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3")
    asked = BudgetRequest(ks=(64,), outputs=16)
    account = ErrorReport(asked, (simulated, QGMMA), tuple(entries(simulated, asked)))
    assert account.simulated == [simulated.name]
    assert SIMULATED in on_terminal(budget_blocks(account))
