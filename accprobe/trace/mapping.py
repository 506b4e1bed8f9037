"""Parts of two runs that should be equal: the first sequence of a batch, some rows, the last token, the slice of a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accprobe.errors import AccprobeError
from accprobe.trace.records import TensorValue

_FORM = re.compile(
    r"batch=(?P<first>\d{1,6})(:(?P<second>\d{1,6}))?|rows=(?P<rows>\d{1,9})|token=last"
    r"|shard=(?P<rank>\d{1,4})/(?P<ranks>\d{1,4})"
)

MAPPING_FORMS = "give batch=1:8, rows=16, token=last or shard=RANK/RANKS"


@dataclass(frozen=True)
class Mapped:
    """The part of one run.

    kind:
    - "batch": the first of `size` equal parts of dimension 0.
    - "rows": the first `size` rows of dimension 0.
    - "token": the last place along one dimension, a part for each dimension.
    - "shard": slice `rank` of `size` equal ones along one dimension, a part for each dimension.
    """

    kind: str
    size: int = 1
    rank: int = 0

    def __str__(self) -> str:
        if self.kind == "shard":
            return f"shard={self.rank}/{self.size}"
        return "token=last" if self.kind == "token" else f"{self.kind}={self.size}"

    def slices(self, shape: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
        """Yield dimension, start and length of each part of a tensor that differs from the whole."""
        for dimension, size in enumerate(shape):
            if self.kind == "token":
                start, length = size - 1, 1
            elif self.kind == "shard":
                length = size // self.size if size % self.size == 0 else 0
                start = self.rank * length
            else:
                start, length = 0, 0 if dimension else self._rows(size)
            if 0 < length < size:
                yield dimension, start, length

    def _rows(self, size: int) -> int:
        if self.kind == "batch":
            return size // self.size if size % self.size == 0 else 0
        return self.size

    def parts(self, tensor: Any) -> list[Any]:
        """Return views of a tensor, one for each dimension that the mapping narrows; none if it takes the whole."""
        return [tensor.narrow(*each) for each in self.slices(tuple(tensor.shape))] if tensor.numel() else []


WHOLE_RUN = Mapped("batch", 1)


def parse_mapping(text: str, forms: str = MAPPING_FORMS) -> tuple[Mapped, Mapped]:
    """Return the parts of both runs. Raises AccprobeError.

    "shard=0/2": slice 0 of 2 of the first run, which is not sharded, and everything of the second, which is rank 0.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise AccprobeError(f"'{text:.40}' is not a mapping: {forms}")
    given = {name: int(x) for name, x in found.groupdict().items() if x is not None}
    if 0 in (given.get(name) for name in ("first", "second", "rows", "ranks")):
        raise AccprobeError(f"'{text:.40}' has a size of 0: {forms}")
    if "ranks" in given:
        if given["rank"] >= given["ranks"]:
            raise AccprobeError(f"'{text:.40}' names rank {given['rank']} of {given['ranks']}; the first rank is 0")
        return Mapped("shard", given["ranks"], given["rank"]), WHOLE_RUN
    if "first" in given:
        return Mapped("batch", given["first"]), Mapped("batch", given.get("second", given["first"]))
    mapped = Mapped("rows", given["rows"]) if "rows" in given else Mapped("token")
    return mapped, mapped


def part_of(text: str) -> Mapped:
    """Return the part of one run, of "batch=8", "rows=16", "token=last" or "shard=0/2". Raises AccprobeError."""
    if text.startswith("batch") and ":" in text:
        raise AccprobeError(f"'{text:.40}' names two runs: give batch=N of the run that is recorded")
    return parse_mapping(text, MAPPING_FORMS.replace("1:8", "8"))[0]


def same(x: TensorValue, y: TensorValue) -> bool:
    """Return whether two values, or their mapped parts, have equal bits. A value without a hash equals none."""
    if not (x.parts or y.parts):
        return x.hash == y.hash != ""
    return bool({x.hash, *x.parts} & {y.hash, *y.parts})


def comparable(x: TensorValue, y: TensorValue, mapping: tuple[Mapped, Mapped] | None) -> bool:
    """Return whether the shapes of two values let their mapped parts be equal."""
    if x.shape == y.shape:
        return True
    if mapping is None:
        return False
    shapes = [{value.shape, *_shapes(value.shape, each)} for value, each in zip((x, y), mapping, strict=True)]
    return bool(shapes[0] & shapes[1])


def _shapes(shape: tuple[int, ...], mapped: Mapped) -> Iterator[tuple[int, ...]]:
    return ((*shape[:dimension], length, *shape[dimension + 1 :]) for dimension, _, length in mapped.slices(shape))


def take_part(tensor: Any, other: Any, mapped: Mapped) -> Any:
    """Return the part of a tensor or array that is compared with the part of `other`, which is of the other run."""
    for dimension, start, length in mapped.slices(tuple(tensor.shape)):
        if tensor.shape[dimension] != other.shape[dimension]:
            return tensor[(slice(None),) * dimension + (slice(start, start + length),)]
    return tensor
