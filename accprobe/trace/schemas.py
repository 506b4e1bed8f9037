"""What a torch operation does to its tensors, and the tensors among its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

_UNRECORDED = ("aten.empty", "aten.new_empty", "aten.detach", "aten.alias", "aten.lift_fresh", "aten._unsafe_view", "prim.")


@dataclass(frozen=True)
class Schema:
    """What an operation does to its tensors. is_skipped: it makes views, or memory without content.

    dropout: position of the argument `dropout_p`, without which an attention is not random.
    """

    name: str
    is_skipped: bool
    written: tuple[tuple[int, str], ...]
    results: tuple[str, ...]
    random: bool
    dropout: int | None


@cache
def schema_of(function: Any) -> Schema:
    """Return the schema of an `OpOverload`."""
    import torch

    name = str(function)
    arguments = function._schema.arguments
    written = tuple((i, x.name) for i, x in enumerate(arguments) if x.alias_info is not None and x.alias_info.is_write)
    results = tuple(x.name for x in arguments if x.is_out)
    is_view = not written and any(x.alias_info is not None for x in arguments)
    random = torch.Tag.nondeterministic_seeded in function.tags
    dropout = next((i for i, x in enumerate(arguments) if x.name == "dropout_p"), None)
    return Schema(name, is_view or name.startswith(_UNRECORDED), written, results, random, dropout)


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
