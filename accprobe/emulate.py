"""Bit-exact emulation of a GPU's matrix instruction in matrix products, without that GPU.

    import ml_dtypes, numpy as np
    from accprobe import emulate

    a = np.ones((16, 4096), ml_dtypes.float8_e4m3fn)
    b = np.full((4096, 8), 0.0625, ml_dtypes.float8_e4m3fn)
    d = emulate.matmul(a, b, like="h200:wgmma.m64n8k32.f32.e4m3.e4m3")
    promoted = emulate.matmul(a, b, like="h200:wgmma.m64n8k32.f32.e4m3.e4m3", promote_every=128)

A GEMM is a chain of the instruction: C of each block along K is the sum of the blocks before it. With promotion the chain
restarts every so many products and its sum is added to a float32 sum, as CUTLASS and DeepGEMM do with fp8. Epilogues, scales
and split-K are not supported.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError, UnknownName
from accprobe.evaluate.product import product
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import chained
from accprobe.report.names import EXAMPLE, named_model


class Tensor(Protocol):
    """The used part of a torch tensor, so that torch is not required."""

    @property
    def device(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def detach(self) -> Any: ...


T = TypeVar("T", bound=Tensor)


@overload
def matmul(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None = None, like: str = ..., promote_every: int | None = ...
) -> NDArray[Any]: ...
@overload
def matmul(a: T, b: T, c: T | None = None, like: str = ..., promote_every: int | None = ...) -> T: ...
def matmul(a: Any, b: Any, c: Any = None, like: str = "", promote_every: int | None = None) -> Any:
    """D = A·B + C as the instruction `like` computes it, bit for bit: a [M, K], b [K, N], c [M, N] or None for zero -> [M, N].

    like: a name that `accprobe.report.names` resolves, such as "h200:wgmma.m64n8k32.f32.e4m3.e4m3" or "QGMMA". A UserWarning
    names the chosen instruction if the name matches several or only another n was measured.
    a, b, c: numpy arrays or torch tensors, on the CPU or all on one GPU (needs cupy), of the instruction's formats: ml_dtypes'
    and torch's small floats, float16, float32 (for tf32, low bits are ignored), float64, 8-bit integers; or unsigned numpy
    arrays of bit patterns.
    promote_every: products after which the chain restarts, a multiple of the instruction's K; None: never. K is padded with
    zeros to a multiple of the instruction's K. The chain starts from C, with promotion the float32 sum does.
    Returns an array or a tensor, as A is, of D's type; float32 with promotion. NaN patterns are preserved.

    Raises AccprobeError if shapes, types or names do not fit.
    """
    if not isinstance(like, str):
        raise UnknownName(f"like={like!r:.40} is not a string; give a report and an instruction, {EXAMPLE}")
    inst, model, _, remark = named_model(like)
    if inst.c is not inst.d:
        raise AccprobeError(f"{inst.name} has C in {inst.c} and D in {inst.d}: it cannot be chained")
    if inst.sparse or inst.scale is not None:
        more = "metadata" if inst.sparse else "block scales"
        raise AccprobeError(f"{inst.name} needs {more}, which emulation does not support")
    if remark:
        warnings.warn(remark, stacklevel=2)
    if promote_every is not None and not isinstance(promote_every, int):
        raise AccprobeError(f"promote_every={promote_every!r} is not an integer: give a multiple of {inst.k}")
    if promote_every is not None and (inst.is_integer or promote_every <= 0 or promote_every % inst.k):
        raise AccprobeError(
            f"promote_every={promote_every}: integers are never promoted"
            if inst.is_integer
            else f"promote_every={promote_every} is not a multiple of the K of {inst.name}, {inst.k}"
        )
    result = inst.d if promote_every is None else FORMATS["f32"]
    if _on_gpu(a):
        from accprobe.evaluate.cuda import product as on_gpu

        return on_gpu.product(inst, model, a, b, c, promote_every)
    patterns_a, patterns_b = _patterns(a, inst.a, "a"), _patterns(b, inst.b, "b")
    if patterns_a.ndim != 2 or patterns_b.ndim != 2 or patterns_a.shape[1] != patterns_b.shape[0]:
        raise AccprobeError(
            f"`a` has shape {list(patterns_a.shape)} and `b` {list(patterns_b.shape)}; expected [M, K] and [K, N]"
        )
    shape = patterns_a.shape[0], patterns_b.shape[1]
    start = np.zeros(shape, result.dtype) if c is None else _patterns(c, result, "c")
    if start.shape != shape:
        raise AccprobeError(f"`c` has shape {list(start.shape)}; expected {list(shape)}")
    if inst.bit_op == "xor":  # a xor b = a·(1-b) + (1-a)·b
        patterns_a, patterns_b = np.hstack((patterns_a, patterns_a ^ 1)), np.vstack((patterns_b ^ 1, patterns_b))
    whole = chained(inst, model, patterns_a.shape[1], promote_every)
    d = product(whole, patterns_a, np.ascontiguousarray(patterns_b.T), start)
    values: NDArray[Any] = d.view(_type(result))
    return _torch().from_numpy(values) if _is_tensor(a) else values


def _patterns(x: Any, fmt: Format, name: str) -> Bits:
    """Return the bit patterns of an array or a tensor of that format."""
    array = _from_torch(x, name) if _is_tensor(x) else np.asarray(x)
    if array.dtype not in (fmt.dtype, _type(fmt)):
        raise AccprobeError(f"`{name}` has type {array.dtype}; expected {_type(fmt)} ({fmt}), or bit patterns as {fmt.dtype}")
    return np.ascontiguousarray(array).view(fmt.dtype)


def _type(fmt: Format) -> np.dtype[Any]:
    """Return the numpy type of the format's values; single bits are bytes that are 0 or 1."""
    return fmt.dtype if fmt.ml_dtype is None else np.dtype(fmt.ml_dtype)


def _from_torch(x: Any, name: str) -> NDArray[Any]:
    """Return an array that shares the tensor's memory; torch's small floats become those of ml_dtypes."""
    if x.device.type != "cpu":
        raise AccprobeError(f"`{name}` is on {x.device}: move a, b and c to one device")
    torch, x = _torch(), x.detach().contiguous()
    same = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16"}.get(str(x.dtype).removeprefix("torch."))
    if same is None:
        return np.asarray(x.numpy())
    fmt = FORMATS[same]
    plain = x.view(torch.uint8 if fmt.storage_bits == 8 else torch.int16).numpy()
    return np.asarray(plain.view(_type(fmt)))


def _on_gpu(x: NDArray[Any] | Tensor) -> bool:
    return _is_tensor(x) and x.device.type == "cuda"


def _is_tensor(x: NDArray[Any] | Tensor) -> TypeGuard[Tensor]:
    return type(x).__module__.partition(".")[0] == "torch"


def _torch() -> Any:
    import torch

    return torch
