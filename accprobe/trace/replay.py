"""Operations with copies of their operands, called again alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from accprobe.callables.options import flags_set
from accprobe.trace.records import TracedOperation
from accprobe.trace.schemas import schema_of, tensors_in

ALIGNMENT = 256
"""Elements. A copy has the storage offset of its tensor modulo this, as kernels are selected by the alignment of operands."""

POSITIONS: dict[str, tuple[int, int]] = {
    "aten.mm": (0, 1),
    "aten.bmm": (0, 1),
    "aten._scaled_mm": (0, 1),
    "aten.addmm": (1, 2),
    "aten.baddbmm": (1, 2),
}
"""Positions of A and B among the tensors of an operation; a bias stands before them, scales of A and B behind them."""

COPIES = (
    "aten._to_copy", "aten.clone", "aten.copy_", "aten.cat", "aten.contiguous", "aten.slice_scatter", "aten.select_scatter",
)  # fmt: skip
"""Operations that only move or convert elements."""

MIXING = {
    "aten.sort": "dim", "aten.argsort": "dim", "aten.cumsum": "dim", "aten.flip": "dims",
    "aten.nonzero": "", "aten.histc": "", "aten.bincount": "",
}  # fmt: skip
"""Operations with results that mix elements of several rows, by the argument with their dimensions; "": all dimensions."""


@dataclass(frozen=True)
class Operand:
    """A copy of a tensor. value: identifies the data (see `Storages`)."""

    value: int
    tensor: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


def copy_operand(value: int, tensor: Any, copies: dict[Any, Any]) -> Operand:
    """Return a copy of a tensor. copies: those that were made, by value and layout."""
    key = value, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
    if key not in copies:
        copies[key] = same_layout(tensor)
    return Operand(value, copies[key])


def same_layout(tensor: Any) -> Any:
    """Return a copy of a tensor with its strides and its alignment."""
    import torch

    tensor = tensor.detach()
    before = tensor.storage_offset() % ALIGNMENT
    memory = torch.as_strided(
        tensor, (before + span_of(tensor.shape, tensor.stride()),), (1,), tensor.storage_offset() - before
    )
    return memory.clone().as_strided(tensor.shape, tensor.stride(), before)


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the elements of memory from the first to the last of a tensor."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@dataclass
class RecordedCall:
    """An operation and its arguments, tensors replaced by `Operand`s. results: copies of what it gave.

    function: None if it may not be called, such as in another machine's trace.
    """

    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    flags: Mapping[str, Any]
    results: list[Operand] = field(default_factory=list)

    def operands(self) -> list[Operand]:
        from torch.utils._pytree import tree_leaves

        return [x for x in tree_leaves((self.arguments, self.keywords)) if isinstance(x, Operand)]

    def __call__(self, replaced: Mapping[int, Any] | None = None) -> list[Any]:
        """Run it under its flags and return its results. replaced: by position, other tensors for operands."""
        import torch
        from torch.utils._pytree import tree_map_only

        schema = schema_of(self.function)
        given = [same_layout(x.tensor) if schema.written else x.tensor for x in self.operands()]
        for position, tensor in (replaced or {}).items():
            given[position] = same_layout(tensor) if schema.written else tensor
        tensors = iter(given)
        arguments, keywords = tree_map_only(Operand, lambda _: next(tensors), (self.arguments, self.keywords))
        known = {name: value for name, value in self.flags.items() if isinstance(value, bool)}
        with torch.no_grad(), flags_set(torch, known) if torch.cuda.is_available() else nullcontext():
            result = self.function(*arguments, **keywords)
        written = [arguments[i] if i < len(arguments) else keywords.get(name) for i, name in schema.written]
        return list(tensors_in(written or result))

    def repeats(self, times: int = 3) -> bool:
        """Return whether the operation gives the recorded bits each time that it is called again.

        Only the first result of an attention counts: the state of the random generator, and padding, are undefined.
        """
        kept = self.results if schema_of(self.function).dropout is None else self.results[:1]
        return all(not any(count_differing(x, y.tensor) for x, y in zip(self(), kept, strict=False)) for _ in range(times))


def arguments_of(operation: TracedOperation) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the recorded arguments in their order and by name; None where they were too long to be stored."""
    if not operation.arguments:
        return ["tensor"] * len(operation.inputs), {}
    try:
        stored = json.loads(operation.arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, list):
        return None
    has_names = len(stored) == 2 and isinstance(stored[0], list) and isinstance(stored[1], dict)
    return (stored[0], stored[1]) if has_names else (stored, {})


