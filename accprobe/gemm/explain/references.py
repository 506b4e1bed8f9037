"""Reference sums: an f64 sum that is rounded once, and f32 sums in the orders of numpy and SIMD loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import SumWords, product, rounded_to
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Chain, Merged, Nested, Node, ProductModel, addition, multiply_add, nested
from accprobe.model.tree import DotModel

F32, F64 = FORMATS["f32"], FORMATS["f64"]

# Accumulators of a SIMD loop. Each takes every n-th product.
SIMD_LANES = (4, 8, 16, 32)

# Block and lanes of `numpy.add.reduce` along contiguous memory (pairwise_sum in numpy/_core/src/umath/loops_utils.h.src).
PAIRWISE_BLOCK, PAIRWISE_LANES = 128, 8

PlanFindings = dict[str, object]


def f64_references(spec: Spec) -> Iterator[tuple[PlanFindings, ProductModel]]:
    """Yield an f64 sum rounded once to the result, and rounded to f32 first if that is wider than the result."""
    if not spec.a.is_float or F64 in (spec.a, spec.b, spec.out):
        return
    sums: Node = Chain(0, spec.k, (0,))
    findings: PlanFindings = {
        "each_product_once": "yes",
        "instruction": "f64 sum, in any order",
        "effective_bits": F64.mantissa_bits,
    }
    step = multiply_add(F64)
    yield findings | {"rounded": f"once, to {spec.out}"}, ProductModel(spec.a, spec.b, spec.k, step, sums, spec.out)
    if spec.out is not F32:
        through_f32 = Merged((sums,), "forward", addition(), F32)
        yield (
            findings | {"rounded": f"to f32, then to {spec.out}"},
            ProductModel(spec.a, spec.b, spec.k, step, through_f32, spec.out),
        )


def is_f64_reference(model: ProductModel) -> bool:
    return model.step == multiply_add(F64) and F64 not in (model.a, model.b)


def predicted(model: ProductModel, a: Bits, b: Bits, got: Bits) -> Bits:
    """Return the results of a [..., M, K] and b [..., N, K]. The order of an f64 reference is unknown: return `got` if some
    order can give it.
    """
    if not is_f64_reference(model):
        return product(model, a, b)
    x, y = model.a.values(a), model.b.values(b)
    with np.errstate(all="ignore"):
        sums = x @ np.swapaxes(y, -1, -2)
        off = (np.abs(x) @ np.abs(np.swapaxes(y, -1, -2))) * (model.k * 2.0**-F64.mantissa_bits)
        kept = model.tree.kept if isinstance(model.tree, Merged) else None
        low, middle, high = (_rounded(each, kept, model.result) for each in (sums - off, sums, sums + off))
    return np.where((got == low) | (got == high), got, middle)


def rounded_once(spec: Spec, a: Bits, b: Bits) -> Bits:
    """Return the exact sums of a [M, K] and b [N, K], rounded once to the result's format."""
    with np.errstate(all="ignore"):
        sums = spec.a.values(a) @ spec.b.values(b).T
    return sums.astype(np.int64).astype(spec.out.dtype) if spec.out.is_integer else _rounded(sums, None, spec.out)


def _rounded(sums: Floats, kept: Format | None, out: Format) -> Bits:
    words = SumWords(np.ascontiguousarray(sums).view(np.uint64), F64)
    return rounded_to(words if kept is None else SumWords(rounded_to(words, kept), kept), out)


def f32_references(spec: Spec) -> Iterator[tuple[PlanFindings, ProductModel]]:
    """Yield SIMD loops with several accumulators, by FMA or multiply then add, and numpy's pairwise sum of rounded products."""
    if not spec.a.is_float or spec.out.mantissa_bits > F32.mantissa_bits:
        return
    for name, step in (("f32 FMA", multiply_add()), ("f32 multiply, then add", multiply_add(product_bits=F32.mantissa_bits))):
        findings: PlanFindings = {"each_product_once": "yes", "instruction": name, "products_per_sum": 1}
        for lanes in SIMD_LANES:
            if lanes < spec.k:
                parts = tuple(Chain(lane, spec.k, (0,), lanes) for lane in range(lanes))
                for how, order in (("in turn", nested("forward", lanes)), ("halves first", _halves(range(lanes)))):
                    yield findings | {"lanes": f"{lanes}, added {how}"}, _model(spec, step, Merged(parts, order, addition()))
    pairwise = _pairwise(range(spec.k))
    if isinstance(pairwise, Merged):
        yield findings | {"lanes": "pairwise, as numpy's sum"}, _model(spec, step, pairwise)


def _model(spec: Spec, step: DotModel, tree: Node) -> ProductModel:
    return ProductModel(spec.a, spec.b, spec.k, step, tree, spec.out)


def _halves(lanes: range) -> Nested:
    """Return the order that adds lanes i and i + n / 2 first, as shuffles reduce the lanes of a register."""
    order: list[Nested] = list(lanes)
    while len(order) > 1:
        half = len(order) // 2
        order = [(order[i], order[i + half]) for i in range(half)]
    return order[0]


def _pairwise(ks: range) -> Node:
    lanes = PAIRWISE_LANES
    if len(ks) < lanes:
        return Chain(ks.start, ks.stop, (0,))
    if len(ks) > PAIRWISE_BLOCK:
        half = len(ks) // 2 - len(ks) // 2 % lanes
        parts = tuple(_pairwise(part) for part in (ks[:half], ks[half:]))
        return Merged(parts, "forward", addition())
    whole = ks.start + len(ks) // lanes * lanes
    even = Merged(tuple(Chain(ks.start + i, whole, (0,), lanes) for i in range(lanes)), "tree", addition())
    rest = tuple(Chain(k, k + 1, (0,)) for k in range(whole, ks.stop))
    return Merged((even, *rest), "forward", addition()) if rest else even
