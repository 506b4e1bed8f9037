"""The model while it is inferred: its tree, one arithmetic for sums of products and one for sums without products.

Series of rows: the same sum with a smaller and smaller term, and the depth to which its results are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.workbench import EVIDENCE, NORMAL, Dyadic, LeafValues, Reach, Workbench
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import Name, fields_of, parsed, with_values
from accprobe.model.record import Value
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, Product, Role, Subnormals, Term
from accprobe.operands.exchange import Exchange
from accprobe.operands.request import Request
from accprobe.records.findings import SAME_BITS, Finding, Findings

NOTHING_EXPLAINS = "no value explains every result; this one explains most"

# A leaf (k, or K for C), or a node's children.
Tree = int | tuple["Tree", ...]


class Slot(NamedTuple):
    """An input of a node: a leaf that reaches it as a product, as C, or through the result of an inner sum."""

    leaf: int
    kind: Literal["product", "addend", "sum"]


@dataclass(frozen=True)
class DraftNode:
    """One inner node of the tree. depth: nodes between it and the result; 0 for the root."""

    slots: tuple[Slot, ...]
    depth: int

    @property
    def products(self) -> list[int]:
        """Return the leaves that it adds as products."""
        return [slot.leaf for slot in self.slots if slot.kind == "product"]

    @property
    def role(self) -> Role:
        return "sum" if self.products else "add"


@dataclass(frozen=True)
class Draft:
    """Everything inferred so far.

    inner: format of the results of all sums but the last, if it is not D's; they keep all its bits unless their arithmetic
    has that format. reach: numbers that rows may use.
    """

    inst: Instruction
    tree: Tree
    sum: Arithmetic
    add: Arithmetic
    subnormal_operands: Subnormals = "kept"
    subnormal_addend: Subnormals = "kept"
    inner: Format | None = None
    reach: Reach = NORMAL

    def model(self) -> DotModel:
        root = self._build(self.tree)
        assert isinstance(root, FusedSum)
        return DotModel(root, self.subnormal_operands, self.subnormal_addend)

    def nodes(self) -> list[DraftNode]:
        """Return all inner nodes, those nearest to the root first."""
        found, level, depth = list[DraftNode](), [self.tree], 0
        while inner := [tree for tree in level if not isinstance(tree, int)]:
            found += [DraftNode(tuple(map(self._slot, tree)), depth) for tree in inner]
            level, depth = [child for tree in inner for child in tree], depth + 1
        return found

    def roles(self) -> list[Role]:
        present = {node.role for node in self.nodes()}
        return [role for role in get_args(Role) if role in present]

    def arithmetic(self, role: Role) -> FloatArithmetic:
        arithmetic = self.sum if role == "sum" else self.add
        assert isinstance(arithmetic, FloatArithmetic)
        return arithmetic

    def change(self, role: Role, **fields: object) -> Draft:
        """Return the draft with fields of one role's arithmetic replaced."""
        if role == "sum":
            return replace(self, sum=with_values(self.sum, fields))
        return replace(self, add=with_values(self.add, fields))

    def with_features(self, features: Mapping[str, Value]) -> Draft:
        """Return the draft with features, named as in the findings, replaced."""
        draft = self
        for name, value in features.items():
            feature, role = parsed(name)
            of_model = feature in fields_of(DotModel)
            draft = with_values(draft, {feature: value}) if of_model else draft.change(role, **{feature: value})
        return draft

    def like(self, model: DotModel) -> Draft:
        """Return the draft with the arithmetics of a model. Each role gets the arithmetic of the sum nearest to the result."""
        draft = replace(self, **{name: getattr(model, name) for name in fields_of(DotModel)})
        for node in model.root.nodes():
            draft = replace(draft, sum=node.arithmetic) if node.products else replace(draft, add=node.arithmetic)
        return draft

    def _build(self, tree: Tree) -> Term:
        if isinstance(tree, int):
            return Addend() if tree == self.inst.k else Product(tree)
        children = sorted(tree, key=self._rank)
        adds_products = any(isinstance(child, int) and child < self.inst.k for child in tree)
        arithmetic = self.sum if adds_products else self.add
        if tree is not self.tree and self.inner and isinstance(arithmetic, FloatArithmetic):
            bits = arithmetic.result_bits if arithmetic.result is self.inner else self.inner.mantissa_bits
            arithmetic = replace(arithmetic, result=self.inner, result_bits=bits, nan=self.inner.sign_bit - 1)
        return FusedSum(tuple(self._build(t) for t in children), arithmetic)

    def _rank(self, tree: Tree) -> tuple[int, int]:
        """Return the order of terms that `tree.chain` uses: inner sums, then C, then products."""
        if isinstance(tree, int):
            return (1, 0) if tree == self.inst.k else (2, tree)
        return 0, min(leaves_of(tree))

    def _slot(self, child: Tree) -> Slot:
        k = self.inst.k
        if isinstance(child, int):
            return Slot(child, "addend" if child == k else "product")
        inside = leaves_of(child)
        return Slot(k if k in inside else inside[0], "sum")


def leaves_of(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in leaves_of(child)]


