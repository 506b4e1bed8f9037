"""Parts of two runs of different shapes that should be equal: the first sequence of a batch, some rows, the last token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.trace.records import TensorValue

_FORM = re.compile(r"batch=(\d{1,6})(?::(\d{1,6}))?|rows=(\d{1,9})|token=last")

MAPPING_FORMS = "give batch=1:8, rows=16 or token=last"


@dataclass(frozen=True)
class Mapped:
    """The part of one run. kind: "batch": the first of `size` equal parts of dimension 0; "rows": the first `size` rows of it;
    "token": the last place of a dimension, for each dimension.
    """

    kind: str
    size: int = 1

    def __str__(self) -> str:
        return "token=last" if self.kind == "token" else f"{self.kind}={self.size}"

    def parts(self, tensor: Any) -> list[Any]:
        """Return the parts of a tensor that differ from the whole."""
        shape = tensor.shape
        if not shape or not tensor.numel():
            return []
        if self.kind == "token":
            return [tensor.narrow(d, size - 1, 1) for d, size in enumerate(shape) if size > 1]
        rows = self.rows(tuple(shape))
        return [tensor.narrow(0, 0, rows)] if rows not in (0, shape[0]) else []

    def rows(self, shape: tuple[int, ...]) -> int:
        """Return how many rows of dimension 0 the part has; 0 where a tensor of this shape has no such part."""
        first = shape[0] if shape else 0
        if self.kind == "batch":
            return first // self.size if first % self.size == 0 else 0
        return self.size if first >= self.size else 0


def parse_mapping(text: str) -> tuple[Mapped, Mapped]:
    """Return the parts of both runs, of "batch=1:8", "rows=16" or "token=last". Raises AccprobeError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise AccprobeError(f"'{text:.40}' is not a mapping: {MAPPING_FORMS}")
    first, second, rows = (int(x) if x else None for x in found.groups())
    if 0 in (first, second, rows):
        raise AccprobeError(f"'{text:.40}' has a size of 0: {MAPPING_FORMS}")
    if first is not None:
        return Mapped("batch", first), Mapped("batch", second or first)
    mapped = Mapped("token") if rows is None else Mapped("rows", rows)
    return mapped, mapped


def part_of(text: str) -> Mapped:
    """Return the part of one run, of "batch=8", "rows=16" or "token=last". Raises AccprobeError."""
    if ":" in text:
        raise AccprobeError(f"'{text:.40}' names two runs: give batch=N of the run that is recorded")
    return parse_mapping(text)[0]


def same(x: TensorValue, y: TensorValue) -> bool:
    """Whether two values, or their mapped parts, have equal bits."""
    if not (x.parts or y.parts):
        return x.hash == y.hash
    return bool({x.hash, *x.parts} & {y.hash, *y.parts})


def comparable(x: TensorValue, y: TensorValue, mapping: tuple[Mapped, Mapped] | None) -> bool:
    """Whether the shapes of two values let their mapped parts be equal."""
    if x.shape == y.shape:
        return True
    if mapping is None or len(x.shape) != len(y.shape) or not x.shape:
        return False
    if mapping[0].kind == "token":
        return sum(p != q for p, q in zip(x.shape, y.shape, strict=True)) == 1 and all(
            p == q or 1 in (p, q) for p, q in zip(x.shape, y.shape, strict=True)
        )
    rows = [each.rows(value.shape) for each, value in zip(mapping, (x, y), strict=True)]
    return rows[0] == rows[1] > 0 and x.shape[1:] == y.shape[1:]


def taken(tensor: Any, other: Any, mapped: Mapped) -> Any:
    """Return the part of a tensor that is compared with the part of `other`, a tensor of the other run."""
    if tensor.shape == other.shape:
        return tensor
    if mapped.kind == "token":
        d = next(d for d, (p, q) in enumerate(zip(tensor.shape, other.shape, strict=True)) if p != q)
        return tensor.narrow(d, tensor.shape[d] - 1, 1)
    return tensor.narrow(0, 0, mapped.rows(tuple(tensor.shape)))
