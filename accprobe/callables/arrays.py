"""Arrays of numpy, torch and JAX: bit patterns to arrays on a device, and results back to bit patterns.

Operands of numpy and torch keep their buffers from call to call: libraries choose kernels by the alignment of an address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.build import install
from accprobe.errors import AccprobeError, DeviceError, ToolMissing, UnknownName, nearest
from accprobe.evaluate.product import Singles
from accprobe.isa.formats import FORMATS, Bits, Format

ARRAYS = ("torch", "numpy", "jax")
# Parts in which an operand is transposed on a GPU, so that only one of them needs extra memory.
PARTS = 8
# Maximum number of words, and of calls, that are laid out together on the device, and the alignment of each call in words.
# torch aligns its own allocations to 512 bytes or more.
WINDOWS, TOGETHER, ALIGNED = 1 << 24, 256, 512
# Least number of calls for which a CUDA graph saves time.
MANY_CALLS = 512

# Formats that results may have.
_RESULTS = ("f64", "f32", "f16", "bf16", "e5m2", "e4m3", "s32", "s8", "u8")


Starts = NDArray[np.int64]
Reducer = Callable[[Any], Any]


class Received(NamedTuple):
    """The shape and type of a result. type: the library's name of the element type; fmt: None if it is not a known format."""

    shape: tuple[int, ...]
    type: str
    fmt: Format | None


def open_arrays(library: str, device: str | None = None) -> ArrayLibrary:
    """Open a library on "cpu" or "cuda:N" (None: the first GPU that the library can use, otherwise the CPU).

    Raises ToolMissing, DeviceError, UnknownName, AccprobeError.
    """
    if library not in ARRAYS:
        raise UnknownName(f"there are no arrays of '{library}'; {nearest(library, ARRAYS)}")
    if library == "numpy":
        if device not in (None, "cpu"):
            raise AccprobeError(f"numpy has no arrays on {device}: give --device cpu, or other --arrays")
        return ArrayLibrary()
    if library == "torch":
        return TorchArrays(device)
    return JaxArrays(device)


def is_tensor(x: Any) -> bool:
    """Return whether x is a tensor of torch, which need not be installed."""
    return type(x).__module__.partition(".")[0] == "torch"


def library_of(x: Any) -> ArrayLibrary:
    """Return the library of a user's array: torch on the tensor's device, otherwise numpy."""
    return TorchArrays(str(x.device)) if is_tensor(x) else ArrayLibrary()


class ArrayLibrary:
    """Arrays of one library on one device; here of numpy, with narrow floats of ml_dtypes.

    replays: a CUDA graph may replay calls of the function, which has no effects.
    """

    name, device, replays = "numpy", "cpu", False

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        """Return a matrix that is contiguous by rows, or by columns. role: such as "a"; each has its own buffer."""
        if by_columns:
            return self.operand(role, patterns.T, fmt).T
        buffer = self._buffers.get(role)
        if buffer is None or (buffer.shape, buffer.dtype) != (patterns.shape, patterns.dtype):
            buffer = self._buffers[role] = np.empty(patterns.shape, patterns.dtype)
        buffer[:] = patterns
        return buffer.view(_numpy_type(fmt))

    def reduced(self, function: Reducer, words: Bits, starts: Starts, k: int, fmt: Format, by_columns: bool) -> Any:
        """Return the results of a function of x [K, N] for each call, stacked where they lie.

        Column n of a call's x is words[start : start + K], starts [calls, N].
        """
        every = np.lib.stride_tricks.sliding_window_view(words, k)
        results = (self._array(function(self.operand("b", every[some].T, fmt, by_columns))) for some in starts)
        return self._stacked([np.array(each) for each in results])

    def _stacked(self, results: Sequence[Any]) -> Any:
        return np.stack(results)

    def scale(self, role: str, values: Singles) -> Any:
        return np.array(values)

    def received(self, result: Any) -> Received | None:
        """Describe a callable's result; None if it is not an array."""
        if (found := self._array(result)) is None:
            return None
        name = str(found.dtype).removeprefix("torch.")
        return Received(tuple(found.shape), name, _format_named(name))

    def patterns(self, result: Any, fmt: Format) -> Bits:
        """Return a copy of a result's bit patterns."""
        return np.array(self._array(result), order="C").view(fmt.dtype)

    def _array(self, result: Any) -> Any:
        if isinstance(result, np.ndarray):
            return result
        return np.asarray(result) if hasattr(result, "__array__") and not isinstance(result, np.generic) else None


