"""Which tensors hold the same data: an id for the data of a storage between two writes, and its hashes.

Hashes are kept until the storage is written to, so that weights are hashed once. `StorageWeakRef` keeps the address of a
storage from being used again while it is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from accprobe.trace.hash_kernel import MemoryLayout, memory_layout_of
from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import TensorValue

PRUNE_EVERY = 4096


@dataclass(slots=True)
class _Storage:
    """value: the id of its data. is_input: no recorded operation computed it. version: torch's count of writes, None where the
    next one seen is taken. is_opaque: its bits mean nothing. base: the number of the hash of all its elements, -1 for none.

    views: values by offset and layout, since the last write.
    """

    reference: Any
    value: int
    is_input: bool
    version: int | None = None
    is_opaque: bool = False
    base: int = -1
    views: dict[tuple[Any, ...], TensorValue] = field(default_factory=dict)

    def change(self, value: int) -> None:
        """Note that the storage holds other data now."""
        self.value, self.base, self.views = value, -1, {}


class Storages:
    """mapped: the parts of each tensor that are hashed as well."""

    def __init__(self, queue: HashQueue, mapped: Mapped | None) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._queue, self._mapped, self._reference = queue, mapped, StorageWeakRef
        self._known: dict[int, _Storage] = {}
        self._values = 0
        self._unfinished: list[TensorValue] = []
        self._parts: list[tuple[TensorValue, list[int], int]] = []
        """Values with the numbers of the hashes of their parts and their base."""

    def value(self, tensor: Any, settled: bool = True) -> TensorValue:
        """Return the value of a tensor, and hash it if its bits are not known.

        settled: False for what an operation has just written to, as torch counts the write only after it.
        """
        storage = self._storage(tensor, settled)
        dtype = tensor.dtype
        layout = memory_layout_of(tensor.shape, tensor.stride(), dtype)
        if tensor.is_neg() or (dtype.is_complex and tensor.is_conj()):  # the bits differ from those in memory
            key: tuple[Any, ...] = (tensor.storage_offset(), layout, tensor.is_neg(), tensor.is_conj())
        else:
            key = (tensor.storage_offset(), layout)
        return storage.views.get(key) or self._new_value(tensor, layout, storage, key)

    def _new_value(self, tensor: Any, layout: MemoryLayout, storage: _Storage, key: tuple[Any, ...]) -> TensorValue:
        found = storage.views[key] = TensorValue(storage.value, "", layout.shape, layout.strides, layout.dtype)
        if tensor.is_meta or storage.is_opaque:
            return found
        plain, same = tensor, found
        if len(key) > 2:
            plain = tensor.resolve_conj().resolve_neg()
        elif layout.is_contiguous:  # with another shape, the bits have the same order
            same = storage.views.setdefault((key[0], layout.kind), found)
        if same is not found:
            found.number = same.number
        else:
            found.number = self._queue.add(tensor, layout) if plain is tensor else self._add(plain)
        parts = [] if self._mapped is None else [self._add(part) for part in self._mapped.parts(plain)]
        if storage.is_input:
            if storage.base < 0 and not _is_whole(tensor):
                storage.base = self._add(_whole(tensor))
            self._queue.start()  # the memory is the program's: it may be written to or freed unseen
        self._unfinished.append(found)
        if parts or storage.base >= 0:
            self._parts.append((found, parts, storage.base))
        return found

    def _add(self, tensor: Any) -> int:
        return self._queue.add(tensor, memory_layout_of(tensor.shape, tensor.stride(), tensor.dtype))

    def fetch(self) -> None:
        """Fill in the hashes of all values."""
        self._queue.fetch()
        found = self._queue.found
        for value in self._unfinished:
            value.hash = found[value.number]
        for value, parts, base in self._parts:
            value.parts = tuple([found[x] for x in parts])
            value.base = found[base] if base >= 0 else ""
        self._unfinished, self._parts = [], []

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
        storage.change(self._values)
        storage.version, storage.is_input = None, False

    def _storage(self, tensor: Any, settled: bool) -> _Storage:
        memory = tensor.untyped_storage()
        address = memory._cdata
        storage = self._known.get(address)
        if storage is None:
            self._values += 1
            storage = self._known[address] = _Storage(self._reference(memory), self._values, settled)
            if self._values % PRUNE_EVERY == 0:
                self._known = {key: each for key, each in self._known.items() if not each.reference.expired()}
            if not settled:
                return storage
        version = None if tensor.is_inference() else tensor._version
        if storage.version is not None and version is not None and version != storage.version:  # a write that was not recorded
            self._values += 1
            storage.change(self._values)
        if settled:
            storage.version = version
        else:
            storage.is_input = False
        return storage


def _is_whole(tensor: Any) -> bool:
    """Return whether a tensor is its storage, element by element."""
    size: int = tensor.untyped_storage().nbytes()
    return bool(tensor.is_contiguous()) and size == tensor.numel() * tensor.element_size()


def _whole(tensor: Any) -> Any:
    """Return all elements of a tensor's storage in one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)
