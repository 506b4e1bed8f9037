"""Models of a product from its tree: which sums are chunks and which slices, in what formats partial sums are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from accprobe.gemm.battery import asks_subnormals
from accprobe.gemm.candidates import EITHER
from accprobe.gemm.decomposition import FusedGroups, Reduction, as_chain
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import OPERAND_ROUNDINGS, Merged, Nested, Node, Order, ProductModel, Scales, addition, nested
from accprobe.model.tree import DotModel, FloatArithmetic, Rounding, Subnormals

SMALL = ("bf16", "f16")
"""Formats below f32 that partial sums are kept in."""

ROUNDINGS: tuple[Rounding, ...] = ("RNE", "RZ")


@dataclass(frozen=True)
class ProductPlan:
    """A product's tree, and what is not told by the tree.

    kept: the format that the outermost partial sums are rounded to before they are added (None: as they are); running: that
    of the sum of them. unordered: whether they are added in any order. scales: how they are applied. sum_subnormals: whether
    additions of partial sums read and give subnormals.
    """

    spec: Spec
    tree: FusedGroups | Reduction
    step: DotModel
    kept: Format | None = None
    running: Format = FORMATS["f32"]
    sum_rounding: Rounding = "RNE"
    result_rounding: Rounding = "RNE"
    unordered: bool = False
    scales: Scales | None = None
    operand_rounding: Rounding = "RZ"
    sum_subnormals: Subnormals = "kept"

    @property
    def added_in(self) -> Format:
        """The format in which partial sums are added that are kept as they are."""
        return FORMATS["f64"] if self.step.root.arithmetic.result.name == "f64" else FORMATS["f32"]

    def model(self) -> ProductModel:
        node = self._node(self.tree, outermost=True)
        spec = self.spec
        last = self.result_rounding, self.scales, self.operand_rounding
        return ProductModel(spec.a, spec.b, spec.k, self.step, node, spec.out, *last)

    def _node(self, part: FusedGroups | Reduction, outermost: bool = False) -> Node:
        if not isinstance(part, Reduction):
            return as_chain(part, self.step.products)
        parts = tuple(self._node(x) for x in part.parts)
        integer = FORMATS["s32"] if self.spec.out.is_integer else None
        narrow = outermost and self.running.name != "f32"
        add = addition(integer or (self.running if narrow else self.added_in), self.sum_rounding, self.sum_subnormals)
        order = "unordered" if self.unordered and outermost else named_order(part.nested, len(parts))
        return Merged(parts, order, add, self.kept if outermost else None)


def subnormal_results(plan: ProductPlan) -> str:
    """Return whether sums may be subnormal, products that are sums of their own, and sums of partial sums."""
    kept = [
        isinstance(x.arithmetic, FloatArithmetic) and x.arithmetic.subnormal_results == "kept" for x in plan.step.root.nodes()
    ]
    if plan.sum_subnormals == "flushed":
        return "flushed where partial sums are added" if all(kept) else "flushed"
    return "kept" if all(kept) else "flushed" if not kept[-1] else "flushed of products"


def named_order(order: Nested, parts: int) -> Order | Nested:
    """The name of an order, where it has one: the sum of two does not depend on which is first."""
    for name in ("forward", "backward", "tree"):
        if same_order(nested(name, parts), order):
            return name
    return order


def order_name(order: Nested, parts: int) -> str:
    """Return the name of an order, also "butterfly", or the order itself as text."""
    halves = butterfly(parts) if parts > 2 and not parts & (parts - 1) else None
    return "butterfly" if halves is not None and same_order(halves, order) else str(named_order(order, parts))


def butterfly(parts: int) -> Nested:
    """Return the order that adds the halves of 2^n parts, one by one, and then the halves of the sums."""
    level: list[Nested] = list(range(parts))
    while len(level) > 1:
        half = len(level) // 2
        level = [(level[i], level[half + i]) for i in range(half)]
    return level[0]


def same_order(x: Nested, y: Nested) -> bool:
    if isinstance(x, int) or isinstance(y, int):
        return x == y
    if len(x) != len(y):
        return False
    return all(map(same_order, x, y)) or (len(x) == 2 and same_order(x[0], y[1]) and same_order(x[1], y[0]))


def plan_alternatives(plan: ProductPlan) -> Iterator[tuple[str, str, ProductPlan]]:
    """Plans that differ in one respect: the finding's name, how, and the plan."""
    if plan.spec.rounds_operands:
        for rounding in OPERAND_ROUNDINGS:
            if rounding != plan.operand_rounding:
                yield "operand_rounding", rounding, replace(plan, operand_rounding=rounding)
    if isinstance(plan.tree, Reduction):
        f32 = FORMATS["f32"]
        for kept, running in ((None, f32), *((FORMATS[name], sums) for name in SMALL for sums in (f32, FORMATS[name]))):
            if (kept, running) != (plan.kept, plan.running):
                respect = "reduction_order" if kept == plan.kept else "partial_format"
                how = f"{kept or plan.added_in} partial sums, added in {plan.added_in if running is f32 else running}"
                yield respect, how, replace(plan, kept=kept, running=running)
        for rounding in ROUNDINGS:
            if rounding != plan.sum_rounding:
                yield "promotion_rounding", rounding, replace(plan, sum_rounding=rounding)
        if asks_subnormals(plan.spec) and plan.running is f32:
            for subnormals in EITHER:
                if subnormals != plan.sum_subnormals:
                    other = replace(plan, sum_subnormals=subnormals)
                    yield "subnormal_results", subnormal_results(other), other
    last = plan.running if isinstance(plan.tree, Reduction) else plan.step.root.arithmetic.result
    if plan.spec.out.is_float and plan.spec.out.mantissa_bits < last.mantissa_bits:
        for rounding in ROUNDINGS:
            if rounding != plan.result_rounding:
                yield "result_rounding", rounding, replace(plan, result_rounding=rounding)
