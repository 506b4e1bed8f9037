"""The atlas of lowerings: what is committed is what the compiler makes, and it shows what it should."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from compiled import needs
from marks import some

from accprobe.build import compiler, probes
from accprobe.isa import architectures, opcodes
from accprobe.isa.instructions import catalog, parse
from accprobe.sass import lowering

ATLAS: dict[str, Any] = json.loads((files("accprobe") / "reports" / "lowering.json").read_text(encoding="utf-8"))
TARGETS: list[str] = ATLAS["architectures"]


def became(name: str, target: str) -> tuple[tuple[str, int], ...]:
    (found,) = [entry["lowering"] for entry in ATLAS["lowerings"][name] if target in entry["on"]]
    return tuple((opcode, count) for opcode, count in found)


def test_it_has_every_probe_of_every_architecture_that_the_compiler_knows() -> None:
    without = {a.target for a in architectures.ARCHITECTURES} - set(TARGETS)
    assert without == {"sm_70", "sm_72", "sm_101a"}  # CUDA 13 compiles for none of them
    for target in TARGETS:
        probed = {inst.name for inst in catalog(target) if probes.find_probe(inst)}
        listed = {name for name, entries in ATLAS["lowerings"].items() if any(target in entry["on"] for entry in entries)}
        assert listed == probed, target


def test_every_lowering_has_a_matrix_opcode_of_the_instructions_family_or_none() -> None:
    """And where a probe became one opcode of its own unit, the opcode's name has the instruction's types."""
    alone = 0
    for name, entries in ATLAS["lowerings"].items():
        targets = [target for entry in entries for target in entry["on"]]
        assert len(targets) == len(set(targets))
        for entry in entries:
            units = [opcode for opcode, _ in entry["lowering"] if opcodes.is_matrix(opcode)]
            ordinary = parse(name).quad_pairs and entry["on"] != ["sm_75"]
            assert {opcodes.parse(opcode).family for opcode in units} == (set() if ordinary else {parse(name).family}), name
            assert len(units) != 1 or opcodes.relation(parse(name), units[0]) in ("native", "converted"), name
            if [count for _, count in entry["lowering"]] == [1]:
                alone += 1
                assert opcodes.parse(units[0]).kind == opcodes.kind_of(parse(name)), (name, units)
    assert alone > 200


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
def test_part_of_it_is_built_again(target: str) -> None:
    needs("nvdisasm")
    pytest.importorskip("cuda.core", exc_type=ImportError)
    for name in REBUILT[target]:
        assert lowering.lowering(compiler.compile(parse(name), target)).sequence == became(name, target)
