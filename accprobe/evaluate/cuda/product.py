"""`accprobe.emulate` on a GPU: bit-exact matrix products of torch tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from accprobe.build import install
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.evaluate.cuda.launch import Evaluator, current_target
from accprobe.evaluate.cuda.source import can_promote
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel

# Names of torch types, by format.
TYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "f32": "float32",
    "f64": "float64",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}


def product(inst: Instruction, model: DotModel, a: Any, b: Any, c: Any, promote_every: int | None) -> Any:
    """Compute `emulate.matmul` of tensors on one GPU. Raises ToolMissing without cupy."""
    try:
        import cupy
        import torch
    except ImportError as e:
        raise ToolMissing(f"tensors on a GPU need cupy ({e}): {install.GPU_STACK}") from e
    if promote_every is not None and not can_promote(inst):
        raise AccprobeError(f"promote_every: D of {inst.name} does not fit in float32; promote on the CPU")
    result = inst.d if promote_every is None else FORMATS["f32"]
    for name, x, fmt in (("a", a, inst.a), ("b", b, inst.b), ("c", c, result)):
        _check(name, x, fmt, a.device, torch)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise AccprobeError(f"`a` has shape {list(a.shape)} and `b` {list(b.shape)}; expected [M, K] and [K, N]")
    shape = (a.shape[0], b.shape[1])
    if c is not None and tuple(c.shape) != shape:
        raise AccprobeError(f"`c` has shape {list(c.shape)}; expected {list(shape)}")
    blocks = -(-a.shape[1] // inst.k)
    with torch.cuda.device(a.device), cupy.cuda.Device(a.device.index):
        d = torch.empty(shape, dtype=getattr(torch, TYPES[result.name]), device=a.device)
        lines = [_filled(x.detach(), blocks * inst.k - a.shape[1], torch) for x in (a, b.t())]
        rows, columns, addends, results = (None if x is None else _patterns(x, torch, cupy) for x in (*lines, c, d))
        with _current_stream(torch, cupy):
            evaluator = _evaluator(cupy, inst, model, current_target(cupy), a.device.index)
            evaluator.evaluate(rows, columns, addends, results, blocks, (promote_every or 0) // inst.k)
    return d


def _check(name: str, x: Any, fmt: Format, device: Any, torch: Any) -> None:
    if x is None:
        return
    if fmt.name not in TYPES:
        raise AccprobeError(f"`{name}`: torch has no type for {fmt}; give numpy arrays on the CPU")
    wanted = getattr(torch, TYPES[fmt.name])
    if x.dtype != wanted:
        raise AccprobeError(f"`{name}` has type {x.dtype}; expected {wanted} ({fmt})")
    if x.device != device:
        raise AccprobeError(f"`{name}` is on {x.device} and `a` on {device}: move them to one device")


def _filled(x: Any, zeros: int, torch: Any) -> Any:
    """Return the rows of a matrix padded with zeros, contiguous."""
    if not zeros:
        return x.contiguous()
    filled = torch.zeros((x.shape[0], x.shape[1] + zeros), dtype=x.dtype, device=x.device)
    filled[:, : x.shape[1]] = x
    return filled


def _patterns(x: Any, torch: Any, cupy: Any) -> Any:
    """Return the memory of a tensor as a cupy array of integers of its size."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return cupy.asarray(x.detach().contiguous().view(whole))


def _current_stream(torch: Any, cupy: Any) -> Any:
    """Return torch's stream for cupy; `from_external` exists from cupy 14 on, which deprecates `ExternalStream`."""
    stream = torch.cuda.current_stream()
    if hasattr(cupy.cuda.Stream, "from_external") and hasattr(stream, "__cuda_stream__"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)


@lru_cache(maxsize=64)
def _evaluator(cupy: Any, inst: Instruction, model: DotModel, target: str, index: int) -> Evaluator:
    """Return the evaluator for GPU number `index`."""
    return Evaluator(cupy, inst, model, target, chained=True, matrix_units=True)
