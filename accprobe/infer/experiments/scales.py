"""Block scales: operands with extreme scales, and how many products are scaled and truncated together.

The products of one block are all scaled alike, so blocks whose scales differ more and more show the bits that a sum keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from accprobe.infer.draft import Draft
from accprobe.infer.experiments.nonstandard import scaled_at_once
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Workbench, contest
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, joined

TINY = 40  # Powers of two below the smallest result that are probed.
FURTHEST = 44  # Bits between the scales of two blocks, at most.
DISTANCES = (1, 2, 4, 8, 16)  # Places of a block between two small products that may be added before they are truncated.
HALF, FOUR = -1, 2  # Exponents of the factors of the small products, and of those that lead and cancel.

# Four scales of A: the second block's is 2^-17 or 2^-35 times the first one's; with ue4m3, those of B too.
LARGE_AND_SMALL = {"ue4m3": (0x78, 0x01, 0x38, 0x38), "ue8m0": (127, 92, 127, 127)}


def scaled_blocks(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find how many products of e2m1 are scaled at once, and the bits that such sums keep below the largest scale."""
    inst, model = bench.inst, draft.model()
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"}:
        return draft, {}
    first = settling_requests(inst)
    arithmetic = draft.arithmetic("sum")
    ways = [
        {"scaled_products": arithmetic.scaled_products, "alignment_bits": arithmetic.alignment_bits},
        *scaled_at_once(inst, model, arithmetic, False),
    ]
    found = contest(bench, (draft.change("sum", **fields).model() for fields in ways), joined([first, distant_blocks(inst)]))
    evidence = bench.exchanges(first, found.d, range(len(first))) + found.evidence
    if not found.explaining:
        note = "no number of products and of bits explains every result"
        return draft, {"scaled_products": Finding(None, "undetermined", note=note, evidence=evidence)}
    explaining = [ways[i] for i in found.explaining]
    findings = {name: Finding.among(fields[name] for fields in explaining) for name in ways[0]}
    findings["scaled_products"] = replace(findings["scaled_products"], evidence=evidence)
    return draft.change("sum", **explaining[0]), findings


def settling_requests(inst: Instruction) -> Request:
    """Dot products that decide what no public result of a B200 does, for scales of 16 products.

    With ue4m3: whether 36 bits are kept below the largest scale; whether products 8 places away are added first; whether the
    window of a small scale depends on C or on the scales. With ue8m0: whether 35 bits are kept.
    """
    scales = LARGE_AND_SMALL.get(inst.scale.name if inst.scale else "")
    if scales is None or inst.scale_block != 16 or inst.k != 4 * inst.scale_block:
        return Request.zeros(inst, 0)
    lead, four, half = {0: (6, 6), 1: (6, 0xE)}, {0: (6, 6), 1: (6, 0xC), 16: (4, 2)}, (1, 1)
    rows: list[tuple[dict[int, tuple[int, int]], int]] = [(lead | {16: (2, 2)}, 0)]
    if inst.scale is not None and inst.scale.name == "ue4m3":
        rows = [(lead | {16: half}, 0), (lead | {16: half, 24: half}, 0), (four, 0xC9000000)]
    request = Request.zeros(inst, len(rows))
    for row, (products, c) in enumerate(rows):
        for k, codes in products.items():
            request.a[row, k], request.b[row, k] = codes
        request.c[row] = c
    both = (request.scales_a, request.scales_b) if len(rows) > 1 else (request.scales_a,)
    for of_operand in both:
        if of_operand is not None:
            of_operand[:] = scales
    return request


def distant_blocks(inst: Instruction) -> Request:
    """One block leads, by products that cancel, by products that cancel C, or not at all; another has one or two small ones.

    In random order, so that a part of the rows has all kinds.
    """
    cases = list(_cases(inst))
    request = Request.zeros(inst, len(cases))
    if request.scales_a is None or request.scales_b is None or inst.scale is None or inst.scale_block is None:
        return request
    four, half = ((inst.a.encode(False, 1, e), inst.b.encode(False, 1, e)) for e in (FOUR, HALF))
    top = _top(inst.scale)
    for row, (lead, (large, small), bits, distance, sign) in enumerate(cases):
        first, start = large * inst.scale_block, small * inst.scale_block
        for scales, code in zip((request.scales_a, request.scales_b), _halves(inst.scale, 2 * top - bits), strict=True):
            scales[row, large], scales[row, small] = inst.scale.encode(False, 1, top), code
        leads = {"products": (first, first + 1), "C": (first,), "nothing": ()}[lead]
        for k, negative in zip(leads, (False, True), strict=False):
            request.a[row, k], request.b[row, k] = four[0] | negative * inst.a.sign_bit, four[1]
        if lead == "C":
            request.c[row] = inst.c.encode(True, 1, 2 * FOUR + 2 * top)
        for k in {start, start + distance}:
            request.a[row, k], request.b[row, k] = half[0] | sign * inst.a.sign_bit, half[1]
    return request[np.random.default_rng(0).permutation(len(cases))]


def _cases(inst: Instruction) -> Iterator[tuple[str, tuple[int, int], int, int, int]]:
    """Yield what leads, the blocks, bits between them, places between the small products (0: there is one), and their sign."""
    if inst.scale is None or inst.scale_block is None or inst.k == inst.scale_block:
        return
    last = inst.k // inst.scale_block - 1
    distances = [0, *(d for d in DISTANCES if d < inst.scale_block)]
    reach = [bits for bits in range(FURTHEST) if _halves(inst.scale, 2 * _top(inst.scale) - bits)]
    yield from product(("products", "C", "nothing"), ((0, last), (last, 0)), reach, distances, (0, 1))


