"""Plans of a product, models of its fused sums and partial sums, and the plans that differ from one in one property.

Candidate arithmetics of the fused sums come from measured and published instructions first; then any is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple, get_args

from accprobe.callables.operands import shows_subnormals
from accprobe.callables.spec import Spec
from accprobe.gemm.tree.decomposition import ORDERS, chain_of, forward
from accprobe.infer.neighbours import alternatives
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction
from accprobe.model import published
from accprobe.model.product import (
    OPERAND_ROUNDINGS,
    Chain,
    Merged,
    Node,
    ProductModel,
    SubnormalSums,
    addition,
    multiply_add,
    nested,
    same_order,
    subnormal_sums,
)
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
# The arithmetic that is varied if no known instruction fits. All fields but the bits have the values that most units have.
HOPPER = FloatArithmetic(FORMATS["f32"], 23, "RZ", 25, underflow_sign="positive")


known = cache(named_models)


def one_sum(arithmetic: FloatArithmetic | IntegerArithmetic, products: int) -> DotModel:
    return DotModel(FusedSum((Addend(), *map(Product, range(products))), arithmetic))


def _known(a: Format, b: Format) -> Iterator[tuple[str, Instruction, DotModel]]:
    """Yield the known dense instructions of these formats by name."""
    for source in SOURCES:
        for inst, model in known(source).items():
            if (inst.a, inst.b) == (a, b) and not inst.sparse:
                yield f"{source}:{inst.name}", inst, model


def any_known(a: Format, b: Format) -> bool:
    """Return whether a known dense instruction multiplies these formats."""
    return next(_known(a, b), None) is not None


def known_steps(a: Format, b: Format, products: int) -> Iterator[tuple[str, DotModel]]:
    """Yield the distinct fused sums of this width in known instructions for these formats, with an instruction's name."""
    seen = set()
    for name, inst, model in _known(a, b):
        for node in model.root.nodes() if inst.scale is None else ():
            if len(node.products) == products and node.arithmetic not in seen:
                seen.add(node.arithmetic)
                yield name, replace(model, root=one_sum(node.arithmetic, products).root)


def single_steps() -> Iterator[DotModel]:
    """Yield sums of one product: fused multiply-adds, multiply then add, those of narrow products, and those that flush."""
    for fmt in ("f32", "f64", "f16", "bf16"):
        yield from (multiply_add(FORMATS[fmt]), multiply_add(FORMATS[fmt], fused=False))
    f32 = multiply_add()
    for operands, results in product(EITHER, EITHER):
        yield replace(f32, root=_flushing(f32.root, results), subnormal_operands=operands, subnormal_addend=results)
    for name in PARTIAL_FORMATS:
        rounded = FusedSum((Product(0),), addition(FORMATS[name]))
        yield replace(f32, root=FusedSum((rounded, Addend()), f32.root.arithmetic))
    for operands in EITHER:
        step = replace(multiply_add(fused=False), subnormal_operands=operands)
        yield from (step, *flushing_variants(step))


def flushing_variants(step: DotModel) -> Iterator[DotModel]:
    """Yield variants of a multiply-then-add step in which other results flush subnormals."""
    (first,) = step.root.children
    for products, results in product(EITHER, EITHER):
        root = _flushing(FusedSum((_flushing(first, products), Addend()), step.root.arithmetic), results)
        other = replace(step, root=root, subnormal_addend=results)
        if other != step:
            yield other


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
    widths = [{"alignment_bits": bits} for bits in (*range(7, 37), None)]
    results = [{"result_bits": bits} for bits in range(7, arithmetic.result.mantissa_bits + 1)]
    changes: list[dict[str, Any]] = [*widths, *results, *({"result_rounding": rounding} for rounding in ROUNDINGS)]
    others = (replace(arithmetic, **change) for change in changes)
    yield from (one_sum(other, products) for other in others if fits(other, products + 1))


def integer_step(products: int) -> DotModel:
    return one_sum(IntegerArithmetic(FORMATS["s32"], "wrap"), products)


@cache
def instructions_of(a: Format, b: Format, step: DotModel) -> tuple[str, ...]:
    """Return the names of instructions that have no other sums than this step."""
    found: dict[str, None] = {}
    for name, _, model in _known(a, b):
        nodes = {(node.arithmetic, len(node.products)) for node in model.root.nodes() if node.products}
        if nodes == {(step.root.arithmetic, step.products)}:
            found[name] = None
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


