"""Numbers put on the terms of one sum as operands of dot products, all other operands zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FusedSum
from accprobe.operands.request import Request
from accprobe.verify.coverage.spans import ROLES, term_role

Whole = NDArray[np.int64]

Indices = NDArray[np.intp] | NDArray[np.bool_] | tuple[slice, slice | int]


class TermNumbers(NamedTuple):
    """(-1)^negative * first * second * 2^exponent, arrays of one shape; first and second are significands of factors."""

    negative: Whole
    first: Whole
    second: Whole
    exponent: Whole

    @classmethod
    def of(cls, rows: list[list[tuple[int, int, int, int]]]) -> TermNumbers:
        """From one (negative, first, second, exponent) a number."""
        whole = np.array(rows, np.int64)
        return cls(*np.moveaxis(whole, -1, 0))

    @classmethod
    def joined(cls, parts: Sequence[TermNumbers]) -> TermNumbers:
        return cls(*(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)))

    def at(self, rows: Indices) -> TermNumbers:
        """Some of them, as an array is indexed."""
        return TermNumbers(*(column[rows] for column in self.columns))

    @property
    def columns(self) -> tuple[Whole, ...]:
        return self.negative, self.first, self.second, self.exponent


def encoded(fmt: Format, negative: Whole, significand: Whole, exponent: Whole) -> tuple[Bits, NDArray[np.bool_]]:
    """Bit patterns, and which of the numbers the format holds; the patterns of others mean nothing."""
    lead = exponent + bit_length(significand) - 1
    quantum = np.maximum(lead, fmt.min_exponent) - fmt.mantissa_bits
    up, down = np.clip(exponent - quantum, 0, 62), np.clip(quantum - exponent, 0, 62)
    whole = significand >> down << up
    fits = (significand & ((np.int64(1) << down) - 1) == 0) & (quantum - exponent <= 62)
    biased = np.where(whole >> fmt.mantissa_bits, np.maximum(lead, fmt.min_exponent) + fmt.bias, 0)
    patterns = ((biased << fmt.mantissa_bits) | (whole & ((1 << fmt.mantissa_bits) - 1))) << fmt.ignored_low_bits
    zero = significand == 0
    fits = zero | (fits & (lead <= fmt.max_exponent) & (patterns <= fmt.largest))
    signs = negative.astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit)
    return np.where(zero | ~fits, 0, patterns).astype(fmt.dtype) | signs, fits


class Placing:
    """Operands of one sum.

    Its terms are columns: the products in their order, C, the inner sums. A number of an inner sum is put on its products, or
    on C where that is below it and no product holds the number.
    """

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, rng: np.random.Generator) -> None:
        self._inst, self._model, self._node, self._rng = inst, model, node, rng
        self.roles = tuple(sorted((term_role(term) for term in node.terms), key=ROLES.index))

    def operands(self, numbers: TermNumbers) -> tuple[Request, NDArray[np.bool_]]:
        """Numbers [n, terms] as n dot products, and which of them hold them all."""
        inst, n = self._inst, len(numbers.negative)
        asked, fits = Request.zeros(inst, n), np.ones(n, bool)
        products = len(self._node.products)
        if products:
            a, b, held = self._products(numbers.at((slice(None), slice(products))))
            ks = list(self._node.products)
            asked.a[:, ks], asked.b[:, ks] = a, b
            fits &= held.all(axis=1)
        if self._node.has_addend:
            fits &= self._addend(asked, numbers.at((slice(None), products)), np.ones(n, bool))
        for i, child in enumerate(self._node.children):
            column = numbers.at((slice(None), products + self._node.has_addend + i))
            fits &= self._inner(asked, child, column)
        return asked, fits

    def _products(self, numbers: TermNumbers) -> tuple[Bits, Bits, NDArray[np.bool_]]:
        inst, subnormals = self._inst, self._model.subnormal_operands
        negative, first, second, exponent = numbers
        most = [(1 << (fmt.mantissa_bits + 1)) - 1 for fmt in (inst.a, inst.b)]
        swap = (first > most[0]) & (second <= most[0])
        first, second = np.where(swap, second, first), np.where(swap, first, second)
        ways = [_range(inst.a, first, normal) for normal in (True, subnormals == "flushed")]
        others = [_range(inst.b, second, normal) for normal in (True, subnormals == "flushed")]
        low, high = (np.zeros_like(exponent) for _ in range(2))
        found = np.zeros(exponent.shape, bool)
        for i, j in ((0, 0), (1, 0), (0, 1), (1, 1)):
            least = np.maximum(ways[i][0], exponent - others[j][1])
            most_ = np.minimum(ways[i][1], exponent - others[j][0])
            better = ~found & (least <= most_)
            low, high = np.where(better, least, low), np.where(better, most_, high)
            found |= better
        of_a = low + (self._rng.random(low.shape) * (high - low + 1)).astype(np.int64)
        flip = self._rng.integers(0, 2, negative.shape)
        a, fits_a = encoded(inst.a, negative ^ flip, first, of_a)
        b, fits_b = encoded(inst.b, flip, second, exponent - of_a)
        return a, b, (first == 0) | (found & fits_a & fits_b)

    def _addend(self, asked: Request, numbers: TermNumbers, where: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """C set there (in place); which of the numbers it holds."""
        c, fits = encoded(self._inst.c, numbers.negative, numbers.first * numbers.second, numbers.exponent)
        asked.c[where] = c[where]
        return fits

    def _inner(self, asked: Request, node: FusedSum, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers that a sum below gives: one product, or C, or several products that have some of the bits each (in place)."""
        inner = list(node.nodes())
        ks = np.array(next((below.products for below in inner[::-1] if below.products), ()))
        rows = np.arange(len(numbers.negative))
        if not len(ks):
            return self._addend(asked, numbers, np.ones(len(rows), bool))
        a, b, fits = self._products(numbers)
        done = fits.copy()
        start = self._rng.integers(0, len(ks), len(rows))
        if any(below.has_addend for below in inner):
            by_c = ~fits | ((self._rng.random(len(rows)) < 0.3) & (numbers.first != 0))
            done = np.where(by_c, self._addend(asked, numbers, by_c), fits)
            fits &= ~by_c
        asked.a[rows[fits], ks[start[fits]]], asked.b[rows[fits], ks[start[fits]]] = a[fits], b[fits]
        left = np.flatnonzero(~done & (numbers.second == 1))
        if len(left):
            done[left] = self._split(asked, ks, left, numbers.at(left))
        return done

    def _split(self, asked: Request, ks: Whole, rows: Whole, numbers: TermNumbers) -> NDArray[np.bool_]:
        """Numbers as sums of products, each with as many of the bits as a factor holds (in place)."""
        width = self._inst.a.mantissa_bits + 1
        parts = -(-int(bit_length(numbers.first).max()) // width)
        if parts > len(ks):
            return np.zeros(len(rows), bool)
        done = np.ones(len(rows), bool)
        for i in range(parts):
            piece = (numbers.first >> (i * width)) & ((1 << width) - 1)
            a, b, fits = self._products(TermNumbers(numbers.negative, piece, numbers.second, numbers.exponent + i * width))
            asked.a[rows, ks[i]], asked.b[rows, ks[i]] = a, b
            done &= fits
        return done


def _range(fmt: Format, significand: Whole, normal: bool) -> tuple[Whole, Whole]:
    """Least and largest exponents with which the format holds the odd significand; normal: as a normal number."""
    bits = bit_length(significand)
    most = fmt.max_exponent - bits + 1
    least = fmt.min_exponent - bits + 1 if normal else np.full_like(bits, fmt.min_exponent - fmt.mantissa_bits)
    return least, most
