"""Promotion: read off real kernels, and off small texts where one thing is varied."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled import needs, only, text, triton_dot
from marks import some

from accprobe.build import compiler
from accprobe.sass.promotion import UNBOUNDED, Chain, chains
from accprobe.sass.reading import Function


def compiled(path: Path, *of: object) -> tuple[Function, str]:
    """A Triton kernel's only function, and its PTX."""
    needs("nvdisasm")
    made = triton_dot(*of)
    path.write_bytes(made["cubin"])
    return only(path), made["ptx"].decode()


def verdicts(function: Function) -> set[tuple[str, str, int, int]]:
    return {(chain.unit, chain.verdict, chain.least, chain.most) for chain in chains(function)}


@pytest.mark.parametrize(("imprecise", "instructions"), some([(128, 4), (32, 1), (64, 2)]))
def test_triton_promotes_in_a_loop(imprecise: int, instructions: int, tmp_path: Path) -> None:
    function, _ = compiled(tmp_path / "x.cubin", 90, 4, imprecise, True)
    assert verdicts(function) == {("QGMMA", "promoted", instructions, instructions)}
    (chain,) = chains(function)
    assert (chain.k, chain.products, chain.by) == (32, imprecise, "FADD")
    assert sum(count for _, count in chain.opcodes) == instructions


def test_triton_with_a_limit_of_0(tmp_path: Path) -> None:
    """Triton 3.9 goes to the f16 unit then; another version that stays with wgmma has to promote each one."""
    function, ptx = compiled(tmp_path / "x.cubin", 90, 4, 0, True)
    expected = ("QGMMA", "promoted", 1, 1) if "wgmma" in ptx else ("HMMA", "never", 1, UNBOUNDED)
    assert verdicts(function) == {expected}


@pytest.mark.parametrize(
    ("imprecise", "expected"),
    some([(32, ("promoted", 1)), (64, ("promoted", 2)), (128, ("whole", 4)), (None, ("whole", 4))]),
)
def test_triton_without_a_loop(imprecise: int | None, expected: tuple[str, int], tmp_path: Path) -> None:
    function, _ = compiled(tmp_path / "x.cubin", 90, 4, imprecise, False)
    assert {(chain.verdict, chain.most) for chain in chains(function)} == {expected}


@pytest.mark.parametrize(("capability", "unit"), some([(100, "UTCQMMA"), (120, "QMMA")]))
def test_triton_elsewhere_never_promotes(capability: int, unit: str, tmp_path: Path) -> None:
    function, _ = compiled(tmp_path / "x.cubin", capability, 4, None, True)
    assert verdicts(function) == {(unit, "never", 1, UNBOUNDED)}


WGMMA = """
__device__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b, int keep) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0;"
        "wgmma.fence.sync.aligned;"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(keep) : "memory");
}
extern "C" __global__ void f(float* out, const float* in, unsigned long long a, unsigned long long b, int n, int every) {
    float part[4] = {0, 0, 0, 0}, total[4] = {0, 0, 0, 0};
    BODY
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = total[i];
}
"""
ADD = "for (int i = 0; i < 4; i++) total[i] += part[i];"
BODIES = {
    "a constant interval": (
        "for (int j = 0; j < n; j++) { for (int k = 0; k < 8; k++) multiply(part, a + k, b + k, k > 0); " + ADD + "}",
        ("promoted", 8, 8),
    ),
    "an interval known at run time": (
        "for (int j = 0, c = 0; j < n; j++) { multiply(part, a + j, b + j, c > 0); if (++c == every) { c = 0; " + ADD + "} }",
        ("unknown", 1, UNBOUNDED),
    ),
    "never": ("for (int j = 0; j < n; j++) multiply(part, a + j, b + j, 1); " + ADD, ("never", 1, UNBOUNDED)),
    "rescaled in the loop": (
        "for (int j = 0; j < n; j++) { for (int i = 0; i < 4; i++) part[i] *= in[j]; multiply(part, a + j, b + j, 1); } " + ADD,
        ("never", 1, UNBOUNDED),
    ),
    "the rows added up": (
        "for (int k = 0; k < 3; k++) multiply(part, a + k, b, k > 0); total[0] = part[0] + part[1] + part[2] + part[3];",
        ("whole", 3, 3),
    ),
    "two halves, added": (
        "float rest[4]; for (int k = 0; k < 3; k++) { multiply(part, a + k, b, k > 0); multiply(rest, a, b + k, k > 0); }"
        "for (int i = 0; i < 4; i++) total[i] = part[i] + rest[i];",
        ("promoted", 3, 3),
    ),
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [pytest.param(*of, id=name, marks=pytest.mark.slow if i % 5 else ()) for i, (name, of) in enumerate(BODIES.items())],
)
def test_wgmma_in_cuda(body: str, expected: tuple[str, int, int]) -> None:
    needs("nvdisasm")
    pytest.importorskip("cuda.core", exc_type=ImportError)
    cubin = compiler.compile_source(
        WGMMA.replace("BODY", body.replace("for (int k", "\n#pragma unroll\nfor (int k")), "sm_90a", "f"
    )
    assert {(c.verdict, c.least, c.most) for c in chains(only(cubin.path))} == {expected}


