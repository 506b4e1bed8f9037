"""Block scales: blocks whose scales lie ever further apart, so that what is scaled at once, and cut after it, shows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from accprobe.infer.draft import Draft
from accprobe.infer.workbench import Workbench
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Role
from accprobe.operands.request import Request

FURTHEST = 44
"""Bits that the scales of two blocks lie apart, at most."""

DISTANCES = (1, 2, 4, 8, 16)
"""Places of a block between two small products that may be added before they are cut."""

HALF, FOUR = -1, 2
"""Exponents of the factors of the small products, and of those that lead and cancel."""


def blocks_apart(bench: Workbench, draft: Draft, role: Role) -> Request:
    """One block leads, by products that cancel, by products that cancel C, or not at all; another has one or two small ones."""
    inst = bench.inst
    cases = list(_cases(inst))
    asked = Request.zeros(inst, len(cases))
    if asked.scales_a is None or asked.scales_b is None or inst.scale is None or inst.scale_block is None:
        return asked
    four, half = (_codes(inst, exponent) for exponent in (FOUR, HALF))
    for row, (lead, (large, small), apart, distance, sign) in enumerate(cases):
        first, start = large * inst.scale_block, small * inst.scale_block
        top = _top(inst.scale)
        for scales, exponent in zip((asked.scales_a, asked.scales_b), _halves(inst.scale, 2 * top - apart), strict=True):
            scales[row, large], scales[row, small] = _power(inst.scale, top), exponent
        leads = {"products": (first, first + 1), "C": (first,), "nothing": ()}[lead]
        for k, negative in zip(leads, (False, True), strict=False):
            asked.a[row, k], asked.b[row, k] = four[0] | negative * inst.a.sign_bit, four[1]
        if lead == "C":
            asked.c[row] = inst.c.encode(True, 1, 2 * FOUR + 2 * top)
        for k in {start, start + distance}:
            asked.a[row, k], asked.b[row, k] = half[0] | sign * inst.a.sign_bit, half[1]
    return asked


def _cases(inst: Instruction) -> Iterator[tuple[str, tuple[int, int], int, int, int]]:
    """What leads, the blocks, bits apart, places between the small products (0: there is one), their sign."""
    if inst.scale is None or inst.scale_block is None or inst.k == inst.scale_block:
        return
    last = inst.k // inst.scale_block - 1
    top = _top(inst.scale)
    distances = [0, *(d for d in DISTANCES if d < inst.scale_block)]
    reach = [apart for apart in range(FURTHEST) if _halves(inst.scale, 2 * top - apart)]
    yield from product(("products", "C", "nothing"), ((0, last), (last, 0)), reach, distances, (0, 1))


def _codes(inst: Instruction, exponent: int) -> tuple[int, int]:
    """That power of two in the formats of A and of B."""
    return inst.a.encode(False, 1, exponent), inst.b.encode(False, 1, exponent)


def _top(fmt: Format) -> int:
    """Exponent of the scales that lead: results of theirs are of normal size."""
    return min(fmt.max_exponent, 10)


def _power(fmt: Format, exponent: int) -> int:
    return fmt.encode(False, 1, exponent)


def _halves(fmt: Format, exponent: int) -> tuple[int, ...]:
    """Scales of A and of B whose product is that power of two; none where there are none."""
    high = exponent // 2
    found = tuple(fmt.try_encode(1, part) for part in (exponent - high, high))
    return tuple(code for code in found if code is not None) if None not in found else ()
