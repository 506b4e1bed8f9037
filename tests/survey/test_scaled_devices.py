"""Planted devices of block-scaled and narrow instructions: what is planted is found and confirmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from departures import Scaling, Wide
from fakes import Tiled
from outside import Unit

from accprobe.build.lowerings import Lowering
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.formats import FORMATS, Bits
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.published import known_models
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product, chain
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products
from accprobe.records.rows import Row
from accprobe.report.words import detour
from accprobe.survey.row import Surveyor
from accprobe.verify.coverage import cover

MIXED = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0")
SMALL = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e2m3.e3m2.f32.ue8m0")
NVFP4 = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
FOUR = parse("mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0")
TWO = parse("tcgen05.m128n16k64.kind::mxf4.scale_vec::2X.f32.e2m1.e2m1.ue8m0")
NARROW = parse("mma.sync.m16n8k32.kind::mxf8f6f4.scale_vec::1X.f32.e4m3.e3m2.f32.ue8m0")
SPARSE = parse("mma.sp.m16n8k128.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
PLAIN = parse("mma.sync.m16n8k32.kind::f8f6f4.f32.e2m1.e5m2.f32")

# Alignment bits, products that are scaled at once, and the lowest alignment.
USUAL: dict[Instruction, tuple[int, int | None, int]] = {
    MIXED: (25, None, -133),
    SMALL: (25, None, -133),
    NVFP4: (35, 16, -139),
    FOUR: (35, 16, -139),
    TWO: (35, 16, -139),
}

# Scales of the others are not that small, or the two products of a block that show it lie too far apart.
SHOW_A_FLOOR = (FOUR, TWO, MIXED)

DEVIATIONS = {
    "one significand bit of scales": (NVFP4, Wide(scaling=Scaling(bits=2))),
    "scales are powers of two": (NVFP4, Wide(scaling=Scaling(bits=0))),
    "a NaN of ue4m3 is 480": (NVFP4, Wide(scaling=Scaling(nan_is_number=True))),
    "a NaN of ue8m0 is 2^128": (FOUR, Wide(scaling=Scaling(nan_is_number=True))),
    "subnormal scales are zero": (NVFP4, Wide(scaling=Scaling(flushed=True))),
    "the last block has the scale of B twice": (NVFP4, Wide(scaling=Scaling(last_is_b=True))),
    "groups are cut a bit earlier than C": (NVFP4, Wide(products_short=1)),
    "products are cut a bit earlier than C": (SMALL, Wide(products_short=1)),
    "sums of products lose their last bit": (NVFP4, Wide(scaling=Scaling(group_bits=1))),
    "two scales are 2^127 at most": (TWO, Wide(scaling=Scaling(largest=127))),
    "zero scales make zeros of infinities": (MIXED, Wide(scaling=Scaling(infinite_zero=True))),
}


def fused(inst: Instruction, bits: int, at_once: int | None, floor: int = -139) -> DotModel:
    arithmetic = FloatArithmetic(
        FORMATS["f32"], 23, "RZ", bits, min_exponent=floor, underflow_sign="positive", scaled_products=at_once
    )
    return DotModel(chain([range(inst.k)], arithmetic))


def published(inst: Instruction) -> DotModel:
    return fused(inst, *USUAL[inst])


class Planted(Tiled):
    """A device of one instruction that an independent evaluator computes."""

    def __init__(self, inst: Instruction, model: DotModel, wide: Wide | None = None) -> None:
        super().__init__(inst, model)
        self.unit = Unit(inst, model, wide or Wide())

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        return self.unit.dot(request)


def row_of(device: Tiled, inst: Instruction) -> Row:
    return Surveyor(device).row(inst, 2000, 0)


@pytest.mark.parametrize(
    ("inst", "bits", "at_once", "floor"),
    [
        pytest.param(NVFP4, *USUAL[NVFP4], id="NVFP4"),
        pytest.param(TWO, 30, 32, -130, id="blocks of 32, another floor", marks=pytest.mark.slow),
        pytest.param(MIXED, *USUAL[MIXED], id="fp8", marks=pytest.mark.slow),
    ],
)
def test_what_was_planted_is_confirmed(inst: Instruction, bits: int, at_once: int | None, floor: int) -> None:
    row = row_of(Planted(inst, fused(inst, bits, at_once, floor)), inst)
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.verification.events.missing == ()
    arithmetic = row.model.root.arithmetic
    assert (arithmetic.alignment_bits, arithmetic.scaled_products) == (bits, at_once)
    found = row.findings["min_exponent"]
    assert (found.value, found.bound) == (floor, "exact") if inst in SHOW_A_FLOOR else found.bound == "undetermined"


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_differs_on_operands_that_cover_the_model(name: str) -> None:
    inst, wide = DEVIATIONS[name]
    assert cover(InstructionSubject(Planted(inst, published(inst), wide), inst), published(inst), 0).mismatches > 0


Ask = Callable[[Request], Request]


class Scaled(Tiled):
    """A device of one instruction. laid: what its layout makes of a request."""

    def __init__(self, inst: Instruction, model: DotModel, laid: Ask = lambda asked: asked) -> None:
        super().__init__(inst, model)
        self._laid, self._model = laid, model

    def dot(self, inst: Instruction, request: Request, placement: int = 0) -> Bits:
        if inst.sparse:
            return evaluate(self._model, inst.stored, stored_products(inst, request))
        return super().dot(inst, self._laid(request), placement)


def with_c_last(inst: Instruction, bits: int, at_once: int | None) -> DotModel:
    """C is added by itself, rounded to nearest."""
    products = FusedSum(tuple(map(Product, range(inst.k))), fused(inst, bits, at_once).root.arithmetic)
    return DotModel(FusedSum((products, Addend()), FloatArithmetic(FORMATS["f32"], 23, "RNE", None)))


def of_two_sums(inst: Instruction, bits: int, at_once: int | None) -> DotModel:
    arithmetic = fused(inst, bits, at_once).root.arithmetic
    return DotModel(chain([range(inst.k // 2), range(inst.k // 2, inst.k)], arithmetic))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inst", "bits", "at_once", "planted"),
    [(TWO, 35, 32, with_c_last), (NVFP4, 35, 16, with_c_last), (NARROW, 25, None, of_two_sums), (FOUR, 34, 16, of_two_sums)],
)
def test_other_orders_are_found(
    inst: Instruction, bits: int, at_once: int | None, planted: Callable[[Instruction, int, int | None], DotModel]
) -> None:
    """C is told apart by itself: it has a wide range, however narrow products are."""
    model = planted(inst, bits, at_once)
    row = row_of(Scaled(inst, model), inst)
    assert row.model.order == model.order
    assert (row.status, row.reason) == ("confirmed", "")
    sums = [node.arithmetic for node in row.model.root.nodes() if node.products]
    assert {(x.alignment_bits, x.scaled_products) for x in sums if isinstance(x, FloatArithmetic)} == {(bits, at_once)}


def test_a_sparse_a_has_block_scales_too() -> None:
    """The model is one of the stored products, half of each block."""
    row = row_of(Scaled(SPARSE, fused(SPARSE.stored, 35, 16)), SPARSE)
    planted = fused(SPARSE.stored, 35, 16)
    # The rules that no such sums can show are as they are inferred.
    assert row.model == planted.with_arithmetic(lambda x: replace(x, min_exponent=None, underflow_sign="kept"))
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.findings["left_out"].value == "absent"


def swapped_scales(asked: Request) -> Request:
    return replace(asked, scales_b=asked.scales_b[:, ::-1].copy())


def swapped_nibbles(asked: Request) -> Request:
    b = asked.b.reshape(len(asked), -1, 2)[..., ::-1].reshape(asked.b.shape)
    return replace(asked, b=b.copy())


def low_in_its_byte(asked: Request) -> Request:
    """As if e2m1 lay in the lowest bits of a byte: the hardware reads code >> 2."""
    return replace(asked, a=asked.a >> np.uint8(2))


@pytest.mark.parametrize(
    ("inst", "laid", "reason"),
    [
        (NVFP4, swapped_scales, "element 0 of A's row 0 and B's column 0 is scaled by other block scales"),
        (TWO, swapped_nibbles, "element 0 of row 0 of A meets 1 of column 0 of B, not 0"),
        (PLAIN, low_in_its_byte, "element 0 of row 0 of A meets nothing of column 0 of B, not 0"),
    ],
)
def test_a_wrong_layout_ends_unverified_with_the_place(inst: Instruction, laid: Ask, reason: str) -> None:
    at_once = 16 if inst.k == 64 else None
    row = row_of(Scaled(inst, fused(inst, 35, at_once), laid), inst)
    assert row.status == "unverified"
    assert reason in row.reason
    assert "please report it" in row.reason
    assert not row.findings


KNOWN = known_models("h100")
NAMES = [
    "mma.sync.m16n8k64.s32.s4.u4.s32",
    "mma.sync.m8n8k32.satfinite.s32.s4.s4.s32",
    "mma.sync.m8n8k128.s32.b1.b1.s32.xor.popc",
    "mma.sync.m8n8k128.s32.b1.b1.s32.and.popc",
    "wgmma.m64n8k256.s32.b1.b1.and.popc",
    "mma.sync.m8n8k4.f32.f16.f16.f32",
    "mma.sync.m8n8k4.f32.f16.f16.f16",
    "mma.sync.m8n8k4.f16.f16.f16.f16",
]
# Others have their shape.
LONG = (NAMES[1], *NAMES[3:5], *NAMES[-2:])


def narrow_row(name: str, model: DotModel | None = None, lowering: Lowering | None = None) -> Row:
    inst = parse(name)
    known = KNOWN[inst]
    return Surveyor(Tiled(inst, model or known.model, lowering=lowering or known.lowering)).row(inst, 1 << 14, 0)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in NAMES])
def test_what_is_planted_is_found(name: str) -> None:
    row = narrow_row(name)
    assert (row.status, row.reason) == ("confirmed", "")
    assert row.model == KNOWN[parse(name)].model
    assert bool(detour(row)) == any(converted in name for converted in ("m8n8k4", ".s4."))
    assert Row.model_validate_json(row.model_dump_json(exclude_defaults=True)).status == "confirmed"


def test_multiply_adds_are_not_what_a_warpgroup_s_instruction_becomes() -> None:
    row = narrow_row("wgmma.m64n8k256.s32.b1.b1.and.popc", lowering=Lowering((), (("FFMA", 8),), "nvdisasm", "ab" * 32))
    assert row.status == "unverified"
    assert all(finding.bound != "exact" for finding in row.findings.values())
