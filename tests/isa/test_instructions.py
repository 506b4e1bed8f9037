"""The catalog of matrix instructions: names, required rows, agreement with the compiler, and families."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

import accprobe
from accprobe.errors import UnknownName
from accprobe.isa import architectures, instructions
from accprobe.isa.families import FAMILIES, TCGEN05, WGMMA
from accprobe.isa.instructions import Instruction, architectures_with, catalog, parse

TARGETS = architectures.targets()
EVERY = {inst.name: inst for target in TARGETS for inst in catalog(target)}


@pytest.mark.parametrize("target", TARGETS)
def test_every_name_parses_to_its_instruction(target: str) -> None:
    listed = catalog(target)
    assert listed
    assert len({inst.name for inst in listed}) == len(listed)
    for inst in listed:
        assert parse(inst.name) == inst
        assert target in architectures_with(inst)


def test_names_match_the_fields() -> None:
    for inst in EVERY.values():
        words = inst.name.split(".")
        assert f"m{inst.m}n{inst.n}k{inst.k}" in words
        assert ".".join(f.name for f in (inst.d, inst.a, inst.b)) in inst.name
        assert ("sp" in words, "satfinite" in words, "rs" in words) == (inst.sparse, inst.satfinite, inst.a_registers)
        assert ("popc" in words) == (inst.bit_op is not None) == (inst.a.kind == "bit")
        assert (inst.scale is None) == (inst.scale_block is None) == ("scale_vec" not in inst.name)
        assert inst.kind is None or f"kind::{inst.kind}" in words
        assert inst.c == inst.d or inst.name == "mma.sync.m8n8k4.f32.f16.f16.f16"
        assert inst.is_integer == (inst.d.name == "s32") == inst.a.is_integer


def ptx(inst: Instruction) -> str:
    """The opcode as PTX spells it."""
    words = inst.name.split(".")
    shape = words.index(f"m{inst.m}n{inst.n}k{inst.k}")
    if inst.family is WGMMA:
        head = "wgmma.mma_async" + ".sp" * inst.sparse + ".sync.aligned"
        return ".".join([head, *(word for word in words[shape:] if word != "rs")])
    head = ("mma.sp::ordered_metadata" if inst.sparse else "mma") + ".sync.aligned"
    tail = ".".join(words[shape + 1 :])
    if inst.scale:
        tail = re.sub(r"(kind::\w+)", r"\1.block_scale", tail)
    return f"{head}.{words[shape]}.row.col.{tail}"


def test_full_ptx_spelling_parses() -> None:
    for inst in EVERY.values():
        if inst.family is not TCGEN05:
            assert parse(ptx(inst)) == parse(inst.name.removesuffix(".rs"))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", "mma.sync.m8n8k4.f32.f16.f16.f32"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sp.m16n8k32.f32.f16.f16.f32"),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            "mma.sync.m16n8k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        ),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert parse(spelling).name == name


def test_wgmma_parses_every_n_that_ptx_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "nearest", lambda *_: "")  # it takes longest
    sizes = [1, 4, *range(8, 272, 4), 512]
    float_n = [n for n in sizes if parses(f"wgmma.m64n{n}k16.f32.f16.f16")]
    integer_n = [n for n in sizes if parses(f"wgmma.m64n{n}k32.s32.s8.u8.rs")]
    assert float_n == list(range(8, 257, 8))
    assert integer_n == [8, 16, 24, *range(32, 257, 16)]
    inst = parse("wgmma.m64n48k32.f32.e4m3.e5m2")
    assert inst == replace(parse("wgmma.m64n8k32.f32.e4m3.e5m2"), name="wgmma.m64n48k32.f32.e4m3.e5m2", n=48)
    assert inst not in catalog("sm_90a")
    assert architectures_with(inst) == ("sm_90a",)


def parses(name: str) -> bool:
    try:
        return parse(name).name == name
    except UnknownName:
        return False


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mma.sync.m16n8k16.f32.f16.f16", "mma.sync.m16n8k16.f32.f16.f16.f32"),
        ("wgmma.m64n40k32.s32.s8.s8", "wgmma.m64n8k32.s32.s8.s8"),
    ],
)
def test_unknown_name_is_one_sentence_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownName, match=rf"^unknown instruction '{re.escape(name)}'; did you mean .*\?$") as caught:
        parse(name)
    assert near in str(caught.value)


def test_unknown_compute_capability() -> None:
    with pytest.raises(
        UnknownName, match=r"^no known architecture has compute capability 6\.1; accprobe knows sm_70 to sm_121$"
    ):
        architectures.from_compute_capability(6, 1)


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
