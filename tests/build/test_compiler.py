"""The compiler: every probe compiles where its instruction exists, by several processes; what goes wrong is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from probed import ONE_OF_EACH_LAYOUT

from accprobe.build import compiler, probes
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.isa.families import registers
from accprobe.isa.instructions import architectures_with, catalog, parse
from accprobe.report.report import Report

SMALL = "mma.sync.m8n8k16.s32.s8.s8.s32"


LATER = ("sm_80", "sm_89", "sm_90", "sm_100a", "sm_103a", "sm_120a", "sm_121a")


@pytest.fixture(autouse=True)
def _compiler() -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)


@pytest.mark.slow
def test_every_instruction_of_the_recorded_h200_compiles() -> None:
    insts = [row.instruction for row in Report.load("h200").instructions]
    cubins = compiler.compile_all(insts, "sm_90a")
    assert set(cubins) == set(insts)
    assert len({cubin.sha256 for cubin in cubins.values()}) == len(insts)


@pytest.mark.parametrize("target", ["sm_75", *(pytest.param(x, marks=pytest.mark.slow) for x in LATER)])
def test_probes_compile_on_the_first_and_the_last_target_of_their_instruction(target: str) -> None:
    """And one of each layout on every target: ptxas differs from one to the next in the instructions that it lowers.

    Of those whose PTX is the same, types being told by a descriptor, one.
    """
    probed = [inst for inst in catalog(target) if probes.find_probe(inst)]
    ends = {inst for inst in probed if target in (architectures_with(inst)[0], architectures_with(inst)[-1])}
    insts = ends | {inst for inst in probed if inst.name in ONE_OF_EACH_LAYOUT}
    assert len(insts) > 5
    of_each_text = {probes.probe_of(inst).multiply(inst, registers(inst)): inst for inst in insts}
    for inst in of_each_text.values():
        assert compiler.compile(inst, target).path.is_file()


def test_other_processes_fill_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path))
    insts = [inst for inst in catalog("sm_75") if inst.name.startswith("mma.sync.m8n8k16.")]
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    compiler.fill_cache([(probes.source(inst), inst.name) for inst in insts], "sm_75")
    monkeypatch.setattr(compiler, "_nvrtc", lambda *_: pytest.fail("compiled here"))
    assert len({compiler.compile(inst, "sm_75") for inst in insts}) == 8


def test_target_without_the_instruction_is_one_sentence() -> None:
    with pytest.raises(
        AccprobeError, match=r"^mma\.sync\.m16n8k16\.f32\.e4m3\.e4m3\.f32 does not compile for sm_80: Feature.*sm_89"
    ) as caught:
        compiler.compile(parse("mma.sync.m16n8k16.f32.e4m3.e4m3.f32"), "sm_80")
    assert "\n" not in str(caught.value)


def test_missing_compiler_names_the_install_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCPROBE_CACHE_DIR", str(tmp_path))
    for module in ("cuda.core", "cuda.core.experimental"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolMissing, match=r"install -e '.\[cuda13\]' in"):
        compiler.compile(parse(SMALL), "sm_90a")
