"""Turn exceptions of callables and their libraries into one sentence."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from accprobe.errors import AccprobeError, DeviceError

# Maximum characters of a message: torch lists every back end that it was built with.
MAX_MESSAGE = 400

# A line with which a compiler marks a place in the source line above it.
_CARET = re.compile(r"[\s^~]*\^[\s^~]*")

# Messages of torch, CuPy, JAX and cuBLAS about full GPU memory.
_FULL = re.compile(r"out of memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)


@contextmanager
def one_sentence(start: str, device: str, file: str = "") -> Iterator[None]:
    """Raise AccprobeError for any exception raised inside, also a BaseException; Ctrl-C passes. Full memory is a DeviceError.

    start: of the sentence, as in "model.py:f raises". file: the user's file, whose last line is named.
    """
    try:
        yield
    except (AccprobeError, KeyboardInterrupt):
        raise
    except BaseException as e:
        if is_out_of_memory(e):
            first_line = next(iter(_text(e).splitlines()), "")
            raise DeviceError(f"{start} {described(e, file, first_line)}; {_advice(device)}") from e
        raise AccprobeError(f"{start} {described(e, file)}") from e


def _advice(device: str) -> str:
    others = "other processes (`nvidia-smi` lists them)" if device.startswith("cuda") else "other processes"
    return f"the memory of {device} is full: give a smaller --shape or fewer --elements, or end {others}"


def is_out_of_memory(error: BaseException) -> bool:
    """Recognise full memory by the classes of Python, torch and CuPy, or by the message."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or bool(_FULL.search(_text(error)))


def described(error: BaseException, file: str, message: str | None = None) -> str:
    """Return "ValueError: its message (model.py, line 7)", with the last line of that file, if any."""
    text = shorten(_reason_first(error) if message is None else message, MAX_MESSAGE, placeholder=" …")
    sentence = f"{type(error).__name__}: {text}" if text else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    return f"{sentence} ({file}, line {lines[-1]})" if lines else sentence


def _reason_first(error: BaseException) -> str:
    """Return the message. If it quotes source above its reason, as Triton's do, return the reason and the marked line."""
    lines = _text(error).splitlines()
    marked = [i for i, line in enumerate(lines) if _CARET.fullmatch(line)]
    if not marked or not marked[-1]:
        return "\n".join(lines)
    reason = " ".join(lines[marked[-1] + 1 :]).strip()
    if not reason and error.__cause__ is not None:  # the error lies in a function that the marked line calls
        return _reason_first(error.__cause__)
    return f"{reason}, in `{lines[marked[-1] - 1].strip()}`"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception class of a user may fail here
        return ""
