"""What the sweep's kernel becomes on each architecture, compiled here."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from compiled import needs

from accprobe.cli import main
from accprobe.cli.sweep import COMPILED_FOR
from accprobe.sweep.atlas import Entry, atlas
from accprobe.sweep.configurations import configurations

pytest.importorskip("triton")
needs("nvdisasm")

FP8 = {
    ("sm_89", 2): ("QMMA", "13 (e8m13)"),
    ("sm_89", 4): ("QMMA", "13 (e8m13)"),
    ("sm_90", 2): ("HMMA", "23 (f32)"),
    ("sm_90", 4): ("QGMMA", "13 (e8m13)"),
    ("sm_100", 2): ("HMMA", "23 (f32)"),
    ("sm_100", 4): ("UTCQMMA", "23 (f32)"),
    ("sm_120", 2): ("QMMA", "23 (f32)"),
    ("sm_120", 4): ("QMMA", "23 (f32)"),
}
"""Opcode and the accumulator that is published of it."""


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Each takes a second."""
    return list(atlas(COMPILED_FOR.split(","), configurations(["e4m3"], [128], [2, 4])))


@pytest.fixture(scope="module")
def entries_of_f16() -> list[Entry]:
    """What else multiplies f16 has but HMMA."""
    return [
        *atlas(["sm_90"], configurations(["f16"], [128], [2, 4])),
        *atlas(["sm_100"], configurations(["f16"], [128], [4])),
    ]


@pytest.mark.slow
def test_two_warps_turn_fp8_into_hmma_on_hopper_and_blackwell(entries: list[Entry]) -> None:
    found = {(each.architecture, each.num_warps): each for each in entries if each.dtype == "e4m3"}
    for key, (opcode, accumulator) in FP8.items():
        (name, _), *others = found[key].opcodes
        assert (name.partition(".")[0], others, found[key].accumulator) == (opcode, [], accumulator)
    for warps in (2, 4):
        assert not found["sm_80", warps].opcodes
        assert "fp8e4nv not supported in this architecture" in found["sm_80", warps].reason


def test_f16_is_hmma_but_for_four_warps_of_hopper_and_of_the_data_centre_blackwell(entries_of_f16: list[Entry]) -> None:
    found = {(each.architecture, each.num_warps): each.opcodes[0][0].partition(".")[0] for each in entries_of_f16}
    assert found.pop(("sm_90", 4)) == "HGMMA"
    assert found.pop(("sm_100", 4)) == "UTCHMMA"
    assert found == {("sm_90", 2): "HMMA"}


def test_where_nothing_is_compiled_there_is_no_table() -> None:
    arguments = ["sweep", "--compile-only", "--arch", "sm_80", "--block-k", "64,128", "--num-warps", "4"]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, arguments)
    assert result.exit_code == 2
    assert "─" not in result.stdout
    assert result.stdout.startswith("e4m3 with 4 warps at block-K 64, 128 on sm_80: Triton ")
    assert result.stderr == "accprobe: none of the 2 configurations becomes a matrix instruction\n"
