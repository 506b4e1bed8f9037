"""Plans of a product: its summation tree, fused sums and partial sums; and the plans that differ from one in one property.

Candidate arithmetics of the fused sums are those of measured and published instructions first, then any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from accprobe.gemm.layout import shows_subnormals
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction, as_chain, named_order, same_order
from accprobe.infer.alternatives.neighbours import alternatives
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction
from accprobe.model import published
from accprobe.model.product import OPERAND_ROUNDINGS, Merged, Node, ProductModel, Scales, addition, multiply_add, nested
from accprobe.model.tree import (
    Addend,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Product,
    Rounding,
    Subnormals,
    fits,
)
from accprobe.report.names import named_models

# Sources of known instructions, measured ones first.
SOURCES = ("h200", *(f"{published.SIM}{name}" for name in published.CHIPS))
ROUNDINGS: tuple[Rounding, ...] = ("RZ", "RNE")
EITHER: tuple[Subnormals, ...] = ("flushed", "kept")
# The arithmetic that is varied if no known instruction fits. All fields but the bits are those of most units.
HOPPER = FloatArithmetic(FORMATS["f32"], 23, "RZ", 25, underflow_sign="positive")


@cache
def known(source: str) -> dict[Instruction, DotModel]:
    return named_models(source)


def one_sum(arithmetic: FloatArithmetic | IntegerArithmetic, products: int) -> DotModel:
    """Return the fused sum of C and this number of products."""
    return DotModel(FusedSum((Addend(), *map(Product, range(products))), arithmetic))


def known_steps(a: Format, b: Format, products: int) -> Iterator[tuple[str, DotModel]]:
    """Yield the distinct fused sums of this width in known instructions for these formats, with an instruction's name."""
    seen = set()
    for source in SOURCES:
        for inst, model in known(source).items():
            if (inst.a, inst.b) != (a, b) or inst.scale is not None or inst.sparse:
                continue
            for node in model.root.nodes():
                if len(node.products) == products and node.arithmetic not in seen:
                    seen.add(node.arithmetic)
                    yield f"{source}:{inst.name}", replace(model, root=one_sum(node.arithmetic, products).root)


def single_steps() -> Iterator[DotModel]:
    """Yield sums of one product: fused multiply-adds, multiply then add, and units that flush subnormals."""
    for fmt in ("f32", "f64", "f16", "bf16"):
        fused = multiply_add(FORMATS[fmt])
        yield from (fused, _multiplied_first(fused), multiply_add(FORMATS[fmt], FORMATS[fmt].mantissa_bits))
    f32 = multiply_add()
    for operands, results in product(EITHER, EITHER):
        yield replace(f32, root=_flushing(f32.root, results), subnormal_operands=operands, subnormal_addend=results)
    separate = _multiplied_first(f32)
    for operands in EITHER:
        step = replace(separate, subnormal_operands=operands)
        yield from (step, *flushing_variants(step))


def flushing_variants(step: DotModel) -> Iterator[DotModel]:
    """Yield variants of a multiply-then-add step in which other results flush subnormals."""
    (first,) = step.root.children
    for products, results in product(EITHER, EITHER):
        root = _flushing(FusedSum((_flushing(first, products), Addend()), step.root.arithmetic), results)
        other = replace(step, root=root, subnormal_addend=results)
        if other != step:
            yield other


def _multiplied_first(fused: DotModel) -> DotModel:
    """Return a multiply-then-add step: the product is rounded to the format, then added."""
    return replace(fused, root=FusedSum((FusedSum((Product(0),), fused.root.arithmetic), Addend()), fused.root.arithmetic))


def _flushing(node: FusedSum, subnormals: Subnormals) -> FusedSum:
    assert isinstance(node.arithmetic, FloatArithmetic)
    return replace(node, arithmetic=replace(node.arithmetic, subnormal_results=subnormals))


@cache
def any_steps(products: int) -> tuple[DotModel, ...]:
    """Return fused sums with other alignment and result bits than known ones."""
    wide = (
        replace(HOPPER, alignment_bits=bits, result_bits=result, result_rounding=rounding)
        for bits in (*range(36, 7, -1), None)
        for result in dict.fromkeys((23, min(bits or 23, 23), 13, 10))
        for rounding in ROUNDINGS
    )
    narrow = (
        FloatArithmetic(FORMATS["f16"], 10, "RNE", bits, underflow_sign="positive", nan=0x7FFF) for bits in range(24, 7, -1)
    )
    return tuple(one_sum(x, products) for x in (*wide, *narrow) if fits(x, products + 1))


def variants(arithmetic: FloatArithmetic, products: int) -> Iterator[DotModel]:
    """Yield fused sums with other bits or another rounding."""
    for bits in (*range(7, 37), None):
        yield from _fitting(replace(arithmetic, alignment_bits=bits), products)
    for result in range(7, arithmetic.result.mantissa_bits + 1):
        yield from _fitting(replace(arithmetic, result_bits=result), products)
    for rounding in ROUNDINGS:
        yield from _fitting(replace(arithmetic, result_rounding=rounding), products)


def _fitting(arithmetic: FloatArithmetic, products: int) -> Iterator[DotModel]:
    if fits(arithmetic, products + 1):
        yield one_sum(arithmetic, products)


def integer_step(products: int) -> DotModel:
    return one_sum(IntegerArithmetic(FORMATS["s32"], "wrap"), products)


@cache
def instructions_of(a: Format, b: Format, step: DotModel) -> tuple[str, ...]:
    """Return the names of instructions all of whose sums equal this step."""
    found: dict[str, None] = {}
    for source in SOURCES:
        for inst, model in known(source).items():
            if (inst.a, inst.b) == (a, b) and not inst.sparse:
                nodes = [node for node in model.root.nodes() if node.products]
                width = step.products
                if nodes and all(node.arithmetic == step.root.arithmetic and len(node.products) == width for node in nodes):
                    found[f"{source}:{inst.name}"] = None
    return tuple(found)


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
