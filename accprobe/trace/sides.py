"""One side of an origin: its operations with their operands; and the cause of a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from accprobe.trace.mapping import WHOLE_RUN, Mapped, taken
from accprobe.trace.records import TracedOperation
from accprobe.trace.replay import CallBlock, Operand, RecordedCall, count_differing

Kind = Literal[
    "split_k",
    "order",
    "promotion",
    "partials",
    "cast",
    "fusion",
    "layout",
    "argument",
    "function",
    "reduction",
    "atomics",
    "dropout",
    "unknown",
]


@dataclass(frozen=True)
class Cause:
    """verified: each side's words were predicted bit for bit. fixes: changes that made both sides equal when tried.

    fixes_tried: fixes were wanted, even if none was found.
    """

    kind: Kind
    text: str
    verified: bool = False
    fixes: tuple[str, ...] = ()
    fixes_tried: bool = False


@dataclass
class OriginSide:
    """One side of an origin. calls: its operations with operands, empty where none were kept. value: the result that differs.

    repeated: a second run of this side gave the same bits.
    """

    operations: tuple[TracedOperation, ...]
    calls: tuple[RecordedCall, ...]
    value: Operand | None
    mapped: Mapped | None = None
    repeated: bool = True

    @property
    def block(self) -> CallBlock:
        return CallBlock(self.calls)


def compared_parts(left: OriginSide, right: OriginSide) -> tuple[Any, Any]:
    """Return the parts of both results that are compared."""
    assert left.value is not None
    assert right.value is not None
    x, y = left.value.tensor, right.value.tensor
    return taken(x, y, left.mapped or WHOLE_RUN), taken(y, x, right.mapped or WHOLE_RUN)


def same_part(x: Any, y: Any, of_x: Mapped | None, of_y: Mapped | None) -> bool:
    """Return whether the compared parts of two tensors have equal bits. of_x, of_y: the parts of their runs."""
    first, second = taken(x, y, of_x or WHOLE_RUN), taken(y, x, of_y or WHOLE_RUN)
    return first.shape == second.shape and not count_differing(first, second)
