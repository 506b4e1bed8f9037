"""What a torch operation does to its tensors, and the tensors among its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

_IN_PLACE = ("c10d.allreduce", "c10d.broadcast", "c10d.reduce_.")
"""Collectives that read the tensors to which they write."""

_UNRECORDED = ("aten.empty", "aten.new_empty", "aten.detach", "aten.alias", "aten.lift_fresh", "aten._unsafe_view", "prim.")


@dataclass(frozen=True)
class Schema:
    """What an operation does to its tensors. is_skipped: it makes views, or memory without content.

    dropout: position of the argument `dropout_p`, without which an attention is not random. buffers: first arguments that are
    only written to. is_collective: it returns before its results are there.
    """

    name: str
    is_skipped: bool
    written: tuple[tuple[int, str], ...]
    results: tuple[str, ...]
    random: bool
    dropout: int | None
    buffers: int
    is_collective: bool


@cache
def schema_of(function: Any) -> Schema:
    """Return the schema of an `OpOverload`."""
    import torch

    name = str(function)
    arguments = function._schema.arguments
    written = tuple((i, x.name) for i, x in enumerate(arguments) if x.alias_info is not None and x.alias_info.is_write)
    is_collective = name.startswith(("c10d.", "_c10d_functional."))
    if name.startswith("c10d.") and arguments:  # their schemas do not say that they write to the first argument
        written = ((0, arguments[0].name),)
    buffers = int(name.startswith("c10d.") and not name.startswith(_IN_PLACE))
    results = tuple(x.name for x in arguments if x.is_out)
    is_view = not written and any(x.alias_info is not None for x in arguments)
    random = torch.Tag.nondeterministic_seeded in function.tags
    dropout = next((i for i, x in enumerate(arguments) if x.name == "dropout_p"), None)
    return Schema(name, is_view or name.startswith(_UNRECORDED), written, results, random, dropout, buffers, is_collective)


def wait_for(result: Any) -> None:
    """Wait until the results of a collective are there."""
    import torch

    for each in result if isinstance(result, tuple) else ():
        if isinstance(each, torch.ScriptObject) and hasattr(each, "wait"):
            each.wait()
    for tensor in tensors_in(result):
        torch.ops._c10d_functional.wait_tensor(tensor)


def tensors_in(values: Any) -> Iterator[Any]:
    """The tensors of arguments or results, in their order."""
    import torch

    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from tensors_in(each)
    elif isinstance(values, dict):
        for each in values.values():
            yield from tensors_in(each)
    elif hasattr(values, "to_tuple"):  # results of transformers
        yield from tensors_in(values.to_tuple())
