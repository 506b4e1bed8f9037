"""Block scales: what is scaled at once, and where it is cut, shown by blocks whose scales lie ever further apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.alternatives.nonstandard import Together, scaled_at_once
from accprobe.infer.draft import Draft
from accprobe.infer.experiments.scales import halves
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Workbench
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.record import Value
from accprobe.operands.request import Request, joined

# Bits that the scales of two blocks lie apart, at most.
FURTHEST = 44

# Places of a block between two small products that may be added before they are cut.
DISTANCES = (1, 2, 4, 8, 16)

# Exponents of the factors of the small products, and of those that lead and cancel.
HALF, FOUR = -1, 2

# Rows beside the words that settle it.
EVIDENCE = 4


def scaled_blocks(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """How many products of e2m1 are scaled at once, and the bits that such sums keep below the largest scale."""
    inst, model = bench.inst, draft.model()
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"}:
        return draft, {}
    words = settling_words(inst)
    operands = joined([words, blocks_apart(inst)])
    d = bench.query(operands, model)
    arithmetic = draft.arithmetic("sum")
    ways: list[Together] = [
        {"scaled_products": arithmetic.scaled_products, "alignment_bits": arithmetic.alignment_bits},
        *scaled_at_once(inst, model, arithmetic, False),
    ]
    predicted = [evaluate(draft.change("sum", **fields).model(), inst, operands) for fields in ways]
    explaining = [fields for fields, p in zip(ways, predicted, strict=True) if np.array_equal(p, d)]
    telling = np.flatnonzero((np.stack(predicted) != d).any(axis=0))
    evidence = bench.exchanges(operands, d, [*range(len(words)), *telling[telling >= len(words)][:EVIDENCE].tolist()])
    if not explaining:
        note = "no number of products and of bits explains every answer"
        return draft, {"scaled_products": Finding(None, "undetermined", note=note, evidence=evidence)}
    findings = {name: _finding([fields[name] for fields in explaining]) for name in ways[0]}
    findings["scaled_products"] = replace(findings["scaled_products"], evidence=evidence)
    return draft.change("sum", **explaining[0]), findings


def _finding(left: list[Value]) -> Finding:
    first, *others = dict.fromkeys(left)
    if not others:
        return Finding(first)
    return Finding(first, "undetermined", (first, *others), "these give the same bits on every operand tried")


# Four scales of A: the second block's 2^-17 and 2^-35 times the first one's; with ue4m3 those of B too.
LARGE_AND_SMALL = {"ue4m3": (0x78, 0x01, 0x38, 0x38), "ue8m0": (127, 92, 127, 127)}


def settling_words(inst: Instruction) -> Request:
    """Of scales of 16 products, the dot products that tell what no public result of a B200 does.

    With ue4m3: whether 36 bits are kept below the largest scale; whether products 8 places apart are added first; whether the
    window of a small scale hangs on C or on the scales. With ue8m0: whether 35 bits are kept.
    """
    scales = LARGE_AND_SMALL.get(inst.scale.name if inst.scale else "")
    if scales is None or inst.scale_block != 16 or inst.k != 4 * inst.scale_block:
        return Request.zeros(inst, 0)
    lead, four, half = {0: (6, 6), 1: (6, 0xE)}, {0: (6, 6), 1: (6, 0xC), 16: (4, 2)}, (1, 1)
    rows: list[tuple[dict[int, tuple[int, int]], int]] = [(lead | {16: (2, 2)}, 0)]
    if inst.scale is not None and inst.scale.name == "ue4m3":
        rows = [(lead | {16: half}, 0), (lead | {16: half, 24: half}, 0), (four, 0xC9000000)]
    asked = Request.zeros(inst, len(rows))
    for row, (products, c) in enumerate(rows):
        for k, codes in products.items():
            asked.a[row, k], asked.b[row, k] = codes
        asked.c[row] = c
    both = (asked.scales_a, asked.scales_b) if len(rows) > 1 else (asked.scales_a,)
    for of_operand in both:
        if of_operand is not None:
            of_operand[:] = scales
    return asked


def blocks_apart(inst: Instruction) -> Request:
    """One block leads, by products that cancel, by products that cancel C, or not at all; another has one or two small ones.

    Mixed, so that every so many of them are of all kinds.
    """
    cases = list(_cases(inst))
    asked = Request.zeros(inst, len(cases))
    if asked.scales_a is None or asked.scales_b is None or inst.scale is None or inst.scale_block is None:
        return asked
    four, half = (_codes(inst, exponent) for exponent in (FOUR, HALF))
    top = _top(inst.scale)
    for row, (lead, (large, small), apart, distance, sign) in enumerate(cases):
        first, start = large * inst.scale_block, small * inst.scale_block
        for scales, code in zip((asked.scales_a, asked.scales_b), halves(inst.scale, 2 * top - apart), strict=True):
            scales[row, large], scales[row, small] = inst.scale.encode(False, 1, top), code
        leads = {"products": (first, first + 1), "C": (first,), "nothing": ()}[lead]
        for k, negative in zip(leads, (False, True), strict=False):
            asked.a[row, k], asked.b[row, k] = four[0] | negative * inst.a.sign_bit, four[1]
        if lead == "C":
            asked.c[row] = inst.c.encode(True, 1, 2 * FOUR + 2 * top)
        for k in {start, start + distance}:
            asked.a[row, k], asked.b[row, k] = half[0] | sign * inst.a.sign_bit, half[1]
    return asked[np.random.default_rng(0).permutation(len(cases))]


def _cases(inst: Instruction) -> Iterator[tuple[str, tuple[int, int], int, int, int]]:
    """What leads, the blocks, bits apart, places between the small products (0: there is one), their sign."""
    if inst.scale is None or inst.scale_block is None or inst.k == inst.scale_block:
        return
    last = inst.k // inst.scale_block - 1
    distances = [0, *(d for d in DISTANCES if d < inst.scale_block)]
    reach = [apart for apart in range(FURTHEST) if halves(inst.scale, 2 * _top(inst.scale) - apart)]
    yield from product(("products", "C", "nothing"), ((0, last), (last, 0)), reach, distances, (0, 1))


def _codes(inst: Instruction, exponent: int) -> tuple[int, int]:
    """That power of two in the formats of A and of B."""
    return inst.a.encode(False, 1, exponent), inst.b.encode(False, 1, exponent)


def _top(fmt: Format) -> int:
    """Exponent of the scales that lead: results of theirs are of normal size."""
    return min(fmt.max_exponent, 10)
