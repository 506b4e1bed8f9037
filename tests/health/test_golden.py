"""Kernels of golden chains: operands, results and records, emulated and on a real GPU; and their machine code."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from emulated_golden import Planted, compiled_for_cpu, planted_source, pointer
from marks import only_on_a_gpu

from accprobe.build import compiler, toolchain
from accprobe.build.golden import METADATA_LINES, MOST_SMS, GoldenShape, golden_shape, golden_source
from accprobe.devices.cuda import CudaDevice
from accprobe.devices.simulated import SimulatedDevice
from accprobe.health.golden import NOWHERE, STRIDE, GoldenBench
from accprobe.health.operand_batches import OperandBatch, cell, covering_sets, operand_kinds, singly, turned_over
from accprobe.health.outcome import SmPlace
from accprobe.health.plan import UNITS, chosen
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import LAYOUTS, layouts, stored_products
from accprobe.records.verification import Events
from accprobe.report.names import named_models
from accprobe.verify.coverage import Coverage
from accprobe.verify.layouts import with_layouts

WGMMA = "wgmma.m64n32k32.s32.s8.s8"
SPARSE = "wgmma.sp.m64n32k64.s32.s8.s8"
OTHERS = ("mma.sync.m16n8k16.f64.f64.f64.f64", "mma.sync.m16n8k32.s32.s8.s8.s32", "wgmma.m64n32k16.f32.f16.f16")
OTHERS += ("mma.sp.m16n8k32.f32.f16.f16.f32", "mma.sp.m16n8k64.s32.s8.s8.s32", "wgmma.sp.m64n32k32.f32.f16.f16")
SMS = 2


class Emulated:
    """A golden kernel on the CPU, and a set of operands whose results are exact integers."""

    def __init__(self, shape: GoldenShape, planted: Planted | None = None) -> None:
        self.shape, inst = shape, shape.inst
        self.library = compiled_for_cpu(shape, planted)
        random = np.random.default_rng(1)
        lines = ((shape.steps * shape.rows, inst.stored.k), (shape.steps * shape.columns, inst.k))
        top = 1 << min(inst.a.storage_bits, 63)
        self.a, self.b = (random.integers(0, top, size, inst.a.dtype) for size in lines)
        self.addends = random.integers(0, top, len(self.a), inst.c.dtype) * np.array(shape.addends, inst.c.dtype)
        self.metadata = np.zeros((METADATA_LINES, shape.chain, 1), np.uint8)
        if inst.sparsity is not None:
            self.metadata = random.choice(np.array(inst.sparsity.codes, np.uint8), (*self.metadata.shape[:2], inst.k // 4))
        self.words = (self.dense_a() @ self.chains(self.b, shape.columns).T + self.addends[:, None]).astype(inst.d.dtype)
        self.folded = np.zeros(shape.chains * shape.group_threads, np.uint32)
        self.library.run_fold(*map(pointer, (self.words, self.folded)))

    def dense_a(self) -> np.ndarray[Any, Any]:
        """[steps * rows, chain * K], with a zero for what a sparse A leaves out."""
        shape, inst = self.shape, self.shape.inst
        stored = self.chains(self.a, shape.rows)
        if inst.sparsity is None:
            return stored
        whole = np.zeros((len(stored), shape.chain * inst.k), np.uint64)
        for row, codes in enumerate(np.resize(self.metadata, (len(stored), shape.chain * inst.k // 4))):
            places = [4 * group + place for group, code in enumerate(codes.tolist()) for place in (code & 3, code >> 2)]
            whole[row, places] = stored[row]
        return whole

    def chains(self, operands: np.ndarray[Any, Any], lines: int) -> np.ndarray[Any, Any]:
        """[steps * lines, chain * K], as wide as D at least, written another way than the bench does it."""
        steps = self.shape.steps
        each = operands.reshape(steps, lines, -1).astype(np.uint64)
        return np.concatenate([np.roll(each, -i, axis=0) for i in range(self.shape.chain)], axis=2).reshape(steps * lines, -1)

    def run(self, rounds: int, only: int = NOWHERE) -> tuple[Any, Any, Any]:
        """Return the chains done and the words wrong by SM, and records [n, 6]."""
        tally, records = np.zeros(2 * MOST_SMS + 1, np.uint64), np.zeros((64, 8), np.uint32)
        job = np.array([rounds, 0, 1, STRIDE, only, NOWHERE, 0, len(records)], np.uint32)
        operands = (self.a, self.b, self.metadata, self.addends, self.folded, self.words)
        self.library.run(SMS, *map(pointer, (*operands, tally, records, np.zeros(rounds, self.shape.inst.d.dtype), job)))
        kept = records[: int(tally[-1])]
        told = np.column_stack([kept[:, :4], kept[:, 4:].copy().view(np.uint64)]) if len(kept) else np.zeros((0, 6), np.uint64)
        return tally[:SMS].tolist(), tally[MOST_SMS : MOST_SMS + SMS].tolist(), told.tolist()


def small(name: str) -> GoldenShape:
    """With few operands, so that every chain is computed soon."""
    shape = replace(golden_shape(parse(name)), steps=4)
    return shape if shape.inst.family.warps > 1 else replace(shape, groups=3, tiles_m=2, tiles_n=2)


@pytest.mark.parametrize("name", [SPARSE, *(pytest.param(name, marks=pytest.mark.slow) for name in (WGMMA, *OTHERS))])
@pytest.mark.parametrize("made", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_sm_and_group_computes_every_chain(name: str, made: bool) -> None:
    """And every word is what exact arithmetic says."""
    emulated = Emulated(singly(small(name)) if made else small(name))
    rounds = emulated.shape.chains
    done, wrong, records = emulated.run(rounds)
    assert done == [rounds * emulated.shape.groups] * SMS
    assert (wrong, records) == ([0] * SMS, [])
    emulated.folded[:] += 1
    _, wrong, records = emulated.run(rounds, only=1)
    assert wrong == [0, rounds * emulated.shape.threads], "no thread and no chain is left out"
    assert {record[3] for record in records} == {NOWHERE}, "each word is right: only the fold is not"


@pytest.mark.parametrize("name", [SPARSE, *(pytest.param(name, marks=pytest.mark.slow) for name in (WGMMA, *OTHERS))])
def test_a_planted_error_is_found_where_it_was_planted(name: str) -> None:
    shape = small(name)
    low = shape.inst.a.ignored_low_bits
    planted = Planted(sm=1, thread=13, register=6, bit=3, word=2, mask=1 << low, a=1 << low, b=0)
    emulated = Emulated(shape, planted)
    row, column = cell(shape, planted.thread, planted.register)
    k = planted.word * max(1, 32 // shape.inst.a.storage_bits)
    if shape.inst.sparse:
        k = k // 2 * 4 + (int(emulated.metadata[row % METADATA_LINES, -1, k // 2]) & 3)
    a, b = (
        x.reshape(len(x), shape.chain, -1)[:, -1, k] for x in (emulated.dense_a(), emulated.chains(emulated.b, shape.columns))
    )
    hit = [
        chain
        for chain in range(shape.chains)
        if int(a[chain // shape.steps * shape.rows + row]) & 1 and not int(b[chain % shape.steps * shape.columns + column]) & 1
    ]
    assert hit
    _, wrong, records = emulated.run(shape.chains)
    assert wrong == [0, len(hit)]
    assert sorted(record[2] for record in records) == hit
    for sm, thread, _, register, got, expected in records:
        assert (sm, thread, register, got ^ expected) == (1, 13, 6, 8)


OPCODES = {"fp8": "QGMMA.64x256x32.F32.E4M3.E4M3", "f16": "HGMMA.64x256x16.F32", "bf16": "HGMMA.64x256x16.F32.BF16"}
OPCODES |= {"tf32": "HGMMA.64x256x8.F32.TF32", "int8": "IGMMA.64x256x32.S8.S8", "f64": "DMMA.16x8x16"}
OPCODES |= {"fp8-sparse": "QGMMA.SP.64x256x64.F32.E4M3.E4M3", "f16-sparse": "HGMMA.SP.64x256x32.F32"}


def units_of_hopper() -> dict[str, Instruction]:
    models = named_models("h200")
    return chosen(SimulatedDevice(models), models)


@pytest.mark.parametrize(
    "unit", [unit if unit == "fp8-sparse" else pytest.param(unit, marks=pytest.mark.slow) for unit in UNITS]
)
def test_what_a_kernel_becomes(unit: str) -> None:
    """The unit's own opcode, as often as a chain has instructions, and no register spilled to memory."""
    inst = units_of_hopper()[unit]
    shape = golden_shape(inst)
    path = str(compiler.compile_source(golden_source(shape), "sm_90a", inst.name).path)
    kernel = next(part for part in toolchain.run("cuobjdump", "-sass", path).split("Function : ") if part.startswith("golden"))
    opcodes = re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+ )?(\S+)", kernel)
    matrix = [opcode for opcode in opcodes if "MMA" in opcode]
    assert set(matrix) == {OPCODES[unit]}
    assert len(matrix) == shape.chain * shape.tiles_m * shape.tiles_n
    assert not [opcode for opcode in opcodes if opcode.startswith(("STL", "LDL"))]
    usage = re.search(r"Function golden:\n\s+REG:(\d+)", toolchain.run("cuobjdump", "-res-usage", path))
    assert int(usage[1]) * shape.threads <= 65536
    assert shape.shared_bytes <= 227 << 10