class TorchArrays(ArrayLibrary):
    """Tensors on a GPU or the CPU."""

    name = "torch"

    def __init__(self, device: str | None) -> None:
        super().__init__()
        try:
            import torch
        except ImportError as e:
            raise ToolMissing(f"torch is not installed: {install.GPU_STACK}, or pip install torch") from e
        self.device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
        if self.device != "cpu":
            _check_gpu(torch, self.device)
        self._torch: Any = torch
        self._repeated: Any = None
        self._graph: Any = None
        self._calls = 0
        self._layout: tuple[object, ...] = ()
        self._operands: list[Any] = []

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        if by_columns:
            return self.operand(role, patterns.T, fmt).t()
        words = _signed_integers(patterns)
        buffer = self._buffer(role, words.shape, words.dtype.name)
        if self.device == "cpu" or words.flags.c_contiguous:
            buffer.copy_(self._torch.from_numpy(words))
        else:
            self._transpose_into(role, words, buffer)
        return buffer.view(self.type(fmt))

    def reduced(self, function: Reducer, words: Bits, starts: Starts, k: int, fmt: Format, by_columns: bool) -> Any:
        torch, (calls, n) = self._torch, starts.shape
        every = torch.from_numpy(_signed_integers(words)).to(self.device).unfold(0, k, 1)
        places = torch.from_numpy(starts).to(self.device)
        pitch = -(-n * k // ALIGNED) * ALIGNED
        together = max(1, min(TOGETHER, WINDOWS // pitch))
        buffer = self._buffer("windows", (together, pitch), _signed_integers(words[:0]).dtype.name)[:, : n * k]
        layout = buffer.data_ptr(), together, n, k, fmt, by_columns
        if layout != self._layout:
            lines = buffer.view(self.type(fmt)).unbind()
            self._layout, self._operands = layout, [x.view(n, k).t() if by_columns else x.view(k, n) for x in lines]
        found, operands = [], self._operands
        with torch.no_grad():
            for first in range(0, calls, together):
                rows = every[places[first : first + together]]
                buffer[: len(rows)].copy_((rows if by_columns else rows.transpose(1, 2)).reshape(len(rows), -1))
                found.append(self._results(function, operands, len(rows), calls))
        return torch.cat(found)

    def _called(self, function: Reducer, operands: Sequence[Any]) -> Any:
        """Return stacked results. They are copied one by one only if the function writes several to the same memory."""
        found = [self._array(function(x)).detach() for x in operands]
        if len({each.data_ptr() for each in found}) < len(found):
            found = [self._array(function(x)).detach().clone() for x in operands]
        return self._torch.stack(found)

    def _results(self, function: Reducer, operands: Sequence[Any], count: int, calls: int) -> Any:
        """Return the stacked results of the first operands, from a CUDA graph of the same launches if there is one.

        calls: of all groups of operands together; a graph is not worth its time for few of them.
        """
        key = function, operands[0].data_ptr(), operands[0].shape, len(operands)
        if key != self._repeated:
            self._repeated, self._calls, self._graph = key, 0, None
        before, self._calls = self._calls, self._calls + calls
        if self.replays and before < MANY_CALLS <= self._calls:
            self._graph = self._captured(function, operands)
        if self._graph is None:
            return self._called(function, operands[:count])
        graph, results = self._graph
        graph.replay()
        return results[:count].clone()

    def _captured(self, function: Reducer, operands: Sequence[Any]) -> Any:
        """Return a CUDA graph of the calls and its results; None if it fails or gives other bits."""
        torch, expected, graph = self._torch, self._called(function, operands), self._torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                found = torch.stack([self._array(function(x)) for x in operands])
            graph.replay()
            same = torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
        except RuntimeError:
            return None
        return (graph, found) if same else None

    def _transpose_into(self, role: str, words: NDArray[Any], buffer: Any) -> None:
        """Copy the operand as it lies in memory, part by part, and transpose each part on the device."""
        width = -(-words.shape[1] // PARTS)
        for start in range(0, words.shape[1], width):
            part = np.ascontiguousarray(words[:, start : start + width].T)
            there = self._buffer(f"{role}, a part", (width, words.shape[0]), words.dtype.name)[: len(part)]
            there.copy_(self._torch.from_numpy(part))
            buffer[:, start : start + width].copy_(there.t())

    def scale(self, role: str, values: Singles) -> Any:
        buffer = self._buffer(role, values.shape, "float32")
        buffer.copy_(self._torch.from_numpy(np.require(values, np.float32, ("C", "W"))))
        return buffer

    def _buffer(self, role: str, shape: tuple[int, ...], type_: str) -> Any:
        buffer, wanted = self._buffers.get(role), getattr(self._torch, type_)
        if buffer is None or tuple(buffer.shape) != shape or buffer.dtype != wanted:
            buffer = self._buffers[role] = self._torch.empty(shape, dtype=wanted, device=self.device)
        return buffer

    def type(self, fmt: Format) -> Any:
        """Return torch's type of a format. Raises AccprobeError."""
        found = getattr(self._torch, "" if fmt.ml_dtype is None else np.dtype(fmt.ml_dtype).name, None)
        if found is None:
            raise AccprobeError(f"torch has no type for the format {fmt}")
        return found

    def patterns(self, result: Any, fmt: Format) -> Bits:
        """Copy through pinned memory, which torch keeps for reuse, if the result is on a GPU."""
        tensor = self._array(result).detach().contiguous().view(getattr(self._torch, f"int{fmt.storage_bits}"))
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        found: Bits = host.copy_(tensor).numpy().view(fmt.dtype)
        return found

    def _array(self, result: Any) -> Any:
        if isinstance(result, self._torch.Tensor):
            return result
        return self._torch.from_dlpack(result) if hasattr(result, "__dlpack__") else None


class JaxArrays(ArrayLibrary):
    """JAX arrays, always contiguous by rows. These have never run on a GPU with accprobe."""

    name = "jax"

    def __init__(self, device: str | None) -> None:
        try:
            import jax
        except ImportError as e:
            raise ToolMissing("jax is not installed: pip install jax, or jax[cuda13] for a GPU") from e
        self._jax: Any = jax
        platform, _, number = (device or "").partition(":")
        try:
            self._to = jax.devices(platform or None)[int(number or 0)]
        except (RuntimeError, IndexError) as e:
            raise DeviceError(f"jax cannot use {device}: {' '.join(str(e).split()) or type(e).__name__}") from None
        self.device = "cpu" if self._to.platform == "cpu" else f"cuda:{self._to.id}"

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        if fmt.storage_bits == 64 and not self._jax.config.jax_enable_x64:
            raise AccprobeError(f"jax converts {fmt} to f32: set JAX_ENABLE_X64=1")
        return self._jax.device_put(np.array(patterns, order="C").view(_numpy_type(fmt)), self._to)

    def scale(self, role: str, values: Singles) -> Any:
        return self._jax.device_put(np.array(values), self._to)

    def _stacked(self, results: Sequence[Any]) -> Any:
        return self._jax.numpy.asarray(np.stack(results))

    def _array(self, result: Any) -> Any:
        return result if isinstance(result, self._jax.Array) else None


def _check_gpu(torch: Any, device: str) -> None:
    if torch.version.cuda is None:
        raise ToolMissing(f"the installed torch ({torch.__version__}) is built without CUDA: {install.GPU_STACK}")
    count = torch.cuda.device_count()
    number = device.removeprefix("cuda:")
    if not count:
        raise DeviceError(f"torch {torch.__version__} finds no usable GPU: see `accprobe doctor`")
    if not number.isdigit() or int(number) >= count:
        raise DeviceError(f"{device} does not exist: give cpu, or cuda:0 to cuda:{count - 1}")


def _signed_integers(patterns: Bits) -> NDArray[Any]:
    """Return writable signed integers: every torch has these types, and torch warns of read-only arrays."""
    words = patterns if patterns.flags.writeable else patterns.copy()
    return words.view(np.dtype(f"int{8 * patterns.itemsize}"))


def _numpy_type(fmt: Format) -> np.dtype[Any]:
    if fmt.ml_dtype is None:
        raise AccprobeError(f"numpy has no type for the format {fmt}")
    return np.dtype(fmt.ml_dtype)


def torch_type(library: ArrayLibrary, fmt: Format) -> Any:
    """Return torch's type of a format. Raises AccprobeError."""
    assert isinstance(library, TorchArrays)
    return library.type(fmt)


def format_of_numpy(kind: Any) -> Format | None:
    """Return the format of a type of numpy or ml_dtypes, None if it is not known."""
    return _format_named(np.dtype(kind).name)


def _format_named(type_: str) -> Format | None:
    """Return the format of a type, None if it is not known. Its name is the same in torch, numpy and ml_dtypes."""
    return next((FORMATS[name] for name in _RESULTS if np.dtype(FORMATS[name].ml_dtype).name == type_), None)
