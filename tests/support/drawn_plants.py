"""Planted devices drawn by seed: arithmetics inside the grammar and outside it, and correct devices with a fault.

The kind of a seed is `kinds[seed % len(kinds)]`; the seed alone determines the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from departures import PLAIN, Entry, Packing
from faulty import Fault, Place
from hostile import hostile
from plants import (
    FLOATS,
    INTEGERS,
    OPCODES,
    Family,
    Plant,
    Rng,
    any_doubles,
    any_floats,
    any_integers,
    one_of,
    usual,
    with_sums,
)

from accprobe.isa.instructions import Instruction, parse


def odd(**changes: Any) -> Callable[[Rng], Plant]:
    """Draw a usual arithmetic with these departures from the grammar; a callable draws its value."""

    def draw(rng: Rng) -> Plant:
        plant = usual(rng)
        drawn = {name: value(rng, plant) if callable(value) else value for name, value in changes.items()}
        return replace(plant, wide=replace(PLAIN, **drawn))

    return draw


def _terms(plant: Plant) -> int:
    return max(len(node.terms) for node in plant.model.root.nodes())


def accumulator(kind: str) -> Callable[[Rng, Plant], tuple[str, int]]:
    """Draw the bits above F that the sum of all terms may need, or fewer."""
    return lambda rng, plant: (kind, max(2, (_terms(plant) - 1).bit_length() + 1 - int(one_of(rng, (0, 0, 0, 1, 2)))))


def bits_below(operand: bool) -> Callable[[Rng, Plant], int]:
    """Draw some bits fewer than products, or C, have."""

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
    name = one_of(rng, {name: opcode for name, opcode in (FLOATS | INTEGERS).items() if parse(name).a.bits == 8})
    plant = any_integers(rng) if parse(name).is_integer else usual(rng, {name: OPCODES[name]})
    inst = plant.instruction
    high = 0x100 if inst.is_integer else 0x78
    a, b = (int(rng.integers(0x08, high)) for _ in "ab")
    off, k = int(one_of(rng, (1, -1, 2))), int(rng.integers(inst.k))
    return replace(plant, wide=replace(PLAIN, entry=Entry(a, b, off, one_of(rng, (None, k)))))


def integers(kind: str) -> Callable[[Rng], Plant]:
    """Draw integer sums whose groups have 16 to 20 bits."""

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
    """Draw a correct device for faults."""
    return any_integers(rng) if rng.random() < 0.2 else usual(rng)


def faulty(
    when: str = "always", numbers: tuple[int, ...] = (1,), place: str | None = None, names: dict[str, str] | None = None
) -> Callable[[Rng], Plant]:
    """Draw a correct arithmetic with a fault. names: instructions; place: "" for any place or none."""

    def draw(rng: Rng) -> Plant:
        plant = usual(rng, names) if names else sound(rng)
        where = one_of(rng, ("lane", "row", "register", None)) if place == "" else place
        how = one_of(rng, ("flip", "flip", "set", "clear", "next", "neighbour"))
        bit = int(rng.integers(plant.instruction.d.bits - 1))
        if when in DECIDED and (how == "neighbour" or when == "one hot"):
            how = "flip"  # The result of the neighbour would decide, too.
        fault = Fault(when, one_of(rng, numbers), _place(rng, plant.instruction, where) if where else None, how, bit)
        return replace(plant, fault=fault)

    return draw


def _place(rng: Rng, inst: Instruction, kind: str) -> Place:
    rows, columns = int(rng.integers(inst.m)), int(rng.integers(inst.n))
    registers = inst.m * inst.n // inst.family.threads * inst.d.storage_bits // inst.register_bits
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


DECIDED = ("pattern", "one hot", "until answer", "until call", "size from", "after equal", "huge cancels")
"""Faults that change every result on which they act."""


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
    ("wrong entry", "outside", wrong_entry),
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
"""Draws of a departure, until the operands of the judge show it."""


def drawn(seed: int, kinds: tuple[Kind, ...] = KINDS) -> Plant:
    kind, family, draw = kinds[seed % len(kinds)]
    rng = np.random.default_rng([seed, 14])
    for turn in range(TRIES):
        plant = replace(draw(rng), seed=seed, kind=kind, family=family)
        if plant.wide == PLAIN or plant.shows(hostile(plant.instruction, seed + turn + 1)):
            break
    return plant
