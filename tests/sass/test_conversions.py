"""Conversions: which of them feed a matrix instruction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compiled import needs, only, text, triton_dot

from accprobe.audit.kernels import witness
from accprobe.sass.conversions import Conversion, conversions


@pytest.mark.parametrize(("warps", "emulated"), [(2, ("e4m3", "HMMA")), (4, None)])
def test_triton_fp8_on_hopper(warps: int, emulated: tuple[str, str] | None, tmp_path: Path) -> None:
    """Two warps are no warpgroup: the operands are unpacked to f16, and HMMA multiplies them."""
    needs("nvdisasm")
    (tmp_path / "x.cubin").write_bytes(triton_dot(90, warps, None, True)["cubin"])
    kernel = witness(only(tmp_path / "x.cubin"), "x")
    assert kernel.emulated == emulated
    assert {opcode.partition(".")[0] for opcode, _ in kernel.matrix} == {"HMMA" if emulated else "QGMMA"}
    unpacking = [c for c in kernel.conversions if c.unpacked]
    assert [(c.opcode, c.feeds) for c in unpacking] == ([("F2FP.F16.E4M3.UNPACK_B", ("HMMA",))] if emulated else [])


UNPACK, MULTIPLY = "F2FP.F16.E4M3.UNPACK_B R4, R2", "HMMA.16816.F32 R8, R4, R12, RZ"
GROUP_MULTIPLY = "HGMMA.64x8x16.F32 R8, {}gdesc[UR4], R8"
FED = (Conversion("F2FP.F16.E4M3.UNPACK_B", 1, ("HMMA",)),)
NOT_FED = (Conversion("F2FP.F16.E4M3.UNPACK_B", 1),)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((UNPACK, MULTIPLY), FED),
        ((UNPACK, "MOV R13, R4", "LDS R4, [R0]", MULTIPLY), FED),
        ((UNPACK, "LDS R4, [R0]", MULTIPLY), NOT_FED),
        ((UNPACK, "STS [R0], R4", "LDSM.16.M88.4 R4, [R0]", MULTIPLY), NOT_FED),
        ((UNPACK.replace("R4", "R5"), "LDSM.16.M88.4 R4, [R0]", MULTIPLY), NOT_FED),
        ((MULTIPLY, UNPACK), NOT_FED),
        ((".L_x_1:", MULTIPLY, UNPACK, "@P0 BRA `(.L_x_1)"), FED),
        ((UNPACK.replace("R4", "R20"), MULTIPLY), NOT_FED),
        ((UNPACK, GROUP_MULTIPLY.format("R4, ")), (replace(FED[0], feeds=("HGMMA",)),)),
        ((UNPACK.replace("R4", "R8"), GROUP_MULTIPLY.format("")), NOT_FED),
    ],
)
def test_what_feeds(lines: tuple[str, ...], expected: tuple[Conversion, ...]) -> None:
    assert conversions(text(*lines, "EXIT")) == expected


def test_packing_is_no_unpacking() -> None:
    (packing,) = conversions(text("F2FP.F16.F32.PACK_AB R4, R2, R3", MULTIPLY, "EXIT"))
    assert (packing.unpacked, packing.feeds) == ("", ("HMMA",))
    assert FED[0].unpacked == "e4m3"