def draft(spec: Spec, tree: Node, products: int) -> ProductModel:
    """Return a plan of an order of additions with arithmetic not known yet."""
    step = integer_step(products) if spec.a.is_integer else one_sum(HOPPER, products)
    return ProductModel(spec.a, spec.b, spec.k, step, tree, spec.out)


class Additions(NamedTuple):
    """How partial sums are added.

    kept: format to which the outermost ones are rounded first (None: not rounded); running: format of their sum. rounding,
    subnormals: of all additions.
    """

    kept: Format | None
    running: Format
    rounding: Rounding = "RNE"
    subnormals: SubnormalSums = "kept"

    @property
    def is_serial(self) -> bool:
        """Return whether the sum is rounded to a narrow format after each addition."""
        return self.running.name in PARTIAL_FORMATS


def added_in(step: DotModel) -> Format:
    """Return the format in which unrounded partial sums are added."""
    result = step.root.arithmetic.result
    return result if result.name in ("f64", "s32") else FORMATS["f32"]


def additions_of(plan: ProductModel) -> Additions:
    tree = plan.tree
    if isinstance(tree, Chain):
        return Additions(None, added_in(plan.step))
    assert isinstance(tree.arithmetic, FloatArithmetic)
    return Additions(tree.kept, tree.arithmetic.result, tree.arithmetic.result_rounding, subnormal_sums(tree.arithmetic))


def with_additions(plan: ProductModel, how: Additions) -> ProductModel:
    inner = added_in(plan.step)

    def changed(node: Node, fmt: Format, kept: Format | None) -> Node:
        if isinstance(node, Chain):
            return node
        parts = tuple(changed(part, inner, None) for part in node.parts)
        return replace(node, parts=parts, arithmetic=addition(fmt, how.rounding, how.subnormals), kept=kept)

    return replace(plan, tree=changed(plan.tree, how.running if how.is_serial else inner, how.kept))


def with_step(plan: ProductModel, step: DotModel) -> ProductModel:
    """Return the plan with another fused sum; partial sums are added in its format."""
    other = replace(plan, step=step)
    return other if added_in(step) is added_in(plan.step) else with_additions(other, additions_of(plan))


def subnormal_results(plan: ProductModel) -> str:
    """Return whether products that are rounded first, fused sums and sums of partial sums may be subnormal."""
    kept = [
        isinstance(x.arithmetic, FloatArithmetic) and x.arithmetic.subnormal_results == "kept" for x in plan.step.root.nodes()
    ]
    added = additions_of(plan).subnormals
    if added != "kept" and all(kept):
        return f"{added} where partial sums are added"
    if isinstance(plan.tree, Merged) and not kept[-1]:
        return {
            "kept": "flushed, except where partial sums are added",
            "flushed": "flushed",
            "flushed to +0": "flushed, to +0 where partial sums are added",
        }[added]
    return "kept" if all(kept) else "flushed" if not kept[-1] else "flushed of products"


@dataclass(frozen=True)
class AlternativePlan:
    """A plan that differs in one property. property: the name of the finding; how: the other value, in words."""

    plan: ProductModel
    property: str
    how: str


def alternative_plans(spec: Spec, plan: ProductModel) -> Iterator[AlternativePlan]:
    """Yield the plans that differ in one of the reported properties."""
    subnormal = ("subnormal_operands",) if spec.a_exponent is None else ()
    reported = {*FIELDS, "sum_rounding", *subnormal, *(ONLY_SUBNORMAL if shows_subnormals(spec) else ())}
    for alternative in alternatives(plan.step, {}):
        name, how = alternative.field, "none" if alternative.value is None else str(alternative.value)
        of_products = alternative.model.root.arithmetic == plan.step.root.arithmetic
        if of_products and set(alternative.model.arithmetics) != set(plan.step.arithmetics):
            name, how = "product_bits" if name in ("result_bits", "result_rounding") else "", f"rounded {how}"
        elif name == "result_rounding":
            name = "sum_rounding"
        if name in reported:
            yield AlternativePlan(with_step(plan, alternative.model), name, how)
    if plan.step.root.children and shows_subnormals(spec):
        for step in flushing_variants(plan.step):
            other = with_step(plan, step)
            yield AlternativePlan(other, "subnormal_results", subnormal_results(other))
    yield from rounding_alternatives(spec, plan)
    yield from _tree_alternatives(plan)


