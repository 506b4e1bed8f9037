"""What is asked about: the shape of a product, its formats and its scales."""

from __future__ import annotations

import re
from dataclasses import dataclass

from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ScaleOf

SCALES: tuple[ScaleOf, ...] = ("tensor", "row", "1x128", "128x128")

LARGEST = 1 << 20
"""Of M, N and K."""

BLOCK = 128
"""Products, rows or columns that share a block's scale."""

SHAPE = re.compile(r"(\d{1,9})[x×](\d{1,9})[x×](\d{1,9})")


@dataclass(frozen=True)
class Spec:
    """D [m, n] = A [m, k] · B [k, n]: its formats, and what has a scale of its own (None: nothing).

    a_exponent: where A is the callable's own, and nobody can ask another: every element of it is 2^a_exponent (None: any A).
    """

    m: int
    n: int
    k: int
    a: Format
    b: Format
    out: Format
    scale: ScaleOf | None = None
    a_exponent: int | None = None

    def __post_init__(self) -> None:
        for name, size in (("M", self.m), ("N", self.n), ("K", self.k)):
            if not 1 <= size <= LARGEST:
                raise AccprobeError(f"{name} is {size}: give 1 to {LARGEST}")
        if self.a.is_integer != self.out.is_integer:
            raise AccprobeError(f"{self.a} operands give no {self.out}: name another with --out")

    @property
    def rounds_operands(self) -> bool:
        """Whether operands come in words that are wider than their format."""
        return bool(self.a.ignored_low_bits or self.b.ignored_low_bits)

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def parse_shape(text: str) -> tuple[int, int, int]:
    """M, N and K of "128x256x4096". Raises AccprobeError."""
    found = SHAPE.fullmatch(text.strip())
    if found is None:
        raise AccprobeError(f"'{text:.40}' is no shape: give MxNxK, such as 128x256x4096")
    m, n, k = map(int, found.groups())
    return m, n, k


def usual_result(a: Format) -> Format:
    """The format that a product of such operands has where nothing else is said."""
    return FORMATS["s32"] if a.is_integer else FORMATS["f64"] if a.name == "f64" else FORMATS["f32"]
