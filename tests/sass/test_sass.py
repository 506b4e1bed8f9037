"""SASS: the lowering of a probe is that of its instruction alone; control flow is that of nvdisasm's graph."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from compiled import needs, only, text
from marks import some

from accprobe.build import cache, compiler, probes, toolchain
from accprobe.errors import ToolMissing
from accprobe.isa.families import WGMMA
from accprobe.isa.instructions import parse
from accprobe.isa.instructions import parse as instruction
from accprobe.sass import lowering, reading
from accprobe.sass.flow import Flow
from accprobe.sass.reading import Function


@pytest.fixture
def _tools() -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    needs("nvdisasm")


WARP_TARGETS = ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]

BARE_PROBES = {
    "mma.sync.m16n8k8.f16.f16.f16.f16": WARP_TARGETS,
    "mma.sync.m16n8k32.f32.e4m3.e4m3.f32": WARP_TARGETS,
    "mma.sync.m16n8k16.f64.f64.f64.f64": WARP_TARGETS,
    "mma.sync.m8n8k16.s32.s8.s8.s32": WARP_TARGETS,
    "mma.sync.m16n8k64.s32.s4.s4.s32": WARP_TARGETS,
    "mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc": WARP_TARGETS,
    "mma.sync.m8n8k4.f32.f16.f16.f16": WARP_TARGETS,
    "wgmma.m64n8k256.s32.b1.b1.and.popc": ["sm_90a"],
    "mma.sp.m16n8k64.s32.s4.s4.s32": ["sm_80", "sm_90a", "sm_120a"],
    "wgmma.sp.m64n8k64.f32.e4m3.e4m3": ["sm_90a"],
    "wgmma.m64n8k16.f16.f16.f16": ["sm_90a"],
    "wgmma.m64n256k32.f32.e4m3.e4m3.rs": ["sm_90a"],
}


@pytest.mark.usefixtures("_tools")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(
            name,
            target,
            marks=() if i % 6 == 0 and target == on[-1] else pytest.mark.slow,
        )
        for i, (name, on) in enumerate(BARE_PROBES.items())
        for target in on
    ],
)
def test_probe_without_its_instruction_has_no_arithmetic(name: str, target: str) -> None:
    inst = parse(name)
    d_from = "d[0] += (Word)a + (Word)b" if inst.family is WGMMA else "for (auto& r : d) r = c[0] ^ a[0] ^ b[0]"
    d_from = d_from.replace("(Word)a", "a[0]") if inst.a_registers else d_from
    code, changed = re.subn(r"(#define MULTIPLY\([^)]*\)).*", rf"\1 {d_from}", probes.source(inst))
    assert changed == 1
    cubin = compiler.compile_source(code, target, "the bare probe")
    (function,) = reading.functions(cubin.path, targets=False)
    assert function.opcodes
    assert function.arithmetic == ()


@pytest.mark.usefixtures("_tools")
def test_lowering_is_kept_beside_the_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = compiler.compile(parse("mma.sync.m8n8k16.s32.s8.s8.s32"), "sm_90a")
    lowering.prepare([cubin])
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "output", lambda *_: pytest.fail("disassembled twice"))
        assert lowering.lowering(cubin).matrix == ("IMMA.8816.S8.S8",)
    cubin.path.with_suffix(".sass.json").write_text('{"schema": 0}')
    assert lowering.lowering(cubin).matrix == ("IMMA.8816.S8.S8",)


def test_without_a_disassembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: object) -> str:
        raise ToolMissing("nvdisasm was not found")

    monkeypatch.setattr(toolchain, "output", missing)
    path = tmp_path / "x.cubin"
    path.write_bytes(b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little"))
    cubin = cache.Cubin(path, "0" * 64)
    lowering.prepare([cubin])
    with pytest.raises(ToolMissing):
        lowering.lowering(cubin)


NVDISASM = """
	.target	sm_90a
