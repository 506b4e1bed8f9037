"""Exponents: which exponent a product brings to the alignment, whether zeros bring one, and the lowest one aligned to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft
from accprobe.infer.experiments.scales import small_blocks, subnormal_scales
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import Dyadic, Row, Workbench, eliminate, encode, two_to
from accprobe.isa.formats import Format
from accprobe.model.tree import ProductExponent, ZeroTerms
from accprobe.operands.request import Request, joined

# A bit pattern of A and one of B.
Codes = tuple[int, int]

# Bits further down than the last that a sum keeps beside its smallest result, which are asked about too.
DEEPER = 12


def largest_exponent(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Which exponent a product takes part with in the search for the largest one, and whether a zero product does."""
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, {}
    candidates = {rule: draft.change("sum", product_exponent=rule).model() for rule in get_args(ProductExponent)}
    note = "no products of these operands have bits that one rule keeps and the other cuts"
    misleading = joined([_misleading_products(bench, draft, f), subnormal_scales(bench.inst, f)])
    rule = eliminate(bench, candidates, misleading, note)
    draft = draft.change("sum", product_exponent=rule.value)
    if rule.value != "unnormalised":
        return draft, {"product_exponent": rule}
    candidates = {z: draft.change("sum", zero_terms=z).model() for z in get_args(ZeroTerms)}
    note = "no operands of that sum lie low enough for a zero's exponent to cut them"
    zeros = eliminate(bench, candidates, _zero_products(bench, draft, f), note)
    return draft.change("sum", zero_terms=zeros.value), {"product_exponent": rule, "zero_terms": zeros}


def _misleading_products(bench: Workbench, draft: Draft, f: int) -> Request:
    """Products whose factors' exponents do not add up to their own: 1.5 * 1.5 is 2.25, and a subnormal times a large number.

    Each stands beside its negative, or alone, and a small t at the last place that one rule keeps and another cuts.
    """
    inst, rows, products = bench.inst, list[Row](), list[tuple[Codes, int]]()
    slots = [slot for node in draft.nodes() if node.role == "sum" for slot in node.slots if slot.kind == "product"][:2]
    for codes, exponent in _pairs(inst.a, inst.b, bench.reach.subnormal_operands):
        for tail in dict.fromkeys((bench.addend, *range(inst.k))):
            if tail in [slot.leaf for slot in slots]:
                continue
            for last in range(exponent - f - inst.a.mantissa_bits - 2, exponent - f + 3):
                for t in (1, 3):
                    row = {tail: Dyadic(t, last)}
                    if bench.fits(row):
                        rows.append(row)
                        products.append((codes, len(slots)))
            if tail != bench.addend:
                break
    operands = bench.rows(rows * 2)
    for i, ((code_a, code_b), _) in enumerate(products * 2):
        cancelling = i < len(rows) and len(slots) > 1
        for sign, slot in zip((0, inst.a.sign_bit), slots if cancelling else slots[:1], strict=False):
            operands.a[i, slot.leaf], operands.b[i, slot.leaf] = code_a | sign, code_b
    return operands


def _pairs(a: Format, b: Format, subnormals: bool) -> Iterator[tuple[Codes, int]]:
    """Patterns of A and B, and the exponent of their product where exponents are added as encoded."""
    for ea, eb in ((_inside(a, e), _inside(b, e)) for e in (0, 2, 4, 8, 16)):
        code_a, code_b = encode(a, Dyadic(3, ea - 1)), encode(b, Dyadic(3, eb - 1))
        if code_a is not None and code_b is not None:
            yield (code_a, code_b), ea + eb
    if not subnormals:
        return
    for small, large, swapped in ((a, b, False), (b, a, True)):
        for below in (1, small.mantissa_bits):
            for top in (large.max_exponent, min(large.max_exponent, -small.min_exponent)):
                code, other = encode(small, two_to(small.min_exponent - below)), encode(large, two_to(top))
                if code is not None and other is not None:
                    yield ((other, code) if swapped else (code, other)), small.min_exponent + top


def _inside(fmt: Format, exponent: int) -> int:
    """The exponent, or the largest one at which 1.5 is a value."""
    top = fmt.max_exponent
    return min(exponent, top if fmt.try_encode(3, top - 1) is not None else top - 1)


