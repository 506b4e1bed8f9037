"""How operands reach a callable, and results come back: bit patterns <-> arrays of its library, on its device.

Arrays on a device are kept from call to call, each operand's at one address: libraries choose kernels by how it is aligned.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.build import install
from accprobe.errors import AccprobeError, DeviceError, ToolMissing
from accprobe.evaluate.product import Singles
from accprobe.isa.formats import FORMATS, Bits, Format

ARRAYS = ("torch", "numpy", "cupy", "jax")

PARTS = 8
"""In so many parts an operand is transposed on a device, beside which one of them has to fit."""

_TORCH = {
    "f64": "float64",
    "f32": "float32",
    "tf32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e5m2": "float8_e5m2",
    "e4m3": "float8_e4m3fn",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
}
"""What torch calls the type of numbers of each format."""


class Received(NamedTuple):
    """A result as it came back. type: the library's name of it; fmt: None where no format is such."""

    shape: tuple[int, ...]
    type: str
    fmt: Format | None


class Handover(Protocol):
    """One library's arrays on one device."""

    arrays: str
    device: str

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        """A matrix, contiguous by rows, or by columns. role: "a" or "b", of which each has an array of its own."""
        ...

    def scale(self, role: str, values: Singles) -> Any: ...

    def received(self, result: Any) -> Received | None:
        """What a callable gave; None where it is no array."""
        ...

    def patterns(self, result: Any, fmt: Format) -> Bits:
        """Those of what was received, in memory of their own."""
        ...


def open_handover(arrays: str, device: str | None = None) -> Handover:
    """Arrays of that library on "cpu" or "cuda:N" (None: the first GPU it can use, else the CPU).

    Raises ToolMissing, DeviceError, AccprobeError.
    """
    if arrays == "numpy":
        if device not in (None, "cpu"):
            raise AccprobeError(f"numpy has no arrays on {device}: give --device cpu, or other --arrays")
        return OfNumpy()
    if arrays == "torch":
        return OfTorch(device)
    return OfCupy(device) if arrays == "cupy" else OfJax(device)


class OfNumpy:
    """Arrays of numpy, small floats as those of ml_dtypes."""

    arrays, device = "numpy", "cpu"

    def __init__(self) -> None:
        self._kept: dict[str, Bits] = {}

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        kept = self._kept.get(role)
        if kept is None or (kept.shape, kept.dtype) != (patterns.shape, patterns.dtype):
            kept = self._kept[role] = np.empty(patterns.shape, patterns.dtype, order="F" if by_columns else "C")
        kept[:] = patterns
        return kept.view(_numpy_type(fmt))

    def scale(self, role: str, values: Singles) -> Any:
        return np.array(values)

    def received(self, result: Any) -> Received | None:
        found = _as_numpy(result)
        return None if found is None else Received(found.shape, str(found.dtype), format_of_numpy(found.dtype))

    def patterns(self, result: Any, fmt: Format) -> Bits:
        return np.array(_as_numpy(result), order="C").view(fmt.dtype)


