"""Names of events of functional coverage, and the ranges of the terms of a fused sum, which decide what events it has.

IBM's FPgen names and counts the cases of a floating-point unit; Berkeley TestFloat crosses the special operands. Events come in
families; each event has a code in its family. Ranges follow from formats and model alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Truths
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals

Key = tuple[int, str]  # The sum, as `nodes` has them, and the family; -1: the whole dot product.

EventNames = tuple[str, ...]  # By code; "": no event.

EventCodes = NDArray[np.integer]

# A family; which of n dot products, or of m terms of each, [n] or [m, n], reach events; and the codes of these.
CodeArrays = Iterator[tuple[str, Truths, EventCodes | int]]

SIGNS = ("positive", "negative")
EXTREMES = (*SIGNS, "both signs")


def signed(words: Iterable[str]) -> EventNames:
    """Return each word with either sign."""
    return tuple(f"{word}, {sign}" for word, sign in product(words, SIGNS))


TermRole = Literal["product", "C", "inner sum"]

SOME_BITS = 6  # Fraction bits of the significands with compared products.


@dataclass(frozen=True)
class TermRange:
    """Finite terms of one role that are not zero.

    count: how many the sum has. exponents: the lowest and highest in the alignment. unit: exponent of the last bit of any.
    largest: the largest magnitude. significand: the largest in [1, 2), as a single product or C reaches it; 2 for
    products that are scaled at once.
    """

    count: int
    exponents: tuple[int, int]
    unit: int
    largest: Fraction
    significand: Fraction


class SumRange:
    """The range of each role of terms of one floating-point sum, and what follows for the sum."""

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, inner: list[SumRange]) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic = node.arithmetic
        exact = node.arithmetic.alignment_bits is None
        self.floor = None if exact else node.arithmetic.min_exponent
        self.roles: dict[TermRole, TermRange] = {}
        if node.products:
            self.roles["product"] = _products(inst, model.subnormal_operands, node)
        if node.has_addend:
            c, lowest = inst.c, _lowest_lead(inst.c, model.subnormal_addend) if exact else inst.c.min_exponent
            ends, unit = (lowest, c.max_exponent), c.min_exponent - c.mantissa_bits
            self.roles["C"] = TermRange(1, ends, unit, Fraction(c.largest_value), 2 - Fraction(1, 2**c.mantissa_bits))
        if inner:
            every = [child.as_term(exact) for child in inner]
            low, high = (end(pick(x.exponents) for x in every) for end, pick in ((min, min), (max, max)))
            unit, largest = min(x.unit for x in every), max(x.largest for x in every)
            self.roles["inner sum"] = TermRange(len(every), (low, high), unit, largest, min(x.significand for x in every))
        self.terms = sum(role.count for role in self.roles.values())

    @cached_property
    def cancelling(self) -> range:
        """Return exponents that two terms can share, at or above the floor: the largest terms of sums that cancel have them."""
        ends = [role.exponents for role in self.roles.values() for _ in range(role.count)]
        if len(ends) < 2:
            return range(0)
        lowest = sorted(low for low, _ in ends)[1]
        return range(lowest if self.floor is None else max(lowest, self.floor), sorted(high for _, high in ends)[-2] + 1)

    @cached_property
    def shown_carries(self) -> tuple[int, ...]:
        """Return carries that are crossed with roundings: none, and the most that a sum of the largest significands has."""
        most = lead_of(sum((role.count * role.significand for role in self.roles.values()), Fraction(0)))
        return (0, most) if most else (0,)

    @property
    def most_carry(self) -> int:
        """Return the carry of terms just below twice the leading bit of the largest."""
        return (2 * self.terms - 1).bit_length() - 1

    @cached_property
    def unit(self) -> int:
        """Return the exponent of a power of two that divides every sum."""
        bits = self.arithmetic.alignment_bits
        if bits is None:
            return min(role.unit for role in self.roles.values())
        floor = -(1 << 20) if self.floor is None else self.floor
        return min(max(role.unit, max(role.exponents[0], floor) - bits) for role in self.roles.values())

    def as_term(self, exact: bool) -> TermRange:
        """Return the results as a term of the next sum. exact: that sum keeps every bit."""
        fmt, bits = self.arithmetic.result, self.arithmetic.result_bits
        unit = lowest = max(self.unit, fmt.min_exponent - bits)
        if self.arithmetic.subnormal_results == "flushed" or not exact:
            lowest = max(lowest, fmt.min_exponent)
        total = sum((role.count * role.largest for role in self.roles.values()), Fraction(0))
        largest = min(total * (1 + Fraction(1, 2**bits)), Fraction(fmt.largest_value))
        significand = max(self.roles.values(), key=lambda role: role.largest).significand
        return TermRange(1, (lowest, min(lead_of(largest), fmt.max_exponent)), unit, largest, significand)


def lead_of(value: Fraction) -> int:
    """Return floor(log2 value) of a positive number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if value >= Fraction(2) ** exponent else exponent - 1


def _products(inst: Instruction, subnormals: Subnormals, node: FusedSum) -> TermRange:
    """Return products, or sums of those that are scaled at once, times their block scales."""
    arithmetic = node.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    factors, scales = (inst.a, inst.b), () if inst.scale is None else (inst.scale, inst.scale)
    formats, together = (*factors, *scales), arithmetic.scaled_products
    largest = prod((Fraction(fmt.largest_value) for fmt in formats), start=Fraction(together or 1))
    aligned = formats if together is None else scales
    low, high = sum(fmt.min_exponent for fmt in aligned), sum(fmt.max_exponent for fmt in aligned)
    if arithmetic.alignment_bits is None or arithmetic.product_exponent != "unnormalised":
        by_lead = arithmetic.alignment_bits is None or arithmetic.product_exponent == "normalised product"
        low = sum(_lowest_lead(x, subnormals if x in factors else "kept") for x in (formats if by_lead else aligned))
        high = lead_of(largest) if by_lead else high
    x, y = (np.arange(1 << bits, 2 << bits) for bits in (min(fmt.mantissa_bits, SOME_BITS) for fmt in factors))
    significand = Fraction(2 * float(np.frexp(np.multiply.outer(x, y))[0].max())) if together is None else Fraction(2)
    unit = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in formats)
    return TermRange(len(node.products) // (together or 1), (low, high), unit, largest, significand)


def _lowest_lead(fmt: Format, subnormals: Subnormals) -> int:
    return fmt.min_exponent - (fmt.mantissa_bits if subnormals == "kept" else 0)
