from collections.abc import Callable

import numpy as np
import pytest
from fakes import DENSE, SPARSE, WIDE, FakeDevice

from accprobe.errors import AccprobeError, DeviceError
from accprobe.infer import falsification
from accprobe.infer.alternative import Alternative
from accprobe.infer.characterise import Characterisation
from accprobe.infer.falsification import Falsification
from accprobe.infer.query_log import Contradictions, QueryLog
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel, IntegerArithmetic, chain
from accprobe.records.findings import Bound, Finding
from accprobe.records.rows import Row
from accprobe.records.verification import Verification
from accprobe.report.report import Report
from accprobe.survey import row as rows
from accprobe.survey.row import with_status
from accprobe.survey.run import survey

# Accumulators of two models.
OVERFLOWS = (("A", "wrap"), ("B", "saturate"))


@pytest.fixture(autouse=True)
def _no_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alternatives have their own tests; here each row has none left unless a test says so."""
    monkeypatch.setattr(rows, "falsify", lambda *_: Falsification(7, ()))


def row_of(report: Report, name: str) -> Row:
    return next(row for row in report.instructions if row.name == name)


def test_device_is_surveyed_in_the_order_of_its_catalog() -> None:
    report = survey(FakeDevice(), dots=500, seed=3)
    assert [(row.name, row.status, row.reason) for row in report.instructions] == [
        (SPARSE, "skipped", "no probe"),
        (DENSE, "confirmed", ""),
        (WIDE, "confirmed", ""),
    ]
    assert (report.device.kind, report.device.name, report.device.architecture) == ("cuda", "Fake GPU", "sm_90a")
    assert report.device.facts == {"compute_capability": "9.0", "sm_count": 3}
    assert (report.seed, report.environment, report.run.selected) == (3, {"driver": "1.2"}, 3)
    row = row_of(report, DENSE)
    assert (row.opcodes, row.opcode_source, row.cubin_sha256) == (("IMMA.16816.S8.S8",), "nvdisasm", "ab" * 32)
    assert row.findings["overflow"].value == "wrap"
    assert row.findings["overflow"].bound == "exact"
    assert row.evidence["overflow"]
    assert row.model is not None
    assert (row.verification.random, row.verification.mismatches) == (500, 0)
    assert row.verification.compared > 500
    assert (row.alternatives.tested, row.alternatives.surviving) == (7, ()) if row.alternatives else False


def test_model_that_mispredicts_is_inferred_only() -> None:
    """Where it does so is queried in every cell, twice: the arithmetic is so, neither a place nor a moment."""
    device = FakeDevice(lambda _, d: d ^ (d % np.uint32(97) == 96).astype(np.uint32))
    row = row_of(survey(device, [DENSE], dots=1000), DENSE)
    assert 0 < row.verification.mismatches <= row.verification.contradicting < row.verification.results
    assert row.status == "inferred"
    assert row.reason == f"{row.verification.contradicting:,} of {row.verification.results:,} results differ from the model"
    assert {finding.bound for finding in row.findings.values()} <= {"suggested", "undetermined"}
    first = row.verification.counterexample
    assert int(first.expected, 16) ^ int(first.exchange.d, 16) == 1


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [
        (None, "which opcode ran is not known: see `accprobe doctor`"),
        ((), "no matrix opcode ran, not an opcode of mma.sync's unit"),
        (("IGMMA.64x8x32.S8.S8",), "IGMMA.64x8x32.S8.S8 ran, not an opcode of mma.sync's unit"),
    ],
)
def test_without_the_expected_opcode_a_row_is_unverified(opcodes: tuple[str, ...] | None, reason: str) -> None:
    row = row_of(survey(FakeDevice(opcodes=opcodes), [DENSE], dots=100), DENSE)
    assert (row.status, row.reason) == ("unverified", reason)


@pytest.mark.parametrize(("nearest", "looked_for"), [("AAAAAAAA", 2), ("ABBBBBBB", 3), ("ABABABAB", 6)])
def test_a_model_that_is_the_nearest_again_is_looked_for_no_more(
    nearest: str, looked_for: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = {letter: IntegerArithmetic(FORMATS["s32"], overflow) for letter, overflow in OVERFLOWS}
    models = {letter: DotModel(chain([range(32)], arithmetic)) for letter, arithmetic in sums.items()}
    left = list(nearest)
    monkeypatch.setattr(rows, "infer_model", lambda log, _: Characterisation(log.inst, model=models[left.pop(0)]))
    monkeypatch.setattr(rows, "falsify", lambda *_: Falsification(7, (), Contradictions(1, ())))
    monkeypatch.setattr(rows, "checked", lambda *_: Verification(1, 1, 0))
    rows.measured(QueryLog(FakeDevice(), parse(DENSE)), 1, 0)
    assert len(nearest) - len(left) == looked_for


def test_surviving_alternatives_make_their_field_undetermined(monkeypatch: pytest.MonkeyPatch) -> None:
    def falsify(log: object, result: Characterisation, seed: int) -> Falsification:
        assert result.model is not None
        alternatives = [("overflow", "saturate"), ("result_bits", 31), ("result_bits", 30), ("unheard_of", "x")]
        return Falsification(9, tuple(Alternative(result.model, ((field, value),)) for field, value in alternatives))

    monkeypatch.setattr(rows, "falsify", falsify)
    row = row_of(survey(FakeDevice(), [DENSE], dots=100), DENSE)
    assert row.status == "confirmed"
    found = {
        feature: (f.value, f.bound, f.candidates)
        for feature, f in row.findings.items()
        if f.bound == "undetermined" and f.candidates
    }
    assert found == {
        "overflow": ("wrap", "undetermined", ("wrap", "saturate")),
        "result_bits": (32, "undetermined", (32, 31, 30)),
        "unheard_of": (None, "undetermined", ("none", "x")),
    }


def failing(error: Exception, *names: str) -> Callable[[Instruction, Bits], Bits]:
    def spoil(inst: Instruction, d: Bits) -> Bits:
        if inst.name in names:
            raise error
        return d

    return spoil


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AccprobeError("does not compile"), "does not compile"),
        (DeviceError("launch failed"), "launch failed"),
        (ValueError("oops"), "a defect of accprobe, please report it: ValueError: oops (test_survey.py:"),
    ],
)
def test_failing_row_is_unverified_and_the_run_goes_on(error: Exception, reason: str) -> None:
    report = survey(FakeDevice(failing(error, DENSE)), dots=100)
    assert row_of(report, DENSE).status == "unverified"
    assert row_of(report, DENSE).reason.startswith(reason)
    assert row_of(report, DENSE).opcodes == ("IMMA.16816.S8.S8",)
    assert row_of(report, WIDE).status == "confirmed"


def test_instructions_of_one_function_are_measured_once() -> None:
    class Twins(FakeDevice):
        def identity(self, inst: Instruction) -> int:
            return 1

        def instructions(self) -> list[Instruction]:
            return [parse(DENSE), parse(DENSE.replace("m16n8k16", "m8n8k16"))]

    asked: set[str] = set()
    device = Twins(lambda inst, d: asked.add(inst.name) or d)
    report = survey(device, dots=100)
    assert asked == {DENSE}
    first, second = report.instructions
    assert second == first.model_copy(update={"name": DENSE.replace("m16n8k16", "m8n8k16")})


def test_instruction_that_the_catalog_leaves_out_can_be_named() -> None:
    named = "wgmma.m64n128k32.s32.s8.s8"
    row = row_of(survey(FakeDevice(opcodes=("IGMMA.64x128x32.S8.S8",)), [named], dots=100), named)
    assert row.status == "confirmed"


def test_worker_processes_find_what_this_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "falsify", falsification.falsify)
    select = ["wgmma.m64n8k32*.s32.*"]
    alone = survey("sim:h100", select, dots=200, jobs=1)
    spread = survey("sim:h100", select, dots=200, jobs=2)
    assert spread.run.jobs == 2
    assert [row.model_copy(update={"seconds": None}) for row in spread.instructions] == [
        row.model_copy(update={"seconds": None}) for row in alone.instructions
    ]


@pytest.mark.parametrize("bound", ["exact", "at_least", "undetermined"])
def test_a_row_that_is_not_confirmed_excludes_no_value(bound: Bound) -> None:
    left = ("RZ", "RNE") if bound == "undetermined" else ()
    finding = Finding("RZ", bound, left, "these give the same bits on every operand tried" if left else "")
    refused = with_status(Row(name=DENSE, status="unverified", reason="9 differ", findings={"rounding": finding}))
    assert (refused.findings["rounding"].bound, refused.findings["rounding"].candidates) == ("suggested", ())
    assert "same bits" not in refused.findings["rounding"].note
