"""Exponents in the alignment: of products, of zeros, and the lowest one to which terms are aligned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, choose_word
from accprobe.infer.workbench import Dyadic, LeafValues, Workbench, pattern_of, two_to
from accprobe.isa.formats import Format
from accprobe.operands.request import Request, joined
from accprobe.records.findings import Finding, Findings

# A bit pattern of A and one of B.
Codes = tuple[int, int]

DEEPER = 12  # Bits probed below the last one that a sum keeps beside its smallest result.


def largest_exponent(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the exponent with which products take part in the search for the largest one, and whether zero products do."""
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, {}
    note = "no products of these operands have bits that one rule keeps and the other cuts"
    operands = _misleading_products(bench, draft, f)
    draft, rule = choose_word(bench, draft, "product_exponent", "sum", operands, note)
    if rule.value != "unnormalised":
        return draft, {"product_exponent": rule}
    note = "no operands of that sum lie low enough for a zero's exponent to cut them"
    draft, zeros = choose_word(bench, draft, "zero_terms", "sum", _zero_products(bench, draft, f), note)
    return draft, {"product_exponent": rule, "zero_terms": zeros}


def _misleading_products(bench: Workbench, draft: Draft, f: int) -> Request:
    """Return rows of products with an exponent other than the sum of their factors' exponents: 1.5 * 1.5, and a subnormal times
    a large number.

    Each stands beside its negative, or alone, with a small t at the last place that one rule keeps and another truncates.
    """
    inst, rows, products = bench.inst, list[LeafValues](), list[Codes]()
    leaves = [leaf for node in draft.nodes() for leaf in node.products][:2]
    others = set(range(inst.k)) - set(leaves)
    for (codes, exponent), tail in product(
        _pairs(inst.a, inst.b, bench.reach.subnormal_operands), (bench.addend, *sorted(others)[:1])
    ):
        lasts = range(exponent - f - inst.a.mantissa_bits - 2, exponent - f + 3)
        fitting = [row for last, t in product(lasts, (1, 3)) if bench.fits(row := {tail: Dyadic(t, last)})]
        rows += fitting
        products += [codes] * len(fitting)
    operands = bench.request(rows * 2)
    for i, (code_a, code_b) in enumerate(products * 2):
        cancelling = i < len(rows) and len(leaves) > 1
        for sign, leaf in zip((0, inst.a.sign_bit), leaves if cancelling else leaves[:1], strict=False):
            operands.a[i, leaf], operands.b[i, leaf] = code_a | sign, code_b
    return operands


def _pairs(a: Format, b: Format, subnormals: bool) -> Iterator[tuple[Codes, int]]:
    """Return patterns of A and B, with the exponent of their product if exponents are added as encoded."""
    for ea, eb in ((_for_one_and_a_half(a, e), _for_one_and_a_half(b, e)) for e in (0, 2, 4, 8, 16)):
        code_a, code_b = pattern_of(a, Dyadic(3, ea - 1)), pattern_of(b, Dyadic(3, eb - 1))
        if code_a is not None and code_b is not None:
            yield (code_a, code_b), ea + eb
    if not subnormals:
        return
    for small, large, swapped in ((a, b, False), (b, a, True)):
        tops = large.max_exponent, min(large.max_exponent, -small.min_exponent)
        for below, top in product((1, small.mantissa_bits), tops):
            code, other = pattern_of(small, two_to(small.min_exponent - below)), pattern_of(large, two_to(top))
            if code is not None and other is not None:
                yield ((other, code) if swapped else (code, other)), small.min_exponent + top


def _for_one_and_a_half(fmt: Format, exponent: int) -> int:
    """Return the exponent, or the largest one at which 1.5 is a value."""
    top = fmt.max_exponent
    return min(exponent, top if fmt.try_encode(3, top - 1) is not None else top - 1)


def _zero_products(bench: Workbench, draft: Draft, f: int) -> Request:
    """Return rows with a zero times a large number on one leaf, and a small number on another of the same sum."""
    inst = bench.inst
    node = next(node for node in draft.nodes() if node.role == "sum")
    zero, *others = [*node.products, *(slot.leaf for slot in node.slots if slot.kind != "product")]
    rows, larger = list[LeafValues](), list[int]()
    for eb in range(inst.b.max_exponent, inst.b.min_exponent, -1):
        exponent = inst.a.min_exponent + eb
        for leaf, last in product(others[:1] + others[-1:], range(exponent - f - 2, exponent - f + 2)):
            row = {leaf: two_to(last)}
            if bench.fits(row) and bench.result_pattern(two_to(last)) is not None:
                rows.append(row)
                larger.append(eb)
        if len(rows) > 40:
            break
    operands = bench.request(rows)
    for i, eb in enumerate(larger):
        operands.b[i, zero] = pattern_of(inst.b, two_to(eb)) or 0
    return operands