def _top(fmt: Format) -> int:
    """Return the exponent of the scales that lead; their results are of normal size."""
    return min(fmt.max_exponent, 10)


class _Power(NamedTuple):
    """The product k of A and B, 2^factors, times the scales of its block, 2^scales."""

    k: int
    negative: bool
    factors: int
    scales: int


def small_blocks(inst: Instruction, q: int, lowest: int) -> tuple[list[int], Request]:
    """2^(q + 1), and smaller powers of two of the other sign down to the lowest, made by block scales.

    If 2^q is the smallest result and results are rounded toward zero, the sum is 2^q unless the other term is truncated. The
    first term is C, a product of another block, or one of the same block. Return the exponents of the other terms, and the
    dot products.
    """
    if inst.scale is None or inst.scale_block is None:
        return [], Request.zeros(inst, 0)
    least = inst.a.min_exponent + inst.b.min_exponent
    exponents, made = list[int](), list[Request]()
    for e in range(q, lowest, -1):
        for sign in (False, True):
            single, beside = _Power(0, not sign, 0, e), _Power(inst.k - 1, sign, 0, q + 1)
            of_block = [_Power(0, not sign, least, e - least), _Power(1, sign, least + q + 1 - e, e - least)]
            rows = [_put(inst, [single], (sign, q + 1)), _put(inst, of_block)]
            rows += [_put(inst, [single, beside])] if inst.k > inst.scale_block else []
            fitting = [row for row in rows if row is not None]
            made += fitting
            exponents += [e] * len(fitting)
    return exponents, joined([Request.zeros(inst, 0), *made])


def tiny_blocks(inst: Instruction, lowest: int) -> Request:
    """One product of either sign, from 2^lowest down, beside zeros of C of either sign; none without block scales."""
    rows = [Request.zeros(inst, 0)]
    for e in range(lowest, lowest - TINY, -1) if inst.scale is not None else ():
        for negative, of_c in product((False, True), (False, True)):
            row = _put(inst, [_Power(0, negative, 0, e)])
            if row is not None:
                row.c[0] = of_c * inst.c.sign_bit
                rows.append(row)
    return joined(rows)


def subnormal_scales(inst: Instruction, f: int) -> Request:
    """Products that cancel, of a subnormal scale, and C about the last bit that f bits below the scales' exponents leave.

    These exponents are that of the smallest normal scale or those of the subnormal ones.
    """
    fmt = inst.scale
    if fmt is None or not fmt.mantissa_bits:
        return Request.zeros(inst, 0)
    rows = [Request.zeros(inst, 0)]
    smallest, most = fmt.min_exponent - fmt.mantissa_bits, min(fmt.max_exponent, 0)
    for below in range(smallest, fmt.min_exponent):
        codes = fmt.encode(False, 1, below), fmt.encode(False, 1, most)
        for swapped in (False, True):
            for last in range(below + most - f - 1, fmt.min_exponent + most - f + 2):
                row = _put(inst, [_Power(0, False, 0, 0), _Power(1, True, 0, 0)], (swapped, last))
                if row is None or row.scales_a is None or row.scales_b is None:
                    continue
                row.scales_a[0, 0], row.scales_b[0, 0] = codes[::-1] if swapped else codes
                rows.append(row)
    return joined(rows)


def _put(inst: Instruction, powers: list[_Power], c: tuple[bool, int] | None = None) -> Request | None:
    """Return one dot product of powers of two, with (-1)^negative * 2^exponent as C; None if a format cannot represent one."""
    assert inst.scale is not None
    assert inst.scale_block is not None
    request = Request.zeros(inst, 1)
    for power in powers:
        factors, pair = _factors(inst, power.factors), _halves(inst.scale, power.scales)
        if not factors or not pair:
            return None
        request.a[0, power.k] = factors[0] | power.negative * inst.a.sign_bit
        request.b[0, power.k] = factors[1]
        for scales, code in zip((request.scales_a, request.scales_b), pair, strict=True):
            assert scales is not None
            scales[0, power.k // inst.scale_block] = code
    if c is not None:
        pattern = inst.c.try_encode(1, c[1])
        if pattern is None:
            return None
        request.c[0] = pattern | c[0] * inst.c.sign_bit
    return request


def _halves(fmt: Format, exponent: int) -> tuple[int, ...]:
    """Return scales of A and of B whose product is that power of two; none if there are none."""
    high = exponent // 2
    return _codes((fmt, exponent - high), (fmt, high))


def _factors(inst: Instruction, exponent: int) -> tuple[int, ...]:
    """Return codes of A and of B whose product is that power of two; none if there are none."""
    of_a = min(max(exponent - inst.b.min_exponent, inst.a.min_exponent), inst.a.max_exponent)
    return _codes((inst.a, of_a), (inst.b, exponent - of_a))


def _codes(*powers: tuple[Format, int]) -> tuple[int, ...]:
    codes = [fmt.try_encode(1, exponent) for fmt, exponent in powers]
    found = tuple(code for code in codes if code is not None)
    return found if len(found) == len(powers) else ()
