"""Exponents: which exponent a product brings to the alignment, whether zeros bring one, and the lowest one aligned to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np

from accprobe.experiments.draft import Draft
from accprobe.experiments.elimination import eliminate
from accprobe.experiments.findings import Exchange, Finding
from accprobe.experiments.workbench import Dyadic, Row, Workbench, encode, power
from accprobe.formats import Format
from accprobe.model import ProductExponent, ZeroTerms
from accprobe.operands import Operands

Codes = tuple[int, int]
"""A bit pattern of A and one of B."""


def largest_exponent(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """Which exponent a product takes part with in the search for the largest one, and whether a zero product does."""
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, []
    candidates = {rule: draft.change("sum", product_exponent=rule).model() for rule in get_args(ProductExponent)}
    rule = eliminate(bench, "product_exponent", candidates, _misleading_products(bench, draft, f))
    draft = draft.change("sum", product_exponent=rule.value)
    if rule.value != "unnormalised":
        return draft, [rule]
    candidates = {z: draft.change("sum", zero_terms=z).model() for z in get_args(ZeroTerms)}
    zeros = eliminate(bench, "zero_terms", candidates, _zero_products(bench, draft, f))
    return draft.change("sum", zero_terms=zeros.value), [rule, zeros]


def _misleading_products(bench: Workbench, draft: Draft, f: int) -> Operands:
    """Products whose factors' exponents do not add up to their own: 1.5 * 1.5 is 2.25, and a subnormal times a large number.

    Each stands beside its negative, or alone, and a small t at the last place that one rule keeps and another cuts.
    """
    inst, rows, products = bench.inst, list[Row](), list[tuple[Codes, int]]()
    slots = [slot for node in draft.nodes() if node.role == "sum" for slot in node.slots if slot.kind == "product"][:2]
    for codes, exponent in _pairs(inst.a, inst.b, bench.subnormals):
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
    for below in range(1, a.mantissa_bits + 1):
        code = encode(a, power(a.min_exponent - below))
        eb = min(b.max_exponent, -a.min_exponent)
        other = encode(b, power(eb))
        if code is not None and other is not None:
            yield (code, other), a.min_exponent + eb


def _inside(fmt: Format, exponent: int) -> int:
    """The exponent, or the largest one at which 1.5 is a value."""
    top = fmt.max_exponent
    return min(exponent, top if fmt.try_encode(3, top - 1) is not None else top - 1)


def _zero_products(bench: Workbench, draft: Draft, f: int) -> Operands:
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
                row = {slot.leaf: power(last)}
                if bench.fits(row) and bench.result(power(last)) is not None:
                    rows.append(row)
                    larger.append(eb)
        if len(rows) > 40:
            break
    operands = bench.rows(rows)
    for i, eb in enumerate(larger):
        operands.b[i, zero.leaf] = encode(inst.b, power(eb)) or 0
    return operands


def floor(bench: Workbench, draft: Draft) -> tuple[Draft, list[Finding]]:
    """The lowest exponent that terms are aligned to.

    A lone 2^e below the floor L is lost where e < L - F. Where results do not go that low, two products
    2^(q-1) + 2^i and 2^(q-1) - 2^i whose sum is the smallest result 2^q come out as 2^q only while i >= L - F.
    """
    f = draft.arithmetic("sum").alignment_bits
    if f is None:
        return draft, []
    kept = draft.arithmetic("sum").result_bits
    evidence: tuple[Exchange, ...] = ()
    lowest = None
    for rows in (_lone(bench, bench.addend, kept), _lone(bench, 0, kept), _complements(bench, draft, f, kept)):
        if not rows:
            continue
        operands = bench.rows([row for _, row, _ in rows])
        d = bench.ask(operands)
        lost = np.flatnonzero(d.astype(np.int64) != np.array([expected for _, _, expected in rows], np.int64))
        if len(lost):
            first = int(lost[0])
            shown = bench.exchanges(operands, d, [i for i in (first - 1, first) if i >= 0])
            value = rows[first][0] + 1 + f
            return draft.change("sum", min_exponent=value), [Finding("min_exponent", value, evidence=shown)]
        last = rows[-1][0]
        lowest = last if lowest is None else min(lowest, last)
        evidence += bench.exchanges(operands, d, [len(rows) - 1])
    if lowest is None:
        return draft, [Finding("min_exponent", None, "undetermined", ("none",), "no operand is small enough to tell")]
    note = "no input reaches below it: every term that small is smaller than the results' last bit or is not made"
    left = ("none", f"at most {lowest + f}")
    return draft, [Finding("min_exponent", None, "undetermined", left, note, evidence)]


Graded = list[tuple[int, Row, int]]
"""Rows with their exponent, descending, and the bit pattern that an alignment without a floor gives."""


def _lone(bench: Workbench, leaf: int, result_bits: int) -> Graded:
    exponents = bench.addend_exponents() if leaf == bench.addend else bench.product_exponents()
    low = max(exponents[0], bench.result_exponents()[0], bench.inst.d.min_exponent - result_bits)
    high = min(exponents[-1], bench.result_exponents()[-1], 0)
    rows = []
    for e in range(high, low - 1, -1):
        expected = bench.result(power(e))
        if expected is not None and bench.holds(leaf, power(e)):
            rows.append((e, {leaf: power(e)}, expected))
    return rows


def _complements(bench: Workbench, draft: Draft, f: int, result_bits: int) -> Graded:
    node = next(node for node in draft.nodes() if node.role == "sum")
    slots = [slot for slot in node.slots if slot.kind == "product"]
    q = max(bench.result_exponents()[0], bench.inst.d.min_exponent - result_bits)
    expected = bench.result(power(q))
    if len(slots) < 2 or expected is None:
        return []
    first, second = slots[0].leaf, slots[1].leaf
    rows = []
    for i in range(q - 3, q - f, -1):
        half = 1 << (q - 1 - i)
        row = {first: Dyadic(half + 1, i), second: Dyadic(half - 1, i)}
        if bench.fits(row):
            rows.append((i, row, expected))
    return rows