def floor(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the lowest exponent L that terms are aligned to: bits below 2^(L - F) are lost however small the terms are.

    The first result that differs from a model without a floor gives L. If none does, L is at most the highest value with a
    model that agrees with every result.
    """
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, {}
    series = [(e, row) for e, row in _small_terms(bench, draft, f) if bench.fits(row)]
    q = max(bench.result_exponents()[0], bench.inst.d.min_exponent - draft.arithmetic("sum").result_bits)
    small, scaled = _small_blocks(bench, q, q - f - DEEPER)
    lowest = [e for e, _ in series] + small
    if not lowest:
        return draft, {"min_exponent": Finding(None, "undetermined", ("none",), "no operand is small enough to show it")}
    operands = joined([bench.request([row for _, row in series]), scaled])
    d, wrong = bench.mismatches(operands, draft.change("sum", min_exponent=None).model())

    def explains(level: int) -> bool:
        return np.array_equal(evaluate(draft.change("sum", min_exponent=level).model(), bench.inst, operands), d)

    if len(wrong):
        level = max(lowest[i] for i in wrong) + 1 + f
        evidence = bench.exchanges(operands, d, wrong[:2])
        same = [near for near in range(level - 3, level + 4) if explains(near)]
        if same:
            note = "these give the same bits on every operand that can be made"
            return draft.change("sum", min_exponent=same[0]), {"min_exponent": Finding.among(same, evidence, note)}
        note = "no floor explains the smallest sums"
        return draft, {"min_exponent": Finding(None, "undetermined", note=note, evidence=evidence)}
    most = next((level for level in range(min(lowest) + f, max(lowest) + f + 1) if not explains(level + 1)), None)
    note = "not observable: no operands produce smaller bits, or the result does not show them"
    possible = ("none", f"at most {most}") if most is not None else ("none", "any")
    evidence = bench.exchanges(operands, d, range(min(2, len(d))))
    return draft, {"min_exponent": Finding(None, "undetermined", possible, note, evidence)}


def _small_terms(bench: Workbench, draft: Draft, f: int) -> Iterator[tuple[int, LeafValues]]:
    """Yield rows with the exponent of their last bit: single powers of two, and pairs of products.

    2^q is the result's last place. Two products of last bit 2^i add up to it exactly, or fall short if they are truncated.
    2^(q-1) + 2^i is a tie except for the last bit.
    """
    products = next(node.products for node in draft.nodes() if node.role == "sum")
    q = max(bench.result_exponents()[0], bench.inst.d.min_exponent - draft.arithmetic("sum").result_bits)
    for leaf, exponents in ((bench.addend, bench.addend_exponents()), (products[0], bench.product_exponents())):
        single = range(max(exponents[0], q - 1), min(exponents[-1], q + 2 * f, 0) + 1)
        yield from ((e, {leaf: two_to(e)}) for e in single)
    if len(products) < 2:
        return
    first, second = products[:2]
    for i in range(q - 3, q - f - 12, -1):
        yield from ((i, row) for row in _complements(bench, first, second, q, i))
        yield i, {first: two_to(q - 1), second: two_to(i)}


def _complements(bench: Workbench, first: int, second: int, q: int, i: int) -> Iterator[LeafValues]:
    """Return rows with two products. Their last bits are 2^i, their sum is 2^q, and each is about half of it."""
    half = 1 << (q - 1 - i)
    if half.bit_length() > bench.inst.a.mantissa_bits + bench.inst.b.mantissa_bits + 2:
        return
    for offset in range(1, min(half, 128), 2):
        row = {first: Dyadic(half + offset, i), second: Dyadic(half - offset, i)}
        if bench.fits(row):
            yield row
            return


def _small_blocks(bench: Workbench, q: int, lowest: int) -> tuple[list[int], Request]:
    """Return 2^(q + 1), and smaller powers of two of the other sign down to the lowest, made by block scales.

    If 2^q is the smallest result and results are rounded toward zero, the sum is 2^q unless the other term is truncated. The
    first term is C, a product of another block, or one of the same block. Return the exponents of the other terms, and the
    dot products.
    """
    inst, fmt = bench.inst, bench.inst.scale
    if fmt is None or inst.scale_block is None:
        return [], Request.zeros(inst, 0)
    least, last = inst.a.min_exponent + inst.b.min_exponent, inst.k - 1
    rows: list[tuple[int, LeafValues, dict[int, int]]] = []  # The exponent, the row, and the exponents of scales by block.
    for e, sign in product(range(q, lowest, -1), (1, -1)):
        single = {0: Dyadic(-sign, 0)}
        rows.append((e, single | {bench.addend: Dyadic(sign, q + 1)}, {0: e}))
        rows.append((e, {0: Dyadic(-sign, least), 1: Dyadic(sign, least + q + 1 - e)}, {0: e - least}))
        if inst.k > inst.scale_block:
            rows.append((e, single | {last: Dyadic(sign, 0)}, {0: e, last // inst.scale_block: q + 1}))
    fitting = [
        (e, row, scales)
        for e, row, scales in rows
        if bench.fits(row) and all(fmt.try_encode(1, half) is not None for x in scales.values() for half in _halves(x))
    ]
    request = bench.request([row for _, row, _ in fitting])
    for i, (_, _, scales) in enumerate(fitting):
        for block, exponent in scales.items():
            for column, half in zip((request.scales_a, request.scales_b), _halves(exponent), strict=True):
                assert column is not None
                column[i, block] = fmt.encode(False, 1, half)
    return [e for e, _, _ in fitting], request


def _halves(exponent: int) -> tuple[int, int]:
    """Return exponents of scales of A and of B with that power of two as product."""
    return exponent - exponent // 2, exponent // 2