//--------------------- .text.one --------------------------
one:
.text.one:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 HMMA.16816.F32 R4, R4, R18, RZ ;
        /*0020*/              @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0030*/                   HFMA2.MMA R7, -RZ, RZ, 0, 5.9604644775390625e-08 ;
        /*0040*/                   HFMA2 R7, R2, R3, R4 ;
        /*0050*/              @P1  DMMA.8x8x4 R8, R2.reuse, R4, R8 ;
        /*0060*/                   HMMA.16816.F32 R4, R4, R18, RZ ;
        /*0070*/                   NOP;
.text.two:
        /*0000*/                   EXIT ;
        /*0010*/                   UTCQMMA gdesc[UR4], gdesc[UR6], tmem[UR10], tmem[UR12], idesc[UR13], UPT ;
"""


def test_reads_nvdisasm() -> None:
    one, two = reading.parse([NVDISASM])
    assert list(reading.parse(NVDISASM)) == [one, two], "in pieces of one character"
    assert (one.name, one.architecture, two.name) == ("one", "sm_90a", "two")
    assert one.arithmetic == (("HMMA.16816.F32", 2), ("HFMA2", 1), ("DMMA.8x8x4", 1))
    assert two.arithmetic == (("UTCQMMA", 1),)
    assert one.opcodes[-1] == "NOP"
    assert one.lines[1] == (0x10, "@!P0", "HMMA.16816.F32", "R4, R4, R18, RZ")
    assert one.labels == {}


PARTED = """\
.text.probe:
        /*0000*/                   F2FP.F16.E4M3.UNPACK_B R12, R22 ;
        /*0010*/                   BRA.DIV UR4, `(.L_x_1) ;
        /*0020*/                   F2FP.F16.E4M3.UNPACK_B R21, R27 ;
.L_x_2:
        /*0030*/                   HMMA.SP.16832.F32 R12, R12, R20, RZ, R48, 0x0 ;
        /*0040*/                   EXIT ;
.L_x_1:
        /*0050*/                   WARPSYNC.COLLECTIVE R47, `(.L_x_3) ;
        /*0060*/                   F2FP.F16.E4M3.UNPACK_B R21, R27 ;
