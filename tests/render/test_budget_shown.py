"""An error report in words, beside the golden screen: unknown numbers, notes, and published models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shown import on_terminal

from accprobe.budget.accumulation import of_named
from accprobe.budget.error_report import BudgetRequest, ErrorReport, entries
from accprobe.render.subjects.budget import SIMULATED, budget_blocks

QGMMA = of_named("QGMMA")
SMALL = BudgetRequest(ks=(64,), outputs=16)


@pytest.fixture(scope="module")
def account() -> ErrorReport:
    return ErrorReport(SMALL, (QGMMA,), tuple(entries(QGMMA, SMALL)), ("K = 4096: promote.",))


def test_what_was_not_measured_says_so(account: ErrorReport) -> None:
    simulated = of_named("sim:h100:wgmma.m64n8k32.f32.e4m3.e4m3")
    account = replace(account, accumulations=(simulated, QGMMA))
    assert account.simulated == [simulated.name]
    assert SIMULATED in on_terminal(budget_blocks(account))
