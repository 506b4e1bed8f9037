"""Block scales: operands with extreme scales, and how many products are scaled and truncated together.

The products of one block are all scaled alike, so blocks whose scales differ more and more show the bits that a sum keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from accprobe.infer.draft import Draft
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.neighbours import scaled_at_once
from accprobe.infer.workbench import Dyadic, LeafValues, Workbench, contest, two_to
from accprobe.operands.request import Request, joined

ALIGNMENTS = range(40, 12, -1)  # Alignment bits of sums of products that are scaled at once.
TINY = 40  # Powers of two below the smallest result that are probed.
FURTHEST = 44  # Bits between the scales of two blocks, at most.
DISTANCES = (1, 2, 4, 8, 16)  # Places of a block between two small products that may be added before they are truncated.
LEAD = 10  # Exponent of the scales that lead, at most: their results are of normal size.
LEADS = ("products", "C", "nothing")


def scaled_blocks(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find how many products of e2m1 are scaled at once, and the bits that such sums keep below the largest scale."""
    inst = bench.inst
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"}:
        return draft, {}
    arithmetic = draft.arithmetic("sum")
    ways = [
        {"scaled_products": arithmetic.scaled_products, "alignment_bits": arithmetic.alignment_bits},
        *scaled_at_once(inst, draft.model(), arithmetic, ALIGNMENTS),
    ]
    found = contest(bench, (draft.change("sum", **fields).model() for fields in ways), _distant_blocks(bench))
    if not found.explaining:
        note = "no number of products and of bits explains every result"
        return draft, {"scaled_products": Finding(None, "undetermined", note=note, evidence=found.evidence)}
    explaining = [ways[i] for i in found.explaining]
    findings = {name: Finding.among(fields[name] for fields in explaining) for name in ways[0]}
    findings["scaled_products"] = replace(findings["scaled_products"], evidence=found.evidence)
    return draft.change("sum", **explaining[0]), findings


class _ScaledRow(NamedTuple):
    """A row, and the exponents of the scales of A and of B, by block; other scales are 1."""

    row: LeafValues
    scales: Mapping[int, tuple[int, int]]


def _fits(bench: Workbench, scaled: _ScaledRow) -> bool:
    """Return whether the formats can represent all products, C and the scales."""
    fmt = bench.inst.scale
    exponents = (exponent for pair in scaled.scales.values() for exponent in pair)
    return fmt is not None and bench.fits(scaled.row) and all(fmt.try_encode(1, e) is not None for e in exponents)


def _request(bench: Workbench, rows: Iterable[_ScaledRow]) -> Request:
    """Return the operands of the rows that fit; none without block scales."""
    fitting = [scaled for scaled in rows if _fits(bench, scaled)]
    request, fmt = bench.request([scaled.row for scaled in fitting]), bench.inst.scale
    for i, scaled in enumerate(fitting):
        for block, pair in scaled.scales.items():
            for column, exponent in zip((request.scales_a, request.scales_b), pair, strict=True):
                assert column is not None
                assert fmt is not None
                column[i, block] = fmt.encode(False, 1, exponent)
    return request


def _halves(exponent: int) -> tuple[int, int]:
    """Return exponents of scales of A and of B whose product is that power of two."""
    return exponent - exponent // 2, exponent // 2


def _distant_blocks(bench: Workbench) -> Request:
    """One block leads, by products that cancel, by products that cancel C, or not at all; another has one or two small ones.

    In random order, so that a part of the rows has all kinds.
    """
    inst, rows = bench.inst, list[_ScaledRow]()
    assert inst.scale is not None
    assert inst.scale_block is not None
    last, top = inst.k // inst.scale_block - 1, min(inst.scale.max_exponent, LEAD)
    blocks = ((0, last), (last, 0)) if last else ()
    distances = [0, *(d for d in DISTANCES if d < inst.scale_block)]
    for lead, (large, small), bits, distance, sign in product(LEADS, blocks, range(FURTHEST), distances, (1, -1)):
        first, start = large * inst.scale_block, small * inst.scale_block
        row = {first: two_to(4)} if lead != "nothing" else {}
        row |= {"products": {first + 1: -two_to(4)}, "C": {bench.addend: -two_to(4 + 2 * top)}}.get(lead, {})
        row |= dict.fromkeys((start, start + distance), Dyadic(sign, -2))
        rows.append(_ScaledRow(row, {large: (top, top), small: _halves(2 * top - bits)}))
    request = _request(bench, rows)
    return request[np.random.default_rng(0).permutation(len(request))]


def small_blocks(bench: Workbench, q: int, lowest: int) -> tuple[list[int], Request]:
    """Return 2^(q + 1), and smaller powers of two of the other sign down to the lowest, made by block scales.

    If 2^q is the smallest result and results are rounded toward zero, the sum is 2^q unless the other term is truncated. The
    first term is C, a product of another block, or one of the same block. Return the exponents of the other terms, and the
    dot products.
    """
    inst, rows = bench.inst, list[tuple[int, _ScaledRow]]()
    if inst.scale_block is None:
        return [], Request.zeros(inst, 0)
    least, last = inst.a.min_exponent + inst.b.min_exponent, inst.k - 1
    for e, sign in product(range(q, lowest, -1), (1, -1)):
        single, of_block, other = {0: Dyadic(-sign, 0)}, {0: _halves(e)}, {last // inst.scale_block: _halves(q + 1)}
        beside = {0: Dyadic(-sign, least), 1: Dyadic(sign, least + q + 1 - e)}
        rows.append((e, _ScaledRow(single | {bench.addend: Dyadic(sign, q + 1)}, of_block)))
        rows.append((e, _ScaledRow(beside, {0: _halves(e - least)})))
        if inst.k > inst.scale_block:
            rows.append((e, _ScaledRow(single | {last: Dyadic(sign, 0)}, of_block | other)))
    return [e for e, row in rows if _fits(bench, row)], _request(bench, (row for _, row in rows))


def tiny_blocks(bench: Workbench, lowest: int) -> Request:
    """Return one product of either sign, from 2^lowest down, beside zeros of C of either sign; none without block scales."""
    cases = product(range(lowest, lowest - TINY, -1), (1, -1))
    request = _request(bench, (_ScaledRow({0: Dyadic(sign, 0)}, {0: _halves(e)}) for e, sign in cases))
    return joined([request, replace(request, c=request.c | request.c.dtype.type(bench.inst.c.sign_bit))])


def subnormal_scales(bench: Workbench, f: int) -> Request:
    """Return products with a subnormal scale that cancel, and C about the last of f bits below the exponents of the scales.

    A subnormal scale may count with its own exponent, or with the exponent of the smallest normal scale.
    """
    fmt, rows = bench.inst.scale, list[_ScaledRow]()
    if fmt is None or not fmt.mantissa_bits:
        return Request.zeros(bench.inst, 0)
    most = min(fmt.max_exponent, 0)
    for below in range(fmt.min_exponent - fmt.mantissa_bits, fmt.min_exponent):
        for sign, pair in ((1, (below, most)), (-1, (most, below))):
            for last in range(below + most - f - 1, fmt.min_exponent + most - f + 2):
                row = {0: two_to(0), 1: -two_to(0), bench.addend: Dyadic(sign, last)}
                rows.append(_ScaledRow(row, {0: pair}))
    return _request(bench, rows)
