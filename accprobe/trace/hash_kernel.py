"""Hashes of many tensors in one kernel launch, which reads strided tensors in place and never waits for the GPU.

The kernel is probes/tensor_hash.cu. It is launched with ctypes, since a launch takes a few microseconds this way.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from itertools import accumulate
from typing import Any

from accprobe.build import compiler
from accprobe.build.probes import device_code
from accprobe.errors import AccprobeError
from accprobe.isa import architectures

THREADS_OF_BLOCK = 256
"""Threads of a block, as in tensor_hash.cu."""

DIMENSIONS = 6
"""Most dimensions of a tensor, after merging, as in tensor_hash.cu."""

TENSORS = 32
"""Most tensors of one launch, as in tensor_hash.cu. Their arguments then take less than CUDA's limit of 4 KiB."""

ODD_MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiples of it are far from each other."""

_ZEROS = (0,) * TENSORS

BYTES_OF_BLOCK = 1 << 16
"""Most bytes that a thread block hashes, unless the tensor is too large. A thread computes the weights of its words once (see
`hashing`) and uses them for each 16 KiB; 4 uses repay that."""

MOST_BLOCKS = 1 << 9
"""Most thread blocks of a tensor. In a larger tensor each hashes more than BYTES_OF_BLOCK bytes."""

_BATCH = struct.Struct(f"=Q{TENSORS}QII{TENSORS}I")
"""`TensorBatch` up to its views."""

_VIEW = struct.Struct(f"=QII{2 * DIMENSIONS}I{DIMENSIONS}q")
"""`TensorView`."""


class MemoryLayout:
    """The memory layout of a tensor. dtype: the name of its type. size: in bytes.

    view: the bytes of its `TensorView` in tensor_hash.cu. blocks: number of thread blocks that hash it. kind: 64 bits of the
    type and the size, which are mixed into the hash. needs_copy: the kernel reads only a contiguous copy, as this layout has
    more than DIMENSIONS dimensions or at least 2^31 elements or 4-byte words.
    """

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.strides, self.dtype = tuple(shape), strides, str(dtype).removeprefix("torch.")
        self.size = size = math.prod(shape) * dtype.itemsize
        self.blocks = min(-(-size // BYTES_OF_BLOCK), MOST_BLOCKS)
        self.kind = int.from_bytes(str(dtype).encode()[-8:], "little") ^ size * ODD_MULTIPLIER & (1 << 64) - 1
        merged, narrow = _merged_dimensions(shape, strides, dtype.itemsize), min(dtype.itemsize, 4)
        self.is_contiguous = not size or not merged or (len(merged) == 1 and merged[0][1] == narrow)
        self.needs_copy = not self.is_contiguous and (len(merged) > DIMENSIONS or size // narrow >= 1 << 31)
        if self.is_contiguous or self.needs_copy:
            merged = []
        elif merged[-1][1] == narrow and not any(each % 4 for each in (merged[-1][0] * narrow, *(x for _, x in merged[:-1]))):
            words, narrow = merged.pop()[0] * narrow // 4, 4  # rows of whole words
            merged += [(words, 4)] if words > 1 else []
        sizes, strides_in_bytes = zip(*merged, strict=True) if merged else ((), ())
        unused = (0,) * (DIMENSIONS - len(merged))
        # The kernel divides by a size with a shift and a multiplication by floor(2^32 · (2^bits - size) / size) + 1, with
        # bits = ceil(log2(size)) (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
        reciprocals = [((1 << 32 + (x - 1).bit_length()) - (x << 32)) // x + 1 for x in sizes]
        numbers = *sizes, *unused, *reciprocals, *unused, *strides_in_bytes, *unused
        self.view = _VIEW.pack(size, narrow, len(merged), *numbers)


def _merged_dimensions(shape: Sequence[int], strides: Sequence[int], width: int) -> list[tuple[int, int]]:
    """Return sizes and strides in bytes, in which neighbouring dimensions that one stride covers are one.

    An element of more than 4 bytes adds a dimension of 4-byte words.
    """
    dimensions = [(size, stride * width) for size, stride in zip(shape, strides, strict=True) if size != 1]
    merged: list[tuple[int, int]] = []
    for size, stride in (*dimensions, (width // 4, 4)) if width > 4 else dimensions:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    return merged


find_memory_layout = cache(MemoryLayout)
"""Return the layout of a tensor: one object for equal arguments."""


class HashKernel:
    """The kernel on one GPU. function: its handle in the driver; current_stream: of a GPU, by its number."""

    def __init__(self, driver: Any, function: Any, device: int, current_stream: Callable[[int], int]) -> None:
        self._launch, self._function, self.device = driver.cuLaunchKernel, function, device
        self.current_stream = partial(current_stream, device)
        self._batch = ctypes.create_string_buffer(_BATCH.size + TENSORS * _VIEW.size)
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self._batch))

    def launch(self, addresses: Sequence[int], layouts: Sequence[MemoryLayout], hashes: int, stream: int) -> None:
        """Start adding to the sums of at most TENSORS tensors. hashes: their address, int64 [n, 2]. Raises RuntimeError."""
        import torch

        ends = list(accumulate([x.blocks for x in layouts]))
        blocks, unused = ends[-1], _ZEROS[len(ends) :]
        if not blocks:
            return
        batch = _BATCH.pack(hashes, *addresses, *unused, len(ends), 0, *ends, *unused) + b"".join([x.view for x in layouts])
        ctypes.memmove(self._batch, batch, len(batch))
        with nullcontext() if torch._C._cuda_getDevice() == self.device else torch.cuda.device(self.device):
            error = self._launch(self._function, blocks, 1, 1, THREADS_OF_BLOCK, 1, 1, 0, stream, self._parameters, None)
        if error:
            raise RuntimeError(f"the kernel that hashes tensors cannot be launched (CUDA driver error {error})")


@cache
def open_hash_kernel(device: Any) -> HashKernel | None:
    """Return the kernel for a torch.device; None if it is not a CUDA GPU, or if the kernel cannot be compiled or loaded."""
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
        if driver.cuModuleGetFunction(ctypes.byref(function), module, b"hash_tensors"):
            return None
    return HashKernel(driver, function, device.index, torch._C._cuda_getCurrentRawStream)
