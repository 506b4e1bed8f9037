"""Numbers put on products that have block scales, or on sums of so many as are scaled at once.

Products of a block share its two scales. These are chosen so that all numbers of the block can be made, most often about as
large as the largest of them. A number on a sum of several products is taken apart into the largest products that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic
from accprobe.operands.request import Request
from accprobe.verify.coverage.factors import OnProducts, TermNumbers, Whole, encoded, holding

ANYWHERE = 0.4  # Share of the blocks whose scales are any that their numbers allow.

FAR = 1 << 20  # Beyond every exponent.


class ScaledPlacing:
    """Operands of the products `ks` of one sum. factors: puts a number on one product that is not scaled."""

    def __init__(
        self,
        inst: Instruction,
        arithmetic: FloatArithmetic,
        ks: tuple[int, ...],
        factors: OnProducts,
        rng: np.random.Generator,
    ) -> None:
        assert inst.scale is not None
        assert inst.scale_block is not None
        self._inst, self._scale, self._rng, self._factors = inst, inst.scale, rng, factors
        self._size = arithmetic.scaled_products or 1
        self._ks = np.array(ks).reshape(-1, self._size)
        self._blocks = self._ks[:, 0] // inst.scale_block
        self._zeros_count = arithmetic.aligns_to_zeros

    def put(self, asked: Request, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers [n, terms] put there (in place), and which of them are held."""
        assert asked.scales_a is not None
        assert asked.scales_b is not None
        fits = np.ones(numbers.negative.shape, bool)
        for block in np.unique(self._blocks):
            columns = np.flatnonzero(self._blocks == block)
            there = numbers.at((slice(None), columns))
            significands = self._significands(there)
            at = self._exponents(there, significands)
            for scales, (patterns, held) in zip((asked.scales_a, asked.scales_b), self._pair(significands, at), strict=True):
                scales[:, block] = patterns
                fits[:, columns] &= held[:, None]
            put = self._on_one if self._size == 1 else self._on_several
            fits[:, columns] &= put(asked, columns, there, np.prod(significands, axis=0)[:, None], at[:, None])
        return fits

    def _significands(self, numbers: TermNumbers) -> Whole:
        """Of two scales, [2, n]: what the largest number has too many bits without."""
        found = np.ones((2, len(numbers.negative)), np.int64)
        if self._size == 1:
            return found
        large = _odd(numbers)[0].max(axis=1)
        for own in found:
            for factor in range((2 << self._scale.mantissa_bits) - 1, 1, -2):
                takes = (own == 1) & (large > self._table.max_sum) & (large % factor == 0)
                own[takes], large[takes] = factor, large[takes] // factor
        return found

    def _exponents(self, numbers: TermNumbers, significands: Whole) -> Whole:
        """Of the product of the two scales, [n]: as large as the largest number, or any that the numbers allow."""
        some = (numbers.first * numbers.second) != 0
        odd, exponent = _odd(numbers)
        lead = exponent + bit_length(np.maximum(odd, 1)) - 1
        of_scales = bit_length(np.prod(significands, axis=0)) - 1
        formats = (self._inst.a, self._inst.b)
        if self._size == 1:
            high = sum(fmt.max_exponent for fmt in formats)
            least, most = lead - high, exponent - sum(fmt.min_exponent - fmt.mantissa_bits for fmt in formats)
        else:
            most = exponent - sum(fmt.min_exponent - fmt.mantissa_bits for fmt in formats)
            rest = np.maximum(odd, 1) >> of_scales[:, None]
            least = most - bit_length(np.full(1, self._table.max_sum)) + bit_length(rest)
        lowest, highest = np.sum([holding(self._scale, own, normal=True) for own in significands], axis=0)
        least = np.maximum(np.where(some, least, -FAR).max(axis=1), lowest)
        most = np.minimum(np.where(some, most, FAR).min(axis=1), highest)
        alike = np.where(some, lead, -FAR).max(axis=1) - of_scales
        any_ = least + (self._rng.random(len(least)) * (np.maximum(most - least, 0) + 1)).astype(np.int64)
        at = np.where(self._rng.random(len(least)) < ANYWHERE, any_, np.clip(alike, least, np.maximum(least, most)))
        at = np.where(least > most, most, at)
        return np.where(some.any(axis=1), at, lowest if self._zeros_count else 0)

    def _pair(self, significands: Whole, at: Whole) -> list[tuple[Bits, NDArray[np.bool_]]]:
        """Scales of A and of B with these significands, whose exponents come to that, and which of them are held."""
        normal = [holding(self._scale, own, normal=True) for own in significands]
        (low_a, high_a), (low_b, high_b) = (
            (np.where(at < normal[0][0] + normal[1][0], holding(self._scale, own, normal=False)[0], low), high)
            for own, (low, high) in zip(significands, normal, strict=True)
        )
        least, most = np.maximum(low_a, at - high_b), np.minimum(high_a, at - low_b)
        of_a = least + (self._rng.random(len(at)) * (np.maximum(most - least, 0) + 1)).astype(np.int64)
        pairs = zip(significands, (of_a, at - of_a), strict=True)
        return [encoded(self._scale, np.zeros_like(at), own, exponent) for own, exponent in pairs]

    def _on_one(self, asked: Request, columns: Whole, numbers: TermNumbers, _: Whole, at: Whole) -> NDArray[np.bool_]:
        ks = self._ks[columns, 0]
        asked.a[:, ks], asked.b[:, ks], held = self._factors(numbers._replace(exponent=numbers.exponent - at))
        return held

    def _on_several(self, asked: Request, columns: Whole, numbers: TermNumbers, of: Whole, at: Whole) -> NDArray[np.bool_]:
        """Each as the sum of the largest products that fit, from any of the places on."""
        table, (odd, exponent) = self._table, _odd(numbers)
        up = exponent - at - table.lowest
        rest = np.where((odd % of == 0) & (up >= 0) & (up < 32), odd // of << np.clip(up, 0, 32), np.where(odd == 0, 0, -1))
        held, rest = rest >= 0, np.maximum(rest, 0)
        signs = numbers.negative.astype(asked.a.dtype) * asked.a.dtype.type(self._inst.a.sign_bit)
        ks, rows = self._ks[columns], np.arange(len(rest))[:, None]
        asked.a[:, ks] = np.where(odd == 0, signs, 0)[..., None]
        start = self._rng.integers(0, self._size, rest.shape)
        for step, which in enumerate(spelled(rest, table, self._size)):
            k = ks[np.arange(len(columns)), (start + step) % self._size]
            used = table.multiples[which] > 0
            asked.a[rows, k] |= np.where(used, table.a[which] | signs, 0).astype(asked.a.dtype)
            asked.b[rows, k] |= np.where(used, table.b[which], 0).astype(asked.b.dtype)
            rest -= table.multiples[which]
        return np.asarray(held & (rest == 0))

    @property
    def _table(self) -> ProductTable:
        return table_of_products(self._inst.a, self._inst.b, self._size)


class ProductTable(NamedTuple):
    """Products of two numbers, 0 and on, as multiples of 2^lowest, and patterns of their factors; max_sum: the largest sum."""

    multiples: Whole
    a: Bits
    b: Bits
    lowest: int
    max_sum: int


@cache
def table_of_products(a: Format, b: Format, size: int) -> ProductTable:
    codes = [np.arange(fmt.largest + 1, dtype=fmt.dtype) for fmt in (a, b)]
    lowest = [fmt.min_exponent - fmt.mantissa_bits for fmt in (a, b)]
    whole = [(fmt.values(own) * 2.0**-low).astype(np.int64) for fmt, own, low in zip((a, b), codes, lowest, strict=True)]
    every = np.multiply.outer(*whole)
    multiples, first = np.unique(every, return_index=True)
    of_a, of_b = np.unravel_index(first, every.shape)
    return ProductTable(multiples, codes[0][of_a], codes[1][of_b], sum(lowest), int(multiples[-1]) * size)


def spelled(rest: Whole, table: ProductTable, size: int) -> Iterator[Whole]:
    """Products whose sums are these, or less where it takes more: places in the table, the largest first."""
    left = rest.copy()
    for _ in range(size):
        which = np.searchsorted(table.multiples, left, side="right") - 1
        left -= table.multiples[which]
        yield which


def _odd(numbers: TermNumbers) -> tuple[Whole, Whole]:
    """Numbers as odd * 2^exponent; those that are zero have no exponent that means anything."""
    whole = numbers.first * numbers.second
    zeros = np.where(whole == 0, 0, bit_length(whole & -whole) - 1)
    return whole >> zeros, numbers.exponent + zeros