def aten_operation(name: str) -> Any:
    """Return torch's operation of a recorded name, such as "aten.mm.default"; None without torch, or outside of aten."""
    try:
        import torch
    except ImportError:
        return None
    namespace, packet, overload = (*name.split("."), "", "")[:3]
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None) if namespace == "aten" else None
    return found if isinstance(found, torch._ops.OpOverload) else None


def named_arguments(operation: TracedOperation) -> dict[str, Any]:
    """Return the arguments that are not tensors by their names, defaults included."""
    listed, named = arguments_of(operation) or ([], {})
    function = aten_operation(operation.name)
    known = function._schema.arguments if function is not None else ()
    found = {x.name: x.default_value for x in known if x.has_default_value()}
    found |= {known[i].name if i < len(known) else f"argument {i}": each for i, each in enumerate(listed)} | named
    return {name: value for name, value in found.items() if value != "tensor"}


def differing_arguments(x: TracedOperation, y: TracedOperation) -> str:
    """Return "approximate 'none' against 'tanh'", from the names that torch gives the arguments."""
    first, second = named_arguments(x), named_arguments(y)
    names = [name for name in first | second if first.get(name) != second.get(name)]
    shown = (f"{name} {first.get(name, 'default')!r} against {second.get(name, 'default')!r}" for name in names)
    return ", ".join(shown) or "other arguments"


def terms_of(operation: TracedOperation) -> int:
    """Return how many terms each sum of a reduction has; an upper bound where its record does not say."""
    if not operation.inputs or not operation.outputs:
        return 0
    shape = operation.inputs[0].shape
    terms = math.prod(shape) // max(math.prod(operation.outputs[0].shape), 1)
    if terms > 1:
        return terms
    dim = named_arguments(operation).get("dim")  # the result of a softmax has the shape of its operand
    return shape[dim] if isinstance(dim, int) and -len(shape) <= dim < len(shape) else math.prod(shape)


def adds_other_terms(x: TracedOperation, y: TracedOperation) -> bool:
    """Return whether an operation adds over a dimension that has another size in the other run, such as the batch."""
    pairs = list(zip(x.inputs, y.inputs, strict=False))
    if all(p.shape == q.shape for p, q in pairs):
        return False
    if any(p.shape == q.shape and p.hash != q.hash for p, q in zip(x.outputs, y.outputs, strict=False)):
        return True
    if x.packet in POSITIONS:
        first = POSITIONS[x.packet][0]
        return any(p.shape[-1:] != q.shape[-1:] for p, q in pairs[first : first + 1])
    return "softmax" in x.packet and isinstance(named_arguments(x).get("dim"), int) and terms_of(x) != terms_of(y)


def mixes_rows(x: TracedOperation, y: TracedOperation) -> bool:
    """Return whether an operation moves elements along a dimension of another size in the other run, such as the batch."""
    if x.packet not in MIXING or all(p.shape == q.shape for p, q in zip(x.inputs, y.inputs, strict=False)):
        return False
    dims = named_arguments(x).get(MIXING[x.packet])
    if dims is None:
        return True
    first, second = x.inputs[0].shape, y.inputs[0].shape
    return any(first[dim:][:1] != second[dim:][:1] for dim in (dims if isinstance(dims, list) else [dims]))


def tensor_words(tensor: Any) -> Any:
    """Return the bits of a tensor as integers of its own width, in its shape; of complex128 two int64, [..., 2]."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    tensor = torch.view_as_real(tensor) if tensor.element_size() == 16 else tensor
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def comparable_words(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the bits of two tensors on one device, of their values in f64 or complex128 if their types differ."""
    import torch

    if x.dtype != y.dtype:
        wide = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
        x, y = x.to(wide), y.to(wide)
    first, second = tensor_words(x), tensor_words(y).to(x.device)
    if x.element_size() == 16:  # no integer holds them: the real parts where they differ, else the imaginary parts
        real, imaginary = zip(first.unbind(-1), second.unbind(-1), strict=True)
        return tuple(torch.where(real[0] != real[1], *pair) for pair in zip(real, imaginary, strict=True))
    return first, second


def count_differing(x: Any, y: Any) -> int:
    """Return how many elements of two tensors differ in their bits, or in their values if they have different types."""
    first, second = comparable_words(x, y)
    return int((first != second).sum())
