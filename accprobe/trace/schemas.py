"""Schemas of torch operations: the tensors that they read and write, and the tensors among their arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

_IN_PLACE = ("c10d.allreduce", "c10d.broadcast", "c10d.reduce_.")
"""Collectives that read the tensors to which they write."""

_UNRECORDED = ("aten.empty", "aten.new_empty", "aten.detach", "aten.alias", "aten.lift_fresh", "aten._unsafe_view", "prim.")


class Schema:
    """How an operation treats its tensors. is_skipped: it makes views, or memory without content. is_pure: its results are new.

    call: runs the operation without Python code of torch. tensors: the number of its first arguments, if these are all of its
    tensors, else -1. written: position and name of the arguments that it writes; results: names of the arguments that are only
    written. multiplies: torch's flags of matrix products may matter. random: torch tags it as drawing random numbers. dropout:
    position of the argument `dropout_p`, None without one; an attention is not random if it is 0. buffers: how many of the
    first arguments are only written to. is_collective: it returns before its results are there.
    """

    def __init__(self, function: Any) -> None:
        import torch

        self.function, self.name = function, str(function)
        self.call: Callable[..., Any] = function._op if type(function) is torch._ops.OpOverload else function
        self.is_collective = self.name.startswith(("c10d.", "_c10d_functional."))
        arguments, in_place = function._schema.arguments, self.name.startswith("c10d.")
        self.written = tuple((i, x.name) for i, x in enumerate(arguments) if x.alias_info is not None and x.alias_info.is_write)
        if in_place and arguments:  # their schemas do not say that they write to the first argument
            self.written = ((0, arguments[0].name),)
        is_view = not self.written and any(x.alias_info is not None for x in arguments)
        self.is_skipped = is_view or self.name.startswith(_UNRECORDED)
        self.is_pure = not self.written and not is_view
        self.tensors = -1 if self.is_collective else _leading_tensors([str(x.type) for x in arguments])
        self.results = tuple(x.name for x in arguments if x.is_out)
        self.multiplies = any(word in self.name for word in ("mm", "linear", "conv"))
        self.random = torch.Tag.nondeterministic_seeded in function.tags
        self.dropout = next((i for i, x in enumerate(arguments) if x.name == "dropout_p"), None)
        self.buffers = int(in_place and not self.name.startswith(_IN_PLACE))

    def draws(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
        """Return whether a call of these arguments draws random numbers."""
        if self.dropout is None:
            return self.random
        return bool(arguments[self.dropout] if self.dropout < len(arguments) else keywords.get("dropout_p"))


SCHEMAS: dict[int, Schema] = {}
"""By the id of the operation, because the hash of an `OpOverload` is slow; a schema keeps its operation alive."""


def schema_of(function: Any) -> Schema:
    """Return the schema of an `OpOverload`."""
    return SCHEMAS.get(id(function)) or SCHEMAS.setdefault(id(function), Schema(function))


def _leading_tensors(types: Sequence[str]) -> int:
    """Return how many arguments are tensors, if these are the first ones and none of the others can hold a tensor; else -1."""
    found = next((i for i, each in enumerate(types) if each != "Tensor"), len(types))
    return -1 if any("Tensor" in each or each in ("Any", "t") for each in types[found:]) else found


def wait_for(result: Any) -> None:
    """Wait until the results of a collective are there."""
    import torch

    for each in result if isinstance(result, tuple) else ():
        if isinstance(each, torch.ScriptObject) and hasattr(each, "wait"):
            each.wait()
    for tensor in tensors_in(result):
        torch.ops._c10d_functional.wait_tensor(tensor)


@cache
def tensor_class() -> Any:
    import torch

    return torch.Tensor


def tensors_in(values: Any) -> Iterator[Any]:
    """Yield the tensors of arguments or results, in their order."""
    if isinstance(values, tensor_class()):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from tensors_in(each)
    elif isinstance(values, dict):
        for each in values.values():
            yield from tensors_in(each)
    elif hasattr(values, "to_tuple"):  # results of transformers
        yield from tensors_in(values.to_tuple())


_NUMBERS = frozenset((int, float, bool, complex, type(None)))

_TENSOR = "tensor"
"""Stands for a tensor among stored arguments."""

MOST_ARGUMENTS = 1000
"""Characters of arguments that are stored."""


Listed = tuple[int, Sequence[Any], Mapping[str, Any] | None]
"""Arguments: how many tensors come first, the others, and those with names; tensors among these may be "tensor"."""


def read_arguments(
    schema: Schema, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Sequence[Any], Listed | None]:
    """Return the tensors that an operation reads, and its other arguments, None where there are none."""
    if (tensors := schema.tensors) >= 0:
        others = arguments[tensors:]
        read = arguments[:tensors] if others else arguments
        for each in read:
            if type(each) in _NUMBERS:  # torch gives a number in the place of a tensor of one element
                listed = [x if type(x) in _NUMBERS else _TENSOR for x in read]
                return [x for x in read if type(x) not in _NUMBERS], (0, (*listed, *others), keywords)
        return read, (tensors, others, keywords) if others or keywords else None
    tensor, buffers = tensor_class(), schema.buffers
    read = []
    listed = [_divide(x, [], tensor) for x in arguments[:buffers]] if buffers else []
    listed += [x if type(x) in _NUMBERS else _divide(x, read, tensor) for x in arguments[buffers:]]
    if keywords:
        named = {name: _divide(x, [] if name in schema.results else read, tensor) for name, x in keywords.items()}
        return read, (0, listed, named)
    return read, None if all(x is _TENSOR for x in listed) else (0, listed, None)


def arguments_text(arguments: Listed | None) -> str:
    """Return arguments as JSON, "" for None."""
    if arguments is None:
        return ""
    tensors, others, named = arguments
    listed = [_TENSOR] * tensors + [_divide(x, [], tensor_class()) for x in others]
    whole = [listed, {name: _divide(x, [], tensor_class()) for name, x in named.items()}] if named else listed
    return _ENCODER.encode(whole)[:MOST_ARGUMENTS]


def _divide(value: Any, tensors: list[Any], tensor: Any) -> Any:
    """Return an argument as it is stored, without paths. Its tensors go to `tensors`. tensor: the class of tensors."""
    if isinstance(value, tensor):
        tensors.append(value)
        return _TENSOR
    if isinstance(value, list | tuple):
        return [x if type(x) in _NUMBERS else _divide(x, tensors, tensor) for x in value]
    if isinstance(value, str) and ("/" in value or "\\" in value):
        return "path"
    return value


def _described(value: Any) -> str:
    """Return a complex number, or a type or a device of torch, as text; of others the class: their text may hold an address."""
    import torch

    known = complex | torch.dtype | torch.device | torch.layout | torch.memory_format
    return str(value) if isinstance(value, known) else type(value).__name__


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_described)
