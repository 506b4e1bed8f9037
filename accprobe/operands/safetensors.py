"""Safetensors files, read and written without the library of that name: a JSON header with its length before it, then numbers.

The format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS

_TYPES = {
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
"""accprobe's names of the types of the format."""

# Bytes of a header, as the documentation limits it.
MOST_HEADER = 100_000_000

Tensors = Mapping[str, Callable[[], NDArray[Any]]]
"""Arrays by name, each read when it is called for; the array of a file with one has the name ""."""


def read_tensors(path: Path) -> Tensors:
    """Return the tensors of a file. Raises AccprobeError if it is damaged, OSError if it cannot be read."""
    with path.open("rb") as file:
        size, start = path.stat().st_size, 8 + int.from_bytes(file.read(8), "little")
        _check_whole(path, size, start)
        if start > MOST_HEADER:
            raise AccprobeError(
                f"{path} is not a safetensors file: its header has {start - 8} bytes, and {MOST_HEADER} at most"
            )
        try:
            header = json.loads(file.read(start - 8))
        except (ValueError, RecursionError):
            raise AccprobeError(f"{path} is not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise AccprobeError(f"{path} is not a safetensors file: its header is not an object that names tensors")
    entries = ((name, entry) for name, entry in header.items() if name != "__metadata__")
    return {name: partial(_tensor, path, start, name, entry) for name, entry in entries}


def _tensor(path: Path, start: int, name: str, entry: object) -> NDArray[Any]:
    """Return one tensor. start: place of the numbers in the file; entry: its description in the header."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [low, high]} if all(map(_is_size, (*shape, low, high))):
            pass
        case _:
            raise AccprobeError(f"{path} is not a safetensors file: tensor '{name}' lacks a dtype, a shape or data_offsets")
    if dtype not in _TYPES:
        raise AccprobeError(f"{path}: tensor '{name}' has the type {dtype}; expected one of {', '.join(_TYPES)}")
    fmt = FORMATS[_TYPES[dtype]]
    needed = math.prod(shape) * fmt.dtype.itemsize
    if high - low != needed:
        raise AccprobeError(f"{path} is damaged: tensor '{name}' has {high - low} bytes, its shape needs {needed}")
    _check_whole(path, path.stat().st_size, start + high)
    words = np.fromfile(path, fmt.dtype, math.prod(shape), offset=start + low)
    return words.reshape(shape).view(np.dtype(fmt.ml_dtype))


def _is_size(number: object) -> bool:
    return type(number) is int and number >= 0


def _check_whole(path: Path, size: int, needed: int) -> None:
    if size < needed:
        raise AccprobeError(f"{path} is not a safetensors file, or is truncated: it has {size} bytes, its header says {needed}")


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays of numpy's or ml_dtypes' types; arrays of other types are left out. Raises OSError."""
    types = {np.dtype(FORMATS[name].ml_dtype): kind for kind, name in _TYPES.items()}
    stored = {name: np.ascontiguousarray(array) for name, array in tensors.items() if array.dtype in types}
    entries, offset = {}, 0
    for name, array in stored.items():
        entries[name] = {
            "dtype": types[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(array.tobytes() for array in stored.values())
    temporary.replace(path)
