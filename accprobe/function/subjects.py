"""Functions that accprobe measures: from words of one format to words of another, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from accprobe.callables.adapter import one_sentence, refuse_changed
from accprobe.callables.arrays import open_arrays
from accprobe.callables.opening import UserFunction, find_callable, public_functions
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.function.reference import word_text
from accprobe.isa.formats import FORMATS, Bits, Format, get
from accprobe.records.functions import FunctionRow

# Words of one call: enough to keep a vector unit or a GPU busy; a few arrays fit in a cache or in memory.
WORDS_A_CALL = {"cpu": 1 << 20, "cuda": 1 << 24}
# Words of a 32-bit operand that a sampled run compares.
SAMPLED_WORDS = 1 << 26


class Subject(Protocol):
    """A function of one operand. device: "cpu" or "cuda:N". on_device: whether it takes cupy arrays too."""

    name: str
    operand: Format
    result: Format
    device: str
    on_device: bool

    def words(self, words: Any) -> Any:
        """Return the results of operand words, in an array of the same library (numpy or cupy) and shape."""
        ...


def count_compared(fmt: Format, exhaustive: bool) -> int:
    """Return how many operands are compared: all if the run is exhaustive or they have at most 16 bits, else SAMPLED_WORDS."""
    bits = fmt.bits + fmt.ignored_low_bits
    return 1 << bits if exhaustive or bits <= 16 else SAMPLED_WORDS


def chunks_of(subject: Subject, total: int) -> Iterator[Any]:
    """Yield all words, or that many evenly spaced ones, in arrays of the subject's library."""
    fmt, library = subject.operand, "cupy" if subject.on_device and total > 1 << 16 else "numpy"
    arange = import_module(library).arange
    chunk, words = WORDS_A_CALL[subject.device.partition(":")[0]], 1 << fmt.bits + fmt.ignored_low_bits
    step = words // total | 1  # an odd step visits words of every low bit
    for start in range(0, total, chunk):
        yield (arange(start, min(total, start + chunk), dtype=np.int64) * step % words).astype(fmt.dtype)


def lent(subject: Subject) -> AbstractContextManager[Any]:
    """Return a context in which cupy uses the GPU of a subject of cupy arrays."""
    if not subject.on_device:
        return nullcontext()
    from accprobe.devices.cuda import CudaDevice

    return CudaDevice(int(subject.device.partition(":")[2] or 0)).lend(f"failed to verify {subject.name}")


_RETURN = "return an array of x's shape"