class OfTorch:
    """Tensors, on a GPU or the CPU. Written without a GPU at hand."""

    arrays = "torch"

    def __init__(self, device: str | None) -> None:
        try:
            import torch
        except ImportError as e:
            raise ToolMissing(f"torch is not installed: {install.GPU_STACK}, or pip install torch") from e
        self.device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
        if self.device != "cpu":
            _check_gpu(torch, self.device)
        self._torch: Any = torch
        self._kept: dict[str, Any] = {}

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        if by_columns:
            return self.operand(role, patterns.T, fmt).t()
        given = _signed(patterns)
        kept = self._buffer(role, given.shape, given.dtype.name)
        if self.device == "cpu" or given.flags.c_contiguous:
            kept.copy_(self._torch.from_numpy(given))
        else:
            self._transposed(role, given, kept)
        return kept.view(self.type(fmt))

    def _transposed(self, role: str, given: NDArray[Any], kept: Any) -> None:
        """Copied as it lies in memory, a part at a time, and transposed there."""
        width = -(-given.shape[1] // PARTS)
        for start in range(0, given.shape[1], width):
            part = np.ascontiguousarray(given[:, start : start + width].T)
            there = self._buffer(f"{role}, a part", (width, given.shape[0]), given.dtype.name)[: len(part)]
            there.copy_(self._torch.from_numpy(part))
            kept[:, start : start + width].copy_(there.t())

    def scale(self, role: str, values: Singles) -> Any:
        kept = self._buffer(role, values.shape, "float32")
        kept.copy_(self._torch.from_numpy(np.require(values, np.float32, ("C", "W"))))
        return kept

    def _buffer(self, role: str, shape: tuple[int, ...], type_: str) -> Any:
        kept, wanted = self._kept.get(role), getattr(self._torch, type_)
        if kept is None or tuple(kept.shape) != shape or kept.dtype != wanted:
            kept = self._kept[role] = self._torch.empty(shape, dtype=wanted, device=self.device)
        return kept

    def type(self, fmt: Format) -> Any:
        """torch's type of a format. Raises AccprobeError."""
        found = getattr(self._torch, _TORCH.get(fmt.name, ""), None)
        if found is None:
            raise AccprobeError(f"torch has no numbers of format {fmt}")
        return found

    def received(self, result: Any) -> Received | None:
        tensor = self._tensor(result)
        if tensor is None:
            return None
        name = str(tensor.dtype).removeprefix("torch.")
        return Received(tuple(tensor.shape), name, _format_of(name, _TORCH))

    def patterns(self, result: Any, fmt: Format) -> Bits:
        """On a GPU through pinned memory, which torch keeps and gives again."""
        tensor = self._tensor(result).detach().contiguous().view(getattr(self._torch, f"int{fmt.storage_bits}"))
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        found: Bits = host.copy_(tensor).numpy().view(fmt.dtype)
        return found

    def _tensor(self, result: Any) -> Any:
        if isinstance(result, self._torch.Tensor):
            return result
        return self._torch.from_dlpack(result) if hasattr(result, "__dlpack__") else None


class OfCupy:
    """Arrays of CuPy, of formats that numpy has itself. Written without a GPU at hand: never run on hardware."""

    arrays = "cupy"

    def __init__(self, device: str | None) -> None:
        try:
            import cupy
        except ImportError as e:
            raise ToolMissing(f"cupy is not installed: {install.GPU_STACK}") from e
        self.device = device or "cuda:0"
        if not self.device.startswith("cuda:"):
            raise AccprobeError(f"cupy has no arrays on {self.device}: give --device cuda:0, or other --arrays")
        self._cupy: Any = cupy
        try:
            cupy.cuda.Device(int(self.device.removeprefix("cuda:"))).use()
        except Exception as e:  # cupy has a class of its own for each library's errors
            raise DeviceError(f"cupy cannot use {self.device}: {_line(e)}") from None
        self._kept: dict[str, Any] = {}

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        if by_columns:
            return self.operand(role, patterns.T, fmt).T
        kind = _numpy_type(fmt)
        if kind.kind not in "fiu":
            raise AccprobeError(f"cupy has no numbers of format {fmt}: give --arrays torch")
        kept = self._kept.get(role)
        if kept is None or (kept.shape, kept.dtype) != (patterns.shape, patterns.dtype):
            kept = self._kept[role] = self._cupy.empty(patterns.shape, patterns.dtype)
        kept.set(np.ascontiguousarray(patterns))
        return kept.view(kind)

    def scale(self, role: str, values: Singles) -> Any:
        return self._cupy.asarray(values)

    def received(self, result: Any) -> Received | None:
        if not isinstance(result, self._cupy.ndarray):
            return None
        return Received(result.shape, str(result.dtype), format_of_numpy(result.dtype))

    def patterns(self, result: Any, fmt: Format) -> Bits:
        found: Bits = self._cupy.asnumpy(self._cupy.ascontiguousarray(result)).view(fmt.dtype)
        return found


class OfJax:
    """Arrays of JAX, which has no strides to choose: operands are by rows. Run on a CPU alone."""

    arrays = "jax"

    def __init__(self, device: str | None) -> None:
        try:
            import jax
        except ImportError as e:
            raise ToolMissing("jax is not installed: pip install jax, or jax[cuda13] for a GPU") from e
        self._jax: Any = jax
        try:
            self._to = _jax_device(jax, device)
        except (RuntimeError, IndexError) as e:
            raise DeviceError(f"jax cannot use {device}: {_line(e)}") from None
        self.device = "cpu" if self._to.platform == "cpu" else f"cuda:{self._to.id}"

    def operand(self, role: str, patterns: Bits, fmt: Format, by_columns: bool = False) -> Any:
        if fmt.storage_bits == 64 and not self._jax.config.jax_enable_x64:
            raise AccprobeError(f"jax makes f32 of {fmt}: set JAX_ENABLE_X64=1")
        return self._jax.device_put(np.array(patterns, order="C").view(_numpy_type(fmt)), self._to)

    def scale(self, role: str, values: Singles) -> Any:
        return self._jax.device_put(np.array(values), self._to)

    def received(self, result: Any) -> Received | None:
        if not isinstance(result, self._jax.Array):
            return None
        return Received(result.shape, str(result.dtype), format_of_numpy(result.dtype))

    def patterns(self, result: Any, fmt: Format) -> Bits:
        return np.array(result, order="C").view(fmt.dtype)


def _jax_device(jax: Any, device: str | None) -> Any:
    if device is None:
        return jax.devices()[0]
    platform, _, number = device.partition(":")
    return jax.devices(platform)[int(number or 0)]


def _check_gpu(torch: Any, device: str) -> None:
    if torch.version.cuda is None:
        raise ToolMissing(f"the torch that is installed ({torch.__version__}) is built without CUDA: {install.GPU_STACK}")
    count = torch.cuda.device_count()
    number = device.removeprefix("cuda:")
    if not count:
        raise DeviceError(f"torch {torch.__version__} finds no GPU that it can use: see `accprobe doctor`")
    if not number.isdigit() or int(number) >= count:
        raise DeviceError(f"there is no {device}: give cpu, or cuda:0 to cuda:{count - 1}")


def _signed(patterns: Bits) -> NDArray[Any]:
    """As integers that every torch has; it takes no arrays that cannot be written."""
    given = patterns if patterns.flags.writeable else patterns.copy()
    return given.view(np.dtype(f"int{8 * patterns.itemsize}"))


def _numpy_type(fmt: Format) -> np.dtype[Any]:
    if fmt.ml_dtype is None:
        raise AccprobeError(f"numpy has no numbers of format {fmt}")
    return np.dtype(fmt.ml_dtype)


def _as_numpy(result: Any) -> NDArray[Any] | None:
    if isinstance(result, np.ndarray):
        return result
    return np.asarray(result) if hasattr(result, "__array__") and not isinstance(result, np.generic) else None


def format_of_numpy(kind: Any) -> Format | None:
    """That of numbers of a type, numpy's or ml_dtypes'."""
    return next((FORMATS[name] for name in _TORCH if name != "tf32" and FORMATS[name].ml_dtype == kind), None)


def _format_of(name: str, names: dict[str, str]) -> Format | None:
    """The first format that the library calls so."""
    return next((FORMATS[fmt] for fmt, known in names.items() if known == name), None)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