def rounding_alternatives(spec: Spec, plan: ProductModel) -> Iterator[AlternativePlan]:
    """Yield plans that round operands, partial sums or the result differently."""
    if spec.rounds_operands:
        yield from _other_values(plan, "operand_rounding", OPERAND_ROUNDINGS)
    last = plan.step.root.arithmetic.result
    if isinstance(plan.tree, Merged):
        yield from _other_additions(spec, plan)
        last = additions_of(plan).running
    if spec.out.is_float and spec.out.mantissa_bits < last.mantissa_bits:
        yield from _other_values(plan, "result_rounding", (*ROUNDINGS, "RNA"))


def _other_additions(spec: Spec, plan: ProductModel) -> Iterator[AlternativePlan]:
    """Yield plans that add partial sums in other formats, with another rounding, or that flush subnormal sums."""
    mine, wide = additions_of(plan), added_in(plan.step)
    narrow = [FORMATS[name] for name in PARTIAL_FORMATS]
    for kept, running in ((None, wide), *((fmt, sums) for fmt in narrow for sums in (wide, fmt))):
        if (kept, running) != (mine.kept, mine.running):
            other = with_additions(plan, mine._replace(kept=kept, running=running))
            name = "reduction_order" if kept == mine.kept else "partial_format"
            yield AlternativePlan(other, name, f"{kept or wide} partial sums, added in {running}")
    for rounding in ROUNDINGS:
        if rounding != mine.rounding:
            yield AlternativePlan(with_additions(plan, mine._replace(rounding=rounding)), "promotion_rounding", rounding)
    if shows_subnormals(spec) and not mine.is_serial:
        for subnormals in get_args(SubnormalSums):
            if subnormals != mine.subnormals:
                other = with_additions(plan, mine._replace(subnormals=subnormals))
                yield AlternativePlan(other, "subnormal_results", subnormal_results(other))


def _other_values(plan: ProductModel, field: str, values: tuple[str, ...]) -> Iterator[AlternativePlan]:
    changes: Iterator[dict[str, Any]] = ({field: value} for value in values if value != getattr(plan, field))
    return (AlternativePlan(replace(plan, **change), field, change[field]) for change in changes)


def _tree_alternatives(plan: ProductModel) -> Iterator[AlternativePlan]:
    """Yield plans with another division of K or another order of the partial sums."""
    tree, products = plan.tree, plan.step.products

    def other(node: Node, name: str, how: str) -> AlternativePlan:
        return AlternativePlan(with_additions(replace(plan, tree=node), additions_of(plan)), name, how)

    if isinstance(tree, Chain):
        sums = tree.sums(products)
        two_terms = len(sums) == 2 and plan.step.root.arithmetic == addition(added_in(plan.step))  # one addition either way
        if (half := len(sums) // 2) and not two_terms:
            yield other(forward([chain_of(sums[:half], products), chain_of(sums[half:], products)]), "split_k", "2 slices")
        return
    for order in ORDERS if plan.is_ordered else ():
        if not same_order(nested(order, len(tree.parts)), tree.nested):
            yield other(replace(tree, order=order), "reduction_order", f"partial sums {order}")
    for i, (first, second) in enumerate(zip(tree.parts[:3], tree.parts[1:4], strict=False)):
        if isinstance(first, Chain) and isinstance(second, Chain) and (moved := _moved_border(first, second, products)):
            parts = (*tree.parts[:i], *moved, *tree.parts[i + 2 :])
            yield other(replace(tree, parts=parts), "slice_sizes", f"slices {i + 1} and {i + 2} of other sizes")
    if all(isinstance(part, Chain) for part in tree.parts) and len(tree.parts) == 2:
        both = tuple(each for chain in plan.chains() for each in chain.sums(products))
        yield other(chain_of(both, products), "promote_every", "never")


def _moved_border(first: Chain, second: Chain, products: int) -> list[Chain]:
    """Return the chains with one fused sum moved from the second to the first, or else from the first to the second."""
    sums, border = [*first.sums(products), *second.sums(products)], len(first.sums(products))
    border += 1 if len(sums) > border + 1 else -1
    return [chain_of(tuple(part), products) for part in (sums[:border], sums[border:])] if border else []
