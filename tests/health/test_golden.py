"""Kernels of golden chains: their machine code, their operands, and what they find on a real GPU."""

from __future__ import annotations

import re
from functools import cache, partial

import numpy as np
import pytest
from emulated_golden import Planted, planted_source
from marks import only_on_a_gpu

from accprobe.build import compiler, toolchain
from accprobe.build.golden import METADATA_LINES, golden_shape, golden_source
from accprobe.devices.cuda import CudaDevice
from accprobe.devices.simulated import SimulatedDevice
from accprobe.health.golden import GoldenBench
from accprobe.health.operand_batches import OperandBatch, covering_sets, operand_kinds, singly, turned_over
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
