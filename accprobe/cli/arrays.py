"""Matrices that users have in files: .npy, .pt and .safetensors, as bit patterns."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.budget.data import OwnData
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.evaluate.product import Singles
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

MOST_HEADER = 100_000_000
"""Bytes of a safetensors header, as that page limits it."""


def read_matrix(path: Path, fmt: Format | None = None) -> tuple[Bits, Format]:
    """The file's one matrix. fmt: how words without a type, or of unsigned integers, are read. Raises AccprobeError."""
    tensors = _read(path)
    if len(tensors) != 1:
        raise AccprobeError(f"{path} holds {len(tensors)} tensors: save the one that is meant in a file of its own")
    (load,) = tensors.values()
    array = _matrix(str(path), load())
    found = format_of_numpy(array.dtype)
    if fmt is None:
        if found is None:
            raise AccprobeError(f"{path} is of {array.dtype}, which says no format: give --dtype, or --out for a result")
        fmt = found
    raw = array.dtype.kind in "uV" and array.itemsize == fmt.dtype.itemsize
    if not raw and array.dtype != fmt.ml_dtype:
        raise AccprobeError(f"{path} is of {array.dtype}, and was to be {fmt}")
    return np.ascontiguousarray(array).view(fmt.dtype), fmt


def own_data(word: str) -> OwnData:
    """The matrices of FILE, or of FILE:TENSOR: tensors a [M, K] and b [K, N], or one, [N, K] as torch keeps the weights of a
    layer, for B. Raises AccprobeError.
    """
    path, name = _named(word)
    tensors = _read(path)
    if name is not None and name not in tensors:
        raise UnknownName(f"{path} has no tensor '{name}'; {nearest(name, tensors)}")
    if name is None and set(tensors) == {"a", "b"}:
        a, b = (_values(f"{path}:{each}", tensors[each]()) for each in ("a", "b"))
        return OwnData(word, a, np.ascontiguousarray(b.T))
    if name is None and len(tensors) != 1:
        raise AccprobeError(f"{path} holds {len(tensors)} tensors, and not a and b alone: give {path}:NAME of one of them")
    return OwnData(word, None, _values(word, tensors[name or next(iter(tensors))]()))


def _named(word: str) -> tuple[Path, str | None]:
    """A file, and the tensor that is named after a colon."""
    if Path(word).exists() or ":" not in word:
        return Path(word), None
    path, _, name = word.partition(":")
    return Path(path), name


def _values(name: str, array: NDArray[Any]) -> Singles:
    matrix = _matrix(name, array)
    if matrix.dtype.kind not in "fiuV" and format_of_numpy(matrix.dtype) is None:
        raise AccprobeError(f"{name} is of {matrix.dtype}: errors are told of real numbers")
    if matrix.dtype.kind == "V" and format_of_numpy(matrix.dtype) is None:
        raise AccprobeError(f"{name} is of {matrix.dtype}, which says no format: save it as float32 or .safetensors")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(matrix.astype(np.float32))


def _matrix(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 2:
        raise AccprobeError(f"{name} has {array.ndim} dimensions: a matrix has 2")
    return array


Tensors = Mapping[str, Callable[[], NDArray[Any]]]
"""By name, read when they are asked for; of a file of one array its name is empty."""


def _read(path: Path) -> Tensors:
    read = {".npy": _npy, ".pt": _pt, ".pth": _pt, ".safetensors": _safetensors}.get(path.suffix)
    if read is None:
        raise AccprobeError(f"{path}: give a matrix as .npy, .pt or .safetensors")
    try:
        return read(path)
    except OSError as e:
        raise AccprobeError(f"{path} cannot be read: {e.strerror}") from None


def _npy(path: Path) -> Tensors:
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as e:
        why = "objects of Python, or no array at all" if "pickle" in str(e) else str(e)
        raise AccprobeError(f"{path} is no .npy file of numbers: {why}") from None
    return {"": lambda: np.asarray(loaded)}


def _pt(path: Path) -> Tensors:
    try:
        import torch
    except ImportError:
        raise AccprobeError(f"{path} takes torch to be read, which is not installed: save it as .npy or .safetensors") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as e:  # torch's own errors, those of pickle and of zip files
        with path.open("rb") as file:
            pickled = isinstance(e, pickle.UnpicklingError) and file.read(2).startswith((b"PK", b"\x80"))
        if pickled:
            why = "holds Python objects, which accprobe does not run: save the tensors alone, as .pt, .npy or .safetensors"
        else:
            why = "is no file that torch.save wrote, or is cut short: save it again"
        raise AccprobeError(f"{path} {why}") from None
    every = loaded if isinstance(loaded, dict) else {"": loaded}

    def array(tensor: Any) -> NDArray[Any]:
        if not isinstance(tensor, torch.Tensor):
            raise AccprobeError(f"{path} holds a {type(tensor).__name__}, and no tensor")
        received = OfTorch("cpu").received(tensor)
        if received is None or received.fmt is None:
            raise AccprobeError(f"{path} is of {tensor.dtype}, which is no format of a matrix product here")
        return OfTorch("cpu").patterns(tensor, received.fmt).view(np.dtype(received.fmt.ml_dtype))

    return {str(name): partial(array, tensor) for name, tensor in every.items()}


def _safetensors(path: Path) -> Tensors:
    """A header of JSON with its length before it, then the numbers."""
    with path.open("rb") as file:
        size, start = path.stat().st_size, 8 + int.from_bytes(file.read(8), "little")
        _check_whole(path, size, start)
        if start > MOST_HEADER:
            raise AccprobeError(f"{path} is no safetensors file: its header has {start - 8} bytes, and {MOST_HEADER} at most")
        try:
            header = json.loads(file.read(start - 8))
        except (ValueError, RecursionError):
            raise AccprobeError(f"{path} is no safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise AccprobeError(f"{path} is no safetensors file: its header is not an object that names tensors")
    entries = ((name, entry) for name, entry in header.items() if name != "__metadata__")
    return {name: partial(_tensor, path, start, name, entry) for name, entry in entries}


def _tensor(path: Path, start: int, name: str, entry: object) -> NDArray[Any]:
    """start: of the numbers in the file; entry: what its header says of the tensor."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [low, high]} if all(map(_is_size, (*shape, low, high))):
            pass
        case _:
            raise AccprobeError(f"{path} is no safetensors file: tensor '{name}' lacks a dtype, a shape or data_offsets")
    if dtype not in _SAFETENSORS:
        raise AccprobeError(f"{path}: tensor '{name}' is of {dtype}; give one of {', '.join(_SAFETENSORS)}")
    fmt = FORMATS[_SAFETENSORS[dtype]]
    needed = math.prod(shape) * fmt.dtype.itemsize
    if high - low != needed:
        raise AccprobeError(f"{path} is damaged: tensor '{name}' has {high - low} bytes, and its shape takes {needed}")
    _check_whole(path, path.stat().st_size, start + high)
    words = np.fromfile(path, fmt.dtype, math.prod(shape), offset=start + low)
    return words.reshape(shape).view(np.dtype(fmt.ml_dtype))


def _is_size(number: object) -> bool:
    return type(number) is int and number >= 0


def _check_whole(path: Path, size: int, needed: int) -> None:
    if size < needed:
        raise AccprobeError(f"{path} is no safetensors file, or cut short: it has {size} bytes, and by its header {needed}")
