"""The check of the special function unit: a faulty SM is named with its operand, by a kernel that numpy computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accprobe.function.records import function_words
from accprobe.function.units import SCALAR_UNITS
from accprobe.health import check
from accprobe.health.check import check_gpu
from accprobe.health.functions import FIRST_ROUNDS, MOST_SMS, NOWHERE, ComparingKernel, FunctionBench, Launched
from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.health.plan import CheckPlan
from accprobe.isa.formats import Bits
from accprobe.records.functions import FunctionRow
from accprobe.render.subjects.health import health_blocks
from accprobe.report.report import Report

SMS, FAULTY_SM, BIT = 4, 2, 9
(ROW,) = (row for row in Report.load("functions-h200").functions if row.name == "rcp.approx.ftz.f32")


class Planted(ComparingKernel):
    """A kernel with four SMs. faulty: SM 2 flips a bit of the results of operands at or above 2^120."""

    unit = next(unit for unit in SCALAR_UNITS if unit.name == ROW.name)

    def __init__(self, row: FunctionRow, faulty: bool) -> None:
        self.row, self.rounds, self._faulty = row, FIRST_ROUNDS, faulty

    def launch(
        self, words: Bits, expected: Bits, rounds: int, repeats: int, only: int = NOWHERE, thread: int = NOWHERE
    ) -> Launched:
        assert len(words) & len(words) - 1 == 0
        done, wrong = np.zeros(MOST_SMS, np.uint64), np.zeros(MOST_SMS, np.uint64)
        results = function_words(self.row, words)
        results[words >> 23 & 255 >= 247] ^= np.uint32(1 << BIT) * self._faulty
        differing = np.flatnonzero(results != expected)
        for sm in range(SMS) if only == NOWHERE else [only]:
            done[sm], wrong[sm] = len(words), len(differing) * (sm == FAULTY_SM)
        records = [[FAULTY_SM, i // 32 % 8, i % 32, i, int(results[i])] for i in differing.tolist()[:4]]
        return Launched(done, wrong, records if done[FAULTY_SM] else [], 0.01)


def outcome_of(faulty: bool, monkeypatch: pytest.MonkeyPatch) -> GpuOutcome:
    benches: dict[str, Any] = {"special function": FunctionBench([Planted(ROW, faulty)], 0)}
    monkeypatch.setattr(check, "function_benches", lambda device, like, seed: benches)
    monkeypatch.setattr(check, "_benches", lambda device, units, seed: {})
    *_, outcome = check_gpu("sim:h100", CheckPlan(seconds=0.1, again=20))
    return outcome


def test_a_faulty_sm_is_named_with_its_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(True, monkeypatch)
    assert (outcome.status, set(outcome.wrong_by_sm), outcome.sms) == ("differs", {str(FAULTY_SM)}, SMS)
    word = outcome.mismatches[0]
    assert (word.instruction, word.place.sm, word.bits) == ("rcp.approx.ftz.f32", FAULTY_SM, (BIT,))
    assert (word.repetitions, word.repeated_mismatches) == (20, 20)
    whole = HealthOutcome.of(None, 0.1, [outcome])
    assert HealthOutcome.model_validate_json(whole.model_dump_json(by_alias=True)) == whole
    text = str(list(health_blocks(whole)))
    assert f"f(0x{word.exchange.a}) = 0x{word.exchange.d}, expected 0x{word.expected}" in text


def test_a_healthy_unit_has_no_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(False, monkeypatch)
    assert (outcome.status, outcome.wrong, [unit.unit for unit in outcome.units]) == ("healthy", 0, ["special function"])
    assert outcome.dots > 0
