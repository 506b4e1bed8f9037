"""128-bit hashes of the bits of tensors, computed on the device of the tensor and fetched later.

The bits of a tensor, in its logical order, are 32-bit words; the last one is filled with zeros. A hash has two lanes of 64
bits. Each has a sum: all words times 64-bit weights, modulo 2^64. Each position has its own weight, so the order of words
matters. A lane is the finalizer of splitmix64 of its sum XOR `MemoryLayout.kind`, which depends on the dtype and the byte size:
equal bits of another dtype have another hash. With random weights, two different contents would agree with a probability below
2^-60 (multilinear hashing: Lemire and Kaser, Strongly universal string hashing is fast, Computer Journal 2014). These weights
are constants that look random: contents that were not made to collide are assumed to agree as seldom.

A CUDA GPU computes the sums of many tensors in one kernel (`accprobe.trace.hash_kernel`); otherwise torch computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.trace.hash_kernel import ODD_MULTIPLIER, TENSORS, HashKernel, MemoryLayout, find_memory_layout, open_hash_kernel
from accprobe.trace.records import TensorValue

HASH_BLOCK = 1 << 12
"""Words of one block, as in tensor_hash.cu. Each block has the same weights; the sums of blocks have weights of their own."""

HASH_LANES = 2

_DIGITS = 16 * HASH_LANES
"""Hexadecimal digits of a hash."""

_TOGETHER = 1 << 9
"""Blocks that torch multiplies at once: their products take 32 MiB."""

_SLOTS = 1 << 13
"""Hashes in one buffer on a GPU."""

_MOST_WAITING = 1 << 28
"""Bytes of waiting tensors at which their hashing starts: their memory cannot be used again while they wait."""

HashWords = NDArray[np.uint64]


def _mixed(x: HashWords) -> HashWords:
    """Return the finalizer of splitmix64: a changed bit of a word changes about half of the bits of its result."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return x ^ x >> np.uint64(31)


def _table(number: int, size: int) -> NDArray[np.int64]:
    """Return odd weights. Multiplication by an odd number modulo 2^64 is reversible, so it loses no difference."""
    at = (np.uint64(number) << np.uint64(40)) + np.arange(1, size + 1, dtype=np.uint64)
    return (_mixed(at * np.uint64(ODD_MULTIPLIER)) | np.uint64(1)).view(np.int64)


@cache
def _weights(device: Any, size: int, of_blocks: bool = False) -> Any:
    """Return the weights of both lanes, int64 [HASH_LANES, size]. of_blocks: of the sums of blocks; the first one has 1."""
    import torch

    found = np.stack([_table(HASH_LANES * of_blocks + lane, size) for lane in range(HASH_LANES)])
    found[:, : int(of_blocks)] = 1
    return torch.from_numpy(found).to(device)


