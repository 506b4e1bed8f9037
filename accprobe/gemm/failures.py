"""One sentence for what other people's code raises: callables, their imports, and the libraries that hold their arrays."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from accprobe.errors import AccprobeError, DeviceError

MOST_SAID = 400
"""Characters of an error: torch names every back end that it was built with."""

_CARET = re.compile(r"[\s^~]*\^[\s^~]*")
"""The line by which a compiler marks a place in the source above it."""

_FULL = re.compile(r"out of memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""How torch, CuPy, JAX and cuBLAS say that a GPU's memory is full."""


@contextmanager
def one_sentence(doing: str, device: str, file: str = "") -> Iterator[None]:
    """Raise AccprobeError for whatever is raised inside, subclasses of BaseException too; Ctrl-C passes. Full memory is a
    DeviceError.

    doing: how the sentence begins, as in "model.py:f raises". file: the user's, whose last line is named.
    """
    try:
        yield
    except (AccprobeError, KeyboardInterrupt):
        raise
    except BaseException as e:
        if is_out_of_memory(e):
            first_line = next(iter(_text(e).splitlines()), "")
            raise DeviceError(f"{doing} {described(e, file, first_line)}; {_advice(device)}") from e
        raise AccprobeError(f"{doing} {described(e, file)}") from e


def _advice(device: str) -> str:
    others = "other processes (`nvidia-smi` lists them)" if device.startswith("cuda") else "other processes"
    return f"the memory of {device} is full: give a smaller --shape or fewer --elements, or end {others}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library says that memory is full. torch, CuPy and Python have classes of their own for it."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or bool(_FULL.search(_text(error)))


def described(error: BaseException, file: str, message: str | None = None) -> str:
    """Return "ValueError: its message (model.py, line 7)": the last line of that file, where it has one."""
    said = shorten(_reason_first(error) if message is None else message, MOST_SAID, placeholder=" …")
    told = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    return f"{told} ({file}, line {lines[-1]})" if lines else told


def _reason_first(error: BaseException) -> str:
    """The message; of one that quotes source above its reason, as Triton's do, the reason and the line that is marked."""
    lines = _text(error).splitlines()
    marked = [i for i, line in enumerate(lines) if _CARET.fullmatch(line)]
    if not marked or not marked[-1]:
        return "\n".join(lines)
    reason = " ".join(lines[marked[-1] + 1 :]).strip()
    if not reason and error.__cause__ is not None:  # of a function that the marked line calls
        return _reason_first(error.__cause__)
    return f"{reason}, in `{lines[marked[-1] - 1].strip()}`"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of somebody's class, which may fail here too
        return ""
