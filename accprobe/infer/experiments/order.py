"""Summation order: which leaves are added together, and in which order the sums follow one another.

After FPRev (Xie et al., USENIX ATC 2025), with C as one more leaf. Leaf i holds +M, leaf j holds -M, and leaf l a unit so small
that it is lost beside M. The unit survives if the pair has cancelled before the unit joins. FPRev counts the survivors of each
pair. Here each triple of leaves is probed in its three arrangements. A sum with many alignment bits keeps the unit beside M,
although its rounded result would not. "i and j meet before l" shows in both cases: the unit survives on l, and on neither i nor
j. Three equal results mean that the three leaves meet in one fused sum. Triples with a common pivot are enough: they place
every leaf on the path from the pivot to the root, and group the other leaves. Each group is then sorted likewise.

Inner sums may have a wider format than D: ordinary instructions keep f32 until the end, and convert to f16 in a separate step.
Let two products exceed f16's largest number, and cancel in a later sum than the one that adds the first of them. Then the small
term beside them survives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats, Integers
from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.draft import Draft, Tree, choose_word, leaves_of, named
from accprobe.infer.tree_builder import NoTree, PartialTree, TreeBuilder
from accprobe.infer.workbench import Dyadic, LeafValues, Workbench, two_to
from accprobe.isa.formats import FORMATS
from accprobe.model.fields import Name
from accprobe.model.tree import FloatArithmetic
from accprobe.operands.exchange import Exchange
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.records.findings import Finding, Findings

EVIDENCE = 6
RATIO = 120  # log2(M / unit) at most: more than the products of any format need.
FAR_BELOW = 48  # log2(M / unit) exceeds this if only C is probed: no sum is known to keep a term so far below a larger one.
# Values of the map from a pair of leaves to the one that meets the pivot first, if it is neither.
PAIR_FIRST, ALL_AT_ONCE = -1, -2
SEED = 20_25
TRIED = 60  # Random dot products of each of these kinds that the roundings of wider inner sums have to explain.
FINITE = ("normal", "near one", "spread exponents", "cancelling", "clustered")

ORDINARY = 2  # Terms of an ordinary add and of a multiply-add.

F32 = FORMATS["f32"]


def order(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find the summation tree. If it is not observable, keep the draft's order and say so in the finding."""
    big, unit = _magnitudes(bench)
    if big - unit <= bench.inst.d.mantissa_bits + 2:
        of = " of one block" if bench.inst.scale is not None else ""
        note = f"products{of} span only {big - unit} bits, too few for a unit to be lost beside a large one"
        return _addend_last(bench, draft, note)
    pairs = _Triples(bench, big, unit)
    try:
        found = TreeBuilder(pairs, both_ends=False).tree(np.array([bench.addend, *range(bench.inst.k)]))
    except NoTree as e:
        return draft, {"order": Finding(None, "undetermined", note=str(e), evidence=pairs.evidence)}
    return replace(draft, tree=_nested(found, bench.addend)), {"order": Finding(None, evidence=pairs.evidence)}


