"""The shape and formats of a matrix product, and the protocol of a callable that computes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from accprobe.errors import AccprobeError
from accprobe.evaluate.product import ScaleWords
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import ScaleOf

SCALE_KINDS: tuple[ScaleOf, ...] = ("tensor", "row", "1x128", "128x128")
# Upper limit of M, N and K.
LARGEST = 1 << 20
# Products, or columns of B, that share a scale.
BLOCK = 128
_SHAPE = re.compile(r"(\d{1,30})[x×](\d{1,30})[x×](\d{1,30})")


@dataclass(frozen=True)
class Spec:
    """D [m, n] = A [m, k] · B [k, n] and its formats.

    scale: which parts of A and B have a scale each (None: no scales). a_exponent: if the callable fixes A, all its elements are
    2^a_exponent (None: A is an operand).
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
        check_sizes(self.m, self.n, self.k)
        if self.a.is_integer != self.b.is_integer:
            advice = "give the same kind of format for both, and let the function quantise its operand"
            raise AccprobeError(f"accprobe has no model of products of {self.a} and {self.b} numbers: {advice}")
        if self.a.is_integer != self.out.is_integer:
            terms = "products" if self.a_exponent is None else "sums"
            raise AccprobeError(f"{terms} of {self.a} operands are never {self.out}: give another format with --out")

    @property
    def kind(self) -> str:
        """Return the kind of callable that accprobe expects, for messages."""
        return "a product of two matrices" if self.a_exponent is None else "a sum or mean"

    @property
    def rounds_operands(self) -> bool:
        return bool(self.a.ignored_low_bits or self.b.ignored_low_bits)

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def scale_shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the shapes of the scales of A and of B; only for products with scales."""
        if self.scale == "tensor":
            return (1, 1), (1, 1)
        if self.scale == "row":
            return (self.m, 1), (1, self.n)
        blocks = -(-self.k // BLOCK)
        return (self.m, blocks), (blocks, -(-self.n // BLOCK) if self.scale == "128x128" else self.n)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return M, N and K of "128x256x4096". Raises AccprobeError."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise AccprobeError(f"'{text:.40}' is not a shape: give MxNxK, such as 128x256x4096")
    m, n, k = map(int, found.groups())
    check_sizes(m, n, k)
    return m, n, k


def check_sizes(m: int, n: int, k: int) -> None:
    """Raise AccprobeError for a size that is not from 1 to LARGEST."""
    for name, size in (("M", m), ("N", n), ("K", k)):
        if not 1 <= size <= LARGEST:
            raise AccprobeError(f"{name} is {size}: give 1 to {LARGEST}")


def usual_result(a: Format) -> Format:
    """Return the default result format for these operands."""
    return FORMATS["s32"] if a.is_integer else FORMATS["f64"] if a.name == "f64" else FORMATS["f32"]


class BlackBox(Protocol):
    """A matmul callable of bit patterns: d[i, j] of D [M, N] is the product of row i of a [M, K] and row j of b [N, K]."""

    @property
    def spec(self) -> Spec: ...

    def product(self, a: Bits, b: Bits, scales: ScaleWords | None = None) -> Bits:
        """Raises AccprobeError if the callable raises or does not return such a product."""
        ...
