"""Identity of the data of tensors: an id for the data of a storage between two writes, and its hashes.

Hashes are kept until the storage is written to, so that weights are hashed once. A record of each storage is an attribute of
torch's Python object of it. torch keeps that object as long as the storage, so another storage at its address has no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from accprobe.trace.hash_kernel import MemoryLayout, find_memory_layout
from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import UNDEFINED, TensorValue


class _Storage:
    """The record of a storage. owner: made it. value: the id of its data. is_input: no recorded operation computed it. version:
    torch's count of writes at the last read; None before the first read, after a recorded write, which torch counts later, and
    of an inference tensor, which has no count. is_opaque: its bits mean nothing. base: the value of all its elements.

    key, view, layout: of the first view since the last write: offset, shape, strides and type, its value, and its layout.
    views: the values of the other views, by their keys.
    """

    is_input = is_opaque = False
    version: int | None = None
    base: TensorValue | None = None
    views: dict[Any, TensorValue] = {}  # noqa: RUF012 -- shared by storages without other views, and never written to

    def __init__(self, owner: Storages, value: int, key: Any, view: TensorValue | None, layout: MemoryLayout | None) -> None:
        self.owner, self.value, self.key, self.view, self.layout = owner, value, key, view, layout

    def change(self, value: int) -> None:
        """Note that the storage holds other data now."""
        self.value, self.base, self.key, self.view, self.layout, self.views = value, None, None, None, None, _Storage.views


class Storages:
    """Give the data of storages ids and hashes. mapped: the parts of each tensor that are hashed as well."""

    def __init__(self, queue: HashQueue, mapped: Mapped | None) -> None:
        self._queue, self._mapped = queue, mapped
        self.attribute = "_accprobe_trace"
        """Name of the attribute that is the record of a storage. Recorders that run at the same time have different names."""
        self._ids = count(1)
        self._layouts: dict[Any, MemoryLayout] = {}
        """By offset, shape, strides and type. There are few."""
        self._same: list[tuple[TensorValue, TensorValue]] = []
        """Values that get the hash of another view."""
        self._parts: list[tuple[TensorValue, list[TensorValue], TensorValue | None]] = []
        """Values with their parts and their base."""

    def values(self, tensors: Iterable[Any]) -> tuple[TensorValue, ...]:
        """Return the values of tensors that an operation reads, and hash those that have no hash yet."""
        attribute, found = self.attribute, []
        for tensor in tensors:  # values that are known take no call of a Python function, as this loop is much of the time
            try:
                memory = tensor.untyped_storage()
                key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            except RuntimeError:
                found.append(self._unread(tensor))
                continue
            storage = getattr(memory, attribute, None)
            if storage is None or storage.owner is not self:
                storage = self._new_storage(memory)
                storage.is_input = True
            try:
                version = tensor._version
            except RuntimeError:  # an inference tensor has no count
                version = None
            if version != storage.version:
                if storage.version is not None and version is not None:
                    storage.change(next(self._ids))  # an operation that was not recorded wrote to it
                storage.version = version
            if tensor.is_neg() or tensor.is_conj():
                found.append(self._unread(tensor))
                continue
            value = storage.view if key == storage.key else storage.views.get(key)
            found.append(value or self._new_view(tensor, memory, storage, key))
        return tuple(found)

    def result(self, tensor: Any) -> TensorValue:
        """Return the value of a tensor that an operation has just written. torch counts the write only after it."""
        try:
            memory = tensor.untyped_storage()
            key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        except RuntimeError:
            return self._unread(tensor)
        if self._mapped is not None or getattr(memory, self.attribute, None) is not None:
            storage = self._written_storage(tensor, memory)
            if tensor.is_neg() or tensor.is_conj():
                return self._unread(tensor)
            known = storage.view if key == storage.key else storage.views.get(key)
            return known or self._new_view(tensor, memory, storage, key)
        # New memory without views. Its record is made here, with few calls of Python functions.
        layout = self._layouts.get(key) or self._layout(key)
        identity = next(self._ids)
        value = TensorValue(identity, "", layout.shape, layout.strides, layout.dtype)
        setattr(memory, self.attribute, _Storage(self, identity, key, value, layout))
        self._queue.add(value, tensor, layout, memory)
        return value

    def _new_view(self, tensor: Any, memory: Any, storage: _Storage, key: Any) -> TensorValue:
        """Return the value of a view of a storage that was not read yet."""
        layout = self._layouts.get(key) or self._layout(key)
        found = TensorValue(storage.value, "", layout.shape, layout.strides, layout.dtype)
        if storage.is_opaque:
            found.hash = UNDEFINED
        elif layout.is_contiguous and (same := self._view_of_same_bits(storage, key, layout)):
            self._same.append((found, same))
        else:
            self._queue.add(found, tensor, layout, memory)
        if storage.key is None:
            storage.key, storage.view, storage.layout = key, found, layout
        elif storage.views:
            storage.views[key] = found
        else:
            storage.views = {key: found}
        if (storage.is_input or self._mapped is not None) and not storage.is_opaque:
            self._add_parts(found, tensor, storage)
        return found

    def _unread(self, tensor: Any) -> TensorValue:
        """Return the value of a sparse, nested, conjugated or negated tensor; its bits are not read."""
        shape = () if tensor.is_nested else tuple(tensor.shape)
        return TensorValue(next(self._ids), "", shape, (0,) * len(shape), str(tensor.dtype).removeprefix("torch."))

    def _layout(self, key: Any) -> MemoryLayout:
        """Return the layout of a view by its offset, shape, strides and type."""
        return self._layouts.setdefault(key, find_memory_layout(key[1], key[2], key[3]))

    def _view_of_same_bits(self, storage: _Storage, wanted: Any, layout: MemoryLayout) -> TensorValue | None:
        """Return the value of a view that has another shape only, so that its bits have the same order."""
        first = storage.layout
        if first is not None and first.is_contiguous and first.kind == layout.kind and storage.key[0] == wanted[0]:
            return storage.view
        for key, value in storage.views.items():
            if key[0] == wanted[0]:
                other = self._layouts.get(key) or self._layout(key)
                if other.is_contiguous and other.kind == layout.kind:
                    return value
        return None

    def _add_parts(self, found: TensorValue, tensor: Any, storage: _Storage) -> None:
        """Hash what the other run may have of a tensor: its parts, and of an input the whole storage."""
        parts = [] if self._mapped is None else list(map(self._hash, self._mapped.parts(tensor)))
        if storage.is_input:
            if storage.base is None and not _is_whole(tensor):
                storage.base = self._hash(_whole(tensor))
            self._queue.start()  # the memory is the program's: it may be written to or freed unseen
        if parts or storage.base is not None:
            self._parts.append((found, parts, storage.base))

    def _hash(self, tensor: Any) -> TensorValue:
        """Return a value that gets only the hash of a tensor."""
        value = TensorValue(0, "", (), (), "")
        layout = find_memory_layout(tensor.shape, tensor.stride(), tensor.dtype)
        self._queue.add(value, tensor, layout, tensor.untyped_storage())
        return value

    def fetch(self) -> None:
        """Fill in the hashes of all values."""
        self._queue.fetch()
        for value, other in self._same:
            value.hash = other.hash
        for value, parts, base in self._parts:
            value.parts = tuple([x.hash for x in parts if x.hash])
            value.base = "" if base is None else base.hash
        self._same, self._parts = [], []

    def id(self, tensor: Any, settled: bool = True) -> int:
        """Return the id of the data of a tensor. settled: False for what an operation has just written to."""
        if not has_storage(tensor):
            return next(self._ids)
        memory = tensor.untyped_storage()
        if settled:
            self.values([tensor])
            return int(getattr(memory, self.attribute).value)
        return self._written_storage(tensor, memory).value

    def conceal(self, tensor: Any) -> None:
        """Leave the bits of a tensor out of the trace, as they may be undefined."""
        self._written_storage(tensor, tensor.untyped_storage()).is_opaque = True

    def written(self, tensor: Any) -> None:
        """Note that an operation wrote to a tensor: its storage holds other data now."""
        if not has_storage(tensor):
            return
        storage = self._written_storage(tensor, tensor.untyped_storage())
        storage.change(next(self._ids))
        storage.version = None

    def _new_storage(self, memory: Any) -> _Storage:
        """Return the record of memory that may have views already."""
        storage = _Storage(self, next(self._ids), None, None, None)
        setattr(memory, self.attribute, storage)
        return storage

    def _written_storage(self, tensor: Any, memory: Any) -> _Storage:
        """Return the record of the memory of a tensor that an operation has just returned or written to."""
        storage: _Storage | None = getattr(memory, self.attribute, None)
        if storage is None or storage.owner is not self:
            return self._new_storage(memory)
        storage.is_input = False
        if storage.version is not None and not tensor.is_inference() and tensor._version != storage.version:
            storage.change(next(self._ids))  # an operation that was not recorded wrote to it
        return storage


def has_storage(tensor: Any) -> bool:
    """Return whether a tensor is a view of one storage, as sparse and nested tensors are not."""
    try:
        tensor.untyped_storage()
        tensor.stride()
    except RuntimeError:
        return False
    return True


def _is_whole(tensor: Any) -> bool:
    """Return whether a tensor is its storage, element by element."""
    size: int = tensor.untyped_storage().nbytes()
    return bool(tensor.is_contiguous()) and size == tensor.numel() * tensor.element_size()


def _whole(tensor: Any) -> Any:
    """Return all elements of a tensor's storage in one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)