def _zero_products(bench: Workbench, draft: Draft, f: int) -> Request:
    """A zero times a large number on one leaf, and a small number alone on another of the same sum."""
    inst = bench.inst
    node = next(node for node in draft.nodes() if node.role == "sum")
    zero, *others = [slot for slot in node.slots if slot.kind == "product"] + [s for s in node.slots if s.kind != "product"]
    rows: list[Row] = []
    larger: list[int] = []
    for eb in range(inst.b.max_exponent, inst.b.min_exponent, -1):
        exponent = inst.a.min_exponent + eb
        for slot in others[:1] + others[-1:]:
            for last in range(exponent - f - 2, exponent - f + 2):
                row = {slot.leaf: two_to(last)}
                if bench.fits(row) and bench.result(two_to(last)) is not None:
                    rows.append(row)
                    larger.append(eb)
        if len(rows) > 40:
            break
    operands = bench.rows(rows)
    for i, eb in enumerate(larger):
        operands.b[i, zero.leaf] = encode(inst.b, two_to(eb)) or 0
    return operands


def floor(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """The lowest exponent L that terms are aligned to: bits below 2^(L - F) are lost however small the terms are.

    The first answer that differs from a model without a floor gives L. Where none does, L is at most the highest value
    whose model agrees with every answer.
    """
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, {}
    families = [family for family in _families(bench, draft, f) if family]
    q = max(bench.result_exponents()[0], bench.inst.d.min_exponent - draft.arithmetic("sum").result_bits)
    small, scaled = small_blocks(bench.inst, q, q - f - DEEPER)
    lowest = [e for family in families for e, _ in family] + small
    if not lowest:
        return draft, {"min_exponent": Finding(None, "undetermined", ("none",), "no operand is small enough to tell")}
    operands = joined([bench.rows([row for family in families for _, row in family]), scaled])
    d = bench.query(operands)

    def explains(level: int) -> bool:
        return np.array_equal(evaluate(_at(draft, level).model(), bench.inst, operands), d)

    wrong = np.flatnonzero(evaluate(_at(draft, None).model(), bench.inst, operands) != d)
    if len(wrong):
        level = max(lowest[i] for i in wrong) + 1 + f
        evidence = bench.exchanges(operands, d, wrong[:2])
        same = tuple(near for near in range(level - 3, level + 4) if explains(near))
        if len(same) == 1:
            return _at(draft, same[0]), {"min_exponent": Finding(same[0], evidence=evidence)}
        if same:
            note = "these give the same bits on every operand that can be made"
            return _at(draft, same[0]), {"min_exponent": Finding(same[0], "undetermined", same, note, evidence)}
        note = "the smallest sums are not those of any floor"
        return draft, {"min_exponent": Finding(None, "undetermined", note=note, evidence=evidence)}
    most = next((level for level in range(min(lowest) + f, max(lowest) + f + 1) if not explains(level + 1)), None)
    note = "no input reaches below it: smaller bits are not made, or do not show in the result"
    left = ("none", f"at most {most}") if most is not None else ("none", "any")
    evidence = bench.exchanges(operands, d, range(min(2, len(d))))
    return draft, {"min_exponent": Finding(None, "undetermined", left, note, evidence)}


# Rows with the exponent of their last bit.
Family = list[tuple[int, Row]]


def _at(draft: Draft, level: int | None) -> Draft:
    return draft.change("sum", min_exponent=level)


def _families(bench: Workbench, draft: Draft, f: int) -> Iterator[Family]:
    """Lone powers of two; and pairs of products whose last bit decides the smallest result.

    With 2^q the result's last place: two products of last bit 2^i add up to it exactly, or fall short when cut;
    2^(q-1) + 2^i is a tie but for the last bit.
    """
    node = next(node for node in draft.nodes() if node.role == "sum")
    products = [slot.leaf for slot in node.slots if slot.kind == "product"]
    q = max(bench.result_exponents()[0], bench.inst.d.min_exponent - draft.arithmetic("sum").result_bits)
    for leaf, exponents in ((bench.addend, bench.addend_exponents()), (products[0], bench.product_exponents())):
        lone = range(max(exponents[0], q - 1), min(exponents[-1], q + 2 * f, 0) + 1)
        yield [(e, {leaf: two_to(e)}) for e in lone if bench.holds(leaf, two_to(e))]
    if len(products) < 2:
        return
    first, second = products[:2]
    graded: Family = []
    for i in range(q - 3, q - f - 12, -1):
        graded += [(i, row) for row in _complements(bench, first, second, q, i)]
        graded.append((i, {first: two_to(q - 1), second: two_to(i)}))
    yield [(i, row) for i, row in graded if bench.fits(row)]


def _complements(bench: Workbench, first: int, second: int, q: int, i: int) -> Iterator[Row]:
    """Two products whose last bits are 2^i, whose sum is 2^q and which are each about half of it."""
    half = 1 << (q - 1 - i)
    if half.bit_length() > bench.inst.a.mantissa_bits + bench.inst.b.mantissa_bits + 2:
        return
    for offset in range(1, min(half, 128), 2):
        row = {first: Dyadic(half + offset, i), second: Dyadic(half - offset, i)}
        if bench.fits(row):
            yield row
            return
