"""Why two matrix products of equal operands differ: the model of each side is inferred, and its findings are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accprobe.trace.plans import PLANS, RegionPlans
from accprobe.trace.products import RecordedProduct, block_product, recorded_product
from accprobe.trace.records import TracedOperation
from accprobe.trace.sides import Cause, Kind, OriginSide

Operations = tuple[TracedOperation, ...]

OF_KIND: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("split_k", ("split_k",)),
    ("promotion", ("promote_every", "promotion_format", "promotion_rounding")),
    ("partials", ("partial_format", "reduction_order", "slice_sizes")),
    (
        "order",
        ("order", "products_per_sum", "instruction", "effective_bits", "alignment_bits", "result_bits", "sum_rounding"),
    ),
)
"""Findings of a plan by the kind of cause that a difference in them is, the most important first."""


def cause_of_products(left: OriginSide, right: OriginSide, values: Mapping[int, int]) -> Cause | None:
    """Return why two products differ; None where neither side is one, or a side cannot be modelled.

    A side of several operations is called as the product that the other side is. values: of the first run, the id of the same
    data in the second.
    """
    first, second = (_product_of(x) for x in (left, right))
    if first is None and second is not None and left.calls:
        first = _product_of_block(second, right, left, {y: x for x, y in values.items()})
    elif second is None and first is not None and right.calls:
        second = _product_of_block(first, left, right, values)
    if first is None or second is None:
        return None
    return product_cause((first, second), (left.operations, right.operations))


def _product_of(side: OriginSide) -> RecordedProduct | None:
    return recorded_product(side.operations[0].packet, side.calls[0]) if len(side.calls) == 1 else None


def _product_of_block(
    product: RecordedProduct, of: OriginSide, side: OriginSide, values: Mapping[int, int]
) -> RecordedProduct | None:
    return block_product(product, of.calls[0], of.operations[0].packet, side.block, values)


def plan_key(operations: Operations, versions: Mapping[str, str]) -> tuple[Any, ...]:
    """Return everything that the plan of a product can depend on."""
    return (
        tuple(versions.items()),
        *(
            (x.name, x.arguments, tuple((y.shape, y.strides, y.dtype) for y in x.inputs), tuple(sorted(x.flags.items())))
            for x in operations
        ),
    )


def product_cause(
    products: tuple[RecordedProduct, RecordedProduct],
    operations: tuple[Operations, Operations],
    versions: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> Cause:
    """Return in which finding the plans of two products differ. versions: of the runs in which the operations were recorded."""
    found, wrong = zip(
        *(PLANS.of(plan_key(x, y), product) for x, y, product in zip(operations, versions, products, strict=True)), strict=True
    )
    flags = _differing_flags(operations)
    if found[0] is None or found[1] is None:
        lacking = " and ".join(name for name, plan in zip("AB", found, strict=True) if plan is None)
        return Cause("unknown", f"not explained: no model was found of side {lacking}{flags}")
    unpredicted = "; ".join(
        f"the model of side {name} does not give {n:,} of {product.d.size:,} words"
        for name, n, product in zip("AB", wrong, products, strict=True)
        if n
    )
    kind, text = _difference(found[0], found[1])
    if unpredicted:
        return Cause(
            "unknown", f"not explained: {unpredicted}; the nearest plans: {text.removeprefix('not explained: ')}{flags}"
        )
    return Cause(kind, text + flags, verified=kind != "unknown")


def _difference(first: RegionPlans, second: RegionPlans) -> tuple[Kind, str]:
    """Return the most important difference of two plans, and its kind."""
    formats = [str(plan.regions[0][2].a) for plan in (first, second)]
    if formats[0] != formats[1]:
        return "cast", " against ".join(f"{x.upper() if x == 'tf32' else x} operands" for x in formats)
    one, other = first.findings, second.findings
    for kind, names in OF_KIND:
        differing = [name for name in names if name in one and name in other and one[name] != other[name]]
        if kind in ("split_k", "promotion") and differing:
            return kind, f"{plan_in_words(one, kind)} against {plan_in_words(other, kind)}"
        if differing:
            return kind, ", ".join(f"{name.replace('_', ' ')} {one[name]} against {other[name]}" for name in differing)
    if [x[2] for x in first.regions] != [x[2] for x in second.regions]:
        return "order", "the products are added in another order"
    return "unknown", "not explained: both sides have the same plan"


def plan_in_words(findings: Mapping[str, Any], kind: Kind) -> str:
    """Return the split or the promotion of a plan: "split-K 4 (f32 partial sums)"."""
    if kind == "promotion":
        every = findings.get("promote_every")
        return "no promotion" if every is None else f"promotion every {every} k"
    split = findings.get("split_k") or 1
    return "no split" if split == 1 else f"split-K {split} ({findings.get('partial_format', 'f32')} partial sums)"


def _differing_flags(operations: tuple[Operations, Operations]) -> str:
    """Return flags of torch that differ, as the end of a sentence."""
    first, second = (dict(side[-1].flags) if side else {} for side in operations)
    differing = [
        f"{name} {first[name]} against {second[name]}" for name in first if first[name] != second.get(name, first[name])
    ]
    return f" ({', '.join(differing)})" if differing else ""
