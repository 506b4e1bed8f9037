"""128-bit hashes of the bits of tensors, computed on the device of the tensor and fetched later.

The bits of a tensor, in its logical order, are 32-bit words; the last one is filled with zeros. A hash has two lanes. Each is
the sum of all words times 64-bit weights, modulo 2^64. The weight of a word depends on its position, so a permutation changes
the sum. Two different contents agree with a probability below 2^-60 (multilinear hashing: Lemire and Kaser, Strongly universal
string hashing is fast, Computer Journal 2014). It is not a defence against somebody who searches for a collision.

A GPU computes both lanes of many tensors in one kernel (`accprobe.trace.hash_kernel`); elsewhere torch computes the same sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.trace.hash_kernel import ODD_MULTIPLIER, TENSORS, HashKernel, MemoryLayout, hash_kernel, memory_layout_of

HASH_BLOCK = 1 << 12
"""Words of one block, as in tensor_hash.cu. Each block has the same weights; the sums of blocks have weights of their own."""

HASH_LANES = 2

_DIGITS = 16 * HASH_LANES
"""Hexadecimal digits of a hash."""

_TOGETHER = 1 << 9
"""Blocks that torch multiplies at once: their products take 32 MiB."""

_SLOTS = 1 << 13
"""Hashes in one buffer on a GPU."""

_MOST_WAITING = 1 << 26
"""Bytes of tensors that wait on a GPU: their memory cannot be used again meanwhile."""

HashWords = NDArray[np.uint64]


def _mixed(x: HashWords) -> HashWords:
    """Return the finalizer of splitmix64: each bit of a word changes half of the result."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return x ^ x >> np.uint64(31)


def _table(number: int, size: int) -> NDArray[np.int64]:
    """Return odd weights: multiplication by an odd number modulo 2^64 is reversible, so it loses no difference."""
    at = (np.uint64(number) << np.uint64(40)) + np.arange(1, size + 1, dtype=np.uint64)
    return (_mixed(at * np.uint64(ODD_MULTIPLIER)) | np.uint64(1)).view(np.int64)


@cache
def _weights_of_words(device: Any) -> Any:
    import torch

    return torch.from_numpy(np.stack([_table(lane, HASH_BLOCK) for lane in range(HASH_LANES)])).to(device)


@cache
def _weights_of_blocks(device: Any, size: int) -> Any:
    import torch

    found = np.stack([_table(HASH_LANES + lane, size) for lane in range(HASH_LANES)])
    found[:, 0] = 1
    return torch.from_numpy(found).to(device)


