"""A whole run on a Zen 4, played back: what was inferred then is inferred now, on machines that have no such instructions."""

from pathlib import Path

import pytest
from replaying import ContinuedReplay

from accprobe.report.evidence import load_with_evidence
from accprobe.report.report import Report
from accprobe.survey.run import survey

FILE = Path(__file__).parents[1] / "recordings" / "cpu-zen4.npz"


@pytest.fixture(scope="module")
def replayed() -> Report:
    """What was not recorded is answered by the models of the report."""
    models = {row.instruction: row.model for row in load_with_evidence("cpu-zen4").measured if row.model}
    return survey(ContinuedReplay(FILE, models), ["avx512*"])


def test_every_row_is_confirmed_again(replayed: Report) -> None:
    assert [(row.status, row.reason, row.unstable) for row in replayed.instructions] == [("confirmed", "", 0)] * 5
    assert replayed.device.kind == "replay"


def test_models_and_findings_are_those_of_the_report(replayed: Report) -> None:
    recorded = {row.name: row for row in load_with_evidence("cpu-zen4").measured}
    assert set(recorded) == {row.name for row in replayed.measured}
    for row in replayed.measured:
        assert (row.model, row.findings, row.opcodes) == tuple(
            getattr(recorded[row.name], name) for name in ("model", "findings", "opcodes")
        )
