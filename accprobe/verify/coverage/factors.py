"""Numbers as factors of products: what may stand on the terms of a sum, and the bit patterns that hold it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.formats import Bits, Format

Whole = NDArray[np.int64]

Indices = NDArray[np.intp] | NDArray[np.bool_] | tuple[slice, slice | int | NDArray[np.intp]]


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


def holding(fmt: Format, significand: Whole, normal: bool) -> tuple[Whole, Whole]:
    """Least and largest exponents with which the format holds the odd significand; normal: as a normal number."""
    bits = bit_length(significand)
    most = fmt.max_exponent - bits + 1
    least = fmt.min_exponent - bits + 1 if normal else np.full_like(bits, fmt.min_exponent - fmt.mantissa_bits)
    return least, most


# Bit patterns of A and of B whose products are the numbers, and which of the numbers they are.
OnProducts = Callable[[TermNumbers], tuple[Bits, Bits, NDArray[np.bool_]]]
