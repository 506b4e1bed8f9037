"""The atlas of lowerings: what is committed is what the compiler makes, and it shows what it should."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from click.testing import CliRunner
from compiled import needs

from accprobe.audit import atlas
from accprobe.build import probes
from accprobe.cli import main
from accprobe.isa import architectures
from accprobe.isa.instructions import catalog, parse
from accprobe.report.recorded import recorded
from accprobe.sass import opcodes

TEXT = (files("accprobe") / "reports" / "lowering.json").read_text(encoding="utf-8")
ATLAS: dict[str, Any] = json.loads(TEXT)
TARGETS: list[str] = ATLAS["architectures"]


def became(name: str, target: str) -> list[tuple[str, int]]:
    (found,) = [entry["lowering"] for entry in ATLAS["lowerings"][name] if target in entry["on"]]
    return [(opcode, count) for opcode, count in found]


def test_it_is_no_report() -> None:
    assert (ATLAS["schema"], ATLAS["kind"]) == (1, "lowering")
    assert "lowering" not in recorded()
    assert ATLAS["compiler"].startswith("NVRTC ")
    assert ATLAS["disassembler"].startswith("nvdisasm ")


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


@pytest.mark.parametrize(
    ("target", "stems"),
    [("sm_89", ["QMMA"]), ("sm_90a", ["F2FP", "HMMA", "FADD"]), ("sm_100a", ["F2FP", "HMMA", "FADD"]), ("sm_120a", ["QMMA"])],
)
def test_what_fp8_mma_sync_becomes(target: str, stems: list[str]) -> None:
    assert [opcodes.stem(opcode) for opcode, _ in became("mma.sync.m16n8k32.f32.e4m3.e4m3.f32", target)] == stems


REBUILT = {
    "sm_75": ["mma.sync.m16n8k8.f32.f16.f16.f32", "mma.sync.m8n8k16.s32.s8.s8.s32", "mma.sync.m8n8k4.f32.f16.f16.f32"],
    "sm_80": ["mma.sync.m16n8k16.f32.bf16.bf16.f32", "mma.sync.m8n8k4.f64.f64.f64.f64", "mma.sync.m8n8k4.f16.f16.f16.f16"],
    "sm_86": ["mma.sync.m16n8k4.f32.tf32.tf32.f32"],
    "sm_89": ["mma.sync.m16n8k32.f32.e4m3.e4m3.f32"],
    "sm_90a": ["mma.sync.m16n8k32.f32.e4m3.e4m3.f32", "wgmma.m64n8k32.f32.e4m3.e4m3", "wgmma.m64n8k16.f32.f16.f16.rs"],
    "sm_100a": ["mma.sync.m16n8k32.f16.e5m2.e5m2.f16", "mma.sync.m8n8k16.s32.s8.s8.s32"],
    "sm_103a": ["mma.sync.m16n8k8.f64.f64.f64.f64"],
    "sm_120a": ["mma.sync.m16n8k32.f32.e4m3.e4m3.f32"],
}


OFTEN = ("sm_80", "sm_90a")
"""The other architectures' lowerings, which tests/sass compiles always, are slow here."""


@pytest.mark.parametrize("target", [pytest.param(x, marks=() if x in OFTEN else pytest.mark.slow) for x in REBUILT])
def test_part_of_it_is_built_again(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("nvdisasm")
    pytest.importorskip("cuda.core", exc_type=ImportError)
    monkeypatch.setattr(atlas, "catalog", lambda asked: [parse(name) for name in REBUILT[asked]])
    drawn = atlas.compile_atlas([target], jobs=1)
    assert drawn.targets == (target,)
    for name in REBUILT[target]:
        assert [list(lowering) for lowering in drawn.lowerings[name]] == [became(name, target)]
    assert json.loads(atlas.dumps(drawn))["architectures"] == [target]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> atlas.Atlas:
    """Part of the atlas that is committed, without a compiler."""
    chosen = ["mma.sync.m16n8k16.f32.e4m3.e4m3.f32", "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"]
    drawn = atlas.Atlas(
        "13.5",
        "13.6",
        ("sm_89", "sm_90a"),
        {name: {tuple(became(name, target)): (target,) for target in ("sm_89", "sm_90a")} for name in chosen},
    )
    monkeypatch.setattr(atlas, "compile_atlas", lambda *_: drawn)
    return drawn


@pytest.mark.usefixtures("small")
def test_cli_prints_it() -> None:
    printed = CliRunner(env={"COLUMNS": "120"}).invoke(main, ["sass", "--arch", "sm_89,sm_90a"])
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert [line.split("  ")[0] for line in printed.stdout.splitlines()[2:4]] == [
        "mma.sync.m16n8k{16,32}.f32.e4m3.e4m3.f32",
        "",  # the same instruction on the other target
    ]
    assert "F2FP + 2×HMMA + FADD" in printed.stdout
    assert "compiled with NVRTC 13.5, read with nvdisasm 13.6; nothing ran" in printed.stdout
    data = json.loads(CliRunner().invoke(main, ["sass", "--arch", "sm_89,sm_90a", "--format", "json"]).stdout)
    name = "mma.sync.m16n8k32.f32.e4m3.e4m3.f32"
    assert data["lowerings"][name][0] == {"on": ["sm_89"], "lowering": [["QMMA.16832.F32.E4M3.E4M3", 1]]}
