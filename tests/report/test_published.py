"""Published models as a report: what a model states is what the experiments find of it."""

import pytest

from accprobe.devices.simulated import simulated_device
from accprobe.infer.characterise import characterise
from accprobe.infer.left_out import LEFT_OUT, NO_EFFECT
from accprobe.isa.instructions import catalog
from accprobe.model.published import CHIPS, known_models
from accprobe.records.findings import Finding, findings_of
from accprobe.render.subjects.instruction import tree
from accprobe.report.published import NOT_MEASURED, published
from accprobe.report.report import Report
from accprobe.survey.run import survey


def test_models_of_measured_rows_state_what_was_found() -> None:
    """Of a sparse A it is a model of what is stored: that the rest plays no part, the device alone says."""
    for row in Report.load("h200").measured:
        assert row.model is not None
        beside = {LEFT_OUT: Finding(NO_EFFECT)} if row.instruction.sparse else {}
        found = findings_of(row.instruction, row.model) | beside
        assert beside.keys() == row.findings.keys() & {LEFT_OUT}
        for feature, finding in row.findings.items():
            assert feature in found, row.name
            if finding.bound == "exact":
                assert found[feature].value == finding.value, (row.name, feature)


CHARACTERISED = [
    ("b200", "tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e4m3"),
    ("a100", "mma.sync.m16n8k16.f32.f16.f16.f32"),
    ("l40s", "mma.sync.m16n8k32.f16.e5m2.e5m2.f16"),
    ("h100", "mma.sync.m16n8k16.f32.e4m3.e4m3.f32"),
    ("h100", "mma.sync.m8n8k16.satfinite.s32.s8.u8.s32"),
    ("h100", "mma.sync.m8n8k4.f64.f64.f64.f64"),
]


@pytest.mark.parametrize(("chip", "name"), CHARACTERISED)
def test_experiments_find_what_is_stated(chip: str, name: str) -> None:
    device = simulated_device(chip)
    inst = next(inst for inst in catalog(CHIPS[chip].architecture) if inst.name == name)
    result, said = characterise(device, inst), findings_of(inst, device.model(inst))
    assert result.findings.keys() <= said.keys()
    for feature, finding in result.findings.items():
        if finding.bound == "exact":
            assert (feature, said[feature].value, said[feature].bound) == (feature, finding.value, "exact")
        if not inst.is_integer or finding.bound != "undetermined":
            continue
        assert (feature, said[feature].value, said[feature].bound) == (feature, finding.value, "undetermined")


@pytest.mark.parametrize("chip", CHIPS)
def test_every_model_is_there_and_nothing_looks_measured(chip: str) -> None:
    report = published(chip)
    assert [row.instruction for row in report.measured] == list(known_models(chip))
    assert report.device.kind == "simulated"
    assert {(row.status, row.reason, row.opcode_source) for row in report.measured} == {
        ("simulated", NOT_MEASURED, "known model")
    }
    assert not any(row.verification or row.alternatives or row.evidence for row in report.instructions)
    assert Report.model_validate_json(report.dumps()) == report


def test_a_run_of_a_simulated_device_leaves_open_what_its_models_do() -> None:
    """Though it finds what the simulation computes; what no public result pins is the same in both."""
    name = "mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m1.e2m1.f32.ue8m0"
    device = simulated_device("rtx5090")
    (row,) = survey(device, [name], dots=100).instructions
    (said,) = [row for row in published("rtx5090").measured if row.name == name]
    assert row.status == "simulated"
    ran, known = row.findings["alignment_bits"], said.findings["alignment_bits"]
    assert (ran.value, ran.bound, ran.candidates, ran.note) == (known.value, "undetermined", ("any",), known.note)
    assert row.findings["result_bits"].bound == "exact"
    assert row.model is not None
    assert tree(row, row.model)[0] == "sum of C and products 0-31?"
    assert tree(said, row.model)[0] == "sum of C and products 0-31"
