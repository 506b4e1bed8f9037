"""An error report in words, beside the golden screen: unknown numbers, notes, and published models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shown import on_terminal

from accprobe.budget.accumulation import of_named
from accprobe.budget.error_report import BudgetRequest, ErrorReport, entries
from accprobe.render.document import on_one_line, text_of
from accprobe.render.subjects.budget import COLUMNS, SIMULATED, budget_blocks, budget_notes

QGMMA = of_named("QGMMA")
SMALL = BudgetRequest(ks=(64,), outputs=16)


@pytest.fixture(scope="module")
def account() -> ErrorReport:
    return ErrorReport(SMALL, (QGMMA,), tuple(entries(QGMMA, SMALL)), ("K = 4096: promote.",))


def test_unknown_numbers_are_empty_cells(account: ErrorReport) -> None:
    of = account.entries[0]
    nothing = dict.fromkeys(("relative_error", "bias", "bound_over_sum"))
    unknown = replace(of, errors=replace(of.errors, relative_error_interval=None, **nothing))
    cells = {on_one_line(column.header): text_of(column.cell(unknown)) for column in COLUMNS if column.cell}
    assert {cells[name] for name in ("relative error", "95 %", "bias", "worst case / sum |a·b|")} == {""}


def test_overflow_and_scales_are_noted_where_there_are_some(account: ErrorReport) -> None:
    over = replace(account.entries[0], scale="nv16", errors=replace(account.entries[0].errors, outputs=250, overflowed=6))
    shown = list(budget_notes(replace(account, entries=(over,))))
    assert any(note.startswith("Up to 6 outputs") for note in shown)
    assert any(note.startswith("nv16: e2m1 numbers") for note in shown)
    assert not list(budget_notes(replace(account, entries=())))


def test_what_was_not_measured_says_so(account: ErrorReport) -> None:
    simulated = of_named("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3")
    account = replace(account, accumulations=(simulated, QGMMA))
    assert account.simulated == [simulated.name]
    assert SIMULATED in on_terminal(budget_blocks(account))
