"""Accumulators: measured before published, and unknown where neither is."""

from __future__ import annotations

import pytest

from accprobe.audit.accumulators import accumulator
from accprobe.isa import opcodes
from accprobe.report.report import Report

MEASURED = "measured on an NVIDIA H100 80GB HBM3 and an NVIDIA H200 (reports h100, h200)"


def test_every_opcode_of_the_report_has_the_bits_of_its_row() -> None:
    seen = 0
    for row in Report.load("h200").measured:
        if row.instruction.is_integer or len(row.lowering) != 1:
            continue
        seen += 1
        known = accumulator(row.opcodes[0], "sm_90a")
        assert (known.bits, known.bound, known.source) == (row.findings["effective_bits"].value, "exact", MEASURED), row.name
    assert seen > 50


@pytest.mark.parametrize("opcode", ["QGMMA.64x128x32.F32.E4M3.E5M2", "QGMMA.64x256x32.F32.E5M2.E5M2"])
@pytest.mark.parametrize("architecture", ["sm_90", "sm_90a"])
def test_any_shape_of_a_measured_unit(opcode: str, architecture: str) -> None:
    known = accumulator(opcode, architecture)
    n = opcodes.parse(opcode).n
    elsewhere = "" if n == 256 else f", at n = 8 and 256, not at {n}"
    assert (known.bits, known.text, known.source) == (13, "13 (e8m13)", MEASURED + elsewhere)


@pytest.mark.parametrize(
    ("opcode", "architecture", "text"),
    [
        ("HMMA.16816.F32", "sm_80", "23 (f32)"),
        ("HMMA.16816.F16", "sm_86", "10 (f16)"),
        ("QMMA.16832.F32.E4M3.E4M3", "sm_89", "13 (e8m13)"),
        ("DMMA.884", "sm_80", "52 (f64)"),
        ("UTCQMMA", "sm_100a", "23 (f32) or 10 (f16)"),
    ],
)
def test_published(opcode: str, architecture: str, text: str) -> None:
    known = accumulator(opcode, architecture)
    assert known.text == text
    assert known.source.startswith("published: Khattak & Mikaitis")
    assert "measured" not in known.source


@pytest.mark.parametrize(
    ("opcode", "architecture"),
    [
        ("HMMA.1688.F32", "sm_75"),
        ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", "sm_120a"),
        ("HMMA.16816.F32", "sm_999"),
    ],
)
def test_unknown(opcode: str, architecture: str) -> None:
    assert accumulator(opcode, architecture) is None


def test_integers_are_exact_everywhere() -> None:
    for opcode in ("IMMA.16832.S8.S8", "IGMMA.64x8x32.S8.S8.SAT", "UTCIMMA", "BMMA.168256.XOR.POPC"):
        known = accumulator(opcode, "sm_120a")
        assert (known.bits, known.text) == (None, "s32, exact")
