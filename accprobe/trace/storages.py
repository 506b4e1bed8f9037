"""Which tensors hold the same data: an id for the data of a storage between two writes, and its hashes.

Hashes are kept until the storage is written to, so that weights are hashed once. `StorageWeakRef` keeps the address of a
storage from being used again while it is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import TensorValue

PRUNE_EVERY = 4096


@dataclass(slots=True)
class _Storage:
    """value: the id of its data. version: torch's count of writes, None where the next one seen is taken. is_input: no recorded
    operation computed it. is_opaque: its bits mean nothing. views: values by geometry, since the last write.
    """

    reference: Any
    value: int
    version: int | None = None
    is_input: bool = True
    is_opaque: bool = False
    base: int = -1
    views: dict[tuple[Any, ...], PendingValue] = field(default_factory=dict)


class PendingValue(NamedTuple):
    """A value whose hash is not fetched yet. hash, parts, base: their numbers in the queue, -1 for none."""

    id: int
    hash: int
    parts: tuple[int, ...]
    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def fetched(self, found: list[str]) -> TensorValue:
        whole, base = found[self.hash] if self.hash >= 0 else "", found[self.base] if self.base >= 0 else ""
        parts = tuple([found[x] for x in self.parts]) if self.parts else ()
        return TensorValue(self.id, whole, tuple(self.shape), self.strides, self.dtype, parts, base)


class Storages:
    """mapped: the parts of each tensor that are hashed as well."""

    def __init__(self, queue: HashQueue, mapped: Mapped | None) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._queue, self._mapped, self._reference = queue, mapped, StorageWeakRef
        self._known: dict[int, _Storage] = {}
        self._values = 0

    def value(self, tensor: Any, settled: bool = True) -> PendingValue:
        """Return the value of a tensor, and start hashing it if its bits are not known.

        settled: False for what an operation has just written to, as torch counts the write only after it.
        """
        storage = self._storage(tensor, settled)
        shape, strides, dtype = tensor.shape, tensor.stride(), tensor.dtype
        lazy = tensor.is_neg() + 2 * (dtype.is_complex and tensor.is_conj())  # the bits differ from those in memory
        key = (tensor.storage_offset(), shape, strides, dtype, lazy)
        found = storage.views.get(key)
        if found is not None:
            return found
        whole, parts, name = -1, tuple[int, ...](), _name(dtype)
        if not tensor.is_meta and not storage.is_opaque:
            plain = tensor.resolve_conj().resolve_neg() if lazy else tensor
            whole = self._queue.add(plain, shape, plain.stride() if lazy else strides, dtype)
            if self._mapped is not None:
                parts = tuple([self._add(part) for part in self._mapped.parts(plain)])
            if storage.is_input and storage.base < 0 and not _is_whole(tensor):
                storage.base = self._add(_whole(tensor))
        found = storage.views[key] = PendingValue(storage.value, whole, parts, storage.base, shape, strides, name)
        return found

    def _add(self, tensor: Any) -> int:
        return self._queue.add(tensor, tensor.shape, tensor.stride(), tensor.dtype)

    def id(self, tensor: Any, settled: bool = True) -> int:
        """Return the id of the data of a tensor."""
        return self._storage(tensor, settled).value

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
        storage.is_input, storage.base, storage.views = False, -1, {}

    def _storage(self, tensor: Any, settled: bool) -> _Storage:
        memory = tensor.untyped_storage()
        address = memory._cdata
        version = None if tensor.is_inference() else tensor._version
        storage = self._known.get(address)
        if storage is None:
            self._values += 1
            storage = self._known[address] = _Storage(self._reference(memory), self._values)
            if self._values % PRUNE_EVERY == 0:
                self._known = {key: each for key, each in self._known.items() if not each.reference.expired()}
        if storage.version is not None and version is not None and version != storage.version:  # a write that was not recorded
            self._values += 1
            storage.value, storage.base, storage.views = self._values, -1, {}
        if settled:
            storage.version = version
        else:
            storage.is_input = False
        return storage


@cache
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _is_whole(tensor: Any) -> bool:
    """Return whether a tensor is its storage, element by element."""
    size: int = tensor.untyped_storage().nbytes()
    return bool(tensor.is_contiguous()) and size == tensor.numel() * tensor.element_size()


def _whole(tensor: Any) -> Any:
    """Return all elements of a tensor's storage in one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)