@only_on_a_gpu[0]
@only_on_a_gpu[1]
@pytest.mark.parametrize("unit", list(UNITS))
def test_no_word_differs_on_any_sm(h200: CudaDevice, unit: str) -> None:
    models = named_models("h200")
    inst = chosen(h200, models)[unit]
    turn = GoldenBench(h200, inst, models[inst], 0).turn(1.5)
    assert turn.dots > 1e9
    assert turn.sms == h200.describe()["sm_count"]
    assert (turn.wrong_by_sm, turn.vanished) == ({}, 0)


@only_on_a_gpu[0]
@only_on_a_gpu[1]
@pytest.mark.parametrize("unit", ["bf16", "fp8-sparse"])
def test_a_planted_error_is_found_named_and_shrunk(h200: CudaDevice, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = named_models("h200")
    inst = chosen(h200, models)[unit]
    planted = Planted(sm=17, thread=37, register=5, bit=3, word=2, mask=0x1F, a=0x11, b=0x0A)
    monkeypatch.setattr("accprobe.health.golden.golden_source", partial(planted_source, planted=planted))
    faulty = GoldenBench(h200, inst, models[inst], 0)
    turn = faulty.turn(10.0)
    assert list(turn.wrong_by_sm) == ["17"]
    seen = turn.seen[0]
    assert seen.place == SmPlace(sm=17, warp=1, lane=5, register_of_lane=5)
    assert faulty.again(seen, 100) == 100
    assert faulty.smallest(seen) is not None


LARGEST = {
    "fp8": "wgmma.m64n256k32.f32.e4m3.e4m3",
    "tf32": "wgmma.m64n256k8.f32.tf32.tf32",
    "int8": "wgmma.m64n256k32.s32.s8.s8",
    "f64": "mma.sync.m16n8k16.f64.f64.f64.f64",
    "f16-sparse": "wgmma.sp.m64n256k32.f32.f16.f16",
}


@cache
def made_sets(name: str) -> tuple[Instruction, tuple[OperandBatch, ...]]:
    inst = parse(name)
    shape = singly(golden_shape(inst))
    return inst, tuple(covering_sets(inst, shape, named_models("h200")[inst], 0))


def on_the_diagonal(inst: Instruction, made: OperandBatch) -> Request:
    """Rows and columns of the same number, whose results are compared among all others."""
    rows = np.arange(min(len(made.a), len(made.b)))
    metadata = layouts(inst).metadata[made.which[rows % METADATA_LINES]] if inst.sparse else None
    asked = Request(made.a[rows], made.b[rows], made.addends[rows], metadata)
    asked.check(inst)
    return stored_products(inst, asked)


@pytest.mark.parametrize("unit", list(LARGEST))
def test_made_sets_hold_every_event_that_can_occur(unit: str) -> None:
    inst, sets = made_sets(LARGEST[unit])
    model = named_models("h200")[inst]
    covered, empty = Coverage(inst.stored, model), Coverage(inst.stored, model)
    covered.see(joined([on_the_diagonal(inst, made) for made in sets]))
    assert covered.outcome().missing == ()
    assert len(empty.outcome().missing) > 90, "what no set holds is missing"


@pytest.mark.parametrize(
    "name", [LARGEST["f16-sparse"], "wgmma.sp.m64n256k64.f32.e4m3.e4m3", "wgmma.sp.m64n256k16.f32.tf32.tf32"]
)
def test_sparse_sets_do_all_that_layouts_can(name: str) -> None:
    inst, sets = made_sets(name)
    used = np.zeros(LAYOUTS, bool)
    used[np.concatenate([made.which for made in sets])] = True
    assert with_layouts(Events(0, 0), inst, used).missing == ()
    assert len(sets) < 5


@pytest.mark.parametrize("name", sorted({operands for operands, _ in UNITS.values()}))
def test_toggling_turns_over_all_but_the_exponent(name: str) -> None:
    """Finite numbers stay finite: in a format with NaNs, those with the largest exponent are not drawn."""
    fmt = FORMATS[name]
    assert turned_over(fmt).bit_count() == fmt.bits - (fmt.exponent_bits if fmt.is_float else 0)
    if fmt.is_float:
        one = (1 - 1 + fmt.bias) << (fmt.mantissa_bits + fmt.ignored_low_bits)
        ones = np.array([one, one ^ turned_over(fmt)], np.uint64).astype(fmt.dtype)
        assert fmt.values(ones).tolist() == [1.0, -(2.0 - 2.0**-fmt.mantissa_bits)]


def test_kinds_of_operands_leave_out_what_becomes_nan() -> None:
    fp8, integer = ({kind.name for kind in operand_kinds(parse(LARGEST[unit]))} for unit in ("fp8", "int8"))
    assert "uniform" in integer - fp8
