"""Counts of recorded results that published models explain."""

from __future__ import annotations

import hardware_vectors
import pytest
from hardware_vectors import needs_vectors

from accprobe.devices import open_device
from accprobe.isa.instructions import parse
from accprobe.model.published import CHIPS, Explained, known_models, words_explained
from accprobe.report.published import published
from accprobe.report.report import Report

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


@pytest.mark.parametrize("chip", CHIPS)
def test_devices_and_reports_of_published_models_have_the_counts(chip: str) -> None:
    explained = words_explained(chip)
    assert bool(explained) == (chip != "rtx5090")
    report, device = published(chip), open_device(f"sim:{chip}")
    assert {row.name: row.explains for row in report.instructions if row.explains} == explained
    assert {inst.name: told for inst in device.instructions() if (told := device.explains(inst))} == explained  # type: ignore[attr-defined]
    assert Report.model_validate_json(report.dumps()) == report
