"""The self-test of a probe: operands that are zero but for one element must meet where they belong.

Before anything is inferred, each element of A that is stored is asked in each row of the tile, and with each code of metadata
that its group may have: A is one at that place alone, B one where it must meet it and two elsewhere, so that the answer is one.
Block scales of the two are powers of two, which the answer is multiplied by, and ones beside them.
Then C alone is asked in each cell. Whatever the arithmetic is, such sums are exact. Where an answer is another one, B is asked
element by element: does the element of A meet another one, or none, the layout of the operands, as the probe has it, is not the
hardware's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from accprobe.devices.protocol import Device
from accprobe.errors import NotRecorded
from accprobe.isa import tile
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import Places
from accprobe.operands.request import Request

LOOKED_AT = 8  # Wrong answers that are asked about, at most.

DISTINCT = 1000  # Different numbers that C has at most: every format of C has so many integers, and every sum so many bits.


POWERS = 5  # Block scales that are asked: 2, 4, 8, …, as many as no shape of a tile is a multiple of.


class OneHot(NamedTuple):
    """A self-test: the question, its answers, and of each row which stored element of A is one, and which of B it must meet.

    -1: where C is asked.
    """

    request: Request
    expected: Bits
    hot: Places
    places: Places


def misplaced(device: Device, inst: Instruction) -> str:
    """The first operand that is not where it belongs, in words; "" where all are, and of pure functions, which have no layout.

    Where an answer is wrong and the operands are where they belong, it is for others to find why. Of recordings from before
    there was this test, "" too.
    """
    if device.pure:
        return ""
    asked = one_hot(_alike(inst))
    try:
        d = device.dot_expecting(inst, asked.request, lambda: asked.expected)
    except NotRecorded:
        return ""
    wrong = np.flatnonzero(d != asked.expected)[:LOOKED_AT].tolist()
    description = next(filter(None, (_describe_fault(device, inst, asked, row) for row in wrong)), "")
    return f"the self-test: {description}; please report it" if description else ""


@lru_cache(maxsize=16)
def one_hot(inst: Instruction) -> OneHot:
    """Every stored element of A with every code, in every row of the tile, laid out from placement 0 on; C in every cell.

    Rows of the same tile that are exchanged do not pass for each other, be they half of the stored elements apart, as many, or
    in two blocks: there it is another element.
    """
    stored, cells = inst.stored.k, inst.m * inst.n
    codes = inst.sparsity.codes if inst.sparsity else (0,)
    count = -(-stored * len(codes) // inst.n) * cells
    turn, problem = np.divmod(np.arange(count), tile.problems(inst))
    rounds, within = np.divmod(turn, tile.placements(inst))
    step = rounds * inst.n + within % inst.n
    half = stored // 2
    further = problem // half + problem // (half * stored) + problem * inst.blocks // tile.problems(inst)
    hot = (step + 2 * problem + further + within // inst.n) % stored
    request, rows = Request.zeros(inst, count + cells), np.arange(count)
    request = _with_codes(inst, request, hot, step // stored)
    request.a[rows, hot] = inst.a.whole(1)
    where = hot if inst.sparsity is None or request.metadata is None else inst.sparsity.stored(request.metadata)[rows, hot]
    request.b[:count] = inst.b.whole(2)
    request.b[rows, where] = inst.b.whole(1)
    numbers = 1 + np.arange(cells) % DISTINCT
    request.c[count:] = [inst.c.whole(x) for x in numbers.tolist()]
    one = int(inst.multiplied(np.ones(1, np.int64), np.ones(1, np.int64))[0])
    met = one << _put_scales(inst, request, where)
    expected = [inst.d.whole(x) for x in (*met.tolist(), *numbers.tolist())]
    places = np.concatenate([where, np.full(cells, -1)])
    return OneHot(request, np.array(expected, inst.d.dtype), np.concatenate([hot, np.full(cells, -1)]), places)


def _with_codes(inst: Instruction, request: Request, hot: Places, step: Places) -> Request:
    """The group of each element that is one has the code of that step; other groups have any."""
    sparsity = inst.sparsity
    if sparsity is None:
        return request
    codes = np.array(sparsity.codes, np.uint8)
    any_codes = np.random.default_rng(0).integers(0, len(codes), (len(request), inst.k // sparsity.group))
    metadata = codes[any_codes]
    metadata[np.arange(len(hot)), hot // (sparsity.group // 2)] = codes[step % len(codes)]
    return replace(request, metadata=metadata)


def _put_scales(inst: Instruction, request: Request, where: Places) -> Places:
    """Powers of two as the block scales of the elements that meet, not the same from row to row, ones as all others (in place).

    Returns the exponents of their products.
    """
    exponents: Places = np.zeros(len(where), np.intp)
    if inst.scale is None or inst.scale_block is None or request.scales_a is None or request.scales_b is None:
        return exponents
    rows, powers = np.arange(len(where)), np.array([inst.scale.whole(2 << e) for e in range(POWERS)], inst.scale.dtype)
    for scales, which in ((request.scales_a, rows % POWERS), (request.scales_b, rows // POWERS % POWERS)):
        scales[rows, where // inst.scale_block] = powers[which]
        exponents += which + 1
    return exponents


def _powers(inst: Instruction) -> set[int]:
    """What products of block scales may be, each of its own block or not, as results."""
    return {inst.d.whole(1 << e) for e in range(2 * POWERS + 1)}


def _alike(inst: Instruction) -> Instruction:
    """One for all instructions with the same test."""
    return replace(inst, name="one hot", family=FAMILIES[0], satfinite=False, a_registers=False)


def _describe_fault(device: Device, inst: Instruction, asked: OneHot, wrong: int) -> str:
    """What is in the wrong place where the answer to that row is wrong; "" where nothing is, or it is not always so.

    It has to be so beside other dot products too: else those are the cause, and not the place.
    """
    every = [_describe_fault_beside(device, inst, asked, wrong, apart) for apart in (0, tile.problems(inst))]
    return every[0] if all(every) else ""


def _describe_fault_beside(device: Device, inst: Instruction, asked: OneHot, wrong: int, apart: int) -> str:
    """As `_told`, beside the dot products of its tile, or those that come so many later."""
    rows, columns = tile.cells_of(inst, wrong + 1)
    row, column, hot, place = int(rows[-1]), int(columns[-1]), int(asked.hot[wrong]), int(asked.places[wrong])
    alone = np.zeros((inst.k, inst.k), inst.b.dtype)
    np.fill_diagonal(alone, inst.b.whole(1))
    changes = {"b": alone} if hot >= 0 else {"c": np.array([inst.c.whole(1), inst.c.whole(2)], inst.c.dtype)}
    d, again = (_results(device, inst, asked, wrong, apart, **changes) for _ in range(2))
    if d != again:
        return ""
    if hot < 0:
        return f"C of row {row}, column {column} does not reach D there" if d[0] == d[1] else ""
    met = [k for k, answer in enumerate(d) if answer != max(d, key=d.count)]
    if met == [place]:
        other = inst.scale is not None and d[place] != asked.expected[wrong] and d[place] in _powers(inst)
        return f"element {hot} of row {row} of A meets that of column {column} of B with other block scales" if other else ""
    code = ""
    if inst.sparsity is not None and asked.request.metadata is not None:
        code = f" with metadata 0b{asked.request.metadata[wrong, hot // (inst.sparsity.group // 2)]:04b}"
    of, others = "stored element" if inst.sparse else "element", ", ".join(map(str, met)) or "nothing"
    return f"{of} {hot} of row {row} of A{code} meets {others} of column {column} of B, not {place}"


def _results(device: Device, inst: Instruction, asked: OneHot, row: int, apart: int, **changes: Bits) -> list[int]:
    """The answers to one row at its place in the tile, beside rows that come so many later than those that were there, with
    each value in turn of an operand [N, …].
    """
    turn, problem = divmod(row, tile.problems(inst))
    first, total = turn * tile.problems(inst), len(asked.request)
    rows = (np.arange(first, min(first + tile.problems(inst), total)) + apart) % total
    rows[problem] = row
    around = asked.request[rows]
    found = []
    for name, values in changes.items():
        for value in values:
            column = getattr(around, name).copy()
            column[problem] = value
            found.append(int(device.dot(inst, replace(around, **{name: column}), turn % tile.placements(inst))[problem]))
    return found