def _magnitudes(bench: Workbench) -> tuple[int, int]:
    """Return exponents of M and of the unit, both values of every leaf and of the result."""
    products, addends, d = bench.product_exponents(), bench.addend_exponents(), bench.inst.d
    high = min(products[-1], addends[-1], d.max_exponent)
    low = max(products[0], addends[0], d.min_exponent)
    if high - low > RATIO:
        high = min(high, RATIO // 2)
        low = max(low, high - RATIO)
    return high, low


def _addend_last(bench: Workbench, draft: Draft, note: str) -> tuple[Draft, Findings]:
    """Add C last if a C far below each pair of products that cancel survives; otherwise keep the draft."""
    big = bench.product_exponents()[-1]
    unit = two_to(max(bench.addend_exponents()[0], bench.inst.d.min_exponent, big - RATIO))
    rows: list[LeafValues] = [
        {i: two_to(big), j: -two_to(big), bench.addend: unit} for i, j in combinations(range(bench.inst.k), 2)
    ]
    operands = bench.request(rows)
    d = bench.query(operands)
    shown = np.linspace(0, len(rows) - 1, min(EVIDENCE, len(rows))).astype(int)
    finding = Finding(None, "undetermined", note=note, evidence=bench.exchanges(operands, d, shown))
    last = big - unit.exponent > FAR_BELOW and (d == bench.result_pattern(unit)).all()
    return replace(draft, tree=(tuple(range(bench.inst.k)), bench.addend)) if last else draft, {"order": finding}


def lone_products(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Find whether f64 products are rounded before they are added: the square of 1 + 2^-30 then loses its 2^-60."""
    inst = bench.inst
    if inst.a.name != "f64":
        return draft, {}
    operands = Request.zeros(inst, inst.k)
    leaves = np.arange(inst.k)
    operands.a[leaves, leaves] = operands.b[leaves, leaves] = inst.a.encode(False, (1 << 30) + 1, -30)
    operands.c[:] = inst.c.encode(True, (1 << 29) + 1, -29)
    if bench.query(operands).any():
        return draft, {}
    return replace(draft, tree=_with_lone_products(draft.tree, inst.k)), {}


def _with_lone_products(tree: Tree, addend: int) -> Tree:
    """Return the tree with every product in a sum of its own."""
    if isinstance(tree, int):
        return tree if tree == addend else (tree,)
    return tuple(_with_lone_products(child, addend) for child in tree)


class _Triples:
    """Measures the leaves of one instruction, each triple of them in a dot product of its own."""

    def __init__(self, bench: Workbench, big: int, unit: int) -> None:
        self._bench, self._big, self._unit = bench, two_to(big), two_to(unit)
        self._first_met: dict[int, dict[frozenset[int], int]] = {}
        self.evidence: tuple[Exchange, ...] = ()

    def sizes(self, i: int, j: Integers, leaves: Integers) -> Floats:
        met = self._first_met[i] = self._ask(i, list(combinations(leaves[leaves != i].tolist(), 2)))
        later = Counter(met.values())  # by leaf, the leaves that are added to i after it
        return len(leaves) - np.array([later[x] for x in j.tolist()], np.float64)

    def joined_with(self, i: int, ks: Integers, before: int) -> NDArray[np.bool_]:
        met = self._first_met[before]
        return np.array([k == i or met[frozenset((i, k))] == PAIR_FIRST for k in ks.tolist()])

    def _ask(self, pivot: int, pairs: Sequence[tuple[int, int]]) -> dict[frozenset[int], int]:
        """Return the leaf of each pair that is added to the pivot first, PAIR_FIRST or ALL_AT_ONCE."""
        if not pairs:
            return {}
        rows: list[LeafValues] = []
        for j, other in pairs:
            for x, y, z in ((pivot, j, other), (pivot, other, j), (j, other, pivot)):
                rows.append({x: self._big, y: -self._big, z: self._unit})
        operands = self._bench.request(rows)
        d = self._bench.query(operands)
        surviving = (d == self._bench.result_pattern(self._unit)).reshape(-1, 3).tolist()
        if not self.evidence:
            self.evidence = self._bench.exchanges(operands, d, np.linspace(0, len(rows) - 1, EVIDENCE).astype(int))
        met: dict[frozenset[int], int] = {}
        for (j, other), survives in zip(pairs, surviving, strict=True):
            if survives.count(True) == 2:
                raise NoTree(f"leaves {pivot}, {j} and {other} cancel in two ways at once: no tree does that")
            met[frozenset((j, other))] = (j, other, PAIR_FIRST)[survives.index(True)] if sum(survives) == 1 else ALL_AT_ONCE
        return met


def _nested(leaf: int | PartialTree, addend: int) -> Tree:
    """Return the tree as nested tuples, the terms of each sum by their first leaf, C first."""
    if isinstance(leaf, int):
        return leaf
    node: Tree = leaf.first
    for join in leaf.joins:
        terms = [node, *(_nested(x, addend) for x in join)]
        node = tuple(sorted(terms, key=lambda term: min((x + 1) % (addend + 1) for x in leaves_of(term))))
    return node


def wider_inner_sums(bench: Workbench, draft: Draft) -> tuple[Draft, Findings]:
    """Keep inner sums in f32, each exact and rounded to nearest, if D is f16 and that explains the device.

    The rounding of sums without products is found at the same time. If f32 does not explain everything, there are no findings.
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
    shown = (*_evidence_of_order(bench, wide, draft.tree), *bench.exchanges(operands, d, range(min(4, len(rows)))))
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


def _ties(bench: Workbench) -> Iterator[LeafValues]:
    """Return rows with a C of even or odd last bit, and half of that bit."""
    bits = bench.inst.d.mantissa_bits
    for last, sign in product((0, 1), (1, -1)):
        yield {bench.addend: Dyadic(sign * ((1 << bits) + last), -bits), 0: Dyadic(sign, -bits - 1)}


def _above_largest(bench: Workbench, tree: Tree) -> Iterator[LeafValues]:
    """Return rows with products above D's largest number that cancel one sum later, beside 1; only in sums that ordinary adds
    could be.
    """
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
