"""Which tensors hold the same data: an id for the data of a storage between two writes, and its hashes.

Hashes are kept until the storage is written to, so that weights are hashed once. `StorageWeakRef` keeps the address of a
storage from being used again while it is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import TensorValue

PRUNE_EVERY = 4096


@dataclass
class _Storage:
    """value: the id of its data. version: torch's count of writes, None where the next one seen is taken. is_input: whether no
    recorded operation computed it. is_opaque: whether its bits mean nothing. hashed: by view.
    """

    reference: Any
    value: int
    version: int | None = None
    is_input: bool = True
    is_opaque: bool = False
    base: int = -1
    hashed: dict[tuple[Any, ...], tuple[int, tuple[int, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingValue:
    """A value whose hash is not fetched yet. hash, parts: their numbers in the queue."""

    id: int
    hash: int
    parts: tuple[int, ...]
    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def fetched(self, found: list[str]) -> TensorValue:
        parts = tuple(found[x] for x in self.parts)
        whole, base = (found[x] if x >= 0 else "" for x in (self.hash, self.base))
        return TensorValue(self.id, whole, self.shape, self.strides, self.dtype, parts, base)


class Storages:
    """mapped: the parts of each tensor that are hashed as well."""

    def __init__(self, queue: HashQueue, mapped: Mapped | None) -> None:
        self._queue, self._mapped = queue, mapped
        self._known: dict[int, _Storage] = {}
        self._values = 0

    def value(self, tensor: Any, hashed: bool = True, settled: bool = True) -> PendingValue:
        """Return the value of a tensor, and start hashing it if its bits are not known.

        settled: False for what an operation has just written to, as torch counts the write only after it.
        """
        storage = self._storage(tensor, settled)
        shape, strides, dtype = tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype).removeprefix("torch.")
        if not hashed or tensor.is_meta or storage.is_opaque:
            return PendingValue(storage.value, -1, (), -1, shape, strides, dtype)
        key = (tensor.storage_offset(), shape, strides, dtype, tensor.is_conj(), tensor.is_neg())
        if key not in storage.hashed:
            parts = () if self._mapped is None else tuple(self._queue.add(part) for part in self._mapped.parts(tensor))
            storage.hashed[key] = self._queue.add(tensor), parts
            if storage.is_input and storage.base < 0 and not _is_whole(tensor):
                storage.base = self._queue.add(_whole(tensor))
        whole, parts = storage.hashed[key]
        return PendingValue(storage.value, whole, parts, storage.base, shape, strides, dtype)

    def address(self, tensor: Any) -> int:
        """Return what identifies the storage of a tensor."""
        address: int = tensor.untyped_storage()._cdata
        return address

    def conceal(self, tensor: Any) -> None:
        """Leave the bits of a tensor out of the trace, as they may be undefined."""
        self._storage(tensor, settled=False).is_opaque = True

    def written(self, tensor: Any) -> None:
        """Note that an operation wrote to a tensor: its storage holds other data now."""
        storage = self._storage(tensor, settled=False)
        self._values += 1
        storage.value, storage.version = self._values, None
        storage.is_input, storage.base, storage.hashed = False, -1, {}

    def _storage(self, tensor: Any, settled: bool = True) -> _Storage:
        from torch.multiprocessing.reductions import StorageWeakRef

        address = self.address(tensor)
        version = None if tensor.is_inference() else tensor._version
        storage = self._known.get(address)
        if storage is None or storage.reference.expired():
            self._values += 1
            storage = self._known[address] = _Storage(StorageWeakRef(tensor.untyped_storage()), self._values)
            if self._values % PRUNE_EVERY == 0:
                self._known = {key: each for key, each in self._known.items() if not each.reference.expired()}
        if storage.version is not None and version is not None and version != storage.version:  # a write that was not recorded
            self._values += 1
            storage.value, storage.base, storage.hashed = self._values, -1, {}
        if settled:
            storage.version = version
        else:
            storage.is_input = False
        return storage


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor is its storage, element by element."""
    size: int = tensor.untyped_storage().nbytes()
    return bool(tensor.is_contiguous()) and size == tensor.numel() * tensor.element_size()


def _whole(tensor: Any) -> Any:
    """Return all elements of a tensor's storage in one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)
