"""Matrices in users' files (.npy, .pt or .pth, .safetensors), as bit patterns, and kinds of generated data."""

from __future__ import annotations

import pickle
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from accprobe.budget.data import DATA_KINDS, Data, OwnData
from accprobe.callables.arrays import TorchArrays, format_of_numpy
from accprobe.errors import AccprobeError, UnknownName, nearest, unreadable
from accprobe.evaluate.product import Singles
from accprobe.isa.formats import Bits, Format
from accprobe.operands.safetensors import Tensors, read_tensors
from accprobe.report.words import so_many


def read_array(path: Path) -> NDArray[Any]:
    """Read the only array of a file in its own type; words of a type that numpy lacks are unsigned. Raises AccprobeError."""
    array = _only(path)
    unnamed = array.dtype.kind == "V" and format_of_numpy(array.dtype) is None
    return array.view(f"u{array.itemsize}") if unnamed else array


def _only(path: Path) -> NDArray[Any]:
    tensors = _read(path)
    if len(tensors) != 1:
        raise AccprobeError(f"{path} has {len(tensors)} tensors; save each in a file of its own")
    (load,) = tensors.values()
    return load()


def read_matrix(path: Path, fmt: Format | None = None) -> tuple[Bits, Format]:
    """Read the only matrix of a file. fmt: format of words without a type, or of unsigned integers. Raises AccprobeError."""
    array = _matrix(str(path), _only(path))
    found = format_of_numpy(array.dtype)
    if fmt is None:
        if found is None:
            how = "give --dtype, or --out for a result" if array.dtype.kind in "uV" else "save it in one, such as float32"
            raise AccprobeError(f"{path} has the type {array.dtype}, not a format; {how}")
        fmt = found
    raw = array.dtype.kind in "uV" and array.itemsize == fmt.dtype.itemsize
    if not raw and array.dtype != fmt.ml_dtype:
        raise AccprobeError(f"{path} has the type {array.dtype}; expected {fmt}")
    words = np.ascontiguousarray(array).view(fmt.dtype)
    fmt.refuse_wider(words, str(path))
    return words, fmt


_FILE = re.compile(r"\.(npy|pt|pth|safetensors)(:|$)|/")
"""A word that names a file and not a kind of data."""


def data_named(word: str) -> Data:
    """Return the kind of data of that name, or the matrices of a file. Raises AccprobeError."""
    if word in DATA_KINDS:
        return word
    if _FILE.search(word):
        return own_data(word)
    if "," in word:
        raise AccprobeError(f"'{word}' is several kinds of data: give one")
    raise AccprobeError(f"'{word}' is not FILE.npy, .pt or .safetensors, and not a kind of data; {nearest(word, DATA_KINDS)}")


def own_data(word: str) -> OwnData:
    """Read FILE or FILE:TENSOR: tensors a [M, K] and b [K, N], or only B as [N, K], the layout of a torch layer's weights.

    Raises AccprobeError.
    """
    path, name = Path(word), None
    if ":" in word and not path.exists():
        path, name = Path(word.partition(":")[0]), word.partition(":")[2]
    tensors = _read(path)
    if name is not None and name not in tensors:
        raise UnknownName(f"{path} has no tensor '{name}'; {nearest(name, tensors)}")
    if name is None and set(tensors) == {"a", "b"}:
        a, b = (_values(f"{path}:{each}", tensors[each]()) for each in ("a", "b"))
        return OwnData(word, a, np.ascontiguousarray(b.T))
    if name is None and len(tensors) != 1:
        raise AccprobeError(f"{path} has {len(tensors)} tensors, not only a and b; give {path}:NAME of one of them")
    return OwnData(word, None, _values(word, tensors[name or next(iter(tensors))]()))


def _values(name: str, array: NDArray[Any]) -> Singles:
    matrix = _matrix(name, array)
    if matrix.dtype.kind not in "fiu" and format_of_numpy(matrix.dtype) is None:
        raise AccprobeError(f"{name} has the type {matrix.dtype}; expected real numbers: save them as float32 or .safetensors")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(matrix.astype(np.float32))


def _matrix(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 2:
        raise AccprobeError(f"{name} has {so_many(array.ndim, 'dimension')}; expected 2")
    return array


def _read(path: Path) -> Tensors:
    read = {".npy": _npy, ".pt": _pt, ".pth": _pt, ".safetensors": read_tensors}.get(path.suffix)
    if read is None:
        raise AccprobeError(f"{path} has an unknown ending; give a matrix as .npy, .pt or .safetensors")
    try:
        return read(path)
    except OSError as e:
        raise AccprobeError(unreadable(path, e)) from None


def _npy(path: Path) -> Tensors:
    with path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise AccprobeError(f"{path} is not an .npy file; save it with numpy.save")
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as e:
        objects = "it has Python objects; save numbers, such as a.astype(numpy.float32)"
        why = objects if "Python objects" in str(e) else f"{e}; save it again with numpy.save"
        raise AccprobeError(f"{path} is not an .npy file of numbers: {why}") from None
    return {"": lambda: np.asarray(loaded)}


def _pt(path: Path) -> Tensors:
    try:
        import torch
    except ImportError:
        raise AccprobeError(f"{path} needs torch, which is not installed; save it as .npy or .safetensors") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as e:  # torch raises its own errors, and errors of pickle and of zip files
        with path.open("rb") as file:
            pickled = isinstance(e, pickle.UnpicklingError) and file.read(2).startswith((b"PK", b"\x80"))
        if pickled:
            why = "has Python objects, which accprobe does not run; save only the tensors, as .pt, .npy or .safetensors"
        else:
            why = "was not written by torch.save, or is truncated; save it again"
        raise AccprobeError(f"{path} {why}") from None
    every = loaded if isinstance(loaded, dict) else {"": loaded}

    def array(tensor: Any) -> NDArray[Any]:
        if not isinstance(tensor, torch.Tensor):
            raise AccprobeError(f"{path} has a {type(tensor).__name__}, not a tensor")
        if tensor.layout is not torch.strided or tensor.is_meta:
            why = "has no data (it is on the meta device)" if tensor.is_meta else "is sparse; save tensor.to_dense()"
            raise AccprobeError(f"{path}: its tensor {why}")
        received = TorchArrays("cpu").received(tensor)
        if received is None or received.fmt is None:
            raise AccprobeError(f"{path} has the type {tensor.dtype}, which is not a format of a matrix product")
        return TorchArrays("cpu").patterns(tensor, received.fmt).view(np.dtype(received.fmt.ml_dtype))

    return {str(name): partial(array, tensor) for name, tensor in every.items()}
