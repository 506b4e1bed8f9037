"""The exact evaluator of `DotModel`, on arrays of bit patterns.

`evaluate`, and `evaluation_of` for many models on the same operands, use the reference in numpy. Whole products also have
compiled code (`tiles`).
"""

from __future__ import annotations

import threading

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.reference import CHUNK, Evaluation
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products

# Largest number of products for which the last evaluation is cached: device and model get the same queries.
CACHED_PRODUCTS = 1 << 18


def evaluate(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """Return the model's results [N], bit patterns of D's format. For a sparse A the model describes the stored products.

    Raises AccprobeError if shapes, types or products do not fit the instruction, or if no evaluator supports the model.
    """
    request.check(inst)
    inst, request = inst.stored, stored_products(inst, request)
    _check_model(model, inst)
    if request.a.size <= CACHED_PRODUCTS:
        return _last_evaluation(inst, request).of(model)
    return with_numpy(model, inst, request)


def with_numpy(model: DotModel, inst: Instruction, request: Request) -> Bits:
    """Evaluate operands that are already checked, without the cache."""
    d = np.empty(len(request), inst.d.dtype)
    step = max(1, CHUNK // inst.k)
    for start in range(0, len(request), step):
        part = slice(start, start + step)
        d[part] = Evaluation(inst, request[part]).of(model)
    return d


def evaluation_of(inst: Instruction, request: Request) -> Evaluation:
    """Return the decoded dot products, on which many models are evaluated."""
    request.check(inst)
    return _last_evaluation(inst.stored, stored_products(inst, request))


_last = threading.local()


def _last_evaluation(inst: Instruction, request: Request) -> Evaluation:
    """Return the last evaluation of this thread if it is of the same dot products, otherwise a new one."""
    last: Evaluation | None = getattr(_last, "evaluation", None)
    if last is None or not last.is_of(inst, request):
        last = _last.evaluation = Evaluation(inst, request)
    return last


def _check_model(model: DotModel, inst: Instruction) -> None:
    floats = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    aligned = any(x.alignment_bits is not None for x in floats)
    if inst.a.name == "f64" and aligned:
        raise AccprobeError(f"{inst.name}: sums of f64 products are evaluated with exact alignment only")
    passed = any(x.nan_payload != "dropped" for x in floats)
    if passed and not all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)):
        raise AccprobeError(f"{inst.name}: NaN operands pass through sums of formats that widen to the result's only")
    for node in model.root.nodes():
        _check_scales(node, inst)
    if model.ks != tuple(range(inst.k)):
        if model.products != inst.k:
            raise AccprobeError(f"{inst.name} has {inst.k} products, the model {model.products}")
        raise AccprobeError(f"{inst.name} has the products 0 to {inst.k - 1}, each once; the model has others, or some twice")


def _check_scales(node: FusedSum, inst: Instruction) -> None:
    """Check the groups that are scaled at once: products of e2m1 from one block, with exact sums in float64."""
    some = getattr(node.arithmetic, "scaled_products", None)
    if some is None:
        return
    if inst.scale_block is None or {inst.a.name, inst.b.name} != {"e2m1"}:
        raise AccprobeError(f"{inst.name}: only products of e2m1 with block scales are evaluated as scaled at once")
    if inst.scale_block % some:
        raise AccprobeError(f"{inst.name}: {some} products that are scaled at once do not fill blocks of {inst.scale_block}")
