"""Planted devices drawn by seed: arithmetics inside the grammar and outside it, and correct ones with a fault.

A seed's kind is KINDS[seed % len(KINDS)]; all else of it is drawn from the seed alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from faulty import Fault, Place, PlantedDevice, When
from hostile import hostile
from outside import PLAIN, Entry, Unit, Wide
from outside_numbers import Packing

from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.notation import to_json
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
    UnderflowSign,
    ZeroSign,
    ZeroTerms,
    chain,
)
from accprobe.operands.request import Request

Rng = np.random.Generator
Family = Literal["inside", "wider", "outside", "place", "time"]
"""What is planted: an arithmetic of the grammar; one that the grammar may grow to have; one that stays outside; a fault at a
place; a fault at a time."""

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
OPCODES = FLOATS | INTEGERS | DOUBLES
NANS = {"f32": (0x7FFFFFFF, 0x7FC00000), "f16": (0x7FFF, 0xFE00)}
MOST_SUMS = 8


@dataclass(frozen=True)
class Plant:
    """A device to come: what it computes, and what is wrong with it."""

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
        """The same with nothing outside the grammar."""
        return Unit(self.instruction, self.model)

    def shows(self, request: Request) -> int:
        """How many of these dot products the arithmetic without what is odd in it answers otherwise."""
        return int((self.unit.dot(request) != self.base.dot(request)).sum())

    def device(self) -> PlantedDevice:
        return PlantedDevice(self.unit, OPCODES[self.instruction.name], self.fault, self.seed)

    def parameters(self) -> dict[str, Any]:
        """What was drawn, as JSON values."""
        parameters: dict[str, Any] = {"model": to_json(self.model)}
        if self.wide != PLAIN:
            parameters["wide"] = _changed(self.wide)
        if self.fault:
            parameters["fault"] = _changed(self.fault)
        return parameters


def _changed(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    told = {f.name: values[f.name] for f in dataclasses.fields(record) if values[f.name] != f.default}
    return {name: _changed(value) if dataclasses.is_dataclass(value) else value for name, value in told.items()}


T = TypeVar("T")


def one_of(rng: Rng, choices: tuple[T, ...] | list[T] | dict[T, Any]) -> T:
    return list(choices)[rng.integers(len(choices))]


def usual(rng: Rng, names: dict[str, str] = FLOATS) -> Plant:
    """An arithmetic as matrix units are known to have."""
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
    size = int(one_of(rng, (inst.k, inst.k, inst.k // 2)))
    groups = [list(range(i, i + size)) for i in range(0, inst.k, size)]
    return Plant(inst, DotModel(chain(groups, sums, one_of(rng, ("first", "first", "last")))))


def any_floats(rng: Rng) -> Plant:
    """Any floating-point model of the grammar, half of them with the usual rules of exponents, zeros and subnormals."""
    inst, plain = parse(one_of(rng, FLOATS)), rng.random() < 0.5
    fmt = inst.d

    def some(choices: object, first: str) -> Any:
        return first if plain else one_of(rng, get_args(choices))

    rule = some(ProductExponent, "unnormalised")
    floor = None if plain or rng.random() < 0.3 else int(rng.integers(fmt.min_exponent - 34, fmt.min_exponent))
    sums = FloatArithmetic(
        fmt,
        int(rng.integers(5, fmt.mantissa_bits + 1)),
        one_of(rng, get_args(Rounding)),
        int(rng.integers(4, min(40, SUM_BITS - 2 - (inst.k + 2).bit_length()) + 1)),
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
    add = FloatArithmetic(fmt, fmt.mantissa_bits, "RNE", None, zero_sign="ieee", nan=sums.nan)
    return Plant(inst, DotModel(_tree(rng, inst.k, sums, add), some(Subnormals, "kept"), some(Subnormals, "kept")))


def _tree(rng: Rng, k: int, sums: FloatArithmetic, add: FloatArithmetic) -> FusedSum:
    size = int(one_of(rng, [s for s in (1, 2, 4, 8, 16, 32) if s <= k <= MOST_SUMS * s]))
    parts = k // size
    groups = [list(range(i * size, (i + 1) * size)) for i in range(parts)]
    if rng.random() < 0.5:
        groups = [list(range(i, k, parts)) for i in range(parts)]
    if size > 1 and parts > 1 and rng.random() < 0.5:
        nodes = [FusedSum(tuple(map(Product, group)), sums) for group in groups]
        while len(nodes) > 1:
            nodes = [FusedSum(tuple(nodes[i : i + 2]), add) for i in range(0, len(nodes), 2)]
        return FusedSum((nodes[0], Addend()), add)
    return chain(groups, sums, "first" if size == 1 else one_of(rng, get_args(AddendPlace)), add)


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
    arithmetic = FloatArithmetic(inst.d, 52, "RNE", None, zero_sign=sign, nan=nan, nan_payload=payload)  # type: ignore[arg-type]
    order = range(inst.k) if plain else one_of(rng, (range(inst.k), range(inst.k)[::-1]))
    return Plant(inst, DotModel(chain([[k] for k in order], arithmetic)))


def with_sums(plant: Plant, **changes: Any) -> Plant:
    """With other rules in the sums of products."""
    root = plant.model.root.map(
        lambda node: replace(node, arithmetic=replace(node.arithmetic, **changes)) if node.products else node
    )
    return replace(plant, model=replace(plant.model, root=root))


def odd(**changes: Any) -> Callable[[Rng], Plant]:
    """Draws a usual arithmetic that departs so from the grammar; what is callable is drawn."""

    def draw(rng: Rng) -> Plant:
        plant = usual(rng)
        drawn = {name: value(rng, plant) if callable(value) else value for name, value in changes.items()}
        return replace(plant, wide=replace(PLAIN, **drawn))

    return draw


def _terms(plant: Plant) -> int:
    return max(len(node.terms) for node in plant.model.root.nodes())


def accumulator(kind: str) -> Callable[[Rng, Plant], tuple[str, int]]:
    """Bits above F that the sum of all terms may need, or fewer."""
    return lambda rng, plant: (kind, max(2, (_terms(plant) - 1).bit_length() + 1 - int(one_of(rng, (0, 0, 0, 1, 2)))))


def bits_below(operand: bool) -> Callable[[Rng, Plant], int]:
    """Some bits fewer than products, or C, have."""

    def draw(rng: Rng, plant: Plant) -> int:
        inst = plant.instruction
        most = inst.a.mantissa_bits + inst.b.mantissa_bits if operand else inst.c.mantissa_bits
        return max(1, most - int(rng.integers(1, 4)))

    return draw


def packing(change: Callable[[Rng, Plant], dict[str, Any]], **sums: Any) -> Callable[[Rng], Plant]:
    def draw(rng: Rng) -> Plant:
        plant = with_sums(usual(rng), **sums)
        return replace(plant, wide=replace(PLAIN, packing=Packing(**change(rng, plant))))

    return draw


def wrong_entry(rng: Rng) -> Plant:
    names = {name: opcode for name, opcode in OPCODES.items() if parse(name).a.bits == 8}
    inst = parse(one_of(rng, names))
    plant = any_integers(rng) if inst.is_integer else usual(rng, {inst.name: names[inst.name]})
    inst = plant.instruction
    high = 0x100 if inst.is_integer else 0x78
    entry = Entry(*(int(rng.integers(0x08, high)) for _ in "ab"), int(one_of(rng, (1, -1, 2))), None)
    return replace(plant, wide=replace(PLAIN, entry=replace(entry, k=int(one_of(rng, [-1, int(rng.integers(inst.k))])))))


def _entry(rng: Rng) -> Plant:
    plant = wrong_entry(rng)
    entry = plant.wide.entry
    assert entry is not None
    return replace(plant, wide=replace(PLAIN, entry=replace(entry, k=None if entry.k == -1 else entry.k)))


def integers(kind: str) -> Callable[[Rng], Plant]:
    """Group sums of 16 to 20 bits."""

    def draw(rng: Rng) -> Plant:
        plant = any_integers(rng)
        size = int(one_of(rng, (4, 8, 16, 32)))
        return replace(plant, wide=replace(PLAIN, integers=(kind, int(rng.integers(16, 21)), size)))

    return draw


def odd_integers(rng: Rng) -> Plant:
    return replace(any_integers(rng), wide=replace(PLAIN, lost_carry=(int(one_of(rng, (15, 7, 31))), int(rng.integers(1, 4)))))


def odd_doubles(**changes: Any) -> Callable[[Rng], Plant]:
    return lambda rng: replace(any_doubles(rng, plain=True), wide=replace(PLAIN, **changes))


def sound(rng: Rng) -> Plant:
    """A correct device for faults."""
    return any_integers(rng) if rng.random() < 0.2 else usual(rng)


def faulty(when: When = "always", numbers: tuple[int, ...] = (1,), place: str | None = None) -> Callable[[Rng], Plant]:
    """A correct arithmetic; place: "" for any place or none."""

    def draw(rng: Rng) -> Plant:
        plant = sound(rng)
        where = one_of(rng, ("lane", "row", "register", None)) if place == "" else place
        how = one_of(rng, ("flip", "flip", "set", "clear", "next", "neighbour"))
        bit = int(rng.integers(plant.instruction.d.bits - 1))
        fault = Fault(when, one_of(rng, numbers), _place(rng, plant.instruction, where) if where else None, how, bit)
        return replace(plant, fault=fault)

    return draw


def _place(rng: Rng, inst: Instruction, kind: str) -> Place:
    rows, columns = int(rng.integers(inst.m)), int(rng.integers(inst.n))
    registers = inst.m * inst.n // inst.family.threads
    match kind:
        case "cell":
            return Place("cell", rows, columns)
        case "row":
            return Place("row", rows)
        case "column":
            return Place("column", columns)
        case "lane":
            return Place("lane", int(rng.integers(32)), int(rng.integers(-1, inst.family.warps)))
        case "register":
            return Place("register", int(rng.integers(registers)))
    return Place("half", int(rng.integers(5)))


RATES = (100, 1_000, 10_000, 100_000, 1_000_000)
Kind = tuple[str, Family, Callable[[Rng], Plant]]
KINDS: tuple[Kind, ...] = (
    *[("any floats", "inside", any_floats)] * 6,
    *[("usual floats", "inside", usual)] * 2,
    ("integers", "inside", any_integers),
    ("f64", "inside", any_doubles),
    ("accumulator wraps", "wider", odd(accumulator=accumulator("wrap"))),
    ("accumulator saturates", "wider", odd(accumulator=accumulator("saturate"))),
    ("products cut", "wider", odd(product_bits=bits_below(True))),
    ("products rounded", "wider", odd(product_bits=bits_below(True), product_word="nearest")),
    ("addend cut first", "wider", odd(addend_bits=bits_below(False))),
    ("rounded twice", "wider", packing(lambda rng, _: {"first_bits": int(rng.integers(1, 4))}, result_rounding="RNE")),
    ("result ties away", "wider", packing(lambda *_: {"rounding": "ties away"})),
    ("alignment up", "wider", odd(word="up")),
    ("alignment away", "wider", odd(word="away")),
    ("overflow before rounding", "wider", packing(lambda rng, _: {"overflow": one_of(rng, ("before", "exponent"))})),
    (
        "subnormal before rounding",
        "wider",
        packing(lambda *_: {"subnormal_before": True}, subnormal_results="flushed", result_rounding="RNE"),
    ),
    ("integer groups wrap", "wider", integers("wrap")),
    ("integer groups saturate", "wider", integers("saturate")),
    (
        "alignment odd ties",
        "outside",
        odd(word=lambda rng, _: one_of(rng, ("ties away", "ties up", "ties to zero", "ties to odd"))),
    ),
    ("alignment stochastic", "outside", odd(word="stochastic")),
    ("result stochastic", "outside", packing(lambda *_: {"rounding": "stochastic"})),
    (
        "result odd",
        "outside",
        packing(lambda rng, _: {"rounding": one_of(rng, ("ties up", "ties to zero", "ties to odd", "sticky", "away"))}),
    ),
    ("C cut otherwise", "outside", odd(others_word=lambda rng, _: one_of(rng, ("floor", "nearest", "sticky", "up", "away")))),
    ("C shorter", "outside", odd(others_short=lambda rng, _: int(rng.integers(1, 4)))),
    ("C counts otherwise", "outside", odd(others_lift=lambda rng, _: int(one_of(rng, (-1, 1, 2))))),
    ("some terms lead", "outside", odd(led_by=lambda rng, _: one_of(rng, ("products", "others", "even", "first half")))),
    ("pairwise", "outside", odd(pairwise=True)),
    (
        "carry lost",
        "outside",
        odd(lost_carry=lambda rng, plant: (min(15, _terms(plant) - 1), int(rng.integers(2, 5)))),
    ),
    ("carry of integers lost", "outside", odd_integers),
    (
        "short at some exponents",
        "outside",
        odd(short_at=lambda rng, _: (int(one_of(rng, (2, 8, 32))), int(rng.integers(2)), int(rng.integers(1, 3)))),
    ),
    (
        "blind at some exponents",
        "outside",
        packing(lambda rng, _: {"blind": (int(one_of(rng, (2, 8, 32))), int(rng.integers(2)))}),
    ),
    ("flushed elsewhere", "outside", packing(lambda rng, _: {"flushed_below": int(one_of(rng, (-8, -2, 1, 4)))})),
    ("NaN", "outside", odd(nan=lambda rng, _: one_of(rng, ("signed", "invalid", "from C")))),
    ("wrong entry", "outside", _entry),
    ("f64 rounds products", "outside", odd_doubles(separately=True)),
    ("f64 flushes elsewhere", "outside", odd_doubles(packing=Packing(flushed_below=2))),
    ("f64 keeps NaN signalling", "outside", odd_doubles(nan="from C")),
    ("wrong cell", "place", faulty(place="cell")),
    ("wrong row", "place", faulty(place="row")),
    ("wrong column", "place", faulty(place="column")),
    ("wrong lane", "place", faulty(place="lane")),
    ("wrong register", "place", faulty(place="register")),
    ("wrong half", "place", faulty(place="half")),
    *[("at random", "time", faulty("random", RATES))] * 2,
    ("at random in a place", "time", faulty("random", (10, 100, 1_000), "lane")),
    *[("a rare pattern", "time", faulty("pattern", (3_000, 10_000, 30_000)))] * 2,
    ("from a call on", "time", faulty("from call", (10, 20, 40, 80, 120), "")),
    ("from an answer on", "time", faulty("from answer", (5_000, 20_000, 50_000, 100_000), "")),
    ("each so many calls", "time", faulty("each call", (3, 7, 15, 30), "")),
    ("half of the time", "time", faulty("window", (1_000, 10_000, 30_000), "")),
    *[("after some batches", "time", faulty("after some", (2, 5, 10), ""))] * 2,
    ("when asked again", "time", faulty("again", (1, 10, 300), "")),
    ("when asked anew", "time", faulty("anew", (1, 10, 300), "")),
    ("in large batches", "time", faulty("late in batch", (256, 1_000, 1_400, 3_000), "")),
)


TRIES = 10
"""Draws of what is odd, until operands such as it is judged by show it."""


def drawn(seed: int) -> Plant:
    kind, family, draw = KINDS[seed % len(KINDS)]
    rng = np.random.default_rng([seed, 14])
    for turn in range(TRIES):
        plant = replace(draw(rng), seed=seed, kind=kind, family=family)
        if plant.wide == PLAIN or plant.shows(hostile(plant.instruction, seed + turn + 1)):
            break
    return plant
