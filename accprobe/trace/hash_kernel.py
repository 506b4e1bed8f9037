"""The hash of a tensor in one kernel launch, which reads any strides and never waits for the GPU.

The kernel is probes/tensor_hash.cu. It is launched with ctypes, since a launch takes a few microseconds this way.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, NamedTuple

from accprobe.build import compiler
from accprobe.build.probes import device_code
from accprobe.errors import AccprobeError
from accprobe.isa import architectures

THREADS, BYTES_OF_BLOCK, DIMENSIONS = 256, 1 << 14, 6
"""As in tensor_hash.cu."""

ODD_MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiples of it are far from each other."""

MOST_BLOCKS = 1 << 10
"""Thread blocks of one launch; each takes several blocks of words of a larger tensor."""


class _View(ctypes.Structure):
    """As `TensorView` in tensor_hash.cu."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("width", ctypes.c_uint32),
        ("dimensions", ctypes.c_uint32),
        ("sizes", ctypes.c_uint32 * DIMENSIONS),
        ("strides", ctypes.c_int64 * DIMENSIONS),
    )


class _Launch(NamedTuple):
    """The arguments of tensors of one geometry: the pointers in `view` are set before each launch. kind: see `element_kind`."""

    view: _View
    parameters: Any
    blocks: int
    kind: int
    needs_copy: bool


class HashKernel:
    """The kernel on one GPU. function: its handle in the driver."""

    def __init__(self, driver: Any, function: Any, device: int) -> None:
        self._launch, self._function, self._device = driver.cuLaunchKernel, function, device
        self._launches: dict[Any, _Launch] = {}

    def add_to(self, address: int, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> int:
        """Start adding the two sums of a tensor to two int64 at an address on the same GPU, and return its `element_kind`."""
        import torch

        key = shape, strides, dtype
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = launch_of(tuple(shape), strides, dtype)
        if launch.needs_copy:
            tensor = tensor.contiguous()
        if launch.blocks:
            launch.view.data, launch.view.sums = tensor.data_ptr(), address
            if torch._C._cuda_getDevice() == self._device:
                self._start(launch)
            else:
                with torch.cuda.device(self._device):
                    self._start(launch)
        return launch.kind

    def _start(self, launch: _Launch) -> None:
        import torch

        stream = torch._C._cuda_getCurrentRawStream(self._device)
        if error := self._launch(self._function, launch.blocks, 1, 1, THREADS, 1, 1, 0, stream, launch.parameters, None):
            raise RuntimeError(f"the kernel that hashes tensors cannot be launched (CUDA driver error {error})")


def launch_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> _Launch:
    """Return the arguments of tensors of one geometry."""
    width, count = dtype.itemsize, math.prod(shape)
    dimensions = [(size, stride * width) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if width > 4:
        dimensions.append((width // 4, 4))
    merged: list[tuple[int, int]] = []
    for size, stride in dimensions:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    view = _View(bytes=count * width, width=min(width, 4))
    is_contiguous = not count or not merged or (len(merged) == 1 and merged[0][1] == view.width)
    needs_copy = not is_contiguous and (len(merged) > DIMENSIONS or view.bytes // view.width >= 1 << 32)
    if not is_contiguous and not needs_copy:
        view.dimensions = len(merged)
        for i, (size, stride) in enumerate(merged):
            view.sizes[i], view.strides[i] = size, stride
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(view))
    blocks = min(-(-view.bytes // BYTES_OF_BLOCK), MOST_BLOCKS)
    return _Launch(view, parameters, blocks, element_kind(dtype, view.bytes), needs_copy)


def element_kind(dtype: Any, size: int) -> int:
    """Return 64 bits of the type and the bytes of a tensor, which are mixed into its hash."""
    return int.from_bytes(str(dtype).encode()[-8:], "little") ^ size * ODD_MULTIPLIER & (1 << 64) - 1


@cache
def hash_kernel(device: Any) -> HashKernel | None:
    """Return the kernel for a torch.device; None where torch has to compute the sums."""
    import torch

    if device.type != "cuda":
        return None
    try:
        target = architectures.from_compute_capability(*torch.cuda.get_device_capability(device)).target
        cubin = compiler.compile_source(device_code("tensor_hash.cu"), target, "the hash of tensors")
        driver = ctypes.PyDLL("libcuda.so.1")  # PyDLL: another thread must not change the arguments during a launch
    except (AccprobeError, OSError):
        return None
    driver.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # makes the context of the GPU current
        if driver.cuModuleLoadData(ctypes.byref(module), cubin.path.read_bytes()):
            return None
        if driver.cuModuleGetFunction(ctypes.byref(function), module, b"hash_tensor"):
            return None
    return HashKernel(driver, function, device.index)
