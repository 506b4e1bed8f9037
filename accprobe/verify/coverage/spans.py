"""How far the terms of a fused sum can reach: bounds of their exponents, bits and sizes, from formats and model alone.

Every bound holds for all operands. Operands may reach a little less where a term is the result of another sum. A single product
or C that passes through that sum reaches the `reachable` bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, Product, Subnormals, Term

TermRole = Literal["product", "C", "inner sum"]

ROLES: tuple[TermRole, ...] = ("product", "C", "inner sum")

FEW_BITS = 4  # Up to so many fraction bits, all products of two significands are looked at.


def term_role(term: Term) -> TermRole:
    return "product" if isinstance(term, Product) else "C" if isinstance(term, Addend) else "inner sum"


def products_of(node: FusedSum) -> int:
    """Terms of a sum that are products, or sums of so many as are scaled at once."""
    return len(node.products) // (getattr(node.arithmetic, "scaled_products", None) or 1)


class TermSpan(NamedTuple):
    """Finite terms that are not zero.

    exponents: the least and the largest with which they take part in the alignment. leads: of their leading bits.
    lsb_exponent: of the last bit that any of them has. max_magnitude: the largest. significand: the largest in [1, 2].
    width: bits of one, at most.
    """

    exponents: tuple[int, int]
    leads: tuple[int, int]
    lsb_exponent: int
    max_magnitude: Fraction
    significand: Fraction
    width: int


@dataclass(frozen=True)
class TermsOfRole:
    """Terms of one role: how many, and their bounds; `reachable` is within `span`."""

    role: TermRole
    count: int
    span: TermSpan
    reachable: TermSpan
    infinite: bool
    nan: bool
    negative_zero: bool


class Bounds:
    """What can happen in one fused sum of floating-point terms."""

    def __init__(self, inst: Instruction, model: DotModel, node: FusedSum, inner: list[Bounds]) -> None:
        arithmetic = node.arithmetic
        assert isinstance(arithmetic, FloatArithmetic)
        self.arithmetic = arithmetic
        self.slots: dict[TermRole, TermsOfRole] = {slots.role: slots for slots in _slots(inst, model, node, inner)}
        self.terms = sum(slots.count for slots in self.slots.values())
        self.depth = _depth(inst, node)

    @cached_property
    def cancelling(self) -> range:
        """Exponents that the largest terms of a sum may have when they cancel: those that two terms can share."""
        ends = [span.exponents for span in self.spans()]
        if len(ends) < 2:
            return range(0)
        floor = self.floor if self.floor is not None else -(1 << 20)
        return range(max(floor, sorted(low for low, _ in ends)[1]), sorted(high for _, high in ends)[-2] + 1)

    def spans(self, reachable: bool = False) -> list[TermSpan]:
        """One for every term."""
        return [s.reachable if reachable else s.span for s in self.slots.values() for _ in range(s.count)]

    @cached_property
    def lsb_exponent(self) -> int:
        """Exponent of the last bit of any term."""
        return min(s.span.lsb_exponent for s in self.slots.values())

    @property
    def floor(self) -> int | None:
        return self.arithmetic.min_exponent if self.arithmetic.alignment_bits is not None else None

    @cached_property
    def unit(self) -> int:
        """Every sum is a multiple of two to the power of this."""
        bits = self.arithmetic.alignment_bits
        if bits is None:
            return self.lsb_exponent
        floor = self.floor
        lowest = (s.span.exponents[0] for s in self.slots.values())
        starts = (e if floor is None else max(e, floor) for e in lowest)
        return min(max(s.span.lsb_exponent, e - bits) for s, e in zip(self.slots.values(), starts, strict=True))

    @cached_property
    def max_magnitude(self) -> Fraction:
        """No sum is larger."""
        return sum((span.max_magnitude for span in self.spans()), Fraction(0))

    @cached_property
    def max_exponent(self) -> int:
        """The largest exponent of a finite term."""
        return max(s.span.exponents[1] for s in self.slots.values())

    @cached_property
    def above(self) -> int:
        """The most bits by which a leading bit lies above the exponent that counts in the alignment; one, if not more."""
        return max(1, *(span.leads[1] - span.exponents[1] for span in self.spans()))

    def carry(self, reachable: bool) -> int:
        """The most bits by which a sum may exceed the leading bit of its largest term."""
        bits = self.arithmetic.alignment_bits
        total = Fraction(0)
        for span in self.spans(reachable):
            largest = span.significand
            if bits is not None and (reachable or self.arithmetic.alignment_rounding == "truncate"):
                room = bits + (0 if reachable else self.above)
                largest = Fraction(int(largest * 2**room), 2**room)
            elif bits is not None:
                largest = Fraction(2)
            total += largest
        return lead_of(total)

    def reach(self, among: TermRole, count: int = 1, reachable: bool = False) -> int | None:
        """The largest exponent that is there beside `count` terms of that role: another's or the floor; None: there is none."""
        tops = [] if self.floor is None else [self.floor]
        others = (s for s in self.slots.values() if s.count > (count if s.role == among else 0))
        tops += [(s.reachable if reachable else s.span).exponents[1] for s in others]
        return max(tops, default=None)

    def lossy(self, to_zero: bool = False) -> int:
        """Terms of one sum that may lose bits, at most; to_zero: of a sum of zero, in which others make up for the largest."""
        bits, found = self.arithmetic.alignment_bits, 0
        assert bits is not None
        for slots in self.slots.values():
            least = slots.span.lsb_exponent + bits + 1
            if self.floor is not None and self.floor >= least:
                return self.terms
            able = {other.role for other in self.slots.values() if other.span.exponents[1] >= least}
            if to_zero:
                able = {role for role in able if self._made_up_for(role, least)}
            found += slots.count if able - {slots.role} else slots.count - 1 if able else 0
        return found

    def _made_up_for(self, role: TermRole, exponent: int) -> bool:
        """Whether all others may come to as much as a term of that role that has this exponent in the alignment, or more."""
        span, bits = self.slots[role].span, self.arithmetic.alignment_bits
        assert bits is not None
        less = role == "product" or exponent <= span.exponents[0]
        up = Fraction(self.terms, 2**bits)
        return less or self.max_magnitude - span.max_magnitude >= Fraction(2) ** exponent * (1 - up)

    def shifts(self, role: TermRole, reachable: bool) -> set[int]:
        """By how much terms of that role can lie below what they are aligned to."""
        own = self._span(role, reachable).exponents
        others = [] if self.floor is None else [(self.floor, self.floor)]
        for slots in self.slots.values():
            if slots.count > (slots.role == role):
                low, high = (slots.reachable if reachable else slots.span).exponents
                others.append((low if self.floor is None else max(low, self.floor), high))
        found = {0} if self.floor is None or own[1] >= self.floor else set()
        for low, high in others:
            found.update(range(max(0, low - own[1]), high - own[0] + 1))
        return found

    @property
    def infinite(self) -> bool:
        """Whether the result may be infinite."""
        return any(s.infinite for s in self.slots.values()) or (self.overflows() and self.arithmetic.overflow == "infinity")

    @property
    def nan(self) -> bool:
        """Whether the result may be a NaN."""
        able = sum(s.count for s in self.slots.values() if s.infinite)
        return able > 1 or any(s.nan for s in self.slots.values())

    @property
    def negative_zero(self) -> bool:
        """Whether the result may be a negative zero."""
        x = self.arithmetic
        from_zeros = x.zero_sign == "ieee" and all(s.negative_zero for s in self.slots.values())
        return from_zeros or (x.underflow_sign == "kept" and self.underflows())

    def result_most(self) -> Fraction:
        """The largest finite result: the format's, or what the terms come to."""
        fmt, bits = self.arithmetic.result, self.arithmetic.result_bits
        return min(self.max_magnitude * (1 + Fraction(1, 2**bits)), largest_of(fmt))

    def overflows(self) -> bool:
        """Whether a sum may be too large for its result."""
        x = self.arithmetic
        return self.max_magnitude >= Fraction(2) ** (x.result.max_exponent + 1) - Fraction(2) ** (
            x.result.max_exponent - x.result_bits
        )

    def underflows(self) -> bool:
        """Whether a sum that is not zero may become zero."""
        x = self.arithmetic
        if x.subnormal_results == "flushed":
            return self.unit < x.result.min_exponent
        return self.unit < x.result.min_exponent - x.result_bits

    def _span(self, role: TermRole, reachable: bool) -> TermSpan:
        return self.slots[role].reachable if reachable else self.slots[role].span


