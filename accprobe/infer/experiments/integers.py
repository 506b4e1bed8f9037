"""Integers: whether sums wrap or saturate, how wide they are, and which products are added before which."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, Tree, choose
from accprobe.infer.workbench import EVIDENCE, Workbench
from accprobe.isa.formats import Format
from accprobe.model.tree import IntegerOverflow
from accprobe.operands.request import Request
from accprobe.records.findings import Finding, Findings


def integers(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Infer the model of an integer instruction from a draft of one sum.

    If sums wrap, every order gives the same bits, so the tree is written as one sum. If they saturate, C = the largest integer
    with +1 on leaf i and -1 on leaf j loses one exactly if i is added before j.
    """
    words = [dict.fromkeys(("overflow", "add_overflow"), word) for word in get_args(IntegerOverflow)]
    draft, found = choose(bench, draft, words, _edges(bench))
    overflow = found["overflow"]
    note = "additions modulo 2^32 give the same bits in every order; written as one sum"
    order = Finding(None, "undetermined", note=note)
    if overflow.value == "saturate":
        draft, order = _precedence(bench, draft)
    return draft, {"order": order, "overflow": overflow, "result_bits": _width(bench, draft)}


def _ends(fmt: Format) -> tuple[int, int]:
    """Return the patterns of the largest and of the smallest integer, which is 0 if they are unsigned."""
    return fmt.largest, fmt.largest + 1 if fmt.kind == "signed" else 0


def _edges(bench: Workbench) -> Request:
    """Return rows with C at both ends of its range or 0, and one more or one less from the products."""
    signs = (1, -1) if "signed" in (bench.inst.a.kind, bench.inst.b.kind) else (1,)
    operands = Request.zeros(bench.inst, 6 * len(signs))
    largest = bench.inst.c.largest
    for i in range(len(operands.c)):
        _put_one(bench, operands, i, (i // len(signs)) % bench.inst.k, signs[i % len(signs)])
        operands.c[i] = [largest, largest + 1, 0][i // len(signs) % 3]
    return operands


def _put_one(bench: Workbench, operands: Request, row: int, leaf: int, sign: int) -> None:
    """Put the product +1 or -1 on a leaf, in place."""
    inst, a, b = bench.inst, bench.inst.a, bench.inst.b
    minus_a, minus_b = (1 << a.bits) - 1, (1 << b.bits) - 1
    negative_a = sign < 0 and a.kind == "signed"
    operands.a[row, leaf] = minus_a if negative_a else 1
    operands.b[row, leaf] = minus_b if sign < 0 and not negative_a else inst.bit_op != "xor"


def _precedence(bench: Workbench, draft: Draft) -> tuple[Draft, Finding]:
    """Find the order of sums that saturate."""
    inst = bench.inst
    if "signed" not in (bench.inst.a.kind, bench.inst.b.kind):
        note = "products of unsigned numbers only add up, so every order saturates alike; written as one sum"
        return draft, Finding(None, "undetermined", note=note)
    pairs = list(permutations(range(inst.k), 2))
    operands = Request.zeros(inst, len(pairs))
    operands.c[:] = inst.c.largest
    for row, (i, j) in enumerate(pairs):
        _put_one(bench, operands, row, i, 1)
        _put_one(bench, operands, row, j, -1)
    d = bench.query(operands)
    before = {pair for pair, result in zip(pairs, d, strict=True) if int(result) == inst.d.largest - 1}
    rank = [sum((j, i) in before for j in range(inst.k)) for i in range(inst.k)]
    tree: Tree = bench.addend
    for level in sorted(set(rank)):
        tree = (tree, *(k for k in range(inst.k) if rank[k] == level))
    draft = replace(draft, tree=tree)
    shown = bench.exchanges(operands, d, range(min(EVIDENCE, len(pairs))))
    if np.array_equal(evaluate(draft.model(), inst, operands), d):
        return draft, Finding(None, evidence=shown)
    return draft, Finding(None, "undetermined", note="no order of additions explains which sums saturate", evidence=shown)


def _width(bench: Workbench, draft: Draft) -> Finding:
    """Check sums of extreme products and a C of each length: the model explains them if results keep all bits."""
    inst = bench.inst
    ends_a, ends_b = _ends(inst.a), _ends(inst.b)
    operands = Request.zeros(inst, 4 * inst.d.bits)
    for i in range(len(operands.c)):
        operands.a[i] = ends_a[i & 1]
        operands.b[i] = ends_b[i >> 1 & 1]
        operands.c[i] = (1 << (i // 4)) - 1
    d, wrong = bench.mismatches(operands, draft.model())
    if len(wrong):
        evidence = bench.exchanges(operands, d, wrong[:EVIDENCE])
        return Finding(None, "undetermined", note="large sums differ from 32-bit ones", evidence=evidence)
    return Finding(inst.d.bits, evidence=bench.exchanges(operands, d, range(EVIDENCE)))
