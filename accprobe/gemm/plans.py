"""Plans of a product: its summation tree, fused sums and partial sums; and the plans that differ from one in one property."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from accprobe.gemm.layout import shows_subnormals
from accprobe.gemm.spec import Spec
from accprobe.gemm.steps import EITHER, ROUNDINGS, flushing_variants
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction, as_chain, named_order, same_order
from accprobe.infer.alternatives.neighbours import alternatives
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import OPERAND_ROUNDINGS, Merged, Node, ProductModel, Scales, addition, nested
from accprobe.model.tree import DotModel, FloatArithmetic, Rounding, Subnormals

# Formats narrower than f32 to which partial sums may be rounded.
PARTIAL_FORMATS = ("bf16", "f16")

# Fields of the fused sum that are reported of a product and must therefore be tested.
FIELDS = (
    "alignment_bits",
    "alignment_rounding",
    "result_bits",
    "result_rounding",
    "product_exponent",
    "product_bits",
    "addend_place",
)

# Properties in which alternatives differ only for subnormal sums, or subnormal products that are rounded first.
ONLY_SUBNORMAL = ("subnormal_results", "product_bits")


@dataclass(frozen=True)
class ProductPlan:
    """The summation tree of a product and the arithmetic of its additions.

    kept: format to which the outermost partial sums are rounded before they are added (None: not rounded); running: format of
    their sum. unordered: whether they are added in no fixed order. sum_subnormals: whether additions of partial sums read and
    give subnormals.
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
        """Return the format in which unrounded partial sums are added."""
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
    """Return whether products that are rounded first, fused sums and sums of partial sums may be subnormal."""
    kept = [
        isinstance(x.arithmetic, FloatArithmetic) and x.arithmetic.subnormal_results == "kept" for x in plan.step.root.nodes()
    ]
    if plan.sum_subnormals == "flushed":
        return "flushed where partial sums are added" if all(kept) else "flushed"
    return "kept" if all(kept) else "flushed" if not kept[-1] else "flushed of products"


@dataclass(frozen=True)
class AlternativePlan:
    """A plan that differs in one property. property: the name of the finding; how: the other value, in words."""

    plan: ProductPlan
    property: str
    how: str


def alternative_plans(plan: ProductPlan) -> Iterator[AlternativePlan]:
    """Yield every plan that differs in one property."""
    subnormal = ("subnormal_operands",) if plan.spec.a_exponent is None else ()
    reported = {*FIELDS, "sum_rounding", *subnormal, *(ONLY_SUBNORMAL if shows_subnormals(plan.spec) else ())}
    for alternative in alternatives(plan.step, {}):
        name, how = alternative.field, "none" if alternative.value is None else str(alternative.value)
        if _rounds_products_differently(plan.step, alternative.model):
            name, how = "product_bits" if name in ("result_bits", "result_rounding") else "", f"rounded {how}"
        elif name == "result_rounding":
            name = "sum_rounding"
        if name in reported:
            yield AlternativePlan(replace(plan, step=alternative.model), name, how)
    if plan.step.root.children and shows_subnormals(plan.spec):
        for step in flushing_variants(plan.step):
            other = replace(plan, step=step)
            yield AlternativePlan(other, "subnormal_results", subnormal_results(other))
    yield from rounding_alternatives(plan)
    yield from _tree_alternatives(plan)


def _rounds_products_differently(step: DotModel, other: DotModel) -> bool:
    """Return whether two multiply-then-add steps differ in how products are rounded."""
    return step.root.arithmetic == other.root.arithmetic and set(step.arithmetics) != set(other.arithmetics)


def rounding_alternatives(plan: ProductPlan) -> Iterator[AlternativePlan]:
    """Yield plans that round operands, partial sums or the result differently."""
    if plan.spec.rounds_operands:
        yield from _other_values(plan, "operand_rounding", "operand_rounding", OPERAND_ROUNDINGS)
    if isinstance(plan.tree, Reduction):
        f32 = FORMATS["f32"]
        for kept, running in (
            (None, f32),
            *((FORMATS[name], sums) for name in PARTIAL_FORMATS for sums in (f32, FORMATS[name])),
        ):
            if (kept, running) != (plan.kept, plan.running):
                name = "reduction_order" if kept == plan.kept else "partial_format"
                how = f"{kept or plan.added_in} partial sums, added in {plan.added_in if running is f32 else running}"
                yield AlternativePlan(replace(plan, kept=kept, running=running), name, how)
        yield from _other_values(plan, "promotion_rounding", "sum_rounding", ROUNDINGS)
        if shows_subnormals(plan.spec) and plan.running is f32:
            for each in _other_values(plan, "subnormal_results", "sum_subnormals", EITHER):
                yield replace(each, how=subnormal_results(each.plan))
    last = plan.running if isinstance(plan.tree, Reduction) else plan.step.root.arithmetic.result
    if plan.spec.out.is_float and plan.spec.out.mantissa_bits < last.mantissa_bits:
        yield from _other_values(plan, "result_rounding", "result_rounding", ROUNDINGS)


def _other_values(plan: ProductPlan, name: str, field: str, values: tuple[str, ...]) -> Iterator[AlternativePlan]:
    for value in values:
        if value != getattr(plan, field):
            yield AlternativePlan(replace(plan, **{field: value}), name, value)  # type: ignore[arg-type]


def _tree_alternatives(plan: ProductPlan) -> Iterator[AlternativePlan]:
    """Yield plans with another division of K or another order of the partial sums."""
    tree = plan.tree
    if not isinstance(tree, Reduction):
        half = len(tree) // 2
        if half:
            yield AlternativePlan(replace(plan, tree=Reduction((tree[:half], tree[half:]), (0, 1))), "split_k", "2 slices")
        return
    for order in ("forward", "backward", "tree") if not plan.unordered else ():
        other = nested(order, len(tree.parts))
        if not same_order(other, tree.nested):
            yield AlternativePlan(replace(plan, tree=replace(tree, nested=other)), "reduction_order", f"partial sums {order}")
    for i, (first, second) in enumerate(zip(tree.parts[:3], tree.parts[1:4], strict=False)):
        if (moved := _moved_border(first, second)) is not None:
            parts = (*tree.parts[:i], *moved, *tree.parts[i + 2 :])
            yield AlternativePlan(replace(plan, tree=replace(tree, parts=parts)), "slice_sizes", f"border {i} one sum further")
    first, second = tree.parts[:2]
    if not isinstance(first, Reduction) and not isinstance(second, Reduction) and len(tree.parts) == 2:
        yield AlternativePlan(replace(plan, tree=(*first, *second)), "promote_every", "never")


def _moved_border(first: FusedGroups | Reduction, second: FusedGroups | Reduction) -> tuple[FusedGroups, FusedGroups] | None:
    """Return two chains with one fused sum moved from the second to the first, or else from the first to the second."""
    if isinstance(first, Reduction) or isinstance(second, Reduction):
        return None
    if len(second) > 1:
        return (*first, second[0]), second[1:]
    return (first[:-1], (first[-1], *second)) if len(first) > 1 else None
