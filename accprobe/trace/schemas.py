"""Schemas of torch operations: the tensors that they read and write, and the tensors among their arguments."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

_IN_PLACE = ("c10d.allreduce", "c10d.broadcast", "c10d.reduce_.")
"""Collectives that read the tensors to which they write."""

_UNRECORDED = ("aten.empty", "aten.new_empty", "aten.detach", "aten.alias", "aten.lift_fresh", "aten._unsafe_view", "prim.")


@dataclass(frozen=True, slots=True)
class Schema:
    """How an operation treats its tensors. is_skipped: it makes views, or memory without content. is_pure: its results are new.

    call: runs the operation without Python code of torch. written: position and name of the arguments that it writes; results:
    names of the arguments that are only written. multiplies: torch's flags of matrix products may matter. dropout: position of
    the argument `dropout_p`, without which an attention is not random. buffers: first arguments that are only written to.
    is_collective: it returns before its results are there. negates: it makes a view whose bits are negated when they are read.
    """

    function: Any
    call: Callable[..., Any]
    name: str
    is_skipped: bool
    is_pure: bool
    written: tuple[tuple[int, str], ...]
    results: tuple[str, ...]
    multiplies: bool
    random: bool
    dropout: int | None
    buffers: int
    is_collective: bool
    negates: bool

    def draws(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
        """Return whether a call of these arguments draws random numbers."""
        if self.dropout is None:
            return self.random
        return bool(arguments[self.dropout] if self.dropout < len(arguments) else keywords.get("dropout_p"))


SCHEMAS: dict[int, Schema] = {}
"""By the id of the operation, because the hash of an `OpOverload` is slow; a schema keeps its operation alive."""


def schema_of(function: Any) -> Schema:
    """Return the schema of an `OpOverload`."""
    return SCHEMAS.get(id(function)) or SCHEMAS.setdefault(id(function), _schema(function))


def _schema(function: Any) -> Schema:
    import torch

    name = str(function)
    arguments = function._schema.arguments
    written = tuple((i, x.name) for i, x in enumerate(arguments) if x.alias_info is not None and x.alias_info.is_write)
    is_collective = name.startswith(("c10d.", "_c10d_functional."))
    if name.startswith("c10d.") and arguments:  # their schemas do not say that they write to the first argument
        written = ((0, arguments[0].name),)
    buffers = int(name.startswith("c10d.") and not name.startswith(_IN_PLACE))
    results = tuple(x.name for x in arguments if x.is_out)
    is_pure = not written and not any(x.alias_info is not None for x in arguments)
    is_view = not written and any(x.alias_info is not None for x in arguments)
    multiplies = any(word in name for word in ("mm", "linear", "conv"))
    random = torch.Tag.nondeterministic_seeded in function.tags
    dropout = next((i for i, x in enumerate(arguments) if x.name == "dropout_p"), None)
    negates = name.startswith("aten._neg_view")
    is_skipped = (is_view and not negates) or name.startswith(_UNRECORDED)
    call = function._op if type(function) is torch._ops.OpOverload else function
    facts = (is_skipped, is_pure, written, results, multiplies, random, dropout, buffers, is_collective, negates)
    return Schema(function, call, name, *facts)


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


_NUMBERS = frozenset((int, float, bool, type(None)))

MOST_ARGUMENTS = 1000
"""Characters of arguments that are stored."""


def read_arguments(schema: Schema, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the tensors that an operation reads, and its arguments with "tensor" in the place of each tensor."""
    tensor, buffers = tensor_class(), schema.buffers
    read: list[Any] = []
    listed = [_divide(x, [], tensor) for x in arguments[:buffers]] if buffers else []
    listed += [x if type(x) in _NUMBERS else _divide(x, read, tensor) for x in arguments[buffers:]]
    if keywords:
        named = {name: _divide(x, [] if name in schema.results else read, tensor) for name, x in keywords.items()}
        return read, [listed, named]
    return read, listed


def arguments_text(arguments: list[Any] | None) -> str:
    """Return arguments as JSON, "" for None. Texts are kept, as JSON is slow and most arguments come again."""
    if arguments is None:
        return ""
    try:
        key: bytes | str = marshal.dumps(arguments, 2)
    except ValueError:  # a type or a device of torch
        key = repr(arguments)
    text = _TEXTS.get(key)
    if text is None:
        if len(_TEXTS) >= MOST_TEXTS:
            _TEXTS.clear()
        text = _TEXTS[key] = _ENCODER.encode(arguments)[:MOST_ARGUMENTS]
    return text


def _divide(value: Any, tensors: list[Any], tensor: Any) -> Any:
    """Return an argument as it is stored. Its tensors go to `tensors`. tensor: the class of tensors."""
    if isinstance(value, tensor):
        tensors.append(value)
        return "tensor"
    if isinstance(value, list | tuple):
        return [x if type(x) in _NUMBERS else _divide(x, tensors, tensor) for x in value]
    if isinstance(value, str) and ("/" in value or "\\" in value):
        return "path"
    return value


def _described(value: Any) -> str:
    """Return a type or a device of torch as text; of other objects, whose text may hold an address, the class."""
    import torch

    known = torch.dtype | torch.device | torch.layout | torch.memory_format
    return str(value) if isinstance(value, known) else type(value).__name__


_TEXTS: dict[bytes | str, str] = {}
"""JSON of arguments by their bytes of `marshal`, which makes them faster than `repr`."""

MOST_TEXTS = 1 << 12

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_described)
