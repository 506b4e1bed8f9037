"""The arithmetic of a recorded matrix product, from its operands and its result.

Known plans are tried on the recorded words first (`accprobe.gemm.explain`). A product that none of them explains is called
again and probed (`accprobe.gemm.characterise`). Either way the model has to give the recorded words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, given_by_some_order
from accprobe.gemm.blackbox import one_nan
from accprobe.gemm.callables.adapter import CallableAdapter
from accprobe.gemm.callables.arrays import TorchArrays
from accprobe.gemm.characterise import characterise
from accprobe.gemm.explain.search import explain
from accprobe.gemm.findings import findings
from accprobe.gemm.spec import Spec
from accprobe.gemm.verification import evaluator_of
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ProductModel
from accprobe.trace.replay import CallBlock, RecordedCall

POSITIONS: dict[str, tuple[int, int]] = {"aten.mm": (0, 1), "aten.bmm": (0, 1), "aten.addmm": (1, 2), "aten.baddbmm": (1, 2)}
"""Positions of A and B among the tensors of an operation; a bias stands before them."""

_FRESH = {"cpu": 1 << 13, "cuda": 1 << 16}
"""Random outputs on which a probed model is checked."""

MOST_INFERRED = 2
"""Plans that are inferred for operations with one key."""

EXPLAIN_AT_MOST = 1 << 28


@dataclass(frozen=True)
class RegionPlans:
    """A model for each region of D, and its findings by name."""

    regions: tuple[tuple[NDArray[np.intp], NDArray[np.intp], ProductModel], ...]
    told: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedProduct:
    """A product as it ran: patterns of A [M, K], B [N, K] and D [M, N]. bias: that is added, as f64 [M, N], or None.

    call: computes D of A and B on the device, with the bias of a product that has none.
    """

    spec: Spec
    a: Bits
    b: Bits
    d: Bits
    plain: Bits
    device: str
    bias: NDArray[np.float64] | None = None
    call: Callable[[Any, Any], Any] | None = None


@dataclass
class PlanCache:
    """Plans by what they depend on. Operations of one shape, stride and type are inferred once, or twice if the first fails."""

    found: dict[Any, list[RegionPlans | None]] = field(default_factory=dict)

    def of(self, key: Any, product: RecordedProduct) -> RegionPlans | None:
        """Return the plan of a product, None if none was found."""
        tried = self.found.setdefault(key, [])
        for plan in tried:
            if plan is not None and not mismatches(plan, product):
                return plan
        if len(tried) < MOST_INFERRED:
            tried.insert(0, infer(product))
        return tried[0]


def infer(product: RecordedProduct) -> RegionPlans | None:
    """Return the plan that gives the recorded words; the nearest where none does."""
    spec = product.spec
    whole = np.arange(spec.m), np.arange(spec.n)
    (found,) = explain(_readings(spec), product.a, product.b, [product.plain], at_most=EXPLAIN_AT_MOST)
    known = None
    if found.plans and not found.regions:
        known = RegionPlans(((*whole, found.plans[0].model),), found.plans[0].findings)
    if product.call is None or (known is not None and not found.mismatches and not mismatches(known, product)):
        return known
    box = CallableAdapter(spec, product.call, TorchArrays(product.device), "the recorded operation")
    try:
        outcome = characterise(box, _FRESH[product.device[:4].rstrip(":")], evaluate=evaluator_of(product.device))
    except AccprobeError:
        return known
    regions = tuple((x.region.rows, x.region.columns, x.model) for x in outcome.found if x.model is not None)
    told = {name: finding.value for name, finding in findings(outcome).items()}
    probed = RegionPlans(regions, told) if regions else None
    return min(probed, known, key=lambda plan: mismatches(plan, product))


def _readings(spec: Spec) -> list[Spec]:
    f32, tf32 = FORMATS["f32"], FORMATS["tf32"]
    return [spec, replace(spec, a=tf32, b=tf32)] if spec.a is f32 else [spec]


def mismatches(plan: RegionPlans | None, product: RecordedProduct) -> int:
    """Return how many recorded words the plan does not give; all of them without a plan."""
    if plan is None:
        return int(product.d.size)
    left = np.ones(product.d.shape, bool)
    evaluate: Evaluate = evaluator_of(product.device)
    for rows, columns, model in plan.regions:
        a, b, place = product.a[rows], product.b[columns], np.ix_(rows, columns)
        got = one_nan(product.d[place], product.spec.out)
        if product.bias is not None:
            left[place] = _with_bias(model, a, b, product.bias[place], got, evaluate)
        elif model.is_ordered:
            left[place] = one_nan(evaluate(model, a, b, None), product.spec.out) != got
        else:
            left[place] = ~given_by_some_order(model, a, b, got, None, evaluate).reshape(got.shape)
    return int(left.sum())


def _with_bias(
    model: ProductModel, a: Bits, b: Bits, bias: NDArray[np.float64], got: Bits, evaluate: Evaluate
) -> NDArray[np.bool_]:
    """Return which words neither way of adding a bias gives: to the f32 sum, or to the rounded product."""
    fewest = np.ones(got.shape, bool)
    for fmt in (FORMATS["f32"], model.result):
        sums = fmt.values(evaluate(replace(model, result=fmt), a, b, None)).astype(np.float32)
        with np.errstate(all="ignore"):
            total = (sums + bias.astype(np.float32)).astype(np.float32)
        kind = model.result.ml_dtype
        wrong = one_nan(total.astype(kind).view(model.result.dtype), model.result) != got
        fewest = min(fewest, wrong, key=lambda each: int(each.sum()))
    return fewest


def recorded_product(name: str, call: RecordedCall) -> RecordedProduct | None:
    """Return the product that an operation computes, None where it is not one that can be modelled.

    A batched product is represented by its first matrix.
    """
    if name not in POSITIONS or _scaled(call):
        return None
    given, places = call.operands(), POSITIONS[name]
    tensors = [given[i].tensor for i in places]
    made = call.results[0].tensor
    batched = made.dim() == 3
    a, b, d = (x[0] if batched else x for x in (*tensors, made))
    if not d.numel() or not a.shape[-1]:
        return None
    formats = [fmt for x in (a, b, d) if (fmt := _format(x)) is not None]
    if len(formats) != 3:
        return None
    device = str(d.device)

    def multiply(p: Any, q: Any) -> Any:
        laid = [_like(x, y, batched) for x, y in zip(tensors, (p, q), strict=True)]
        replaced = dict(zip(places, laid, strict=True))
        if places[0]:
            replaced[0] = _no_bias(given[0].tensor)
        result = call(replaced)[0]
        return result[0] if batched else result

    spec = Spec(d.shape[0], d.shape[1], a.shape[1], formats[0], formats[1], formats[2])
    of_a, of_b, of_d = (bits_of(x, fmt) for x, fmt in zip((a, b.t(), d), formats, strict=True))
    plain, bias = of_d, None
    if places[0]:
        of_bias = given[0].tensor[0] if batched and given[0].tensor.dim() == 3 else given[0].tensor
        bias = of_bias.double().expand(d.shape).cpu().numpy()
        plain = bits_of(multiply(a, b), formats[2])
    return RecordedProduct(spec, of_a, of_b, of_d, plain, device, bias, multiply)


def block_product(
    product: RecordedProduct, sample: RecordedCall, name: str, block: CallBlock, values: Mapping[int, int]
) -> RecordedProduct | None:
    """Return the product that a block computes of the operands of `sample`, a product of the other run.

    values: ids of the sample's values in the run of the block. None where the block reads other layouts, or has another result.
    """
    given, places = sample.operands(), POSITIONS[name]
    inputs = {x.value: x for x in block.inputs()}
    found = [inputs.get(values.get(given[i].value, -1)) for i in places]
    result = block.result.tensor
    if any(x is None or x.memory.shape != given[i].memory.shape for x, i in zip(found, places, strict=True)):
        return None
    if result.dim() != 2 or result.numel() != product.d.size:
        return None

    def multiply(p: Any, q: Any) -> Any:
        memories = {}
        for operand, i, tensor in zip(found, places, (p, q), strict=True):
            assert operand is not None
            memories[operand.value] = replace(given[i], memory=operand.memory).filled(tensor)
        return block(memories)

    d = bits_of(result, product.spec.out)
    return replace(product, d=d, plain=d, bias=None, call=multiply)


def _scaled(call: RecordedCall) -> bool:
    """Whether a product has factors beside A·B."""
    return any(call.keywords.get(name, 1) != 1 for name in ("alpha", "beta"))


def _like(pattern: Any, matrix: Any, batched: bool) -> Any:
    """Return a matrix with the shape and the strides of a recorded operand; in a batch, as its first one."""
    import torch

    laid = torch.empty_strided(pattern.shape, pattern.stride(), dtype=pattern.dtype, device=pattern.device)
    if batched:
        laid.copy_(pattern)
        laid[0].copy_(matrix)
    else:
        laid.copy_(matrix)
    return laid


def _no_bias(bias: Any) -> Any:
    """Return zeros of the sign that no sum changes by."""
    import torch

    return torch.full_like(bias, -0.0)


def _format(tensor: Any) -> Format | None:
    received = TorchArrays("cpu").received(tensor)
    return None if received is None else received.fmt


def bits_of(tensor: Any, fmt: Format) -> Bits:
    """Return the bits of a tensor on the host."""
    return TorchArrays("cpu").patterns(tensor.cpu(), fmt)
