"""Inner sums in a wider format than D.

Ordinary instructions keep f32 until the end; a conversion to f16 is a step of its own. Two products above f16's largest number
that cancel in a later sum than the one that adds the first of them then leave the small term beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, Tree, choose_word, leaves_of
from accprobe.infer.experiments.series import named
from accprobe.infer.findings import Finding, Findings
from accprobe.infer.workbench import EVIDENCE, Dyadic, Row, Workbench, two_to
from accprobe.isa.formats import FORMATS
from accprobe.model.features import Name
from accprobe.model.tree import FloatArithmetic
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

SEED = 20_25
# Random dot products of each of these kinds that the roundings have to explain.
TRIED = 60
FINITE = ("normal", "near one", "spread exponents", "cancelling", "clustered")

# Terms of an ordinary add and of a multiply-add.
ORDINARY = 2

F32 = FORMATS["f32"]


def wider_inner_sums(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Keep inner sums in f32, each exact and rounded to nearest, if D is f16 and that explains the device.

    The roundings of the sums are found at once. If f32 does not explain everything, there are no findings.
    """
    inst = bench.inst
    rows = [row for row in _above_largest(bench, draft.tree) if bench.fits(row)] if inst.d.name == "f16" else []
    if not rows:
        return draft, {}
    operands = bench.request(rows)
    d = bench.query(operands)
    if not np.array_equal(d, np.full(len(rows), bench.result_pattern(two_to(0)), d.dtype)):
        return draft, {}
    summing = FloatArithmetic(F32, F32.mantissa_bits, "RNE", None, nan=F32.sign_bit - 1)
    last = FloatArithmetic(inst.d, inst.d.mantissa_bits, "RNE", None, nan=(inst.d.infinity or 0) + 1)
    wide = replace(draft, tree=(draft.tree,), sum=summing, add=last, inner=F32)
    random = joined([draw(kind, inst, np.random.default_rng(SEED), TRIED) for kind in kinds(inst) if kind in FINITE])
    wide, rounding = choose_word(bench, wide, "result_rounding", "add", joined([bench.fitting(_ties(bench)), random]))
    if rounding.bound != "exact":
        return draft, {}
    shown = (*_evidence_of_order(bench, wide, draft.tree), *bench.exchanges(operands, d, range(min(EVIDENCE, len(rows)))))
    findings: Findings = {"order": Finding(None, note=f"sums below the last one are kept in {F32}", evidence=shown)}
    for role in wide.roles():
        arithmetic = wide.arithmetic(role)
        found = named(Finding(None), Finding(arithmetic.result_bits), replace(rounding, value=arithmetic.result_rounding))
        findings |= {str(Name(feature, role)): finding for feature, finding in found.items()}
    return wide, findings


def _evidence_of_order(bench: Workbench, wide: Draft, tree: Tree) -> Iterator[Exchange]:
    """Choose few of all dot products so far that contradict every tree with two terms of neighbouring sums exchanged."""
    inst, entries = bench.inst, bench.log.entries
    operands, d = joined([entry.request for entry in entries]), np.concatenate([entry.d for entry in entries])
    others = (replace(wide, tree=(other,)).model() for other in _exchanged(tree))
    contradicted = np.stack([evaluate(other, inst, operands) != d for other in others])
    contradicted &= evaluate(wide.model(), inst, operands) == d
    missing = contradicted.any(1)
    while missing.any():
        row = int(contradicted[missing].sum(0).argmax())
        yield from bench.exchanges(operands, d, [row])
        missing &= ~contradicted[:, row]


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


def _above_largest(bench: Workbench, tree: Tree) -> Iterator[Row]:
    """Products above D's largest number that cancel one sum later, beside 1; only in sums that ordinary adds could be."""
    if isinstance(tree, int) or len(tree) > ORDINARY:
        return
    for child in tree:
        if isinstance(child, int):
            continue
        inside = [leaf for leaf in leaves_of(child) if leaf != bench.addend]
        outside = [leaf for leaf in leaves_of(tree) if leaf not in leaves_of(child) and leaf != bench.addend]
        if inside and outside:
            big = two_to(bench.inst.d.max_exponent + 2)
            yield {inside[0]: big, outside[0]: -big, bench.addend: two_to(0)}
        yield from _above_largest(bench, child)
