"""Inner sums in a wider format: whether results of sums below the last one hold numbers that D's format does not.

A sum of ordinary instructions keeps f32 until the end, where a conversion to f16 is a step of its own. Two products that are
above f16's largest number and cancel in another sum than the one that adds the first of them leave what is beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, Tree, leaves, roles
from accprobe.infer.experiments.series import named
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, eliminate, fitting, two_to
from accprobe.isa.formats import FORMATS
from accprobe.model.features import Name
from accprobe.model.tree import FloatArithmetic, Rounding
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

SEED = 20_25
# Random dot products of each kind that the roundings have to explain.
TRIED = 60

# Terms of an ordinary add; of a multiply-add too.
ORDINARY = 2

F32 = FORMATS["f32"]


def wider_inner_sums(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """The draft with inner sums in f32, each exact and rounded to nearest, where D is f16 and that explains the device.

    The roundings of the sums are found at once; where f32 does not explain everything, nothing is said here.
    """
    inst = bench.inst
    rows = list(_beyond(bench, draft.tree)) if inst.d.name == "f16" else []
    rows = [row for row in rows if bench.fits(row)]
    if not rows:
        return draft, {}
    operands = bench.rows(rows)
    d = bench.query(operands)
    if not np.array_equal(d, np.full(len(rows), bench.result(two_to(0)), d.dtype)):
        return draft, {}
    summing = FloatArithmetic(F32, F32.mantissa_bits, "RNE", None, nan=F32.sign_bit - 1)
    last = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, nan=(inst.d.infinity or 0) + 1)
    wide = replace(draft, tree=(draft.tree,), sum=summing, add=last, inner=F32)
    roundings = {word: wide.change("add", result_rounding=word).model() for word in get_args(Rounding)}
    finite = [kind for kind in kinds(inst) if kind in ("normal", "near one", "spread exponents", "cancelling", "clustered")]
    random = joined([draw(kind, inst, np.random.default_rng(SEED), TRIED) for kind in finite])
    rounding = eliminate(bench, roundings, joined([fitting(bench, _ties(bench)), random]))
    if rounding.bound != "exact":
        return draft, {}
    wide = wide.change("add", result_rounding=rounding.value)
    shown = (*_of_order(bench, wide, draft.tree), *bench.exchanges(operands, d, range(min(EVIDENCE, len(rows)))))
    findings: Findings = {"order": Finding(None, note=f"sums below the last one are kept in {F32}", evidence=shown)}
    for role in roles(wide):
        arithmetic = wide.arithmetic(role)
        found = named(Finding(None), Finding(arithmetic.result_bits), replace(rounding, value=arithmetic.result_rounding))
        findings |= {str(Name(feature, role)): finding for feature, finding in found.items()}
    return wide, findings


def _of_order(bench: Workbench, wide: Draft, tree: Tree) -> Iterator[Exchange]:
    """Of all that was asked, few dot products that refute every tree in which two terms of neighbouring sums are exchanged."""
    inst, entries = bench.inst, bench.log.entries
    asked, d = joined([entry.request for entry in entries]), np.concatenate([entry.d for entry in entries])
    others = (replace(wide, tree=(other,)).model() for other in _exchanged(tree))
    refuted = np.stack([evaluate(other, inst, asked) != d for other in others])
    refuted &= evaluate(wide.model(), inst, asked) == d
    left = refuted.any(1)
    while left.any():
        row = int(refuted[left].sum(0).argmax())
        yield from bench.exchanges(asked, d, [row])
        left &= ~refuted[:, row]


def _exchanged(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, int):
        return
    for i, child in enumerate(tree):
        yield from ((*tree[:i], other, *tree[i + 1 :]) for other in _exchanged(child))
        if isinstance(child, int):
            continue
        for j, m in product(range(len(tree)), range(len(child))):
            if i != j:
                terms = [*tree]
                terms[i], terms[j] = (*child[:m], tree[j], *child[m + 1 :]), child[m]
                yield tuple(terms)


def _ties(bench: Workbench) -> Iterator[Row]:
    """C with an even and an odd last bit, and half of that bit."""
    bits = bench.inst.d.mantissa_bits
    for last, sign in product((0, 1), (1, -1)):
        yield {bench.addend: Dyadic(sign * ((1 << bits) + last), -bits), 0: Dyadic(sign, -bits - 1)}


def _beyond(bench: Workbench, tree: Tree) -> Iterator[Row]:
    """Products above D's largest number that cancel one sum later, beside 1; only of sums that ordinary adds could be."""
    if isinstance(tree, int) or len(tree) > ORDINARY:
        return
    for child in tree:
        if isinstance(child, int):
            continue
        inside = [leaf for leaf in leaves(child) if leaf != bench.addend]
        outside = [leaf for leaf in leaves(tree) if leaf not in leaves(child) and leaf != bench.addend]
        if inside and outside:
            big = two_to(bench.inst.d.max_exponent + 2)
            yield {inside[0]: big, outside[0]: -big, bench.addend: two_to(0)}
        yield from _beyond(bench, child)
