"""Ranges of the terms of a fused sum, from formats and model alone: which exponents, bits and sizes they can have.

They determine how many events a sum has, such as carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Literal

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum, Subnormals

TermRole = Literal["product", "C", "inner sum"]

FEW_BITS = 4  # Up to so many fraction bits, all products of two significands are compared.


@dataclass(frozen=True)
class TermRange:
    """Finite terms of one role that are not zero.

    count: how many the sum has. exponents: the lowest and highest in the alignment. unit: exponent of the last bit of any.
    largest: the largest magnitude. significand: the largest in [1, 2), as a single product or C reaches it. width: bits of one.
    """

    count: int
    exponents: tuple[int, int]
    unit: int
    largest: Fraction
    significand: Fraction
    width: int


class SumRange:
    """The range of each role of terms of one floating-point sum, and what follows for the sum."""

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, inner: list[SumRange]) -> None:
        assert isinstance(node.arithmetic, FloatArithmetic)
        self.arithmetic, self.bits = node.arithmetic, node.arithmetic.alignment_bits
        self.floor = node.arithmetic.min_exponent if self.bits is not None else None
        self.roles: dict[TermRole, TermRange] = {}
        if node.products:
            self.roles["product"] = _products(inst, model.subnormal_operands, node)
        if node.has_addend:
            self.roles["C"] = _addend(inst.c, model.subnormal_addend, self.bits is None)
        if inner:
            self.roles["inner sum"] = _inner_sums(inner, self.bits is None)
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
    def carry(self) -> int:
        """Return bits by which a sum of the largest significands exceeds the leading bit of its largest term."""
        total = Fraction(0)
        for role in self.roles.values():
            total += role.count * (role.significand if self.bits is None else _truncated(role.significand, self.bits))
        return lead_of(total)

    @property
    def shown_carries(self) -> tuple[int, ...]:
        """Return carries that are crossed with roundings: none and the most."""
        return (0, self.carry) if self.carry else (0,)

    @property
    def most_carry(self) -> int:
        """Return the carry of terms just below twice the leading bit of the largest."""
        return (2 * self.terms - 1).bit_length() - 1

    @cached_property
    def most_odd(self) -> int:
        """Return how many terms can be odd in a sum whose result shows a carry: all, or all except the leading ones. These are
        one term; or two that cancel, if the result drops more bits than a term has.
        """
        assert self.bits is not None
        widths = [role.width for name, role in self.roles.items() if name != "C" or len(self.roles) < 2]
        if self.bits - self.arithmetic.result_bits > max(widths) - 2:
            return max(0, self.terms - 2)
        return self.terms - (not any(role.width > self.bits for role in self.roles.values()))

    @cached_property
    def unit(self) -> int:
        """Return the exponent of a power of two that divides every sum."""
        if self.bits is None:
            return min(role.unit for role in self.roles.values())
        floor = -(1 << 20) if self.floor is None else self.floor
        return min(max(role.unit, max(role.exponents[0], floor) - self.bits) for role in self.roles.values())

    @property
    def largest_result(self) -> Fraction:
        total = sum((role.count * role.largest for role in self.roles.values()), Fraction(0))
        return min(total * (1 + Fraction(1, 2**self.arithmetic.result_bits)), Fraction(self.arithmetic.result.largest_value))


def sum_ranges(inst: Instruction, model: DotModel) -> list[SumRange]:
    """Return the ranges of each sum, in the order of `nodes`."""
    found: dict[int, SumRange] = {}
    for node in model.root.nodes():
        found[id(node)] = SumRange(inst, model, node, [found[id(child)] for child in node.children])
    return list(found.values())


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
    leads = sum(_lowest_lead(fmt, subnormals if fmt in factors else "kept") for fmt in formats), lead_of(largest)
    aligned = formats if together is None else scales
    exponents = sum(fmt.min_exponent for fmt in aligned), sum(fmt.max_exponent for fmt in aligned)
    if arithmetic.alignment_bits is None or arithmetic.product_exponent == "normalised product":
        exponents = leads
    elif arithmetic.product_exponent == "normalised operands":
        exponents = sum(_lowest_lead(fmt, subnormals if fmt in factors else "kept") for fmt in aligned), exponents[1]
    width = sum(fmt.mantissa_bits + 1 for fmt in formats if fmt.mantissa_bits)
    significand = _significand(factors)
    if together is not None:
        width += together.bit_length() + sum(fmt.max_exponent - fmt.min_exponent for fmt in factors)
        significand = 2 - Fraction(1, 2**width)
    unit = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in formats)
    return TermRange(len(node.products) // (together or 1), exponents, unit, largest, significand, width)


def _significand(factors: tuple[Format, Format]) -> Fraction:
    """Return the largest significand of a product once it is normalised."""
    most = max(fmt.mantissa_bits for fmt in factors)
    if most > FEW_BITS:
        return 2 - Fraction(1, 2**most)
    a, b = (range(1 << fmt.mantissa_bits, 2 << fmt.mantissa_bits) for fmt in factors)
    return max(Fraction(x * y, 1 << (x * y).bit_length() - 1) for x, y in product(a, b))


def _addend(fmt: Format, subnormals: Subnormals, exact: bool) -> TermRange:
    lowest = _lowest_lead(fmt, subnormals) if exact else fmt.min_exponent
    significand = 2 - Fraction(1, 2**fmt.mantissa_bits)
    unit = fmt.min_exponent - fmt.mantissa_bits
    return TermRange(1, (lowest, fmt.max_exponent), unit, Fraction(fmt.largest_value), significand, fmt.mantissa_bits + 1)


def _lowest_lead(fmt: Format, subnormals: Subnormals) -> int:
    return fmt.min_exponent - (fmt.mantissa_bits if subnormals == "kept" else 0)


def _inner_sums(inner: list[SumRange], exact: bool) -> TermRange:
    every = list(_results(inner, exact))
    return TermRange(
        len(every),
        (min(x.exponents[0] for x in every), max(x.exponents[1] for x in every)),
        min(x.unit for x in every),
        max(x.largest for x in every),
        min(x.significand for x in every),
        max(x.width for x in every),
    )


def _results(inner: list[SumRange], exact: bool) -> Iterator[TermRange]:
    """Return results of sums as terms of the next."""
    for child in inner:
        own = child.arithmetic
        fmt, bits = own.result, own.result_bits
        unit = lowest = max(child.unit, fmt.min_exponent - bits)
        if own.subnormal_results == "flushed" or not exact:
            lowest = max(lowest, fmt.min_exponent)
        largest = child.largest_result
        single = max(child.roles.values(), key=lambda role: role.largest)
        significand = _truncated(single.significand, bits if child.bits is None else min(bits, child.bits))
        yield TermRange(1, (lowest, min(lead_of(largest), fmt.max_exponent)), unit, largest, significand, bits + 1)


def _truncated(significand: Fraction, bits: int) -> Fraction:
    return Fraction(int(significand * 2**bits), 2**bits)