class CallableSubject:
    """A Python function of one array, of the user or of a package."""

    def __init__(self, name: str, fmt: Format, device: str | None = None, arrays: str | None = None) -> None:
        found = find_function(name)
        self.name, self.operand, self._function, self._file = name, fmt, found.function, found.file
        self.library: Any = open_arrays(arrays or found.arrays, device)
        self.device = self.library.device
        self.on_device = self.library.name == "torch" and self.device != "cpu" and find_spec("cupy") is not None
        try:
            first = self._call(_first_words(fmt))
        except AccprobeError as e:
            if "TypeError" in str(e) and "argument" in str(e):
                raise AccprobeError(f"{e}; give a function of one array, or --scale for f(x, scale)") from None
            raise
        with self._one_sentence("returns an unreadable result:"):
            received = self.library.received(first)
        if received is None:
            if np.ndim(first) == 0 and isinstance(first, int | float | np.generic):
                raise AccprobeError(
                    f"{name} is not elementwise: it returns one number for an array of {len(_first_words(fmt))}; {_RETURN}"
                )
            kind = "nothing" if first is None else f"a {type(first).__name__}"
            raise AccprobeError(f"{name} returns {kind}, not an array of {self.library.name}: see --arrays")
        if received.fmt is None:
            raise AccprobeError(f"{name} returns an array of {received.type}; accprobe has no such format")
        self.result: Format = received.fmt
        self._check(_first_words(fmt))

    def words(self, words: Any) -> Any:
        """Return result words of numpy or cupy words, in an array of the same library."""
        if not isinstance(words, np.ndarray):
            return self._words_on_device(words)
        result = self._call(words)
        with self._one_sentence("returns an unreadable result:"):
            received = self.library.received(result)
        if received is None or received.shape != words.shape or received.fmt is not self.result:
            shape = list(received.shape) if received else "no array"
            raise AccprobeError(f"{self.name} is not elementwise: it returns {shape} for {list(words.shape)}; {_RETURN}")
        with self._one_sentence("fails:"):
            found: Bits = self.library.patterns(result, self.result)
            return found

    def _words_on_device(self, words: Any) -> Any:
        """Return the results of cupy words; torch and cupy see the same memory."""
        import cupy
        import torch

        signed = torch.as_tensor(words.view(f"int{self.operand.storage_bits}"), device=self.device)
        with self._one_sentence("raises"):
            result = self._function(signed.view(self.library.type(self.operand)))
        received = self.library.received(result)
        if received is None or received.shape != words.shape or received.fmt is not self.result:
            raise AccprobeError(f"{self.name} is not elementwise: its result is no array like its operand; {_RETURN}")
        torch.cuda.synchronize()
        plain = result.contiguous().view(getattr(torch, f"int{self.result.storage_bits}"))
        return cupy.asarray(plain).view(self.result.dtype)

    def _call(self, words: Bits) -> Any:
        with self._one_sentence("raises"), np.errstate(all="ignore"):
            self._x = self.library.operand("x", np.ascontiguousarray(words), self.operand)
            return self._function(self._x)

    def _check(self, words: Bits) -> None:
        """Raise AccprobeError unless two calls agree and leave the operand as it is, and half of the words in another order
        have the same results.
        """
        first = self.words(words)
        refuse_changed(self.name, "x", self.library.patterns(self._x, self.operand) != words)
        again = self.words(words)
        self._checked = words, again
        if (first != again).any():
            count = int(np.count_nonzero(first != again))
            raise AccprobeError(f"{self.name} gives other results when called again, in {count:,} of {len(words):,} elements")
        order = np.random.default_rng(0).permutation(len(words))[: len(words) // 2]
        if (moved := self.words(words[order]) != first[order]).any():
            count = int(np.count_nonzero(moved))
            raise AccprobeError(
                f"{self.name} is not elementwise: in {count:,} of {len(order):,} elements the result depends on the place or on"
                " other elements"
            )

    def with_repetition(self, row: FunctionRow) -> FunctionRow:
        """Return the row, or an unstable one if the first words now have other results."""
        words, first = self._checked
        differ = np.flatnonzero(self.words(words) != first)
        if not len(differ):
            return row
        word = word_text(int(words[differ[0]]), self.operand)
        reason = f"{len(differ):,} of {len(words):,} operands gave other results when repeated after all others, first {word}"
        return row.model_copy(update={"status": "unstable", "reason": reason})

    def _one_sentence(self, what: str) -> Any:
        return one_sentence(f"{self.name} {what}", self.library.device, self._file)


def find_function(name: str) -> UserFunction:
    """Open FILE.py:FUNCTION or package:function; torch's functions are looked up in torch.nn.functional too."""
    package, _, function = name.partition(":")
    try:
        found = find_callable(name, ())
    except UnknownName:
        if package != "torch" or function.startswith("nn."):
            raise
        found = _of_torch(function)
    if not isinstance(found, UserFunction):
        raise AccprobeError(f"{name} is a matrix product: use `accprobe gemm {name}`")
    return found


def _first_words(fmt: Format) -> Bits:
    """Return random finite numbers of both signs and many sizes."""
    rng = np.random.default_rng(0)
    if fmt.is_integer:
        return rng.integers(0, 1 << fmt.bits, 4099).astype(fmt.dtype)
    words = rng.integers(0, fmt.largest + 1, 4099).astype(fmt.dtype)
    found: Bits = words | rng.integers(0, 2, 4099).astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit)
    return found


def _of_torch(function: str) -> Any:
    """Return a function of torch.nn.functional. Raises UnknownName that names the nearest, also of torch."""
    try:
        return find_callable(f"torch:nn.functional.{function}")
    except UnknownName:
        names = {name for module in ("torch", "torch.nn.functional") for name in public_functions(import_module(module))}
        raise UnknownName(f"torch has no '{function}'; {nearest(function, sorted(names), 'torch:')}") from None


def format_named(name: str) -> Format:
    """Return a format that a function can take. Raises AccprobeError."""
    fmt = get(name)
    if fmt.storage_bits > 32:
        known = ", ".join(each for each, one in FORMATS.items() if one.storage_bits <= 32 and one.ml_dtype is not None)
        raise AccprobeError(f"{name} has {fmt.storage_bits} bits; accprobe reads functions of at most 32: give {known}")
    return fmt
