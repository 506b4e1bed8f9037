"""A recorded matrix product: the bits of its operands and of its result, and the call that computes it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.callables.arrays import TorchArrays
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.trace.replay import CallBlock, RecordedCall

POSITIONS: dict[str, tuple[int, int]] = {"aten.mm": (0, 1), "aten.bmm": (0, 1), "aten.addmm": (1, 2), "aten.baddbmm": (1, 2)}
"""Positions of A and B among the tensors of an operation; a bias stands before them."""


@dataclass(frozen=True)
class RecordedProduct:
    """A product as it ran: patterns of A [M, K], B [N, K] and D [M, N]. bias: that is added, as f64 [M, N], or None.

    plain: D without the bias. call: computes it of A and B on the device. is_tf32: torch may round the operands to TF32.
    """

    spec: Spec
    a: Bits
    b: Bits
    d: Bits
    plain: Bits
    device: str
    bias: NDArray[np.float64] | None = None
    call: Callable[[Any, Any], Any] | None = None
    is_tf32: bool = False


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
    is_tf32 = formats[0] is FORMATS["f32"] and call.flags.get("allow_tf32") is True and device != "cpu"
    return RecordedProduct(spec, of_a, of_b, of_d, plain, device, bias, multiply, is_tf32)


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
    """Return whether a product has factors beside A·B."""
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