def words_of(tensor: Any) -> Any:
    """Return the bits of a tensor as int32 words [n]."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.stride(0) != 1:  # of one element, which is contiguous with any stride
        flat = flat.as_strided(flat.shape, (1,))
    size = flat.element_size()
    if size < 4 and (flat.numel() * size % 4 or flat.storage_offset() * size % 4):
        flat = torch.nn.functional.pad(flat.view(torch.int8 if size == 1 else torch.int16), (0, -flat.numel() % (4 // size)))
    return flat.view(torch.int32)


def lanes(tensor: Any) -> Any:
    """Return the two sums of a tensor, int64 [HASH_LANES], on its device."""
    import torch

    words = words_of(tensor)
    weights = _weights_of_words(words.device)
    if len(words) <= HASH_BLOCK:
        return (words * weights[:, : len(words)]).sum(-1)
    blocks = torch.nn.functional.pad(words, (0, -len(words) % HASH_BLOCK)).view(-1, HASH_BLOCK)
    of_blocks = _weights_of_blocks(words.device, 1 << (len(blocks) - 1).bit_length())
    total = torch.zeros(HASH_LANES, dtype=torch.int64, device=words.device)
    for start in range(0, len(blocks), _TOGETHER):
        some = blocks[start : start + _TOGETHER]
        sums = (some * weights[:, None]).sum(-1)
        total += (sums * of_blocks[:, start : start + len(some)]).sum(-1)
    return total


@dataclass(slots=True)
class _GpuHashes:
    """Hashes on one GPU. sums: slots to which the kernel adds; numbers: by slot, the number of its hash.

    waiting: addresses, layouts and storages of tensors whose hashing is not started yet, as a reference to a tensor would make
    autograd copy gradients; stream: on which they will be hashed; bytes: their size.
    """

    kernel: HashKernel
    sums: Any
    numbers: list[int] = field(default_factory=list)
    waiting: list[tuple[int, MemoryLayout, Any]] = field(default_factory=list)
    stream: int = 0
    bytes: int = 0

    def start(self) -> None:
        """Start hashing the tensors that wait."""
        import torch

        if not self.waiting:
            return
        first = len(self.numbers) - len(self.waiting)
        addresses, layouts, _ = zip(*self.waiting, strict=True)
        self.kernel.launch(addresses, layouts, self.sums.data_ptr() + first * 8 * HASH_LANES, self.stream)
        self.waiting, self.bytes = [], 0
        if self.kernel.current_stream() != self.stream and not torch.cuda.is_current_stream_capturing():
            torch.accelerator.synchronize(self.sums.device)  # the program's order of its streams does not include this launch


@dataclass(slots=True)
class HashQueue:
    """Hashes that are still on their devices. They are fetched together, because each fetch waits for the device.

    On a GPU, tensors wait until several can be hashed by one launch. `start` has to be called before one of them changes.
    """

    found: list[str] = field(default_factory=list)
    _kinds: list[int] = field(default_factory=list)
    _full: list[_GpuHashes] = field(default_factory=list)
    _gpus: dict[int, _GpuHashes | None] = field(default_factory=dict)
    _sums: dict[int, Any] = field(default_factory=dict)
    _next: int = 0

    def add(self, tensor: Any, layout: MemoryLayout, memory: Any) -> int:
        """Hash a tensor, later on a GPU, and return the number of its hash in `found`. memory: its storage.

        A tensor without data has no hash: -1.
        """
        device = tensor.get_device()
        gpu = self._gpus.get(device)
        if gpu is None:
            if device not in self._gpus:
                self._gpus[device] = gpu = _new_hashes(tensor.device)
            if gpu is None:
                return self._add_on_device(tensor, layout)
        if layout.needs_copy:
            tensor = tensor.contiguous()
            memory = tensor.untyped_storage()
        stream = gpu.kernel.current_stream()
        if stream != gpu.stream:
            gpu.start()
            gpu.stream = stream
        number, waiting = self._next, gpu.waiting
        self._next = number + 1
        self._kinds.append(layout.kind)
        waiting.append((tensor.data_ptr(), layout, memory))
        gpu.numbers.append(number)
        gpu.bytes += layout.size
        if len(waiting) == TENSORS or gpu.bytes >= _MOST_WAITING:
            gpu.start()
            if len(gpu.numbers) > _SLOTS - TENSORS:
                self._full.append(gpu)
                del self._gpus[device]
        return number

    def _add_on_device(self, tensor: Any, layout: MemoryLayout) -> int:
        """Hash a tensor by torch's operations."""
        if tensor.is_meta:
            return -1
        number = self._next
        self._next += 1
        self._kinds.append(layout.kind)
        self._sums[number] = lanes(tensor)
        return number

    def start(self) -> None:
        """Start hashing the tensors that wait."""
        for gpu in self._gpus.values():
            if gpu is not None:
                gpu.start()

    def fetch(self) -> None:
        """Move all hashes to `found`."""
        import torch

        self.start()
        sums = np.zeros((len(self._kinds), HASH_LANES), np.int64)
        by_device: dict[Any, list[int]] = {}
        for number, each in self._sums.items():
            by_device.setdefault(each.device, []).append(number)
        for numbers in by_device.values():
            of_torch = torch.stack([self._sums[number] for number in numbers])
            sums[np.array(numbers) - len(self.found)] = of_torch.cpu().numpy()
        for gpu in (*self._full, *filter(None, self._gpus.values())):
            torch.accelerator.synchronize(gpu.sums.device)
            sums[np.array(gpu.numbers, np.intp) - len(self.found)] = gpu.sums[: len(gpu.numbers)].cpu().numpy()
        self._full, self._gpus = [], {}
        digits = _mixed(sums.view(np.uint64) ^ np.array(self._kinds, np.uint64)[:, None]).astype(">u8").tobytes().hex()
        self.found += [digits[i : i + _DIGITS] for i in range(0, len(digits), _DIGITS)]
        self._kinds, self._sums = [], {}


def _new_hashes(device: Any) -> _GpuHashes | None:
    """Return empty slots; None for a device without the kernel."""
    import torch

    kernel = hash_kernel(device)
    if kernel is None:
        return None
    sums = torch.zeros((_SLOTS, HASH_LANES), dtype=torch.int64, device=device)
    torch.accelerator.synchronize(device)  # tensors of any stream may be hashed
    return _GpuHashes(kernel, sums)


def hash_of(tensor: Any) -> str:
    """Return the hash of one tensor."""
    queue = HashQueue()
    queue.add(tensor, memory_layout_of(tensor.shape, tensor.stride(), tensor.dtype), tensor.untyped_storage())
    queue.fetch()
    return queue.found[0]
