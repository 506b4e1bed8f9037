"""Operands of golden chains, drawn on the GPU or made for coverage events; their evaluation, and the places of results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accprobe.build.golden import METADATA_LINES, GoldenShape
from accprobe.evaluate.evaluator import evaluate
from accprobe.isa.families import registers
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import Places
from accprobe.model.tree import DotModel
from accprobe.operands.drawing import Recipe, recipes
from accprobe.operands.request import Request, alike
from accprobe.operands.sparse import laid_out
from accprobe.verify.coverage.coverage import covering
from accprobe.verify.layouts import events_of_layouts

TOGGLING = "toggling"
"""The kind of operands in which every other step has the bits of `turned_over` of the step before inverted."""

NEVER_NUMBERS = "uniform"
"""The kind of floating-point operands from which chains make NaN almost always."""


@dataclass(frozen=True)
class OperandKind:
    """One way to draw operands. toggling: as TOGGLING says."""

    name: str
    recipe: Recipe
    toggling: bool = False


def operand_kinds(inst: Instruction) -> list[OperandKind]:
    """Return the distributions of drawn sets, in turn."""
    known = recipes(inst)
    drawn = [OperandKind(name, recipe) for name, recipe in known.items() if inst.is_integer or name != NEVER_NUMBERS]
    return [OperandKind(TOGGLING, known["uniform" if inst.is_integer else "near one"], True), *drawn]


def turned_over(fmt: Format) -> int:
    """Return the bits that toggle: all of an integer; all except the exponent of a float, which stays finite."""
    if fmt.is_integer:
        return (1 << fmt.bits) - 1
    return fmt.sign_bit | ((1 << fmt.mantissa_bits) - 1) << fmt.ignored_low_bits


class OperandBatch(NamedTuple):
    """Operands made for events: each row of A with its C is multiplied by the column of B with its number, and by all others.

    a: [rows, K], or of a sparse A [rows, K / 2]; b: [columns, K]; addends: [rows]. which: the layouts of the rows of a sparse A
    in turn, [METADATA_LINES].
    """

    a: Bits
    b: Bits
    addends: Bits
    which: Places


def covering_sets(inst: Instruction, shape: GoldenShape, model: DotModel, seed: int) -> Iterator[OperandBatch]:
    """Yield as many sets as hold each dot product that covers the model, and for a sparse A all of `covering_layouts`."""
    made, order = covering(alike(inst.stored), model, seed).request, covering_layouts(inst)
    rows, columns = shape.steps * shape.rows, shape.steps * shape.columns
    pairs = np.arange(min(rows, columns))
    of_a, of_b = (np.arange(lines) % len(pairs) for lines in (rows, columns))
    for number in range(max(-(-len(made) // len(pairs)), -(-len(order) // METADATA_LINES))):
        which = order[(number * METADATA_LINES + np.arange(METADATA_LINES)) % len(order)]
        request = laid_out(inst, made[(number * len(pairs) + pairs) % len(made)], which[pairs % METADATA_LINES])
        yield OperandBatch(request.a[of_a], request.b[of_b], request.c[of_a], which)


def covering_layouts(inst: Instruction) -> Places:
    """Return few `layouts` with each code of metadata at each group, and each class of left-out numbers at each place."""
    if inst.sparsity is None:
        return np.zeros(1, np.intp)
    (_, does), found = events_of_layouts(inst), list[int]()
    wanted = does.any(axis=0)
    while wanted.any():
        found.append(int((does & wanted).sum(axis=1).argmax()))
        wanted &= ~does[found[-1]]
    return np.array(found)


def evaluate_chain(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """Evaluate chains of `inst` that begin with C; the request is from `in_a_row` -> [N]."""
    d, chain = request.c, request.b.shape[1] // inst.k
    for i in range(chain):
        a, b = (np.ascontiguousarray(np.split(x, chain, axis=1)[i]) for x in (request.a, request.b))
        metadata = None if request.metadata is None else np.split(request.metadata, chain, axis=1)[i]
        d = evaluate(model, inst, Request(a, b, d, metadata))
    return d


def singly(shape: GoldenShape) -> GoldenShape:
    """Return the shape for operands made for events: chains of one instruction, with C."""
    return replace(shape, chain=1, addends=True)


def cell(shape: GoldenShape, thread: int, register: int) -> tuple[int, int]:
    """Return row and column of the result in that register of a thread: `cell` of golden.cuh."""
    of_tile = registers(shape.inst)["d"]
    tile, i = divmod(register, of_tile)
    lane, halves = thread % 32, 1 if shape.inst.m < 16 else 2
    row = tile // shape.tiles_n * shape.inst.m + thread // 32 * 16 + lane // 4 + 8 * (i // 2 % halves)
    return row, tile % shape.tiles_n * shape.inst.n + lane % 4 * 2 + i % 2 + 8 * (i // (2 * halves))
