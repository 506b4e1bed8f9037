"""Adapt a function of arrays to the `BlackBox` protocol: hand over operands, call, check and read the result.

Exceptions of callables and their libraries become one sentence.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from textwrap import shorten
from typing import Any

import numpy as np

from accprobe.callables.arrays import ArrayLibrary, Received
from accprobe.callables.epilogues import Epilogue
from accprobe.callables.operands import first_operands, unit_scales
from accprobe.callables.spec import BLOCK, Spec
from accprobe.errors import AccprobeError, DeviceError
from accprobe.evaluate.product import ScaleWords, Singles
from accprobe.isa.formats import FORMATS, Bits, Format

_SCALES = ("scale of a", "scale of b")

_FORMS = {1: "f(x)", 2: "f(a, b) with a [M, K] and b [K, N]", 4: "f(a, b, scale_a, scale_b) with a [M, K] and b [K, N]"}
"""How a function is called, by the number of its operands."""

# f(a, b) -> d, or f(a, b, scale_a, scale_b) -> d, of arrays of a library.
Multiply = Callable[..., Any]


class CallableAdapter:
    """A `BlackBox` of one function and one spec.

    name: as in messages. by_columns: b [K, N] is contiguous along K, as `torch._scaled_mm` requires. file: the user's file,
    whose lines messages name. before: results of the calls with `first_operands` that opened the callable.
    """

    def __init__(
        self, spec: Spec, function: Multiply, library: ArrayLibrary, name: str, by_columns: bool = False, file: str = ""
    ) -> None:
        self.spec, self.name, self.library = spec, name, library
        self._function, self._by_columns, self._file = function, by_columns, file
        self._operands: tuple[Any, ...] = ()
        self._calls = 0
        self.epilogue = function if isinstance(function, Epilogue) else None
        self.before: list[Bits] = []

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        self.set_operands(a, b, scales)
        d = self._patterns(self.call())
        self._calls += 1
        if self._calls & (self._calls - 1) == 0:  # calls 1, 2, 4, 8 and so on, because reading operands back takes time
            self._check_unchanged(a, b, scales)
        return d

    def set_operands(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> None:
        """Hand over a [M, K], b [N, K] and scales (1 if not given) for the following calls."""
        spec = self.spec
        self._operands = ()
        with self._one_sentence("could not receive its operands:"):
            operands = [self.library.operand("a", a, spec.a), self.library.operand("b", b.T, spec.b, self._by_columns)]
            if spec.scale is not None:
                operands += map(self.library.scale, _SCALES, self._scales(scales))
        self._operands = tuple(operands)

    def _scales(self, scales: ScaleWords | None) -> tuple[Singles, Singles]:
        """Return the scales as the function takes them: B has one column of scales for each block of columns if "128x128"."""
        words = scales or unit_scales(self.spec)
        return words.a, words.b[:, ::BLOCK] if self.spec.scale == "128x128" else words.b

    def call(self) -> Any:
        """Call the function with the current operands. Raises AccprobeError if it raises."""
        try:
            return self._result(*self._operands)
        except DeviceError:
            raise
        except AccprobeError as e:
            if self._calls or not self._file:
                raise
            raise AccprobeError(f"{e}; accprobe calls it as {_FORMS[len(self._operands)]}") from e

    def _result(self, *operands: Any) -> Any:
        with self._one_sentence("raises"), np.errstate(all="ignore"):
            return self._function(*operands)

    def _check_unchanged(self, a: Bits, b: Bits, scales: ScaleWords | None) -> None:
        """Raise AccprobeError if the call changed an operand."""
        for (name, fmt, patterns), operand in zip(self._sent(a, b, scales), self._operands, strict=True):
            with self._one_sentence("has operands that cannot be read back:"):
                changed = self.library.patterns(operand, fmt) != patterns
            refuse_changed(self.name, name, changed)

    def _sent(self, a: Bits, b: Bits, scales: ScaleWords | None) -> list[tuple[str, Format, Bits]]:
        """Return the name, format and patterns of each operand that the function takes."""
        spec, f32 = self.spec, FORMATS["f32"]
        sent: list[tuple[str, Format, Bits]] = [("a", spec.a, a), ("b", spec.b, b.T)]
        if spec.scale is not None:
            sent += [(name, f32, words.view(np.uint32)) for name, words in zip(_SCALES, self._scales(scales), strict=True)]
        return sent

    def _one_sentence(self, what: str) -> AbstractContextManager[None]:
        return one_sentence(f"{self.name} {what}", self.library.device, self._file)

    def _patterns(self, result: Any, calls: tuple[int, ...] = ()) -> Bits:
        found, spec = self._received(result), self.spec
        if found.shape != (*calls, spec.m, spec.n):
            expected = (spec.m, spec.n)
            guess = " (transposed?)" if found.shape == expected[::-1] else ""
            raise AccprobeError(
                f"{self.name} returns an array of shape {found.shape}{guess}; a product of {spec.shape} has {expected}"
            )
        if found.fmt is not spec.out:
            why = f"{found.type} is {found.fmt}: give --out {found.fmt}" if found.fmt else "accprobe has no such format"
            raise AccprobeError(f"{self.name} returns an array of {found.type}, expected {spec.out}; {why}")
        with self._one_sentence(f"fails on {self.library.device}:"):  # kernels may fail after they are launched
            return self.library.patterns(result, spec.out)

    def _received(self, result: Any) -> Received:
        with self._one_sentence("returns an unreadable result:"):
            found = self.library.received(result)
        if found is None:
            if result is None:
                raise AccprobeError(f"{self.name} returns None: return d [M, N]")
            kind = f"a {type(result).__name__}"
            raise AccprobeError(f"{self.name} returns {kind}, not an array of {self.library.name}: see --arrays")
        return found

    def take_result_format(self) -> None:
        """Call the function with `first_operands` and take the format of its result.

        Raises AccprobeError if the result is not an array [M, N] of a known format.
        """
        operands = first_operands(self.spec)
        self.set_operands(*operands)
        result = self.call()
        found = self._received(result)
        if found.fmt is None:
            raise AccprobeError(f"{self.name} returns an array of {found.type}; accprobe has no such format")
        self.spec = replace(self.spec, out=found.fmt)
        patterns = self._patterns(result)
        if all(map(np.array_equal, operands, first_operands(self.spec))):  # those for narrow results are smaller
            self.before.append(patterns)

    def check(self) -> None:
        """Call the function with `first_operands`. Raises AccprobeError if it raises, or for a wrong shape, type or NaN."""
        operands = first_operands(self.spec)
        d = self.product(*operands)
        if self.spec.out.is_float and (wrong := np.argwhere(np.isnan(self.spec.out.values(d)))).size:
            row, column = wrong[0]
            raise AccprobeError(
                f"{self.name} returns NaN for random numbers in {len(wrong)} of {d.size} elements (first at row {row}, column"
                f" {column}): this is not {self.spec.kind}"
            )
        self.before.append(d)


def refuse_changed(function: str, operand: str, changed: Any) -> None:
    """Raise AccprobeError if a function changed elements of an operand."""
    if changed.any():
        raise AccprobeError(
            f"{function} changes its operand {operand} in place, in {np.count_nonzero(changed):,} of {changed.size:,}"
            f" elements: let it work on a copy, or call it through a function that copies {operand}"
        )


# Maximum characters of a message: torch lists every back end that it was built with.
MAX_MESSAGE = 400
# A line with which a compiler marks a place in the source line above it.
_CARET = re.compile(r"[\s^~]*\^[\s^~]*")
# Messages of torch, CuPy, JAX and cuBLAS about full GPU memory.
_FULL = re.compile(r"out of memory|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)


@contextmanager
def one_sentence(start: str, device: str, file: str = "") -> Iterator[None]:
    """Raise AccprobeError for any exception raised inside, also a BaseException; Ctrl-C passes. Full memory is a DeviceError.

    start: of the sentence, as in "model.py:f raises". file: the user's file; messages name its last line.
    """
    try:
        yield
    except (AccprobeError, KeyboardInterrupt):
        raise
    except BaseException as e:
        # Full memory: the classes of Python, torch and CuPy, or the message.
        if isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or _FULL.search(_text(e)):
            first_line = next(iter(_text(e).splitlines()), "")
            others = "other processes (`nvidia-smi` lists them)" if device.startswith("cuda") else "other processes"
            advice = f"the memory of {device} is full: give a smaller --shape or fewer --elements, or end {others}"
            raise DeviceError(f"{start} {described(e, file, first_line)}; {advice}") from e
        raise AccprobeError(f"{start} {described(e, file)}") from e


def described(error: BaseException, file: str, message: str | None = None) -> str:
    """Return "ValueError: its message (model.py, line 7)", with the last line of that file, if any."""
    text = shorten(_reason_first(error) if message is None else message, MAX_MESSAGE, placeholder=" …").removesuffix(".")
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
