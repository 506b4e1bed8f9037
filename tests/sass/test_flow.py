"""Control flow: as nvdisasm's own graph of basic blocks has it, and small texts."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from compiled import needs, only, text
from marks import some

from accprobe.build import compiler, toolchain
from accprobe.isa.instructions import parse as instruction
from accprobe.sass.flow import Flow
from accprobe.sass.reading import Function


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
