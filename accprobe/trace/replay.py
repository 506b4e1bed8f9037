"""Operations with copies of their operands, called again alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from accprobe.gemm.callables.options import flags_set
from accprobe.trace.schemas import schema_of, tensors_in

WHOLE_STORAGE = 1 << 28
"""Bytes up to which the whole storage of an operand is copied, so that other views of it can be taken."""


@dataclass(frozen=True)
class Operand:
    """A view of a copied storage. value: identifies the data (see `Storages`); memory: all its elements in one row."""

    value: int
    memory: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def tensor(self) -> Any:
        return self.of(self.memory)

    def of(self, other: Any) -> Any:
        """Return the same view of another tensor's storage."""
        if other.dtype != self.memory.dtype:
            other = other.reshape(-1).view(self.memory.dtype)
        return other.as_strided(self.shape, self.strides, self.offset)

    def filled(self, tensor: Any) -> Any:
        """Return a memory like this operand's in which the view holds another tensor."""
        memory = self.memory.clone()
        self.of(memory).copy_(tensor)
        return memory


def copy_operand(value: int, tensor: Any, memories: dict[Any, Any]) -> Operand:
    """Return a copy of a tensor. memories: copies that were made, by value."""
    import torch

    tensor = tensor.detach()
    shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if tensor.numel() else 0
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    whole = size * tensor.element_size() <= max(WHOLE_STORAGE, 2 * span * tensor.element_size())
    key = (value, tensor.dtype, None if whole else (offset, span))
    if key not in memories:
        start, length = (0, size) if whole else (offset, span)
        memories[key] = torch.as_strided(tensor, (length,), (1,), start).clone()
    return Operand(value, memories[key], offset if whole else 0, shape, strides)


@dataclass
class RecordedCall:
    """An operation and its arguments, tensors replaced by `Operand`s. results: copies of what it gave."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    flags: Mapping[str, Any]
    results: list[Operand] = field(default_factory=list)

    def operands(self) -> list[Operand]:
        return list(_operands([self.arguments, self.keywords]))

    def __call__(self, replaced: Mapping[int, Any] | None = None) -> list[Any]:
        """Run it under its flags and return its results. replaced: by position, other tensors for operands."""
        import torch

        schema = schema_of(self.function)
        given = [operand.of(operand.memory.clone()) if schema.written else operand.tensor for operand in self.operands()]
        for position, tensor in (replaced or {}).items():
            given[position] = tensor
        iterator = iter(given)
        arguments, keywords = _filled(self.arguments, iterator), _filled(self.keywords, iterator)
        known = {name: value for name, value in self.flags.items() if isinstance(value, bool)}
        with torch.no_grad(), flags_set(torch, known) if torch.cuda.is_available() else nullcontext():
            result = self.function(*arguments, **keywords)
        written = [arguments[i] if i < len(arguments) else keywords.get(name) for i, name in schema.written]
        return list(tensors_in(written or result))

    def under(self, **flags: bool) -> RecordedCall:
        """Return the call with other flags."""
        return replace(self, flags={**self.flags, **flags})

    def repeats(self, times: int = 3) -> bool:
        """Return whether the operation gives the recorded bits each time that it is called again.

        Of an attention, only the first result counts: the state of the random generator, and padding, are undefined.
        """
        kept = self.results if schema_of(self.function).dropout is None else self.results[:1]
        return all(not any(count_differing(x, y.tensor) for x, y in zip(self(), kept, strict=False)) for _ in range(times))


def _operands(values: Any) -> Iterator[Operand]:
    if isinstance(values, Operand):
        yield values
    elif isinstance(values, list | tuple | dict):
        for each in values.values() if isinstance(values, dict) else values:
            yield from _operands(each)


def _filled(values: Any, tensors: Iterator[Any]) -> Any:
    """Return arguments with the next tensor in the place of each operand."""
    if isinstance(values, Operand):
        return next(tensors)
    if isinstance(values, dict):
        return {name: _filled(x, tensors) for name, x in values.items()}
    return type(values)(_filled(x, tensors) for x in values) if isinstance(values, list | tuple) else values


@dataclass(frozen=True)
class CallBlock:
    """Several operations as one function: the operands that none of them computes are its inputs."""

    calls: tuple[RecordedCall, ...]

    def inputs(self) -> list[Operand]:
        """Return the operands from outside, the first view of each value."""
        made = {result.value for call in self.calls for result in call.results}
        found: dict[int, Operand] = {}
        for operand in (x for call in self.calls for x in call.operands()):
            if operand.value not in made:
                found.setdefault(operand.value, operand)
        return list(found.values())

    @property
    def result(self) -> Operand:
        return self.calls[-1].results[-1]

    def __call__(self, memories: Mapping[int, Any] | None = None) -> Any:
        """Run the operations in turn and return the last result. memories: by value, memory that replaces that of inputs."""
        known: dict[int, Any] = dict(memories or {})
        result: Any = None
        for call in self.calls:
            operands = enumerate(call.operands())
            results = call({i: x.of(known[x.value]) for i, x in operands if x.value in known})
            known |= {kept.value: tensor for kept, tensor in zip(call.results, results, strict=True)}
            result = results[-1]
        return result


def tensor_words(tensor: Any) -> Any:
    """Return the bits of a tensor as integers of its own width, in its shape."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def count_differing(x: Any, y: Any) -> int:
    """Return how many elements of two tensors differ in their bits."""
    return int((tensor_words(x) != tensor_words(y).to(x.device)).sum())
