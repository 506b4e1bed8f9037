"""128-bit hashes of the bits of tensors, computed on the device of the tensor.

A hash is two sums of words times 64-bit weights, modulo 2^64. The weight of a word depends on its position, so a permutation
changes the sum. Two different contents agree with a probability below 2^-60 (multilinear hashing: Lemire and Kaser, Strongly
universal string hashing is fast, Computer Journal 2014). It is not a defence against somebody who searches for a collision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

TABLE = 1 << 16
"""Words of one block; each block has the same weights, and the sums of blocks have weights of their own."""

_TOGETHER = 1 << 22
"""Words that are multiplied at once: their products take 16 bytes each."""

_LANES = 2

MASK = (1 << 64) - 1


@cache
def _weights(device: Any, seed: int) -> Any:
    """Return odd weights [_LANES, TABLE]: an odd factor keeps a difference in the top bit of a word."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (_LANES, TABLE), dtype=torch.int64, generator=generator)
    return (drawn | 1).to(device)


def words_of(tensor: Any) -> Any:
    """Return the bits of a tensor as integers [n], of the widest type up to 32 bits that fits its size."""
    import torch

    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    size = flat.numel() * flat.element_size()
    widest = next(kind for kind, width in ((torch.int32, 4), (torch.int16, 2), (torch.uint8, 1)) if size % width == 0)
    if flat.stride(0) != 1:  # of one element, which is contiguous with any stride
        flat = flat.as_strided(flat.shape, (1,))
    if flat.element_size() < widest.itemsize and flat.storage_offset() * flat.element_size() % widest.itemsize:
        flat = flat.clone()
    return flat.view(widest)


def lanes(tensor: Any) -> Any:
    """Return the two sums of a tensor, int64 [_LANES], on its device."""
    words = words_of(tensor)
    first, second = _weights(words.device, 0), _weights(words.device, 1)
    if len(words) <= TABLE:
        return (words * first[:, : len(words)]).sum(-1)
    whole = len(words) // TABLE
    blocks, total = words[: whole * TABLE].view(whole, TABLE), 0
    for start in range(0, whole, _TOGETHER // TABLE):
        some = blocks[start : start + _TOGETHER // TABLE]
        sums = (some * first[:, None]).sum(-1)
        factors = second[:, start % TABLE : start % TABLE + len(some)]
        total = total * 3 + (sums * factors).sum(-1)
    tail = words[whole * TABLE :]
    return total * 5 + (tail * second[:, : len(tail)]).sum(-1) if len(tail) else total


@dataclass
class HashQueue:
    """Hashes that are still on their devices. They are fetched together, because each fetch waits for the device."""

    _sums: list[Any] = field(default_factory=list)
    _sizes: list[tuple[int, str]] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def add(self, tensor: Any) -> int:
        """Start hashing a tensor, and return the number of its hash in `found`."""
        self._sums.append(lanes(tensor))
        self._sizes.append((tensor.numel() * tensor.element_size(), str(tensor.dtype)))
        return len(self.found) + len(self._sums) - 1

    def fetch(self) -> None:
        """Move all hashes to `found`."""
        import torch

        by_device: dict[Any, list[int]] = {}
        for number, sums in enumerate(self._sums):
            by_device.setdefault(sums.device, []).append(number)
        digits = [""] * len(self._sums)
        for numbers in by_device.values():
            for number, two in zip(numbers, torch.stack([self._sums[i] for i in numbers]).tolist(), strict=True):
                digits[number] = _digits(two, *self._sizes[number])
        self.found += digits
        self._sums, self._sizes = [], []


def _digits(sums: list[int], size: int, dtype: str) -> str:
    """Mix the sums, the size and the type into 32 hexadecimal digits."""
    length = size * 0x9E3779B97F4A7C15 + int.from_bytes(dtype.encode()[-8:], "little")
    return "".join(f"{_mixed((each ^ length) & MASK):016x}" for each in sums)


def _mixed(word: int) -> int:
    """Return the finalizer of MurmurHash3: each bit of the word changes half of the result."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * factor & MASK
    return word ^ word >> 33


def hash_of(tensor: Any) -> str:
    """Return the hash of one tensor."""
    queue = HashQueue()
    queue.add(tensor)
    queue.fetch()
    return queue.found[0]
