"""Table models of planted functions, whose device shares no code with the inference."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from planted_functions import (
    INVERSE_ROOT,
    INVERSE_ROOT_OF_TWICE,
    LOGARITHM,
    RECIPROCAL,
    SINE,
    PlantedTable,
    cosine,
    inverse_root,
    logarithm,
    reciprocal,
)

from accprobe.function.candidates import Hypothesis
from accprobe.function.compositions import truncated_units
from accprobe.function.fit import infer_table_model
from accprobe.function.records import model_of, model_record
from accprobe.function.statistics import measure_pass
from accprobe.isa.formats import FORMATS
from accprobe.report.functions import TableModelRecord

_F32 = FORMATS["f32"]

PLANTS = {
    "128 segments": reciprocal(PlantedTable(*RECIPROCAL, segments=128, bias=2023)),
    "an exact square": reciprocal(PlantedTable(*RECIPROCAL, segments=128, square="exact")),
    "two tables": inverse_root(
        PlantedTable(*INVERSE_ROOT, segments=64, unit=40, bias=1 << 14),
        PlantedTable(*INVERSE_ROOT_OF_TWICE, segments=64, unit=40, bias=1 << 14),
    ),
    "a logarithm": logarithm(PlantedTable(*LOGARITHM, segments=64, unit=38, bias=2)),
    "a cosine": cosine(PlantedTable(*SINE, segments=64, unit=37)),
}

SEGMENTS = {"two tables": [64, 64], "128 segments": [128], "256 segments": [256], "an exact square": [128]}
LONG_TAIL = {"128 segments", "64 segments, another bias", "256 segments", "an exact square", "a logarithm", "a cosine"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG_TAIL)) for name in PLANTS])
def test_a_planted_table_predicts_every_word(name: str) -> None:
    """F32Words of every size and sign, and of two octaves, by the model and by its record."""
    device = PLANTS[name]
    inference = infer_table_model(device)
    assert inference.model is not None, inference.contradicted
    rng = np.random.default_rng(0)
    octaves = np.arange(127 << 23, 129 << 23, 401, dtype=np.uint32)
    words = np.concatenate([rng.integers(0, 1 << 32, 1 << 16, np.uint32), octaves])
    assert np.array_equal(inference.model.words(words), device(words))
    kept = TableModelRecord.model_validate_json(model_record(inference.model).model_dump_json())
    assert np.array_equal(model_of(kept).words(words[::64]), device(words[::64]))
    segments = [len(table.coefficients) for table in inference.model.tables]
    assert segments == SEGMENTS.get(name, [64])


def test_another_squarer_is_refused() -> None:
    inference = infer_table_model(reciprocal(PlantedTable(*RECIPROCAL, segments=128, square="half")))
    assert inference.model is None
    assert "power, table 0: 128 segments, truncated square" in inference.contradicted


def test_one_wrong_word_is_found_with_its_place() -> None:
    def device(words: Any) -> Any:
        return words ^ (words == 0x3FC12345)

    def identity(words: Any) -> Any:
        return words

    chunks = (np.arange(start, start + (1 << 20), dtype=np.uint32) for start in range(0x3F000000, 0x41000000, 1 << 20))
    done = measure_pass(chunks, device, Hypothesis("identity", identity), None, _F32)
    assert (done.mismatches, done.first) == (1, [(0x3FC12345, 0x3FC12344, 0x3FC12345)])


@pytest.mark.parametrize(
    ("function", "fmt", "digest"),
    [
        ("exp2", "f16", "0b1bab5ab5e9f0b6"),
        ("tanh", "f16", "52bd79238ac307ca"),
        ("exp2", "bf16", "b70d00fc43d804d6"),
        ("tanh", "bf16", "d7cc5224b1ee4e49"),
    ],
)
def test_units_of_16_bit_formats_truncate_those_of_f32(function: str, fmt: str, digest: str) -> None:
    """The SHA-256 of all 65,536 results of ex2.approx.f16 and others on an H100."""
    model, *_ = truncated_units(function, FORMATS[fmt], FORMATS[fmt])
    assert hashlib.sha256(model.words(np.arange(65536, dtype=np.uint16)).tobytes()).hexdigest()[:16] == digest