@pytest.mark.parametrize("target", some(["sm_90a", "sm_100a"]))
def test_emulated_fp8_is_added_after_two(target: str) -> None:
    """An fp8 mma.sync of these architectures is two HMMA and FADDs of C, in the loop over tiles of the probe."""
    from accprobe.isa.instructions import parse as instruction

    needs("nvdisasm")
    cubin = compiler.compile(instruction("mma.sync.m16n8k32.f32.e4m3.e4m3.f32"), target)
    (chain,) = chains(only(cubin.path))
    assert (chain.unit, chain.verdict, chain.most) == ("HMMA", "whole", 2)


FIRST, NEXT = "QGMMA.64x8x32.F32.E4M3.E4M3 R24, gdesc[UR8], RZ, !UPT", "QGMMA.64x8x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24"
ADDED = tuple(f"FADD R{8 + i}, R{24 + i}, R{8 + i}" for i in range(4))
LOOP = (".L_x_1:", FIRST, NEXT, *ADDED, "@!P0 BRA `(.L_x_1)", "EXIT")


MOVES = tuple(f"IMAD.MOV.U32 R{40 + i}, RZ, RZ, R{24 + i}" for i in range(4))
FOUND: dict[str, tuple[tuple[str, ...], list[tuple[str, int]]]] = {
    "a loop": (LOOP, [("promoted", 2)]),
    "a jump to one of several places": (
        (*LOOP[:-2], 'BRX R2 -0x40 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)', ".L_x_2:", "EXIT"),
        [("promoted", 2)],
    ),
    "the FADDs above the loop that they end": (
        ("BRA `(.L_x_2)", ".L_x_1:", *ADDED, "@P0 EXIT", ".L_x_2:", FIRST, NEXT, NEXT, "BRA `(.L_x_1)"),
        [("promoted", 3)],
    ),
    "a sum that is copied": ((FIRST, *MOVES, NEXT.replace("R24", "R40"), "EXIT"), [("whole", 2)]),
    "a register that is loaded anew": ((FIRST, NEXT, "LDS.128 R24, [R2]", NEXT, "EXIT"), [("whole", 2), ("whole", 1)]),
    "a copy without a source": ((FIRST, "@P0 SEL R24", "EXIT"), [("whole", 1)]),
    "integers": (("IMMA.16816.S8.S8 R4, R4.ROW, R8.COL, R4", "EXIT"), []),
    "integers in between": ((FIRST, NEXT, "IMMA.16816.S8.S8 R24, R4, R8, R24", NEXT, "EXIT"), [("whole", 2), ("whole", 1)]),
}


@pytest.mark.parametrize("name", FOUND)
def test_verdicts_of_small_texts(name: str) -> None:
    lines, found = FOUND[name]
    assert [(chain.verdict, chain.most) for chain in chains(text(*lines))] == found


READS = (".L_x_1:", "UTCQMMA gdesc[UR4], gdesc[UR6], tmem[UR10], tmem[UR12], idesc[UR13], UPT", "LDTM.x4 R4, tmem[UR10]")
UNKNOWN = {
    "how often a loop without promotion runs is decided at run time": [x.replace("RZ, !UPT", "R24, UPT") for x in LOOP],
    "a predicate decides at run time whether a sum begins anew": [x.replace("RZ, !UPT", "R24, UP0") for x in LOOP],
    "the disassembler does not know where some jump leads": [*LOOP[:-2], "BRX R2 -0x40"],
    "a loop reads": [*READS, "@!P0 BRA `(.L_x_1)", "EXIT"],
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_what_cannot_be_determined_has_a_reason(reason: str) -> None:
    chain = one(text(*UNKNOWN[reason]))
    assert chain.verdict == "unknown"
    assert chain.reason.startswith(reason)


def one(function: Function) -> Chain:
    (chain,) = chains(function)
    return chain


@pytest.mark.parametrize(
    ("second", "most"), [("@P0 " + NEXT, 3), (NEXT + ", UP0", 3), (NEXT.replace("E4M3 R24", "E4M3 R40"), 2)]
)
def test_longest_sum_of_three_instructions(second: str, most: int) -> None:
    """One that a predicate may leave out counts; one whose sum goes elsewhere does not count for the next."""
    chain = one(text(FIRST, second, NEXT, "EXIT"))
    assert (chain.verdict, chain.most, dict(chain.opcodes)) == ("whole", most, {FIRST.split()[0]: 3})


SCALED = tuple(f"FMUL R{24 + i}, R{24 + i}, R50" for i in range(4))


@pytest.mark.parametrize(("between", "least", "most"), [((NEXT + ", UP0", NEXT), 2, 3), ((NEXT, *SCALED), 2, 2)])
def test_shortest_promoted_sum(between: tuple[str, ...], least: int, most: int) -> None:
    """A sum may begin anew where a predicate decides; it does not where it is scaled."""
    chain = one(text(".L_x_1:", FIRST, *between, *ADDED, "@!P0 BRA `(.L_x_1)", "EXIT"))
    assert (chain.verdict, chain.least, chain.most) == ("promoted", least, most)


def test_half_accumulators_are_widened_before_they_are_added() -> None:
    first = "HGMMA.64x8x16.F16 R24, gdesc[UR8], RZ, !UPT"
    widened = ("HADD2.F32 R30, -RZ, R24.H0_H0", "HADD2.F32 R31, -RZ, R24.H1_H1", "FADD R8, R8, R30", "FADD R9, R9, R31")
    chain = one(text(".L_x_1:", first, *widened, "@!P0 BRA `(.L_x_1)", "EXIT"))
    assert (chain.verdict, chain.most, chain.by) == ("promoted", 1, "FADD")