def choose(
    bench: Workbench, draft: Draft, combinations: Sequence[Mapping[str, Value]], operands: Request, note: str = SAME_BITS
) -> tuple[Draft, Findings]:
    """Set features to the first of some combinations of values that explains the device's results of `operands`.

    If none does, the one with the fewest mismatches is set, and the findings are undetermined.
    Several features are chosen together because one shows through another. Return the draft and the findings of the features.
    """
    d = bench.query(operands)
    predicted = np.stack([evaluate(draft.with_features(some).model(), bench.inst, operands) for some in combinations])
    wrong = (predicted != d).sum(axis=1)
    evidence = bench.exchanges(operands, d, np.flatnonzero((predicted != predicted[0]).any(axis=0))[:EVIDENCE])
    explaining = np.flatnonzero(wrong == 0).tolist()
    possible = [combinations[i] for i in explaining or [int(wrong.argmin())]]
    findings: Findings = {}
    for name in possible[0]:
        values = tuple(dict.fromkeys(combination[name] for combination in possible))
        if explaining:
            findings[name] = Finding.among(values, evidence, note)
        else:
            candidates = values if len(possible[0]) > 1 else ()
            findings[name] = Finding(values[0], "undetermined", candidates, NOTHING_EXPLAINS, evidence)
    return draft.with_features(possible[0]), findings


def choose_word(
    bench: Workbench,
    draft: Draft,
    feature: str,
    role: Role,
    operands: Request,
    note: str = SAME_BITS,
    words: Sequence[Value] = (),
) -> tuple[Draft, Finding]:
    """Choose one feature of the sums of a role, among all its words unless `words` are given."""
    name = str(Name(feature, role))
    among = words or fields_of(FloatArithmetic)[feature].words
    draft, findings = choose(bench, draft, [{name: word} for word in among], operands, note)
    return draft, findings[name]


REACH = 70  # Bits below M that are probed at most.
WINDOW = 100  # Exponents beyond +-WINDOW are not used: rows need not come near overflow or the smallest exponents.

# Rows by j, ascending: their small term is 2^-j M.
RowSeries = Sequence[tuple[int, LeafValues]]


@dataclass(frozen=True)
class Limit:
    """The last j up to which the rows of a series have the expected results; `exact` if a later one did not."""

    bits: int
    exact: bool
    evidence: tuple[Exchange, ...]


def span(bench: Workbench, slot: Slot) -> range:
    """Return the exponents of the powers of two that can enter a sum by this slot."""
    leaf = bench.addend_exponents() if slot.leaf == bench.addend else bench.product_exponents()
    low, high = max(leaf[0], -WINDOW), min(leaf[-1], WINDOW)
    if slot.kind == "sum":
        results = bench.result_exponents()
        low, high = max(low, results[0]), min(high, results[-1])
    return range(low, high + 1)


def limit(bench: Workbench, series: RowSeries, model: DotModel | None = None) -> Limit:
    """Return the last j up to which the device gives the exact sum, or the result that `model` predicts."""
    operands = bench.request([row for _, row in series])
    d = bench.query(operands)
    if model is None:
        wrong = np.flatnonzero([_exact(bench, row) != int(result) for (_, row), result in zip(series, d, strict=True)])
    else:
        wrong = np.flatnonzero(d != evaluate(model, bench.inst, operands))
    if not len(wrong):
        return Limit(series[-1][0], False, bench.exchanges(operands, d, [len(series) - 1]))
    first = int(wrong[0])
    return Limit(series[first][0] - 1, True, bench.exchanges(operands, d, [i for i in (first - 1, first) if i >= 0]))


def _exact(bench: Workbench, row: LeafValues) -> int | None:
    """Return the bit pattern of the exact sum of a row, None if the result's format cannot represent it."""
    lowest = min(value.exponent for value in row.values())
    total = sum(value.significand << (value.exponent - lowest) for value in row.values())
    return bench.result_pattern(Dyadic(total, lowest))


def agree(limits: dict[str, Limit]) -> Finding:
    """Merge the limits of several series: the exact ones must agree and reach as far as every lower bound."""
    if not limits:
        return Finding(0, "at_least", note="no operands reach below the largest term")
    exact = {limit.bits for limit in limits.values() if limit.exact}
    evidence = tuple(e for limit in limits.values() for e in limit.evidence)
    reached = max((limit.bits for limit in limits.values() if not limit.exact), default=0)
    if len(exact) > 1 or (exact and reached > min(exact)):
        seen = ", ".join(f"{label}: {limit.bits}{'' if limit.exact else ' or more'}" for label, limit in limits.items())
        return Finding(min(exact), "undetermined", tuple(sorted(exact)), f"differs by term ({seen})", evidence)
    if exact:
        return Finding(exact.pop(), evidence=evidence)
    return Finding(reached, "at_least", note="no operand reaches further below the largest term", evidence=evidence)


def named(alignment: Finding, result: Finding, rounding: Finding, alignment_rounding: Finding | None = None) -> Findings:
    """Return the findings about the bits of one role's sums, by feature."""
    found = {"alignment_bits": alignment, "result_bits": result, "result_rounding": rounding}
    return found | ({"alignment_rounding": alignment_rounding} if alignment_rounding else {})
