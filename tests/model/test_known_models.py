"""The published models: they match results of real matrix units and of a B200, and experiments find what they state."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hardware_vectors
import pytest
from hardware_vectors import VECTORS, Recorded, compare, find_vectors, needs_vectors, published_models

from accprobe.build.lowerings import is_ordinary
from accprobe.devices import open_device
from accprobe.devices.simulated import simulated_device
from accprobe.errors import AccprobeError
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.left_out import LEFT_OUT, NO_EFFECT
from accprobe.isa.instructions import Instruction, catalog, parse
from accprobe.model.published import CHIPS, Explained, chip, known_models, words_explained
from accprobe.model.record import Value
from accprobe.model.tree import Arithmetic, DotModel, FloatArithmetic
from accprobe.operands.exchange import Exchange
from accprobe.records.findings import Finding, findings_of
from accprobe.render.subjects.instruction import tree
from accprobe.report.names import named_models
from accprobe.report.published import NOT_MEASURED, published
from accprobe.report.report import Report
from accprobe.survey.run import survey

IN_F32 = [recorded for recorded in find_vectors(VECTORS) if recorded.result == "fp32"]


def mismatches(recorded: Recorded, change: Callable[[Arithmetic], Arithmetic]) -> int:
    """Count mismatches of the best model with a changed arithmetic."""
    known = {inst: model.with_arithmetic(change) for inst, model in published_models(recorded.gpu).items()}
    return compare(recorded, known)[0].mismatches


@needs_vectors
@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("recorded", IN_F32, ids=lambda recorded: recorded.name)
def test_vectors_contradict_other_alignment_bits(recorded: Recorded, change: int) -> None:
    def moved(arithmetic: Arithmetic) -> Arithmetic:
        bits = getattr(arithmetic, "alignment_bits", None)
        return arithmetic if bits is None else replace(arithmetic, alignment_bits=bits + change)

    assert mismatches(recorded, moved) > 0


@pytest.mark.parametrize("name", CHIPS)
def test_every_model_has_a_source_and_an_opcode(name: str) -> None:
    for inst, known in known_models(name).items():
        assert inst in catalog(chip(name).architecture)
        assert not inst.sparse
        assert any(word in known.source for word in ("Khattak", "MMA-Sim", "PTX ISA", "IEEE 754"))
        assert known.lowering.source == "known model"
        assert known.lowering.matrix or is_ordinary(known.lowering.sequence)
        assert bool(known.lowering.matrix) != ("IEEE 754" in known.source)
        assert set(known.lowering.matrix) <= {opcode for opcode, _ in known.lowering.sequence}
        assert known.lowering.cubin_sha256 is None


def test_sparse_instructions_add_the_stored_products() -> None:
    """The H200 was measured to do so."""
    measured = named_models("h200")
    dense = {replace(inst, name=""): inst for inst in measured if not inst.sparse}
    sparse = {inst: dense[replace(inst.stored, name="")] for inst in measured if inst.sparse}
    assert len(sparse) > 100
    assert all(measured[inst] == measured[same] for inst, same in sparse.items())


B200 = "MATLAB-tensor-core b12b5a7"
KEPT = hardware_vectors.recorded()


@pytest.mark.parametrize("key", KEPT, ids="/".join)
def test_every_entry_is_of_a_model_without_mismatches(key: hardware_vectors.Key) -> None:
    one = KEPT[key]
    assert one["mismatches"] == 0 < one["dots"]
    assert parse(one["name"]) in known_models(one["gpu"])
    assert one["source"].startswith(hardware_vectors.ORIGIN)


@needs_vectors
def test_entries_equal_a_comparison_with_the_vectors() -> None:
    found = hardware_vectors.compared()
    assert {key: KEPT[key] | {"source": one["source"]} for key, one in found.items()} == found


def test_fp8_results_of_a_b200_belong_to_the_lowered_instruction() -> None:
    """They were recorded with `mma.sync`, C added last, so they say nothing about tcgen05."""
    explained = words_explained("b200")
    assert explained["mma.sync.m16n8k32.f32.e4m3.e4m3.f32"] == (Explained(5000, "B200", B200),)
    assert not [name for name in explained if name.startswith("tcgen05")]


@pytest.mark.parametrize("name", CHIPS)
def test_reports_of_published_models_have_every_model_and_nothing_looks_measured(name: str) -> None:
    """Reports and devices have the number of hardware results that a model explains."""
    explained = words_explained(name)
    assert bool(explained) == (name != "rtx5090")
    report, device = published(name), open_device(f"sim:{name}")
    assert {row.name: row.explains for row in report.instructions if row.explains} == explained
    assert {inst.name: told for inst in device.instructions() if (told := device.explains(inst))} == explained
    assert [row.instruction for row in report.measured] == list(known_models(name))
    assert report.device.kind == "simulated"
    stated = {(row.status, row.reason, row.opcode_source) for row in report.measured}
    assert stated == {("simulated", NOT_MEASURED, "known model")}
    assert not any(row.verification or row.alternatives or row.evidence for row in report.instructions)
    assert Report.model_validate_json(report.dumps()) == report


RECORDED = json.loads((Path(__file__).parents[1] / "recordings" / "b200-words.json").read_text(encoding="utf-8"))
WORDS: dict[Instruction, list[Exchange]] = defaultdict(list)
for name, *columns in RECORDED["words"]:
    WORDS[parse(name)].append(Exchange(*columns))
MODELS = {inst: known_models("b200")[inst].model for inst in WORDS}
FLOATS = [inst for inst in WORDS if inst.is_integer is False and inst.d.name == "f32"]
MOST = 40
"""Alignment bits that are tried, at most."""


def explains(inst: Instruction, model: DotModel) -> bool:
    exchanges = [(word.request(inst), word.result(inst)) for word in WORDS[inst]]
    return all((evaluate(model, inst, request) == answer).all() for request, answer in exchanges)


def changed(model: DotModel, **fields: object) -> DotModel:
    return model.with_arithmetic(lambda x: replace(x, **fields) if isinstance(x, FloatArithmetic) else x)


@pytest.mark.parametrize("inst", WORDS, ids=str)
def test_the_models_explain_every_result(inst: Instruction) -> None:
    assert explains(inst, MODELS[inst])


@pytest.mark.parametrize("inst", FLOATS, ids=str)
def test_candidate_alignment_bits_are_those_that_explain_the_results(inst: Instruction) -> None:
    left = known_models("b200")[inst].candidates["alignment_bits"]
    explaining = [bits for bits in range(20, MOST + 1) if explains(inst, changed(MODELS[inst], alignment_bits=bits))]
    if left == ("any",):
        assert len(WORDS[inst]) < 3 or inst.a.name == "bf16"
        assert {24, 25, 26, MOST} <= set(explaining)
    else:
        assert explaining == expanded(left)


def expanded(left: tuple[Value, ...]) -> list[int]:
    """ "at least 25" as the numbers from there to the most that are tried."""
    found: list[int] = []
    for value in left:
        found += [value] if isinstance(value, int) else range(int(str(value).removeprefix("at least ")), MOST + 1)
    return found


@pytest.mark.parametrize("inst", [inst for inst in FLOATS if inst.k == 64], ids=str)
def test_candidates_for_products_scaled_at_once(inst: Instruction) -> None:
    left = known_models("b200")[inst].candidates["scaled_products"]
    explaining = []
    for some in (None, 2, 4, 8, 16):
        try:
            if explains(inst, changed(MODELS[inst], scaled_products=some)):
                explaining.append(some)
        except AccprobeError:
            continue
    assert explaining == ([4, 8, 16] if left == (4, 8, 16) else [None, 2, 4, 8, 16])


def test_models_of_measured_rows_state_what_was_found() -> None:
    """Of a sparse A it is a model of what is stored: that the rest plays no part, the device alone says."""
    for row in Report.load("h200").measured:
        beside = {LEFT_OUT: Finding(NO_EFFECT)} if row.instruction.sparse else {}
        found = findings_of(row.instruction, row.model) | beside
        assert beside.keys() == row.findings.keys() & {LEFT_OUT}
        for feature, finding in row.findings.items():
            assert feature in found, row.name
            if finding.bound == "exact":
                assert found[feature].value == finding.value, (row.name, feature)


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
    assert tree(row, row.model)[0] == "sum of C and products 0-31?"
    assert tree(said, row.model)[0] == "sum of C and products 0-31"
