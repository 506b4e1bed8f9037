"""The self-test of a probe: one-hot operands show that each element of A is multiplied by its elements of B.

Before inference, each stored element of A is probed in each row of the tile, with each metadata code that its group may have. A
is 1 at that place and 0 elsewhere. B is 1 where it must be multiplied by that element and 2 elsewhere, so the result must be 1.
The block scales of the two are powers of two, which scale the result, and 1 elsewhere. Then C alone is probed in each tile
element. Such sums are exact in any arithmetic. If a result differs, B is probed element by element. If the element of A is
multiplied by another one, or by none, the operand layout of the probe is not the hardware's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from accprobe.errors import NotRecorded
from accprobe.isa import tile
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.isa.sparsity import Places
from accprobe.operands.protocol import InstructionSubject
from accprobe.operands.request import Request

MOST_EXAMINED = 8  # Number of mismatches to infer the cause of.

DISTINCT = 1000  # Different values of C: every format of C has so many integers, and every sum so many bits.

POWERS = 5  # Block scales: 2, 4, 8, …; no shape of a tile is a multiple of this number.


class OneHot(NamedTuple):
    """A self-test and its expected results. hot: the stored element of A that is 1; places: the element of B that it must be
    multiplied by.

    Both are -1 where C is probed.
    """

    request: Request
    expected: Bits
    hot: Places
    places: Places


def misplaced(subject: InstructionSubject) -> str:
    """Describe the first misplaced operand; "" if there is none, of pure functions, and of recordings without this test.

    A mismatch with correctly placed operands has another cause, which other checks find.
    """
    if subject.pure:
        return ""
    test = one_hot(_alike(subject.runs))
    try:
        d = subject.query_at(0, test.request, test.expected)
    except NotRecorded:
        return ""
    wrong = np.flatnonzero(d != test.expected)[:MOST_EXAMINED].tolist()
    description = next(filter(None, (_describe_fault(subject, test, row) for row in wrong)), "")
    return f"the self-test: {description}; please report it" if description else ""


@lru_cache(maxsize=16)
def one_hot(inst: Instruction) -> OneHot:
    """Return the test of each stored element of A with each code in each row of the tile, from placement 0 on, and of C in each
    tile element.

    The test also shows exchanged rows of a tile, at a distance of half of the stored elements, of all, or in two blocks. The
    hot element differs there.
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
    products = one << _put_scales(inst, request, where)
    expected = [inst.d.whole(x) for x in (*products.tolist(), *numbers.tolist())]
    places = np.concatenate([where, np.full(cells, -1)])
    return OneHot(request, np.array(expected, inst.d.dtype), np.concatenate([hot, np.full(cells, -1)]), places)


def _with_codes(inst: Instruction, request: Request, hot: Places, step: Places) -> Request:
    """Return the request with metadata: the group of each hot element has the code of that step; other groups have any."""
    sparsity = inst.sparsity
    if sparsity is None:
        return request
    codes = np.array(sparsity.codes, np.uint8)
    any_codes = np.random.default_rng(0).integers(0, len(codes), (len(request), inst.k // sparsity.group))
    metadata = codes[any_codes]
    metadata[np.arange(len(hot)), hot // (sparsity.group // 2)] = codes[step % len(codes)]
    return replace(request, metadata=metadata)


def _put_scales(inst: Instruction, request: Request, where: Places) -> Places:
    """Set the block scales of the two elements to powers of two that differ from row to row (in place).

    Return the exponents of their products.
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
    """Return all products of two block scales, as results."""
    return {inst.d.whole(1 << e) for e in range(2 * POWERS + 1)}


def _alike(inst: Instruction) -> Instruction:
    """Return one instruction for all with the same test."""
    return replace(inst, name="one hot", family=FAMILIES[0], satfinite=False, a_registers=False)


def _describe_fault(subject: InstructionSubject, test: OneHot, wrong: int) -> str:
    """Describe the misplaced operand behind the mismatch in that row; "" if none is misplaced, or not every time.

    It must be misplaced beside other dot products too; otherwise those are the cause, and not the place.
    """
    every = [_describe_fault_beside(subject, test, wrong, distance) for distance in (0, tile.problems(subject.runs))]
    return every[0] if all(every) else ""


def _describe_fault_beside(subject: InstructionSubject, test: OneHot, wrong: int, distance: int) -> str:
    """As `_describe_fault`, beside the dot products of its tile or of a later tile."""
    inst = subject.runs
    rows, columns = tile.cells_of(inst, wrong + 1)
    row, column, hot, place = int(rows[-1]), int(columns[-1]), int(test.hot[wrong]), int(test.places[wrong])
    alone = np.zeros((inst.k, inst.k), inst.b.dtype)
    np.fill_diagonal(alone, inst.b.whole(1))
    name, values = ("b", alone) if hot >= 0 else ("c", np.array([inst.c.whole(1), inst.c.whole(2)], inst.c.dtype))
    d, again = (_results(subject, test, wrong, distance, name, values) for _ in range(2))
    if d != again:
        return ""
    if hot < 0:
        return f"C of row {row}, column {column} does not reach D there" if d[0] == d[1] else ""
    meets = [k for k, result in enumerate(d) if result != max(d, key=d.count)]
    if meets == [place]:
        other = inst.scale is not None and d[place] != test.expected[wrong] and d[place] in _powers(inst)
        return f"element {hot} of A's row {row} and B's column {column} is scaled by other block scales" if other else ""
    code = ""
    if inst.sparsity is not None and test.request.metadata is not None:
        code = f" with metadata 0b{test.request.metadata[wrong, hot // (inst.sparsity.group // 2)]:04b}"
    of, others = "stored element" if inst.sparse else "element", ", ".join(map(str, meets)) or "nothing"
    return f"{of} {hot} of row {row} of A{code} meets {others} of column {column} of B, not {place}"


def _results(subject: InstructionSubject, test: OneHot, row: int, distance: int, name: str, values: Bits) -> list[int]:
    """Return the results of one row at its place in the tile, with each value in turn of an operand [N, …].

    The other rows of its tile are those that come `distance` later.
    """
    inst = subject.runs
    turn, problem = divmod(row, tile.problems(inst))
    first, total = turn * tile.problems(inst), len(test.request)
    rows = (np.arange(first, min(first + tile.problems(inst), total)) + distance) % total
    rows[problem] = row
    around = test.request[rows]
    found = []
    for value in values:
        column = getattr(around, name).copy()
        column[problem] = value
        found.append(int(subject.query_at(turn % tile.placements(inst), replace(around, **{name: column}))[problem]))
    return found
