"""Planted devices: an instruction, an arithmetic of the grammar of models, departures from it, a fault."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from departures import PLAIN, Wide
from faulty import Fault, PlantedDevice
from hypothesis import strategies as st
from outside import Unit

from accprobe.isa.families import MMA_SYNC
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.notation import dot_json
from accprobe.model.tree import (
    SUM_BITS,
    Addend,
    AddendPlace,
    AlignmentRounding,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Overflow,
    Product,
    ProductExponent,
    Rounding,
    Subnormals,
    Tininess,
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
    chain,
)
from accprobe.operands.request import Request

Rng = np.random.Generator
Family = Literal["inside", "wider", "outside", "place", "time", "query"]
"""An arithmetic of the grammar ("inside"), near the grammar ("wider") or "outside"; a fault at a "place", at a "time", or one
that depends on the "query": its size, the query before it, or its operands."""

FLOATS = {
    "wgmma.m64n8k32.f32.e4m3.e4m3": "QGMMA.64x8x32.F32.E4M3.E4M3",
    "wgmma.m64n8k32.f16.e5m2.e5m2": "QGMMA.64x8x32.F16.E5M2.E5M2",
    "wgmma.m64n256k32.f32.e4m3.e5m2": "QGMMA.64x256x32.F32.E4M3.E5M2",
    "wgmma.m64n8k16.f32.f16.f16": "HGMMA.64x8x16.F32",
    "mma.sync.m16n8k16.f32.f16.f16.f32": "HMMA.16816.F32",
    "mma.sync.m16n8k16.f16.f16.f16.f16": "HMMA.16816.F16",
    "mma.sync.m16n8k16.f32.bf16.bf16.f32": "HMMA.16816.F32.BF16",
    "mma.sync.m16n8k8.f32.tf32.tf32.f32": "HMMA.1688.F32.TF32",
}
INTEGERS = {
    "mma.sync.m16n8k32.s32.s8.s8.s32": "IMMA.16832.S8.S8",
    "mma.sync.m16n8k32.s32.u8.s8.s32": "IMMA.16832.U8.S8",
    "wgmma.m64n8k32.s32.s8.s8": "IGMMA.64x8x32.S8.S8",
}
DOUBLES = {
    "mma.sync.m8n8k4.f64.f64.f64.f64": "DMMA.8x8x4",
    "mma.sync.m16n8k4.f64.f64.f64.f64": "DMMA.16x8x4",
}
SPARSE = {
    "mma.sp.m16n8k32.f32.f16.f16.f32": "HMMA.SP.16832.F32",
    "wgmma.sp.m64n8k64.f32.e4m3.e4m3": "QGMMA.SP.64x8x64.F32.E4M3.E4M3",
}
OPCODES = FLOATS | INTEGERS | DOUBLES | SPARSE
NANS = {"f32": (0x7FFFFFFF, 0x7FC00000), "f16": (0x7FFF, 0xFE00)}
MOST_SUMS = 8


@dataclass(frozen=True)
class Plant:
    """The arithmetic and the fault of a planted device."""

    instruction: Instruction
    model: DotModel
    wide: Wide = PLAIN
    fault: Fault | None = None
    seed: int = 0
    kind: str = ""
    family: Family = "inside"

    @property
    def unit(self) -> Unit:
        return Unit(self.instruction, self.model, self.wide)

    @property
    def base(self) -> Unit:
        """Return the unit without departures from the grammar."""
        return Unit(self.instruction, self.model)

    def shows(self, request: Request) -> int:
        """Return on how many of these dot products the departures from the grammar change the result."""
        return int((self.unit.dot(request) != self.base.dot(request)).sum())

    def device(self) -> PlantedDevice:
        return PlantedDevice(self.unit, OPCODES[self.instruction.name], self.fault, self.seed)

    def parameters(self) -> dict[str, Any]:
        """Return the drawn parameters as JSON values."""
        parameters: dict[str, Any] = {"model": dot_json(self.model)}
        if self.wide != PLAIN:
            parameters["wide"] = _changed(self.wide)
        if self.fault:
            parameters["fault"] = _changed(self.fault)
        return parameters


def _changed(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    changed = {f.name: values[f.name] for f in dataclasses.fields(record) if values[f.name] != f.default}
    return {name: _changed(value) if dataclasses.is_dataclass(value) else value for name, value in changed.items()}


T = TypeVar("T")


def one_of(rng: Rng, choices: tuple[T, ...] | list[T] | dict[T, Any]) -> T:
    return list(choices)[rng.integers(len(choices))]


def usual(rng: Rng, names: dict[str, str] = FLOATS) -> Plant:
    """Draw an arithmetic of known matrix units."""
    inst = parse(one_of(rng, names))
    fp8, narrow = inst.a.bits == 8, inst.d.name == "f16"
    bits = int(one_of(rng, (13, 13, 14, 25) if fp8 else (23, 24, 25, 25)))
    sums = FloatArithmetic(
        inst.d,
        10 if narrow else min(23, bits),
        "RNE" if narrow or rng.random() < 0.2 else "RZ",
        bits,
        min_exponent=None if narrow else int(one_of(rng, (-132, -133))),
        underflow_sign="positive",
        nan=NANS[inst.d.name][0],
    )
    k = inst.stored.k
    size = int(one_of(rng, (k, k, k // 2)))
    groups = [list(range(i, i + size)) for i in range(0, k, size)]
    return Plant(inst, DotModel(chain(groups, sums, one_of(rng, ("first", "first", "last")))))


def any_floats(rng: Rng) -> Plant:
    """Draw any floating-point model of the grammar, half of them with the usual rules of exponents, zeros and subnormals."""
    inst, plain = parse(one_of(rng, FLOATS)), rng.random() < 0.5
    return Plant(inst, float_model(rng, inst, plain))


def float_sums(rng: Rng, fmt: Format, k: int, plain: bool) -> FloatArithmetic:
    """Draw sums of products. plain: with the usual rules of exponents, zeros and subnormals."""

    def some(choices: object, first: str) -> Any:
        return first if plain else one_of(rng, get_args(choices))

    rule = some(ProductExponent, "unnormalised")
    floor = None if plain or rng.random() < 0.3 else int(rng.integers(fmt.min_exponent - 34, fmt.min_exponent))
    sums = FloatArithmetic(
        fmt,
        int(rng.integers(5, fmt.mantissa_bits + 1)),
        one_of(rng, get_args(Rounding)),
        int(rng.integers(4, min(40, SUM_BITS - 2 - (k + 2).bit_length()) + 1)),
        one_of(rng, get_args(AlignmentRounding)),
        rule,
        floor,
        some(ZeroTerms, "ignored") if rule == "unnormalised" else "ignored",
        some(ZeroSign, "positive"),
        some(UnderflowSign, "kept"),
        some(Overflow, "infinity"),
        some(Subnormals, "kept"),
        one_of(rng, NANS[fmt.name]),
    )
    return replace(sums, tininess_detected=some(Tininess, "after rounding"))


def float_model(rng: Rng, inst: Instruction, plain: bool) -> DotModel:
    sums = float_sums(rng, inst.d, inst.k, plain)
    add = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, zero_sign="ieee", nan=sums.nan)
    tree = _tree(rng, inst.k, sums, add)
    operands, addend = ("kept", "kept") if plain else (one_of(rng, get_args(Subnormals)) for _ in range(2))
    return DotModel(tree, operands, addend)


def _tree(rng: Rng, k: int, sums: FloatArithmetic, add: FloatArithmetic) -> FusedSum:
    size = int(one_of(rng, [s for s in (1, 2, 4, 8, 16, 32) if s <= k <= MOST_SUMS * s]))
    parts = k // size
    groups = [list(range(i * size, (i + 1) * size)) for i in range(parts)]
    if rng.random() < 0.5:
        groups = [list(range(i, k, parts)) for i in range(parts)]
    if size > 1 and parts > 1 and rng.random() < 0.5:
        return pairwise([FusedSum(tuple(map(Product, group)), sums) for group in groups], add)
    return chain(groups, sums, "first" if size == 1 else one_of(rng, get_args(AddendPlace)), add)


def pairwise(nodes: list[FusedSum], add: FloatArithmetic) -> FusedSum:
    """Add the sums in pairs, pairs of pairs, …, and C by a separate add."""
    while len(nodes) > 1:
        nodes = [FusedSum(tuple(nodes[i : i + 2]), add) for i in range(0, len(nodes), 2)]
    return FusedSum((nodes[0], Addend()), add)


def any_integers(rng: Rng) -> Plant:
    inst = parse(one_of(rng, INTEGERS))
    size = int(one_of(rng, (1, 4, 8, 16, 32, 32, 32)))
    groups = [list(range(i, inst.k, inst.k // size)) for i in range(inst.k // size)]
    arithmetic = IntegerArithmetic(FORMATS["s32"], one_of(rng, ("wrap", "wrap", "saturate")))
    return Plant(inst, DotModel(chain(groups, arithmetic, one_of(rng, get_args(AddendPlace)))))


def any_doubles(rng: Rng, plain: bool = False) -> Plant:
    inst = parse(one_of(rng, DOUBLES))
    nan = 0xFFF8 << 48 if plain else one_of(rng, (0xFFF8 << 48, 0x7FF8 << 48))
    payload = "b c a" if plain else one_of(rng, ("b c a", "a b c", "c a b", "dropped"))
    sign = "ieee" if plain else one_of(rng, ("ieee", "ieee", "positive"))
    arithmetic = FloatArithmetic(inst.d, 52, "RNE", None, zero_sign=sign, nan=nan, nan_payload=payload)
    order = range(inst.k) if plain else one_of(rng, (range(inst.k), range(inst.k)[::-1]))
    return Plant(inst, DotModel(chain([[k] for k in order], arithmetic)))


def with_sums(plant: Plant, **changes: Any) -> Plant:
    """Return the plant with other rules in the sums of products."""
    root = plant.model.root.map(
        lambda node: replace(node, arithmetic=replace(node.arithmetic, **changes)) if node.products else node
    )
    return replace(plant, model=replace(plant.model, root=root))


# Operands and results of instructions that do not exist.
OPERANDS = ("e4m3 f32", "e5m2 f32", "f16 f32", "f16 f16", "bf16 f32", "tf32 f32", "e4m3 f16", "e5m2 f16")


def instruction(k: int, d: str, a: str, b: str, c: str) -> Instruction:
    """Return an instruction of no architecture."""
    f = FORMATS
    return Instruction(f"planted.k{k}.{d}.{a}.{b}.{c}", MMA_SYNC, 16, 8, k, f[d], f[a], f[b], f[c])


GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def float_models() -> st.SearchStrategy[Plant]:
    """Draw any floating-point model, of an instruction that does not exist."""

    def draw(rng: Rng) -> Plant:
        operand, result = one_of(rng, OPERANDS).split()
        inst = instruction(int(one_of(rng, (4, 8, 16, 32, 64))), result, operand, operand, result)
        return Plant(inst, float_model(rng, inst, plain=False))

    return GENERATORS.map(draw)


def integer_models() -> st.SearchStrategy[Plant]:
    """Draw any integer model, of an instruction that does not exist."""

    def draw(rng: Rng) -> Plant:
        a, b = one_of(rng, ("s8 s8", "u8 s8", "s8 u8", "u8 u8")).split()
        k = int(one_of(rng, (8, 16, 32)))
        outer = IntegerArithmetic(FORMATS["s32"], one_of(rng, ("wrap", "saturate")))
        size = int(one_of(rng, [s for s in (1, 4, 8, 16, 32) if s <= k]))
        groups = [list(range(i, k, k // size)) for i in range(k // size)]
        root = chain(groups, outer, one_of(rng, get_args(AddendPlace)))
        return Plant(instruction(k, "s32", a, b, "s32"), DotModel(root))

    return GENERATORS.map(draw)
