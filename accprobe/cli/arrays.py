"""Matrices that users have in files: .npy, .pt and .safetensors, as bit patterns."""

from __future__ import annotations

import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.budget.data import OwnData
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.evaluate.product import Singles
from accprobe.gemm.callables.arrays import TorchArrays, format_of_numpy
from accprobe.isa.formats import Bits, Format
from accprobe.operands.safetensors import Tensors, read_tensors


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


def _read(path: Path) -> Tensors:
    read = {".npy": _npy, ".pt": _pt, ".pth": _pt, ".safetensors": read_tensors}.get(path.suffix)
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
        received = TorchArrays("cpu").received(tensor)
        if received is None or received.fmt is None:
            raise AccprobeError(f"{path} is of {tensor.dtype}, which is no format of a matrix product here")
        return TorchArrays("cpu").patterns(tensor, received.fmt).view(np.dtype(received.fmt.ml_dtype))

    return {str(name): partial(array, tensor) for name, tensor in every.items()}
