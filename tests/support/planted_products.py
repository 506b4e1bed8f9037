"""Matrix products with a chosen arithmetic, which `accprobe gemm` must find. They share no code with accprobe.

`planted_plans` names some and draws others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from planted_disturbances import Around, Mispaired
from planted_sums import (
    TYPES,
    Array,
    Exponents,
    Floats,
    OperandRounding,
    Rounding,
    check_sum,
    exponents_of,
    fused_sum,
    rounded,
    rounded_to,
    values_of,
)

Singles = NDArray[np.float32]
Ks = NDArray[np.int64]

Partial = Literal["f32", "bf16", "f16"]
Merge = Literal["forward", "backward", "tree", "butterfly", "serial", "unordered"]
Orders = Literal["output", "tile", "call"]
TILE = 16
"""Rows and columns of a tile whose outputs have one order."""
Scales = Literal["tensor", "row", "128x128"]
BLOCK = 128
"""Products, and columns, of a block of scales."""


@dataclass(frozen=True)
class Planted:
    """A matrix product a · b, [M, K] · [K, N], and everything that its bits depend on.

    products_per_sum: 1 is a chain of FMAs. alignment_bits: all terms of a sum, including the running sum, are truncated at this
    many fraction bits below their largest exponent (None: not truncated), then added exactly. The exponent of a product is the
    sum of its operands' encoded exponents: 1.5 · 1.5 has 0, a subnormal has that of the smallest normal number. Zeros do not
    count. A sum of exactly zero is +0; that of FMAs has IEEE's sign. result_bits, sum_rounding: each sum is rounded to an f32
    with this many fraction bits. promote_every: after this many products of a slice the chain restarts at zero, and its sum is
    added to an f32, RNE. slices: sizes; () is one slice. interleave: slice s has the blocks of this many products whose number
    is s modulo the slices. partial_format: format to which the sum of each slice is rounded, RNE, before they are added. merge:
    additions in f32, RNE: "forward"; "backward" from the last; "tree": neighbours, then neighbours of these; "butterfly": i and
    i + n/2 of n, then again; "serial": forward, rounded to partial_format after each; "unordered": a new order in each call,
    for each output, tile or call (`orders`). out, result_rounding: of the final f32. s8 · s8 is exact and s32. scales: f32,
    "tensor" [1, 1] or "row" [M, 1] and [1, N]: the total times RNE(sa · sb); "128x128" [M, blocks] and [blocks, N]: each chunk
    of promote_every times it.
    truncated_step: the addition of a chunk, counted from 0, whose sum is truncated. descending: sums take K in decreasing order
    inside a slice. dropped_tail: number of last products that are not added. doubled_k: the last k of a slice, which is also
    the next one's first. operand_rounding: of f32 words to tf32; RNA: to nearest, ties away from zero.
    """

    a: str = "bf16"
    b: str = "bf16"
    m: int = 32
    n: int = 32
    k: int = 512
    products_per_sum: int = 16
    alignment_bits: int | None = 25
    result_bits: int = 23
    sum_rounding: Rounding = "RZ"
    promote_every: int | None = None
    slices: tuple[int, ...] = ()
    interleave: int | None = None
    partial_format: Partial = "f32"
    merge: Merge = "forward"
    orders: Orders = "output"
    out: str = "f32"
    result_rounding: Rounding = "RNE"
    scales: Scales | None = None
    truncated_step: int | None = None
    descending: bool = False
    dropped_tail: int = 0
    doubled_k: int | None = None
    mispaired: Mispaired | None = None
    around: Around | None = None
    operand_rounding: OperandRounding = "RZ"
    seed: int = 0
    _order: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_order", np.random.default_rng(self.seed))
        check_sum(self.products_per_sum, self.alignment_bits)
        sliced = [len(ks) for ks in self._undisturbed(self.k)]
        _require(not self.slices or sliced == list(self.slices), f"slices of {self.slices} are not those of {self.k}: {sliced}")
        if self.scales == "128x128":
            every = self.promote_every
            _require(every is not None and BLOCK % every == 0, "a chunk lies in one block of scales")
            _require(not any(size % BLOCK for size in self.slices[:-1]), "a slice begins with a block")

    @property
    def is_deterministic(self) -> bool:
        """Return whether identical calls give the same bits."""
        any_order = self.merge == "unordered" and len(self.slices) > 2
        return not any_order and (self.around is None or self.around.kind != "first calls")

    @property
    def depends_on_others(self) -> bool:
        """Return whether an output is no product of its own row of A and its own column of B."""
        moved = self.mispaired is not None and self.mispaired.mistake in ("rows", "columns")
        return moved or (self.around is not None and self.around.kind != "first calls")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    def __call__(self, a: Array, b: Array, *scales: Singles) -> Array:
        """Multiply a [M, K] and b [K, N], arrays of numpy and ml_dtypes, with two scales if the plan has them -> d [M, N]."""
        (m, k), (other, n) = a.shape, b.shape
        _require(k == other, f"a has {k} columns, b {other} rows")
        _require(not self.slices or k == self.k, f"slices of {self.slices} are not those of {k} products")
        _require(len(scales) == (0 if self.scales is None else 2), f"scales of {self.scales}, and {len(scales)} arrays of them")
        _require(all(scale.dtype == np.float32 for scale in scales), "scales are f32")
        if self.around is not None:
            plain = replace(self, around=None)
            other = replace(plain, sum_rounding="RZ" if self.sum_rounding == "RNE" else "RNE")
            half = replace(plain, m=m // 2, n=n // 2, k=k // 2, slices=(), interleave=None, promote_every=None)
            return self.around.call(plain, other, half, a, b)
        if self.mispaired is not None:
            a, b = self.mispaired.read(a, b)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._integers(a, b) if self.a == "s8" else self._floats(a, b, *scales)

    def _undisturbed(self, k: int) -> list[Ks]:
        """Return the k of each slice, each k once."""
        every = np.arange(k)
        if not self.slices:
            return [every]
        if self.interleave is None:
            return np.split(every, np.cumsum(self.slices)[:-1])
        return [every[every // self.interleave % len(self.slices) == s] for s in range(len(self.slices))]

    def _parts(self, k: int) -> list[Ks]:
        """Return the k of each slice, in order, with the planted faults."""
        parts = self._undisturbed(k)
        for i, (before, after) in enumerate(pairwise(parts)):
            if before[-1] == self.doubled_k:
                parts[i + 1] = np.concatenate([before[-1:], after])
        return [ks[ks < k - self.dropped_tail] for ks in parts]

    def _integers(self, a: Array, b: Array) -> Array:
        ks = np.concatenate(self._parts(a.shape[1]))
        x, y = values_of(a, self.a)[:, ks].astype(np.int64), values_of(b, self.b)[ks].astype(np.int64)
        return np.asarray((x @ y).astype(np.int32))

    def _floats(self, a: Array, b: Array, *scales: Singles) -> Array:
        x, y = values_of(a, self.a, self.operand_rounding), values_of(b, self.b, self.operand_rounding)
        factors = _Factors(x, y, self.a, self.b)
        in_blocks = self.scales == "128x128"
        sums = [self._slice(factors, ks, scales if in_blocks else ()) for ks in self._parts(a.shape[1])]
        total = sums[0] if len(sums) == 1 else self._merged([self._partial(p) for p in sums])
        if scales and not in_blocks:
            total = total * (scales[0] * scales[1])
        return rounded_to(total.astype(np.float64), self.out, self.result_rounding).astype(TYPES[self.out].dtype)

    def _slice(self, factors: _Factors, ks: Ks, of_blocks: tuple[Singles, ...]) -> Singles:
        """Return the sum of one slice, f32 [M, N]; of_blocks: scales of A and B, or none."""
        if self.promote_every is None:
            return self._chain(factors, ks[::-1] if self.descending else ks)
        total = np.zeros(factors.shape, np.float32)
        for step, chunk in enumerate(_in_parts(ks, self.promote_every)):
            found = self._chain(factors, chunk)
            if of_blocks:
                block = int(chunk[0]) // BLOCK
                found = of_blocks[0][:, block, None] * of_blocks[1][block] * found
            total = _truncated(total, found) if step == self.truncated_step else total + found
        return total

    def _chain(self, factors: _Factors, ks: Ks) -> Singles:
        """Return a chain of sums of products_per_sum, from zero.

        Products of zeros are left out, and sums of nothing else but the first of several: what is truncated once is not
        truncated further. A sum of -0 has all of them, as they decide its sign.
        """
        carry = np.zeros(factors.shape)
        idle = False
        for step in _in_parts(ks, self.products_per_sum):
            some = step if np.signbit(carry[carry == 0]).any() else step[factors.full[step]]
            if idle and not len(some):
                continue
            idle = not len(some)
            total = fused_sum(*factors.products(some), carry, self.alignment_bits)
            kept = rounded(total, self.result_bits, TYPES["f32"].min_exponent, self.sum_rounding)
            carry = kept.astype(np.float32).astype(np.float64)
        return carry.astype(np.float32)

    def _partial(self, sums: Singles) -> Singles:
        dtype = TYPES[self.partial_format].dtype
        return rounded_to(sums.astype(np.float64), self.partial_format).astype(dtype).astype(np.float32)

    def _merged(self, partials: list[Singles]) -> Singles:
        match self.merge:
            case "forward":
                return reduce(np.add, partials)
            case "backward":
                return reduce(np.add, reversed(partials))
            case "serial":
                return reduce(lambda total, partial: self._partial(total + partial), partials)
            case "unordered":
                order = self._drawn_orders(len(partials), *partials[0].shape)
                return reduce(np.add, list(np.take_along_axis(np.stack(partials), order, axis=0)))
            case "butterfly":
                while len(partials) > 1:
                    half = len(partials) // 2
                    partials = [x + y for x, y in zip(partials[:half], partials[half:], strict=True)]
                return partials[0]
            case "tree":
                while len(partials) > 1:
                    partials = [reduce(np.add, partials[i : i + 2]) for i in range(0, len(partials), 2)]
                return partials[0]

    def _drawn_orders(self, parts: int, m: int, n: int) -> NDArray[np.intp]:
        """Draw a new order of the parts for each output, tile or call, [parts, M, N]."""
        high, wide = {"output": (1, 1), "tile": (TILE, TILE), "call": (m, n)}[self.orders]
        drawn = np.argsort(self._order.random((parts, -(-m // high), -(-n // wide))), axis=0)
        return drawn.repeat(high, axis=1).repeat(wide, axis=2)[:, :m, :n]


class _Factors:
    """Operands and exponents, whose products are computed on demand."""

    def __init__(self, a: Floats, b: Floats, kind_of_a: str, kind_of_b: str) -> None:
        self.shape = a.shape[0], b.shape[1]
        self._a, self._b = np.ascontiguousarray(a.T)[:, :, None], np.ascontiguousarray(b)[:, None, :]
        self._exponents = exponents_of(self._a, kind_of_a), exponents_of(self._b, kind_of_b)
        self.full = (a != 0).any(axis=0) & (b != 0).any(axis=1)
        """True for each k with a product that may not be zero."""

    def products(self, ks: Ks) -> tuple[Floats, Exponents]:
        """Return products and their exponents, each [len(ks), M, N]."""
        of_a, of_b = self._exponents
        return self._a[ks] * self._b[ks], of_a[ks] + of_b[ks]


def _truncated(x: Singles, y: Singles) -> Singles:
    """Return x + y, truncated to f32."""
    whole = x.astype(np.float64) + y
    lost = (x - (whole - (whole - x))) + (y - (whole - x))  # whole + lost is x + y, exactly
    near = whole.astype(np.float32)
    beyond = np.sign(whole) * ((near.astype(np.float64) - whole) - lost) > 0
    return np.where(beyond, np.nextafter(near, np.float32(0)), near)


def _in_parts(ks: Ks, size: int) -> Iterator[Ks]:
    for start in range(0, len(ks), size):
        yield ks[start : start + size]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
