"""The model while it is being inferred: the tree, and one arithmetic for sums of products and one for sums without any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from accprobe.infer.workbench import NORMAL, Reach
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import fields_of, with_values
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, Product, Role, Subnormals, Term

# A leaf (k, or K for C), or a node's children.
Tree = int | tuple["Tree", ...]


class Slot(NamedTuple):
    """A way into a node: a leaf, and whether the node takes it as a product, as C, or as the result of an inner sum."""

    leaf: int
    kind: Literal["product", "addend", "sum"]


@dataclass(frozen=True)
class DraftNode:
    """One inner node of the tree."""

    role: Role
    slots: tuple[Slot, ...]
    depth: int
    """Nodes between it and the result; 0 for the root."""


@dataclass(frozen=True)
class Draft:
    """Everything inferred so far."""

    inst: Instruction
    tree: Tree
    sum: Arithmetic
    add: Arithmetic
    subnormal_operands: Subnormals = "kept"
    subnormal_addend: Subnormals = "kept"
    addend_bits: int | None = None
    inner: Format | None = None
    """The format of the results of all sums but the last, where it is not D's; they keep all of its bits."""
    reach: Reach = NORMAL
    """What rows may be made of, as far as that is known."""

    def model(self) -> DotModel:
        root = self._build(self.tree)
        assert isinstance(root, FusedSum)
        return DotModel(root, self.subnormal_operands, self.subnormal_addend, self.addend_bits)

    def nodes(self) -> list[DraftNode]:
        """All inner nodes, those nearest to the root first."""
        found: list[DraftNode] = []
        self._walk(self.tree, 0, found)
        return sorted(found, key=lambda node: node.depth)

    def arithmetic(self, role: Role) -> FloatArithmetic:
        arithmetic = self.sum if role == "sum" else self.add
        assert isinstance(arithmetic, FloatArithmetic)
        return arithmetic

    def change(self, role: Role, **fields: object) -> Draft:
        """The draft with fields of one role's arithmetic replaced."""
        changed = with_values(self.arithmetic(role), fields)
        return replace(self, sum=changed) if role == "sum" else replace(self, add=changed)

    def like(self, model: DotModel) -> Draft:
        """The draft with the arithmetics of a model, of each role those of the sum nearest to the result."""
        draft = replace(self, **{name: getattr(model, name) for name in fields_of(DotModel)})
        for node in model.root.nodes():
            draft = replace(draft, sum=node.arithmetic) if node.products else replace(draft, add=node.arithmetic)
        return draft

    def _build(self, tree: Tree) -> Term:
        if isinstance(tree, int):
            return Addend() if tree == self.inst.k else Product(tree)
        children = sorted(tree, key=self._rank)
        arithmetic = self.sum if role(tree, self.inst.k) == "sum" else self.add
        if tree is not self.tree and isinstance(arithmetic, FloatArithmetic):
            arithmetic = self._within(arithmetic)
        return FusedSum(tuple(self._build(t) for t in children), arithmetic)

    def _within(self, arithmetic: FloatArithmetic) -> FloatArithmetic:
        """That of a sum below the last one."""
        if self.inner is None:
            return arithmetic
        bits = arithmetic.result_bits if arithmetic.result is self.inner else self.inner.mantissa_bits
        return replace(arithmetic, result=self.inner, result_bits=bits, nan=self.inner.sign_bit - 1)

    def _rank(self, tree: Tree) -> tuple[int, int]:
        """Inner sums first, then C, then products: the order in which `model.chain` has them."""
        if isinstance(tree, int):
            return (1, 0) if tree == self.inst.k else (2, tree)
        return 0, min(leaves(tree))

    def _walk(self, tree: Tree, depth: int, found: list[DraftNode]) -> None:
        if isinstance(tree, int):
            return
        slots = tuple(self._slot(child) for child in tree)
        found.append(DraftNode(role(tree, self.inst.k), slots, depth))
        for child in tree:
            self._walk(child, depth + 1, found)

    def _slot(self, child: Tree) -> Slot:
        k = self.inst.k
        if isinstance(child, int):
            return Slot(child, "addend" if child == k else "product")
        inside = leaves(child)
        return Slot(k if k in inside else inside[0], "sum")


def roles(draft: Draft) -> list[Role]:
    """The roles that the sums of the tree have."""
    present = {node.role for node in draft.nodes()}
    return [role for role in get_args(Role) if role in present]


def role(tree: Sequence[Tree], k: int) -> Role:
    """A node that adds at least one product itself is a "sum"."""
    return "sum" if any(isinstance(child, int) and child < k for child in tree) else "add"


def leaves(tree: Tree) -> list[int]:
    """All leaves of a tree, in its order."""
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in leaves(child)]
