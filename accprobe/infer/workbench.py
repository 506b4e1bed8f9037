"""Workbench of the experiments: places exact values on the leaves of a dot product and queries the device.

An experiment writes rows, which map leaves to exact dyadic numbers, and reads bit patterns. Every query to a device that is
not a pure function is sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.query_log import QueryLog
from accprobe.isa.formats import Bits, Format
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Exchange
from accprobe.operands.request import Request

EVIDENCE = 4  # Exchanges that are kept as the evidence of a finding, at most.
LARGEST_FACTOR = 1 << 10  # Maximum odd significand of the factor of A in a product.


class Dyadic(NamedTuple):
    """The exact number significand * 2^exponent."""

    significand: int
    exponent: int

    def __neg__(self) -> Dyadic:
        return Dyadic(-self.significand, self.exponent)


def two_to(exponent: int) -> Dyadic:
    return Dyadic(1, exponent)


# Leaf -> value: leaf k < K is the product a[k] * b[k], leaf K is C; leaves that are not named are zero.
LeafValues = Mapping[int, Dyadic]

# Bit patterns of A and B with a value as product.
Factors = tuple[int, int] | None


@dataclass(frozen=True)
class Reach:
    """Numbers that rows may use, because the device is known to keep them.

    subnormal_operands, subnormal_addend: whether factors of products, or C, may be subnormal. smallest_result: exponent of the
    smallest power of two that comes back if it is the only term.
    """

    subnormal_operands: bool = False
    subnormal_addend: bool = False
    smallest_result: int | None = None


NORMAL = Reach()  # Normal numbers only, as long as nothing is known about others.


class Workbench:
    """One instruction on one device. counterexamples: dot products that contradicted an earlier model."""

    def __init__(self, log: QueryLog, counterexamples: Sequence[Exchange] = (), reach: Reach = NORMAL) -> None:
        self.log, self.inst, self.counterexamples, self.reach = log, log.inst, counterexamples, reach
        self.addend = self.inst.k

    def within(self, reach: Reach) -> Workbench:
        return Workbench(self.log, self.counterexamples, reach)

    def query(self, operands: Request) -> Bits:
        """Return the device's results, [n]."""
        return self.log.query_twice(operands)

    def mismatches(self, operands: Request, model: DotModel) -> tuple[Bits, NDArray[np.intp]]:
        """Query the device; return its results and the rows that the model does not explain."""
        expected = evaluate(model, self.inst, operands)
        d = self.log.query_twice(operands, expected, model)
        return d, np.flatnonzero(d != expected)

    def request(self, rows: Sequence[LeafValues]) -> Request:
        """Return the operands of rows if all their values fit (see `fits`)."""
        inst, products = self.inst, list[tuple[int, int, int, int]]()
        request = Request.zeros(inst, len(rows))
        for i, row in enumerate(rows):
            for leaf, value in row.items():
                if leaf == self.addend:
                    pattern = pattern_of(inst.c, value)
                    assert pattern is not None, f"{value} is no value of {inst.c}"
                    request.c[i] = pattern
                else:
                    factors = self._factors(value)
                    assert factors is not None, f"{value} is no product of {inst.a} and {inst.b}"
                    products.append((i, leaf, *factors))
        if products:
            row_of, leaf_of, a_of, b_of = zip(*products, strict=True)
            request.a[row_of, leaf_of], request.b[row_of, leaf_of] = a_of, b_of
        return request

    def fitting(self, rows: Iterable[LeafValues]) -> Request:
        """Return the operands of the rows with values that the formats can represent."""
        return self.request([row for row in rows if self.fits(row)])

    def fits(self, row: LeafValues) -> bool:
        """Return whether each leaf can have its value; products are made of normal numbers unless `reach` says otherwise."""
        patterns = (pattern_of(self.inst.c, x) if leaf == self.addend else self._factors(x) for leaf, x in row.items())
        return None not in patterns

    def result_pattern(self, value: Dyadic) -> int | None:
        return pattern_of(self.inst.d, value)

    def exchanges(self, operands: Request, d: Bits, which: Iterable[int]) -> tuple[Exchange, ...]:
        return tuple(Exchange.of(operands, i, d) for i in which)

    def product_exponents(self) -> range:
        """Return the exponents of the powers of two that products can be, within reach."""
        a, b = (_powers(fmt, self.reach.subnormal_operands) for fmt in (self.inst.a, self.inst.b))
        return range(a[0] + b[0], a[-1] + b[-1] + 1)

    def addend_exponents(self) -> range:
        """Return the exponents of the powers of two that C can be, within reach."""
        return _powers(self.inst.c, self.reach.subnormal_addend)

    def result_exponents(self) -> range:
        """Return the exponents of the powers of two that come back unchanged; the normal ones until that is measured."""
        smallest = self.reach.smallest_result
        return range(self.inst.d.min_exponent if smallest is None else smallest, self.inst.d.max_exponent + 1)

    def widest_result(self, alignment_bits: int) -> int:
        """Return the number of bits between the smallest normal and the smallest result, if it exceeds the alignment bits.

        Otherwise return the fraction bits of D.
        """
        below = self.inst.d.min_exponent - self.result_exponents()[0]
        return below if below > alignment_bits else self.inst.d.mantissa_bits

    def _factors(self, value: Dyadic) -> Factors:
        return _factors(self.inst.a, self.inst.b, self.reach.subnormal_operands, value)


def _powers(fmt: Format, subnormals: bool) -> range:
    return range(fmt.min_exponent - (fmt.mantissa_bits if subnormals else 0), fmt.max_exponent + 1)


@cache
def pattern_of(fmt: Format, value: Dyadic) -> int | None:
    """Return the bit pattern of a value, None if the format cannot represent it."""
    pattern = fmt.try_encode(abs(value.significand), value.exponent)
    return None if pattern is None else pattern | (fmt.sign_bit if value.significand < 0 else 0)


@cache
def _factors(a: Format, b: Format, subnormals: bool, value: Dyadic) -> Factors:
    """Return numbers of A and B with a value as product, their exponents as equal as possible.

    None if no number of A with a significand of at most LARGEST_FACTOR is a factor. subnormals: factors may be subnormal.
    """
    if value.significand == 0:
        return 0, 0
    significand = abs(value.significand)
    trailing = (significand & -significand).bit_length() - 1
    exponent, significand = value.exponent + trailing, significand >> trailing
    lowest_a, lowest_b = _powers(a, subnormals)[0], _powers(b, subnormals)[0]
    least = -(-significand // ((2 << b.mantissa_bits) - 1))
    for sa in range(least | 1, min(significand, LARGEST_FACTOR, (2 << a.mantissa_bits) - 1) + 1, 2):
        sb, rest = divmod(significand, sa)
        if rest:
            continue
        la, lb = sa.bit_length() - 1, sb.bit_length() - 1
        low = max(lowest_a - la, exponent - (b.max_exponent - lb))
        high = min(a.max_exponent - la, exponent - (lowest_b - lb))
        if low > high:
            continue
        ea = min(max((exponent + 1) // 2, low), high)
        pa, pb = a.try_encode(sa, ea), b.try_encode(sb, exponent - ea)
        if pa is not None and pb is not None:
            return pa | (a.sign_bit if value.significand < 0 else 0), pb
    return None
