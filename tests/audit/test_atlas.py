"""The atlas of lowerings: what is committed is what the compiler makes, and it shows what it should."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from compiled import needs
from marks import some

from accprobe.audit import atlas
from accprobe.build import probes
from accprobe.isa import architectures
from accprobe.isa.instructions import catalog, parse
from accprobe.sass import opcodes

TEXT = (files("accprobe") / "reports" / "lowering.json").read_text(encoding="utf-8")
ATLAS: dict[str, Any] = json.loads(TEXT)
TARGETS: list[str] = ATLAS["architectures"]


def became(name: str, target: str) -> list[tuple[str, int]]:
    (found,) = [entry["lowering"] for entry in ATLAS["lowerings"][name] if target in entry["on"]]
    return [(opcode, count) for opcode, count in found]


def test_it_has_every_probe_of_every_architecture_that_the_compiler_knows() -> None:
    without = {a.target for a in architectures.ARCHITECTURES} - set(TARGETS)
    assert without == {"sm_70", "sm_72", "sm_101a"}  # CUDA 13 compiles for none of them
    for target in TARGETS:
        probed = {inst.name for inst in catalog(target) if probes.why_no_probe(inst) is None}
        listed = {name for name, entries in ATLAS["lowerings"].items() if any(target in entry["on"] for entry in entries)}
        assert listed == probed, target


def test_every_lowering_has_a_matrix_opcode_of_the_instructions_family_or_none() -> None:
    for name, entries in ATLAS["lowerings"].items():
        targets = [target for entry in entries for target in entry["on"]]
        assert len(targets) == len(set(targets))
        for entry in entries:
            families = {opcodes.family(opcode) for opcode, _ in entry["lowering"]} - {None}
            ordinary = parse(name).quad_pairs and entry["on"] != ["sm_75"]
            assert families == (set() if ordinary else {parse(name).family}), name


LOWERINGS = """
sm_75 mma.sync.m8n8k4.f16.f16.f16.f16 HMMA.884.F16.F16.STEP0 HMMA.884.F16.F16.STEP1
sm_75 mma.sync.m8n8k32.s32.u4.s4.s32 IMMA.8832.U4.S4
sm_75 mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc BMMA.88128.XOR.POPC
sm_80 mma.sync.m16n8k16.f32.bf16.bf16.f32 HMMA.16816.F32.BF16
sm_80 mma.sync.m8n8k4.f32.f16.f16.f32 24xHADD2.F32 32xFFMA 8xFADD
sm_80 mma.sp.m16n8k128.s32.s4.u4.s32 IMMA.SP.168128.S4.U4
sm_86 mma.sync.m16n8k8.f32.tf32.tf32.f32 HMMA.1688.F32.TF32
sm_86 mma.sp.m16n8k64.satfinite.s32.u4.u4.s32 IMMA.SP.16864.U4.U4.SAT
sm_89 mma.sync.m16n8k16.f16.e5m2.e4m3.f16 QMMA.16816.F16.E5M2.E4M3
sm_89 mma.sync.m16n8k256.s32.b1.b1.s32.and.popc BMMA.168256.AND.POPC
sm_89 mma.sp.m16n8k64.f32.e4m3.e5m2.f32 QMMA.SP.16864.F32.E4M3.E5M2
sm_90a mma.sync.m16n8k16.f64.f64.f64.f64 DMMA.16x8x16
sm_90a mma.sync.m16n8k32.f32.e4m3.e4m3.f32 12xF2FP.F16.E4M3.UNPACK_B 2xHMMA.16816.F32 4xFADD
sm_90a mma.sync.m16n8k32.f16.e4m3.e5m2.f16 8xF2FP.F16.E4M3.UNPACK_B 4xF2FP.F16.E5M2.UNPACK_B 2xHMMA.16816.F16 2xHADD2
sm_90a mma.sync.m16n8k64.satfinite.s32.s4.u4.s32 2xIMMA.16832.S8.U8
sm_90a mma.sync.m16n8k256.s32.b1.b1.s32.xor.popc 2xBMMA.168256.AND.POPC
sm_90a mma.sp.m16n8k64.f32.e4m3.e5m2.f32 8xF2FP.F16.E4M3.UNPACK_B 8xF2FP.F16.E5M2.UNPACK_B 2xHMMA.SP.16832.F32 4xFADD
sm_90a wgmma.m64n8k16.f16.f16.f16.rs HGMMA.64x8x16.F16
sm_90a wgmma.m64n256k32.f16.e5m2.e4m3.rs QGMMA.64x256x32.F16.E5M2.E4M3
sm_90a wgmma.m64n8k32.satfinite.s32.s8.u8 IGMMA.64x8x32.S8.U8.SAT
sm_90a wgmma.m64n8k256.s32.b1.b1.and.popc BGMMA.64x8x256.AND.POPC
sm_90a wgmma.sp.m64n8k16.f32.tf32.tf32.rs HGMMA.SP.64x8x16.F32.TF32
sm_90a wgmma.sp.m64n256k64.f16.e4m3.e5m2 QGMMA.SP.64x256x64.F16.E4M3.E5M2
sm_100a mma.sync.m16n8k256.s32.b1.b1.s32.and.popc 8xIMMA.16832.U8.U8
sm_100a tcgen05.m128n16k16.kind::f16.f32.bf16.bf16 UTCHMMA
sm_100a tcgen05.m128n16k32.kind::f8f6f4.f32.e2m3.e2m1 UTCQMMA
sm_100a tcgen05.m128n16k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3 UTCOMMA.4X
sm_100a tcgen05.m256n256k16.kind::f16.f32.bf16.bf16 UTCHMMA.2CTA
sm_103a mma.sync.m16n8k8.f64.f64.f64.f64 4xDMMA.8x8x4
sm_103a tcgen05.m128n16k96.kind::mxf4nvf4.scale_vec::6X.f32.e2m1.e2m1.ue4m3 UTCOMMA.BLOCK16
sm_103a tcgen05.sp.m128n16k128.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.ue4m3 UTCOMMA.BLOCK16
sm_110a tcgen05.m128n16k32.satfinite.kind::i8.s32.u8.s8 UTCIMMA
sm_120a mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc 4xIMMA.16832.U8.U8
sm_120a mma.sync.m16n8k32.f32.e4m3.e4m3.f32 QMMA.16832.F32.E4M3.E4M3
sm_120a mma.sp.m16n8k64.kind::f8f6f4.f32.e2m1.e5m2.f32 QMMA.SP.16864.F32.E2M1.E5M2
sm_120a mma.sync.m16n8k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 OMMA.SF.16864.F32.E2M1.E2M1.E8
sm_121a mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m1.e3m2.f32.ue8m0 QMMA.SF.16832.F32.E2M1.E3M2.E8
"""
"""What instructions of each unit become: architecture, instruction, opcodes."""


@pytest.mark.parametrize("line", LOWERINGS.split("\n")[1:-1])
def test_what_instructions_become(line: str) -> None:
    target, name, *expected = line.split()
    assert sorted(f"{count}x{opcode}".removeprefix("1x") for opcode, count in became(name, target)) == sorted(expected)
    units = [opcode for opcode, _ in became(name, target) if opcodes.family(opcode)]
    assert len(units) != 1 or opcodes.relation(parse(name), units[0]) in ("native", "converted")


REBUILT = {
    "sm_75": ["mma.sync.m16n8k8.f32.f16.f16.f32", "mma.sync.m8n8k16.s32.s8.s8.s32", "mma.sync.m8n8k4.f32.f16.f16.f32"],
    "sm_80": ["mma.sync.m16n8k16.f32.bf16.bf16.f32", "mma.sync.m8n8k4.f64.f64.f64.f64", "mma.sync.m8n8k4.f16.f16.f16.f16"],
    "sm_89": ["mma.sync.m16n8k32.f32.e4m3.e4m3.f32"],
    "sm_90a": ["mma.sync.m16n8k32.f32.e4m3.e4m3.f32", "wgmma.m64n8k32.f32.e4m3.e4m3", "wgmma.sp.m64n8k32.f32.f16.f16.rs"],
    "sm_100a": ["tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e5m2", "mma.sync.m8n8k16.s32.s8.s8.s32"],
    "sm_103a": ["mma.sync.m16n8k8.f64.f64.f64.f64"],
    "sm_120a": ["mma.sync.m16n8k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"],
}


@pytest.mark.parametrize("target", some(list(REBUILT), 8))
def test_part_of_it_is_built_again(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("nvdisasm")
    pytest.importorskip("cuda.core", exc_type=ImportError)
    monkeypatch.setattr(atlas, "catalog", lambda asked: [parse(name) for name in REBUILT[asked]])
    drawn = atlas.compile_atlas([target], jobs=1)
    assert drawn["architectures"] == [target]
    for name in REBUILT[target]:
        assert [[list(pair) for pair in entry["lowering"]] for entry in drawn["lowerings"][name]] == [
            [list(pair) for pair in became(name, target)]
        ]
    assert json.loads(atlas.dumps(drawn))["architectures"] == [target]
