"""Terms of dot products, decoded and multiplied once for all models that add them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import reduce, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import NOTHING, exponents_of, leading, significands, values_of
from accprobe.evaluate.error_free import Floats, Integers, Truths, two_product
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import ProductExponent, Subnormals
from accprobe.operands.request import Request

# Cache size of an evaluation: float64 numbers per product, counting eight more products per dot product.
ROOM = 6

P = ParamSpec("P")
T = TypeVar("T")


class BoundedCache:
    """Cache of arrays, and of tuples of them, with a limit in bytes; it evicts the least recently used."""

    def __init__(self, room: int) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._left = room

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        found: T | None = self._kept.pop(key, None)
        if found is None:
            found = make()
            self._left -= _size(found)
        self._kept[key] = found
        while self._left < 0 and len(self._kept) > 1:
            self._left += _size(self._kept.pop(next(iter(self._kept))))
        return found


def _size(arrays: Any) -> int:
    return sum(map(_size, arrays)) if isinstance(arrays, tuple) else int(arrays.nbytes)


def remembered(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Cache the results of a method in its object's `memory`, by positional arguments."""

    @wraps(method)
    def get(self: Any, /, *arguments: P.args, **_: P.kwargs) -> T:
        found: T = self.memory.get((method.__name__, *arguments), lambda: method(self, *arguments))  # type: ignore[call-arg]  # no keywords
        return found

    return get


@dataclass(frozen=True)
class Other:
    """A term that is not a product: bit patterns [n], their format, and the rule for subnormals. Equal keys: equal terms."""

    patterns: Bits = field(compare=False)
    fmt: Format = field(compare=False)
    subnormals: Subnormals = field(compare=False)
    key: Hashable


Others = tuple[Other, ...]


class Decoded(NamedTuple):
    """Values of terms, and their exponents in the alignment, [n]."""

    values: Floats
    exponents: NDArray[np.int16]


class ExactProduct(NamedTuple):
    """Products a * b * 2^lowest [n]. a, b: integers of 53 bits; high + low = a * b, exactly; stand_in: see `Significands`."""

    a: Floats
    b: Floats
    high: Floats
    low: Floats
    lowest: Integers
    stand_in: Floats


