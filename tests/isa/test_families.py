"""Families: one record holds everything that distinguishes a family; no other package names one."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import accprobe
from accprobe.build import probes
from accprobe.isa.families import FAMILIES, TCGEN05, Family, Probe, registers
from accprobe.isa.instructions import Instruction, parse
from accprobe.sass import opcodes


def multiply(inst: Instruction, held: Mapping[str, int]) -> str:
    return f'd, a, b, c) asm("toy.k{inst.k}" : "=r"(d[{held["d"] - 1}]))'


def toy(name: str, **probe: object) -> Instruction:
    """An instruction of a family that is a pair of warps, and holds C and D alone in registers."""
    made = replace(Probe("mma_sync.cu", 2, lambda inst: inst.m == 16, multiply), **probe)
    record = Family("toy", "H", "TOY{}MMA", threads=64, in_registers="cd", adds_to_d=False, typed_opcode=True, probe=made)
    return replace(parse(name), name="toy.x", family=record)


HALF = "mma.sync.m16n8k16.f32.f16.f16.f32"


def test_a_record_suffices_to_write_a_probe() -> None:
    inst = toy(HALF)
    assert probes.why_no_probe(inst) is None
    written = probes.source(inst, products=True)
    assert written.startswith("// toy.x\n")
    assert '#define MULTIPLY(d, a, b, c) asm("toy.k16" : "=r"(d[1]))\n' in written
    assert "#define TILES 2\n" in written
    assert probes.device_code("product_mma_sync.cu") in written
    assert probes.device_code("mma_sync.cu") in probes.source(inst)
    assert registers(inst) == {"a": 0, "b": 0, "c": 2, "d": 2}
    assert probes.product_block(inst) == (2 * 8, 2 * 16)
    assert opcodes.kind_of(inst) == ("TOYHMMA", "f32", "f16", "f16", False)


def test_the_record_decides_which_instructions_a_probe_supports() -> None:
    assert probes.why_no_probe(toy(HALF, takes=lambda _: False)) == "no probe"
    assert probes.why_no_probe(replace(parse(HALF), family=TCGEN05)) == "no probe"


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("mma.sync.m16n8k16.f32.f16.f16.f32", (4, 2, 4, 4)),
        ("mma.sync.m16n8k16.f16.e4m3.e5m2.f16", (2, 1, 2, 2)),
        ("mma.sync.m8n8k4.f64.f64.f64.f64", (1, 1, 2, 2)),
        ("wgmma.m64n256k32.f32.e4m3.e4m3", (0, 0, 128, 128)),
        ("wgmma.m64n8k16.f16.f16.f16.rs", (4, 0, 2, 2)),
    ],
)
def test_registers_of_a_lane(name: str, held: tuple[int, int, int, int]) -> None:
    """PTX ISA, "Matrix Fragments" and "Register Fragments": vectors of so many registers."""
    assert tuple(registers(parse(name)).values()) == held


def test_records_are_the_same_in_another_process() -> None:
    for family in FAMILIES:
        assert pickle.loads(pickle.dumps(family)) is family


def test_only_isa_names_families() -> None:
    """Code reads the properties of a family from the record of an instruction."""
    names = {family.name for family in FAMILIES}
    records = {name.upper().replace(".", "_") for name in names}
    root = Path(accprobe.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] != "isa"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Constant) and node.value in names)
        or (isinstance(node, ast.Attribute) and node.attr in records)
        or (isinstance(node, ast.alias) and node.name in records)
    ]
    assert found == []
