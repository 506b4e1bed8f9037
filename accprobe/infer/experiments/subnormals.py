"""Subnormals of A, B, C and of results, and the signs of zeros."""

from __future__ import annotations

from dataclasses import replace
from itertools import product, takewhile
from typing import get_args

import numpy as np

from accprobe.infer.alternatives.alternative import combinations_of
from accprobe.infer.draft import Draft, choose
from accprobe.infer.experiments.scales import tiny_blocks
from accprobe.infer.findings import Findings
from accprobe.infer.workbench import Dyadic, Reach, Row, Workbench, encode, two_to
from accprobe.isa.formats import Format
from accprobe.model.fields import Name
from accprobe.model.tree import Subnormals, UnderflowSign, ZeroSign
from accprobe.operands.request import Request, joined


def subnormals(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether subnormals of the operands are read and whether results may be subnormal.

    All at once: each alone is ambiguous if an input is observable only through the result.
    """
    features = ["subnormal_operands", "subnormal_addend"]
    features += [str(Name("subnormal_results", role)) for role in draft.roles()]
    options = combinations_of(dict.fromkeys(features, get_args(Subnormals)))
    note = "no such subnormal can be made, or a lost input and a lost result look the same"
    draft, findings = choose(bench, draft, options, _subnormals(bench), note)
    kept = [findings[name].value == "kept" and findings[name].bound == "exact" for name in features[:2]]
    reach = Reach(*kept)
    return replace(draft, reach=replace(reach, smallest_result=_smallest_result(bench.within(reach)))), findings


def _subnormals(bench: Workbench) -> Request:
    """Return rows with single subnormals of A, of B and of C; and normal terms whose sum is a subnormal result."""
    inst, d = bench.inst, bench.inst.d
    below = two_to(d.min_exponent - 1)
    normal: list[Row] = [{0: below}, {0: two_to(d.min_exponent), bench.addend: Dyadic(-3, d.min_exponent - 1)}]
    lowest = max(bench.product_exponents()[0], d.min_exponent)
    for e, sign in product(range(lowest, lowest + inst.a.mantissa_bits + inst.b.mantissa_bits), (1, -1)):
        remains = Dyadic(sign * ((1 << (e - d.min_exponent + 1)) + 1), d.min_exponent - 1)
        normal += [{0: remains, leaf: Dyadic(-sign, e)} for leaf in (1, inst.k - 1, bench.addend) if leaf]
    operands = bench.request([{}] * 3 + [row for row in normal if bench.fits(row)])
    operands.a[0, 0], operands.b[0, 0] = _largest_subnormal(inst.a), _large(inst.b, d)
    operands.a[1, 0], operands.b[1, 0] = _large(inst.a, d), _largest_subnormal(inst.b)
    operands.c[2] = _largest_subnormal(inst.c)
    return operands


def _largest_subnormal(fmt: Format) -> int:
    return encode(fmt, two_to(fmt.min_exponent - 1)) or 0


def _large(fmt: Format, d: Format) -> int:
    return encode(fmt, two_to(min(fmt.max_exponent, d.max_exponent))) or 0


def _smallest_result(bench: Workbench) -> int:
    """Return the exponent of the smallest power of two that comes back exactly, as C and as a product.

    If one of them is lost earlier, in a sum that the other does not pass through, that one counts.
    """
    d = bench.inst.d
    exponents = range(d.min_exponent, d.min_exponent - d.mantissa_bits - 1, -1)
    reached: list[int] = [d.min_exponent]
    lost: list[int] = []
    for leaf in (bench.addend, 0):
        rows = [(e, {leaf: two_to(e)}) for e in exponents if bench.fits({leaf: two_to(e)})]
        results = bench.query(bench.request([row for _, row in rows]))
        unchanged = list(
            takewhile(lambda pair: int(pair[1]) == bench.result_pattern(two_to(pair[0][0])), zip(rows, results, strict=True))
        )
        smallest = min((e for (e, _), _ in unchanged), default=d.min_exponent)
        (lost if len(unchanged) < len(rows) else reached).append(smallest)
    return max(lost) if lost else min(reached)


def zero_signs(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the sign of a sum that is zero and of one that rounds to zero, in both roles at once: one shows through the other.

    If it is not known yet whether subnormals of C are read, that too: the sign of the zero that C becomes may show it.
    """
    known = bench.reach.subnormal_addend
    options: dict[str, tuple[str, ...]] = {} if known else {"subnormal_addend": get_args(Subnormals)}
    for role in draft.roles():
        options[str(Name("zero_sign", role))] = get_args(ZeroSign)
        options[str(Name("underflow_sign", role))] = get_args(UnderflowSign)
    tiny = tiny_blocks(bench, bench.result_exponents()[0])
    operands = joined([_zeros(bench), _underflowing(bench, draft), _subnormal_addends(bench), tiny])
    note = "no sum of these operands shows it: none is too small for the result, or the next sum hides a zero's sign"
    return choose(bench, draft, combinations_of(options), operands, note)


def _zeros(bench: Workbench) -> Request:
    """Return rows with zeros of both signs on every leaf, and terms that cancel."""
    inst = bench.inst
    one = encode(inst.b, two_to(0)) or 0
    operands = bench.request([{}] * 8 + [{0: two_to(0), inst.k - 1: -two_to(0)} if inst.k > 1 else {}] * 2)
    for i in range(8):
        operands.a[i] = inst.a.sign_bit if i & 1 else 0
        operands.b[i] = one if i & 4 else 0
        operands.c[i] = inst.c.sign_bit if i & 2 else 0
    operands.c[9] = inst.c.sign_bit
    return operands


def _underflowing(bench: Workbench, draft: Draft) -> Request:
    """Return rows with products and C of both signs around the smallest result and below, single and all at once, beside zeros
    of both signs.
    """
    lowest = bench.result_exponents()[0]
    last = next(leaf for node in draft.nodes() for leaf in node.products)
    rows: list[Row] = []
    for leaf, exponents in ((last, bench.product_exponents()), (bench.addend, bench.addend_exponents())):
        for e in range(max(exponents[0], lowest - 40), min(exponents[-1], lowest) + 1):
            rows += [{leaf: Dyadic(sign * t, e)} for sign in (1, -1) for t in (1, 3)]
    for e in range(max(bench.product_exponents()[0], lowest - 40), lowest):
        rows.append({leaf: Dyadic(-1, e) for leaf in range(bench.inst.k)})
    operands = bench.fitting(rows)
    c = np.where(operands.c == 0, bench.inst.c.sign_bit, operands.c).astype(bench.inst.c.dtype)
    return joined([operands, replace(operands, c=c)])


def _subnormal_addends(bench: Workbench) -> Request:
    """Return rows with the smallest and the largest subnormal C, of both signs, beside products that are all zeros of one
    sign.
    """
    fmt = bench.inst.c
    operands = bench.request([{}] * 8)
    operands.a[4:] = bench.inst.a.sign_bit
    largest = encode(fmt, Dyadic((1 << fmt.mantissa_bits) - 1, fmt.min_exponent - fmt.mantissa_bits)) or 0
    smallest = encode(fmt, two_to(fmt.min_exponent - fmt.mantissa_bits)) or 0
    operands.c[:] = (smallest, largest, smallest | fmt.sign_bit, largest | fmt.sign_bit) * 2
    return operands
