"""What sets of operands of golden chains hold."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from accprobe.build.golden import METADATA_LINES, golden_shape
from accprobe.health.golden import singly
from accprobe.health.operand_batches import OperandBatch, covering_sets, operand_kinds, turned_over
from accprobe.health.plan import UNITS
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.operands.request import Request, joined
from accprobe.operands.sparse import LAYOUTS, layouts, stored_products
from accprobe.records.verification import Events
from accprobe.report.names import named_models
from accprobe.verify.coverage import Coverage
from accprobe.verify.layouts import with_layouts

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
