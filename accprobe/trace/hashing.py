"""128-bit hashes of the bits of tensors, computed on the device of the tensor and fetched later.

The bits of a tensor, in its logical order, are 32-bit words; the last one is filled with zeros. A hash has two lanes. Each is
the sum of all words times 64-bit weights, modulo 2^64. The weight of a word depends on its position, so a permutation changes
the sum. Two different contents agree with a probability below 2^-60 (multilinear hashing: Lemire and Kaser, Strongly universal
string hashing is fast, Computer Journal 2014). It is not a defence against somebody who searches for a collision.

A GPU computes both lanes in one kernel (`accprobe.trace.hash_kernel`); elsewhere torch computes the same sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.trace.hash_kernel import ODD_MULTIPLIER, HashKernel, element_kind, hash_kernel

HASH_BLOCK = 1 << 12
"""Words of one block, as in tensor_hash.cu. Each block has the same weights; the sums of blocks have weights of their own."""

HASH_LANES = 2

_TOGETHER = 1 << 9
"""Blocks that torch multiplies at once: their products take 32 MiB."""

_SLOTS = 1 << 13
"""Hashes in one buffer on a GPU."""

HashWords = NDArray[np.uint64]


def _mixed(x: HashWords) -> HashWords:
    """Return the finalizer of splitmix64: each bit of a word changes half of the result."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return x ^ x >> np.uint64(31)


def _table(number: int, size: int) -> NDArray[np.int64]:
    """Return odd weights: an odd factor keeps a difference in the top bit of a word."""
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


@dataclass
class _Buffer:
    """Sums on one GPU that its kernel adds to. numbers: of the hashes in its slots."""

    kernel: HashKernel
    sums: Any
    address: int
    numbers: list[int] = field(default_factory=list)


@dataclass
class HashQueue:
    """Hashes that are still on their devices. They are fetched together, because each fetch waits for the device."""

    found: list[str] = field(default_factory=list)
    _kinds: list[int] = field(default_factory=list)
    _full: list[_Buffer] = field(default_factory=list)
    _buffers: dict[Any, _Buffer | None] = field(default_factory=dict)
    _sums: dict[int, Any] = field(default_factory=dict)

    def add(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> int:
        """Start hashing a tensor of these properties, and return the number of its hash in `found`."""
        number, device = len(self.found) + len(self._kinds), tensor.device
        if device not in self._buffers:
            self._buffers[device] = _new_buffer(device)
        buffer = self._buffers[device]
        if buffer is None:
            self._kinds.append(element_kind(dtype, tensor.nbytes))
            self._sums[number] = lanes(tensor)
            return number
        slot = len(buffer.numbers)
        self._kinds.append(buffer.kernel.add_to(buffer.address + slot * 8 * HASH_LANES, tensor, shape, strides, dtype))
        buffer.numbers.append(number)
        if slot + 1 == _SLOTS:
            self._full.append(buffer)
            self._buffers[device] = _new_buffer(device)
        return number

    def fetch(self) -> None:
        """Move all hashes to `found`."""
        import torch

        sums = np.zeros((len(self._kinds), HASH_LANES), np.int64)
        by_device: dict[Any, list[int]] = {}
        for number, each in self._sums.items():
            by_device.setdefault(each.device, []).append(number)
        for numbers in by_device.values():
            of_torch = torch.stack([self._sums[number] for number in numbers])
            sums[np.array(numbers) - len(self.found)] = of_torch.cpu().numpy()
        for buffer in (*self._full, *self._buffers.values()):
            if buffer is not None:
                torch.accelerator.synchronize(buffer.sums.device)
                of_kernel = buffer.sums[: len(buffer.numbers)].cpu().numpy()
                sums[np.array(buffer.numbers, np.intp) - len(self.found)] = of_kernel
        self._full, self._buffers = [], {}
        digits = _mixed(sums.view(np.uint64) ^ np.array(self._kinds, np.uint64)[:, None])
        self.found += [f"{first:016x}{second:016x}" for first, second in digits.tolist()]
        self._kinds, self._sums = [], {}


def _new_buffer(device: Any) -> _Buffer | None:
    """Return a buffer without hashes; None for a device without the kernel."""
    import torch

    kernel = hash_kernel(device)
    if kernel is None:
        return None
    sums = torch.zeros((_SLOTS, HASH_LANES), dtype=torch.int64, device=device)
    torch.accelerator.synchronize(device)  # tensors of any stream may be hashed
    return _Buffer(kernel, sums, sums.data_ptr())


def hash_of(tensor: Any) -> str:
    """Return the hash of one tensor."""
    queue = HashQueue()
    queue.add(tensor, tensor.shape, tensor.stride(), tensor.dtype)
    queue.fetch()
    return queue.found[0]
