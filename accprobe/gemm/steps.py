"""Candidate arithmetics of the fused sums of a product: of measured and published instructions first, then any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction
from accprobe.model import published
from accprobe.model.product import multiply_add
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