.L_x_3:
        /*0070*/                   BRA `(.L_x_2) ;
        /*0080*/                   FADD R1, R2, R3 ;
"""


def test_what_is_there_twice_for_parted_warps_counts_once() -> None:
    (function,) = reading.parse(PARTED.splitlines(keepends=True))
    assert function.arithmetic == (("F2FP.F16.E4M3.UNPACK_B", 2), ("HMMA.SP.16832.F32", 1), ("FADD", 1))
    assert function.opcodes.count("F2FP.F16.E4M3.UNPACK_B") == 3


def test_the_hash_of_a_function_is_of_its_text_alone() -> None:
    """It depends neither on the name, nor on offsets, nor on how labels are numbered."""

    def hash_of(text: str) -> str:
        (function,) = reading.parse(text.splitlines(keepends=True))
        return function.sha256

    same = re.sub("/\\*00", "/*70", PARTED).replace(".text.probe", ".text.other").replace(".L_x_1", ".L_x_71")
    assert hash_of(same) == hash_of(PARTED)
    for other in (PARTED.replace("FADD", "FMUL"), PARTED.replace("`(.L_x_1)", "`(.L_x_2)")):
        assert hash_of(other) != hash_of(PARTED)


@pytest.mark.usefixtures("_tools")
def test_large_cubins_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "abc"
    code = "".join(
        f'extern "C" __global__ void {name}(int* p) {{ while (*p) p += {i + 1}; }}\n' for i, name in enumerate(names)
    )
    path = compiler.compile_source(code, "sm_90a", "a").path
    whole = sorted(reading.functions(path), key=lambda function: function.name)
    monkeypatch.setattr(reading, "LARGE_CUBIN", 0)
    assert len(reading.symbol_groups(path, 1 << 20)) == 1
    monkeypatch.setattr(reading, "PART", 1)
    assert len(reading.symbol_groups(path, 1)) == 3
    parts = sorted(reading.functions(path), key=lambda function: function.name)
    assert [(f.name, f.architecture, f.sha256) for f in parts] == [(f.name, f.architecture, f.sha256) for f in whole]


def graph(path: Path, name: str) -> dict[int, set[int]]:
    """nvdisasm's blocks: offset of the last instruction -> offsets of the first ones of the blocks that may follow."""
    drawn = toolchain.run("nvdisasm", "--output-control-flow-graph-with-basic-blocks", "--print-instr-offsets-cfg", str(path))
    (part,) = [p for p in re.split(r'^subgraph "cluster_', drawn, flags=re.MULTILINE)[1:] if p.startswith(f'{name}"')]
    ends: dict[str, tuple[int, int]] = {}
    for node in re.finditer(r'^"([^"]+)"\n\[label="\{(.*?)\}"\]$', part, re.MULTILINE | re.DOTALL):
        offsets = [int(found, 16) for found in re.findall(r"(?:\\l|>)([0-9a-f]{4,}):", node[2])]
        if offsets:
            ends[node[1]] = (offsets[0], offsets[-1])
    after: dict[int, set[int]] = {last: set() for _, last in ends.values()}
    for source, target in re.findall(r'^"([^"]+)":\w+:\w -> "([^"]+)"', part, re.MULTILINE):
        if source in ends and target in ends:
            after[ends[source][1]].add(ends[target][0])
    return after


def ours(function: Function) -> dict[int, set[int]]:
    """Offset of every instruction -> offsets of those that may follow."""
    flow, lines = Flow(function), function.lines
    after = {line.offset: {below.offset} for line, below in pairwise(lines)}
    for block in flow.blocks:
        after[lines[block.stop - 1].offset] = {lines[flow.blocks[b].start].offset for b in block.successors}
    return after


BRANCHY = """
extern "C" __global__ void f(float* p, int n, int kind) {
    float x = p[threadIdx.x];
    for (int i = 0; i < n; i++) {
        if (x > i) { x = sinf(x) * i; __syncwarp(); } else if (i % 3) continue; else x -= 1;
        if (__shfl_down_sync(~0u, x, 1) > 100) break;
    }
    switch (kind) { case 0: x = 1; break; case 1: x /= 3; break; case 2: x = sqrtf(x); break; case 3: x = expf(x); }
    p[threadIdx.x] = x;
}
"""


def check(path: Path) -> None:
    needs("nvdisasm")
    function = only(path)
    theirs, here = graph(path, function.name), ours(function)
    assert len(theirs) > 1
    assert {last: here[last] for last in theirs} == theirs
    assert Flow(function).complete


@pytest.mark.parametrize("target", some(["sm_90a", "sm_75", "sm_80", "sm_120a"]))
def test_blocks_are_those_of_nvdisasm(target: str) -> None:
    pytest.importorskip("cuda.core", exc_type=ImportError)
    check(compiler.compile_source(BRANCHY, target, "f").path)
    check(compiler.compile(instruction("mma.sync.m16n8k8.f32.f16.f16.f32"), target).path)


def flow_of(*lines: str) -> Flow:
    return Flow(text(*lines))


def test_loops_are_numbered() -> None:
    flow = flow_of("NOP", ".L_1:", "NOP", ".L_2:", "@P0 BRA `(.L_2)", "@P1 BRA `(.L_1)", ".L_3:", "BRA.U UP0, `(.L_3)", "EXIT")
    assert [flow.cycle_of(i) >= 0 for i in range(6)] == [False, True, True, True, True, False]
    assert flow.cycle_of(1) == flow.cycle_of(2) == flow.cycle_of(3) != flow.cycle_of(4)


def test_jump_with_a_condition_may_be_passed() -> None:
    for jump in ("@P0 BRA `(.L_1)", "BRA.U !UP0, `(.L_1)", "BRA P1, `(.L_1)", "BRA.DIV UR4, `(.L_1)"):
        flow = flow_of(jump, "NOP", ".L_1:", "EXIT")
        assert set(flow.blocks[0].successors) == {1, 2}, jump
    assert flow_of("BRA `(.L_1)", "NOP", ".L_1:", "EXIT").blocks[0].successors == (2,)