class CachedTerms:
    """Terms of a few dot products. memory: cache of terms and sums, by key."""

    def __init__(self, inst: Instruction, request: Request) -> None:
        self._inst, self._c = inst, request.c.copy()
        self._a, self._b = (np.array(x.T, order="C") for x in (request.a, request.b))
        given = (request.scales_a, request.scales_b)
        self._scales = tuple(np.array(x.T, order="C") for x in given if x is not None)
        self.memory = BoundedCache(ROOM * 8 * (request.a.size + 8 * len(request)))

    def __len__(self) -> int:
        return len(self._c)

    def is_of(self, request: Request) -> bool:
        given = tuple(x.T for x in (request.scales_a, request.scales_b) if x is not None)
        same = zip((request.c, request.a.T, request.b.T, *given), (self._c, self._a, self._b, *self._scales), strict=True)
        return all(np.array_equal(x, y) for x, y in same)

    def addend(self, subnormals: Subnormals) -> Other:
        return Other(self._c, self._inst.c, subnormals, subnormals)

    def operands(self, ks: tuple[int, ...]) -> tuple[Bits, Bits]:
        """Return the factors A and B of these products, each [k, n]."""
        whole = slice(ks[0], ks[-1] + 1) if ks and ks == tuple(range(ks[0], ks[-1] + 1)) else list(ks)
        return self._a[whole], self._b[whole]

    @remembered
    def decoded(self, other: Other) -> Decoded:
        """Decode a term; zeros have an exponent below all others."""
        values = values_of(other.patterns, other.fmt, other.subnormals)
        exponents = np.maximum(leading(values), np.int16(other.fmt.min_exponent))
        exponents[values == 0] = NOTHING
        return Decoded(values, exponents)

    @remembered
    def products(self, ks: tuple[int, ...], subnormals: Subnormals, size: int | None) -> tuple[Floats, Floats]:
        """Return the products [k, n], or sums of `size` products, added before they are scaled; and their plain sum [n]."""
        values = self._unscaled(ks, subnormals)
        if size is not None:
            values = values.reshape(-1, size, len(self)).sum(axis=1)
        for scales, fmt in self._scales_of(ks[:: size or 1]):
            values *= values_of(scales, fmt, "kept")
        return values, values.sum(axis=0)

    def exponents(
        self, ks: tuple[int, ...], subnormals: Subnormals, rule: ProductExponent, counted: bool, size: int | None
    ) -> NDArray[np.int16]:
        """Return the exponents in the alignment of the products [k, n] or of groups scaled at once (see `exponents_of`)."""
        if rule == "normalised product":
            return leading(self.products(ks, subnormals, size)[0])
        normalised = rule == "normalised operands"
        factors = [*zip(self.operands(ks), (self._inst.a, self._inst.b), strict=True)] if size is None else []
        parts = [exponents_of(x, fmt, subnormals, normalised, counted) for x, fmt in factors]
        parts += [exponents_of(x, fmt, "kept", normalised, counted) for x, fmt in self._scales_of(ks[:: size or 1])]
        exponents = reduce(np.add, parts)
        if size is not None and not counted:
            empty = self._unscaled(ks, subnormals).reshape(-1, size, len(self)) == 0
            exponents[empty.all(axis=1)] = NOTHING
        return exponents

    @remembered
    def largest_exponent(
        self, ks: tuple[int, ...], subnormals: Subnormals, rule: ProductExponent, counted: bool, size: int | None
    ) -> NDArray[np.int16]:
        """Return the largest of `exponents`, [n]."""
        return np.asarray(self.exponents(ks, subnormals, rule, counted, size).max(axis=0))

    def _unscaled(self, ks: tuple[int, ...], subnormals: Subnormals) -> Floats:
        a, b = self.operands(ks)
        return np.asarray(values_of(a, self._inst.a, subnormals) * values_of(b, self._inst.b, subnormals))

    def _scales_of(self, ks: tuple[int, ...]) -> list[tuple[Bits, Format]]:
        """Return the scales of A and of B of these products, each [k, n]; [] if the instruction has none."""
        inst = self._inst
        if inst.scale is None or inst.scale_block is None:
            return []
        blocks = [k // inst.scale_block for k in ks]
        return [(scales[blocks], inst.scale) for scales in self._scales]

    @remembered
    def integer_products(self, ks: tuple[int, ...]) -> Integers:
        """Return the plain sum of these products of integers, [n]."""
        a, b = self.operands(ks)
        return np.asarray(self._inst.multiplied(self._inst.a.integers(a), self._inst.b.integers(b)).sum(axis=0))

    @remembered
    def all_negative(self, ks: tuple[int, ...], others: Others) -> Truths:
        """Return whether these products and the other terms all have a negative sign, [n]."""
        negative = np.ones(len(self), bool)
        if ks:
            a, b = self.operands(ks)
            signs = (a & a.dtype.type(self._inst.a.sign_bit) != 0) ^ (b & b.dtype.type(self._inst.b.sign_bit) != 0)
            negative &= signs.all(axis=0)
        for other in others:
            negative &= other.patterns & other.fmt.dtype.type(other.fmt.sign_bit) != 0
        return negative

    @remembered
    def exact_product(self, k: int, subnormals: Subnormals) -> ExactProduct:
        """Return product k without rounding."""
        a, b = (
            significands(self._scaled(x[k], fmt, subnormals, k, i))
            for i, (x, fmt) in enumerate(((self._a, self._inst.a), (self._b, self._inst.b)))
        )
        high, low = two_product(a.signed, b.signed)
        return ExactProduct(a.signed, b.signed, high, low, a.lowest + b.lowest, a.stand_in * b.stand_in)

    def _scaled(self, patterns: Bits, fmt: Format, subnormals: Subnormals, k: int, operand: int) -> Floats:
        """Return the values of one operand of product k times its scale, [n]."""
        values = values_of(patterns, fmt, subnormals)
        for scales, of_scale in self._scales_of((k,))[operand : operand + 1]:
            values = values * values_of(scales[0], of_scale, "kept")
        return values
