"""Matrices that users have in files: .npy, .pt and .safetensors, as bit patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.gemm.handover import OfTorch, format_of_numpy
from accprobe.isa.formats import FORMATS, Bits, Format

_SAFETENSORS = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E5M2": "e5m2",
    "F8_E4M3": "e4m3",
    "I32": "s32",
    "I8": "s8",
    "U8": "u8",
}
"""What https://huggingface.co/docs/safetensors calls them."""


def read_matrix(path: Path, fmt: Format | None = None) -> tuple[Bits, Format]:
    """The file's one matrix. fmt: how words without a type, or of unsigned integers, are read. Raises AccprobeError."""
    array = {".npy": _npy, ".pt": _pt, ".pth": _pt, ".safetensors": _safetensors}.get(path.suffix, _unknown)(path)
    if array.ndim != 2:
        raise AccprobeError(f"{path} has {array.ndim} dimensions: a matrix has 2")
    found = format_of_numpy(array.dtype)
    if fmt is None:
        if found is None:
            raise AccprobeError(f"{path} is of {array.dtype}, which says no format: give --dtype, or --out for a result")
        fmt = found
    raw = array.dtype.kind in "uV" and array.itemsize == fmt.dtype.itemsize
    if not raw and array.dtype != fmt.ml_dtype:
        raise AccprobeError(f"{path} is of {array.dtype}, and was to be {fmt}")
    return np.ascontiguousarray(array).view(fmt.dtype), fmt


def _npy(path: Path) -> NDArray[Any]:
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as e:
        raise AccprobeError(f"{path} is no .npy file: {e}") from None
    return np.asarray(loaded)


def _pt(path: Path) -> NDArray[Any]:
    try:
        import torch
    except ImportError:
        raise AccprobeError(f"{path} takes torch to be read, which is not installed: save it as .npy or .safetensors") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:  # torch's own errors, those of pickle and of zip files
        raise AccprobeError(f"{path} cannot be read by torch: {str(e).splitlines()[0]}") from None
    tensor = _only(path, loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(tensor, torch.Tensor):
        raise AccprobeError(f"{path} holds a {type(tensor).__name__}, and no tensor")
    received = OfTorch("cpu").received(tensor)
    if received is None or received.fmt is None:
        raise AccprobeError(f"{path} is of {tensor.dtype}, which is no format of a matrix product here")
    return OfTorch("cpu").patterns(tensor, received.fmt).view(np.dtype(received.fmt.ml_dtype))


def _safetensors(path: Path) -> NDArray[Any]:
    """A header of JSON with its length before it, then the numbers."""
    data = path.read_bytes()
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        entry = _only(path, {name: value for name, value in header.items() if name != "__metadata__"})
        low, high = entry["data_offsets"]
        fmt = FORMATS[_SAFETENSORS[entry["dtype"]]]
        words = np.frombuffer(data[start + low : start + high], fmt.dtype)
        return words.reshape(entry["shape"]).view(np.dtype(fmt.ml_dtype))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise AccprobeError(f"{path} cannot be read as safetensors: {type(e).__name__}, {e}") from None


def _only(path: Path, tensors: dict[Any, Any]) -> Any:
    if len(tensors) != 1:
        raise AccprobeError(f"{path} holds {len(tensors)} tensors: save the one that is meant in a file of its own")
    return next(iter(tensors.values()))


def _unknown(path: Path) -> NDArray[Any]:
    raise AccprobeError(f"{path}: give a matrix as .npy, .pt or .safetensors")