def lead_of(value: Fraction) -> int:
    """floor(log2 value) of a positive number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if value >= Fraction(2) ** exponent else exponent - 1


def largest_of(fmt: Format) -> Fraction:
    """The largest finite number."""
    return Fraction(float(fmt.values(np.array([fmt.largest], fmt.dtype))[0]))


def bounds(inst: Instruction, model: DotModel) -> list[Bounds]:
    """Those of each sum, in the order of `nodes`."""
    found: dict[int, Bounds] = {}
    for node in model.root.nodes():
        found[id(node)] = Bounds(inst, model, node, [found[id(child)] for child in node.children])
    return list(found.values())


def _depth(inst: Instruction, node: FusedSum) -> int:
    """Bits from the exponent of the largest term down to the last bit of any, at most: few where all have the same scales."""
    blocks = {k // (inst.scale_block or inst.k) for k in node.products}
    alone = not (node.has_addend or node.children) and len(blocks) == 1
    if inst.scale is None or not alone or getattr(node.arithmetic, "scaled_products", None) is not None:
        return 1 << 20
    return sum(fmt.max_exponent - fmt.min_exponent + fmt.mantissa_bits for fmt in (inst.a, inst.b))


def _slots(inst: Instruction, model: DotModel, node: FusedSum, inner: list[Bounds]) -> Iterator[TermsOfRole]:
    arithmetic = node.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    if node.products:
        span = _products(inst, model.subnormal_operands, arithmetic)
        infinite = any(fmt.infinity is not None for fmt in (inst.a, inst.b))
        nan = any(fmt.specials != "none" for fmt in (inst.a, inst.b, *_scales(inst)))
        reachable = span
        if inst.scale is not None and arithmetic.scaled_products is None:  # products of a block share what their scales have
            reachable = span._replace(significand=_significand((inst.a, inst.b)))
        yield TermsOfRole("product", products_of(node), span, reachable, infinite, nan, True)
    if node.has_addend:
        span = _addend(inst.c, model.subnormal_addend, arithmetic)
        yield TermsOfRole("C", 1, span, span, inst.c.infinity is not None, inst.c.specials != "none", True)
    if inner:
        results = [_result(child, arithmetic) for child in inner]
        infinite = any(child.infinite for child in inner)
        nan = any(child.nan or child.infinite for child in inner)
        negative_zero = all(child.negative_zero for child in inner)
        widest, narrowest = (_joined([x[i] for x in results], reachable=bool(i)) for i in (0, 1))
        yield TermsOfRole("inner sum", len(inner), widest, narrowest, infinite, nan, negative_zero)


def _joined(spans: list[TermSpan], reachable: bool) -> TermSpan:
    least, most = (max, min) if reachable else (min, max)
    return TermSpan(
        (least(x.exponents[0] for x in spans), most(x.exponents[1] for x in spans)),
        (least(x.leads[0] for x in spans), most(x.leads[1] for x in spans)),
        least(x.lsb_exponent for x in spans),
        most(x.max_magnitude for x in spans),
        most(x.significand for x in spans),
        most(x.width for x in spans),
    )


def _scales(inst: Instruction) -> tuple[Format, ...]:
    return () if inst.scale is None else (inst.scale, inst.scale)


def _products(inst: Instruction, subnormals: Subnormals, arithmetic: FloatArithmetic) -> TermSpan:
    """Of products, or of sums of so many as are scaled at once; with their block scales."""
    factors, scales, together = (inst.a, inst.b), _scales(inst), arithmetic.scaled_products
    formats = factors + scales
    most = Fraction(together or 1) * _multiplied(largest_of(fmt) for fmt in formats)
    least = {fmt: _lowest_lead(fmt, subnormals if fmt in factors else "kept") for fmt in formats}
    leads = sum(least[fmt] for fmt in formats), lead_of(most)
    aligned = formats if together is None else scales
    if arithmetic.alignment_bits is None or arithmetic.product_exponent == "normalised product":
        exponents = leads
    else:
        normalised = arithmetic.product_exponent == "normalised operands"
        lowest = sum(least[fmt] if normalised else fmt.min_exponent for fmt in aligned)
        exponents = lowest, sum(fmt.max_exponent for fmt in aligned)
    low = sum(fmt.min_exponent - fmt.mantissa_bits for fmt in formats)
    width = sum(fmt.mantissa_bits + 1 for fmt in formats if fmt.mantissa_bits)
    if together is not None:
        width += together.bit_length() + _binades(inst.a) + _binades(inst.b)
    significand = 2 - Fraction(1, 2**width) if together is not None else _significand(formats)
    return TermSpan(exponents, leads, low, most, significand, width)


def _multiplied(numbers: Iterable[Fraction]) -> Fraction:
    return prod(numbers, start=Fraction(1))


def _binades(fmt: Format) -> int:
    return fmt.max_exponent - fmt.min_exponent


def _significand(formats: Sequence[Format]) -> Fraction:
    """The largest of a product, normalised."""
    most = max(fmt.mantissa_bits for fmt in formats)
    if most > FEW_BITS:
        return 2 - Fraction(1, 2**most)
    numbers = (
        [Fraction(x, 2**fmt.mantissa_bits) for x in range(2**fmt.mantissa_bits, 2 << fmt.mantissa_bits)] for fmt in formats
    )
    return max(x / Fraction(2) ** lead_of(x) for x in map(_multiplied, product(*numbers)))


def _addend(fmt: Format, subnormals: Subnormals, arithmetic: FloatArithmetic) -> TermSpan:
    low, lowest, m = fmt.min_exponent - fmt.mantissa_bits, _lowest_lead(fmt, subnormals), fmt.mantissa_bits
    least = lowest if arithmetic.alignment_bits is None else fmt.min_exponent
    return TermSpan((least, fmt.max_exponent), (lowest, fmt.max_exponent), low, largest_of(fmt), 2 - Fraction(1, 2**m), m + 1)


def _lowest_lead(fmt: Format, subnormals: Subnormals) -> int:
    return fmt.min_exponent - (fmt.mantissa_bits if subnormals == "kept" else 0)


def _result(child: Bounds, arithmetic: FloatArithmetic) -> tuple[TermSpan, TermSpan]:
    """Bounds of a sum's results as terms of the next, and those that a single term of it reaches."""
    own = child.arithmetic
    fmt, bits, exact = own.result, own.result_bits, arithmetic.alignment_bits is None
    quantum = fmt.min_exponent - bits
    low, most = max(child.unit, quantum), child.result_most()
    significand = 2 - Fraction(1, 2**bits)

    def span(lowest: int, top: int, low: int, most: Fraction, significand: Fraction) -> TermSpan:
        if own.subnormal_results == "flushed":
            lowest = max(lowest, fmt.min_exponent)
        least = lowest if exact else max(lowest, fmt.min_exponent)
        return TermSpan((least, top), (lowest, top), low, most, significand, bits + 1)

    singles = child.spans(reachable=True)
    floor = -(1 << 20) if child.floor is None or own.alignment_bits is None else child.floor - own.alignment_bits
    cut = 0 if own.alignment_bits is None else own.alignment_bits
    lowest = min(max(x.leads[0], floor, x.exponents[0] - cut if cut else x.leads[0]) for x in singles)
    single = max((x for x in singles), key=lambda x: x.max_magnitude)
    top = min(single.leads[1], fmt.max_exponent)
    room = min(bits, own.alignment_bits if own.alignment_bits is not None else bits)
    truncated = Fraction(int(single.significand * 2**room), 2**room)
    reachable = span(max(lowest, quantum), top, max(lowest, quantum), min(single.max_magnitude, largest_of(fmt)), truncated)
    return span(low, min(lead_of(most), fmt.max_exponent), low, most, significand), reachable