def words_of(tensor: Any) -> Any:
    """Return the bits of a tensor as int32 words [n]."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.stride(0) != 1:  # a tensor of one element is contiguous with any stride
        flat = flat.as_strided(flat.shape, (1,))
    size = flat.element_size()
    if size < 4 and (flat.numel() * size % 4 or flat.storage_offset() * size % 4):
        flat = torch.nn.functional.pad(flat.view(torch.int8 if size == 1 else torch.int16), (0, -flat.numel() % (4 // size)))
    return flat.view(torch.int32)


def lanes(tensor: Any) -> Any:
    """Return the two sums of a tensor, int64 [HASH_LANES], on its device."""
    import torch

    words = words_of(tensor)
    weights = _weights(words.device, HASH_BLOCK)
    if len(words) <= HASH_BLOCK:
        return (words * weights[:, : len(words)]).sum(-1)
    blocks = torch.nn.functional.pad(words, (0, -len(words) % HASH_BLOCK)).view(-1, HASH_BLOCK)
    of_blocks = _weights(words.device, 1 << (len(blocks) - 1).bit_length(), of_blocks=True)
    total = torch.zeros(HASH_LANES, dtype=torch.int64, device=words.device)
    for start in range(0, len(blocks), _TOGETHER):
        some = blocks[start : start + _TOGETHER]
        sums = (some * weights[:, None]).sum(-1)
        total += (sums * of_blocks[:, start : start + len(some)]).sum(-1)
    return total


@dataclass(slots=True)
class _GpuHashes:
    """Hashes on one GPU. sums: slots to which the kernel adds. values, kinds: by slot, the value that gets the hash and
    `MemoryLayout.kind`.

    waiting: values, addresses, layouts and storages of tensors that are not hashed yet. It holds no tensors: a reference to a
    tensor would make autograd copy gradients. stream: on which they will be hashed. bytes: their size.
    """

    kernel: HashKernel
    sums: Any
    values: list[TensorValue] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    waiting: list[tuple[TensorValue, int, MemoryLayout, Any]] = field(default_factory=list)
    stream: int = 0
    bytes: int = 0

    def start(self) -> None:
        """Start hashing the tensors that wait."""
        import torch

        if not self.waiting:
            return
        values, addresses, layouts, _ = zip(*self.waiting, strict=True)
        self.kernel.launch(addresses, layouts, self.sums.data_ptr() + len(self.values) * 8 * HASH_LANES, self.stream)
        self.values += values
        self.kinds += [x.kind for x in layouts]
        self.waiting, self.bytes = [], 0
        if self.kernel.current_stream() != self.stream and not torch.cuda.is_current_stream_capturing():
            torch.accelerator.synchronize(self.sums.device)  # the program's order of its streams does not include this launch


class HashQueue:
    """Hashes that are still on their devices. They are fetched together, because each fetch waits for the device.

    On a GPU, tensors wait until several can be hashed by one launch. `start` has to be called before one of them changes.
    """

    def __init__(self) -> None:
        self._full: list[_GpuHashes] = []
        self._gpus: dict[int, _GpuHashes | None] = {}
        self._of_torch: list[tuple[TensorValue, int, Any]] = []
        """Values with `MemoryLayout.kind` and the sums that torch computed."""

    def add(self, value: TensorValue, tensor: Any, layout: MemoryLayout, memory: Any) -> None:
        """Hash a tensor, for a value that `fetch` fills in. A meta tensor has no hash. memory: its storage."""
        gpu = self._gpus.get(tensor.get_device()) or self._open_gpu(tensor)
        if gpu is None:
            if not tensor.is_meta:
                self._of_torch.append((value, layout.kind, lanes(tensor)))
            return
        if layout.needs_copy:
            tensor = tensor.contiguous()
            memory = tensor.untyped_storage()
        stream = gpu.kernel.current_stream()
        if stream != gpu.stream:
            gpu.start()
            gpu.stream = stream
        waiting = gpu.waiting
        waiting.append((value, tensor.data_ptr(), layout, memory))
        gpu.bytes += layout.size
        if len(waiting) == TENSORS or gpu.bytes >= _MOST_WAITING:
            gpu.start()
            if len(gpu.values) > _SLOTS - TENSORS:
                self._full.append(gpu)
                del self._gpus[tensor.get_device()]

    def _open_gpu(self, tensor: Any) -> _GpuHashes | None:
        """Return the hashes on the GPU of a tensor; None where torch has to compute them."""
        device = tensor.get_device()
        if device not in self._gpus:
            self._gpus[device] = None
            if kernel := open_hash_kernel(tensor.device):
                import torch

                sums = torch.zeros((_SLOTS, HASH_LANES), dtype=torch.int64, device=tensor.device)
                torch.accelerator.synchronize(tensor.device)  # a launch on any stream may add to these zeros
                self._gpus[device] = _GpuHashes(kernel, sums)
        return self._gpus[device]

    def start(self) -> None:
        """Start hashing the tensors that wait."""
        for gpu in self._gpus.values():
            if gpu is not None and gpu.waiting:
                gpu.start()

    def fetch(self) -> None:
        """Give all values their hashes."""
        import torch

        self.start()
        for gpu in (*self._full, *filter(None, self._gpus.values())):
            torch.accelerator.synchronize(gpu.sums.device)
            _fill(gpu.values, gpu.kinds, gpu.sums[: len(gpu.values)])
        if self._of_torch:
            values, kinds, sums = zip(*self._of_torch, strict=True)
            _fill(values, kinds, torch.stack([x.cpu() for x in sums]))
        self._full, self._gpus, self._of_torch = [], {}, []


def _fill(values: Sequence[TensorValue], kinds: Sequence[int], sums: Any) -> None:
    """Give values their hashes. sums: int64 [n, HASH_LANES]."""
    words = sums.cpu().numpy().view(np.uint64) ^ np.array(kinds, np.uint64)[:, None]
    digits = _mixed(words).astype(">u8").tobytes().hex()
    for value, i in zip(values, range(0, len(digits), _DIGITS), strict=True):
        value.hash = digits[i : i + _DIGITS]


def hash_of(tensor: Any) -> str:
    """Return the hash of a strided tensor: 32 hexadecimal digits, "" for a meta tensor."""
    queue, value = HashQueue(), TensorValue(0, "", (), (), "")
    queue.add(value, tensor, find_memory_layout(tensor.shape, tensor.stride(), tensor.dtype), tensor.untyped_storage())
    queue.fetch()
    return value.hash
