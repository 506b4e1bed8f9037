"""Identity of the data of tensors: an id for the data of a storage between two writes, and its hashes.

Hashes are kept until the storage is written to, so that weights are hashed once. A record of each storage is an attribute of
torch's Python object of it: torch keeps that object as long as the storage, so another storage at its address has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from accprobe.trace.hash_kernel import MemoryLayout, memory_layout_of
from accprobe.trace.hashing import HashQueue
from accprobe.trace.mapping import Mapped
from accprobe.trace.records import TensorValue


@dataclass(slots=True)
class _Storage:
    """value: the id of its data. is_input: no recorded operation computed it. version: torch's count of writes, None where the
    next one seen is taken. is_opaque: its bits mean nothing. base: the number of the hash of all its elements, -1 for none.

    views: values by offset and layout, since the last write.
    """

    owner: Storages
    value: int
    is_input: bool
    version: int | None = None
    is_opaque: bool = False
    base: int = -1
    views: dict[Any, TensorValue] = field(default_factory=dict)

    def change(self, value: int) -> None:
        """Note that the storage holds other data now."""
        self.value, self.base, self.views = value, -1, {}


class Storages:
    """mapped: the parts of each tensor that are hashed as well."""

    def __init__(self, queue: HashQueue, mapped: Mapped | None) -> None:
        self._queue, self._mapped = queue, mapped
        self.attribute = "_accprobe_trace"
        """Its name in a storage; recorders that record at the same time have different ones."""
        self._values = 0
        self.may_negate = False
        """True once a view was made whose bits are negated when they are read."""
        self._unfinished: list[TensorValue] = []
        self._parts: list[tuple[TensorValue, list[int], int]] = []
        """Values with the numbers of the hashes of their parts and their base."""

    def values(self, tensors: Iterable[Any]) -> tuple[TensorValue, ...]:
        """Return the values of tensors that an operation reads, and hash those whose bits are not known."""
        attribute, found = self.attribute, []
        for tensor in tensors:  # without calls of Python functions, as it takes a third of the time of recording
            memory = tensor.untyped_storage()
            storage = getattr(memory, attribute, None)
            if storage is None or storage.owner is not self:
                storage = self._new_storage(memory, is_input=True)
            try:
                version = tensor._version
            except RuntimeError:  # an inference tensor has no count
                version = None
            if version != storage.version:
                self._take_version(storage, version)
            key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            value = storage.views.get(key)
            if value is None or key[3].is_complex or ((storage.is_input or self.may_negate) and tensor.is_neg()):
                value = self._value(tensor, memory, storage, key)
            found.append(value)
        return tuple(found)

    def results(self, tensors: Iterable[Any]) -> tuple[TensorValue, ...]:
        """Return the values of tensors that an operation has just written. torch counts the write only after it."""
        attribute, found = self.attribute, []
        for tensor in tensors:
            memory = tensor.untyped_storage()
            key = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            if self._mapped is not None or key[3].is_complex or getattr(memory, attribute, None) is not None:
                found.append(self._value(tensor, memory, self._written_storage(tensor, memory), key))
                continue
            # New memory without views. Its record is made here, without calls of Python functions.
            self._values = identity = self._values + 1
            layout = memory_layout_of(key[1], key[2], key[3])
            number = self._queue.add(tensor, layout, memory)
            value = TensorValue(identity, "", layout.shape, layout.strides, layout.dtype, (), "", number)
            setattr(memory, attribute, _Storage(self, identity, False, None, False, -1, {key: value}))
            if number >= 0:
                self._unfinished.append(value)
            found.append(value)
        return tuple(found)

    def _value(self, tensor: Any, memory: Any, storage: _Storage, key: Any) -> TensorValue:
        """Return the value of a view of a storage, and hash it if its bits are not known."""
        views, is_plain = storage.views, True
        if storage.is_input or self.may_negate or key[3].is_complex:
            is_plain = not (tensor.is_neg() or tensor.is_conj())
        if not is_plain:  # the bits differ from those in memory
            key = (*key, tensor.is_neg(), tensor.is_conj())
        if key in views:
            return views[key]
        plain = tensor if is_plain else tensor.resolve_conj().resolve_neg()
        return self._new_value(tensor, plain, memory, storage, key)

    def _new_value(self, tensor: Any, plain: Any, memory: Any, storage: _Storage, key: Any) -> TensorValue:
        """Return a value and hash it. plain: the tensor, or a copy where the bits in memory are not its own."""
        layout, number = memory_layout_of(key[1], key[2], key[3]), -1
        if not storage.is_opaque:
            if storage.views and plain is tensor and layout.is_contiguous:
                number = self._number_of_same_bits(storage.views, key, layout)
            if number < 0:
                number = self._queue.add(plain, layout, memory) if plain is tensor else self._add(plain)
        found = TensorValue(storage.value, "", layout.shape, layout.strides, layout.dtype, (), "", number)
        storage.views[key] = found
        if number >= 0:
            self._unfinished.append(found)
            if storage.is_input or self._mapped is not None:
                self._add_parts(found, tensor, plain, storage)
        return found

    def _number_of_same_bits(self, views: dict[Any, TensorValue], wanted: Any, layout: MemoryLayout) -> int:
        """Return the number of the hash of a view that has another shape only, so that its bits have the same order; or -1."""
        for key, value in views.items():
            if key[0] == wanted[0] and len(key) == len(wanted):
                other = memory_layout_of(key[1], key[2], key[3])
                if other.is_contiguous and other.kind == layout.kind:
                    return value.number
        return -1

    def _add_parts(self, found: TensorValue, tensor: Any, plain: Any, storage: _Storage) -> None:
        """Hash what the other run may have of a tensor: its parts, and of an input the whole storage."""
        parts = [] if self._mapped is None else [self._add(part) for part in self._mapped.parts(plain)]
        if storage.is_input:
            if storage.base < 0 and not _is_whole(tensor):
                storage.base = self._add(_whole(tensor))
            self._queue.start()  # the memory is the program's: it may be written to or freed unseen
        if parts or storage.base >= 0:
            self._parts.append((found, parts, storage.base))

    def _add(self, tensor: Any) -> int:
        layout = memory_layout_of(tensor.shape, tensor.stride(), tensor.dtype)
        return self._queue.add(tensor, layout, tensor.untyped_storage())

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
        """Return the id of the data of a tensor. settled: False for what an operation has just written to."""
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
        storage = self._written_storage(tensor, tensor.untyped_storage())
        self._values += 1
        storage.change(self._values)
        storage.version = None

    def _new_storage(self, memory: Any, is_input: bool) -> _Storage:
        self._values += 1
        storage = _Storage(self, self._values, is_input)
        setattr(memory, self.attribute, storage)
        return storage

    def _written_storage(self, tensor: Any, memory: Any) -> _Storage:
        storage: _Storage | None = getattr(memory, self.attribute, None)
        if storage is None or storage.owner is not self:
            return self._new_storage(memory, is_input=False)
        storage.is_input = False
        if storage.version is not None and not tensor.is_inference() and tensor._version != storage.version:
            self._take_version(storage, storage.version)
        return storage

    def _take_version(self, storage: _Storage, version: int | None) -> None:
        """Note torch's count of writes. If it is another one, something wrote to the storage that was not recorded."""
        if storage.version is not None and version is not None:
            self._values += 1
            storage.change(self._values)
        storage.version = version


def _is_whole(tensor: Any) -> bool:
    """Return whether a tensor is its storage, element by element."""
    size: int = tensor.untyped_storage().nbytes()
    return bool(tensor.is_contiguous()) and size == tensor.numel() * tensor.element_size()


def _whole(tensor: Any) -> Any:
    """Return all elements of a tensor's storage in one row."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((size,), (1,), 0)
