"""The workbench of the experiments: exact values put on the leaves of a dot product, and the device's answers.

An experiment writes rows, each a mapping of leaves to exact dyadic numbers, and reads bit patterns back. Every question to a
device that is not a pure function is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.findings import Finding
from accprobe.infer.query_log import QueryLog
from accprobe.isa.formats import Bits, Format
from accprobe.model.record import Value
from accprobe.model.tree import DotModel
from accprobe.operands.exchange import Exchange
from accprobe.operands.request import Request, joined


class Dyadic(NamedTuple):
    """The exact number significand * 2^exponent."""

    significand: int
    exponent: int

    def __neg__(self) -> Dyadic:
        return Dyadic(-self.significand, self.exponent)


def two_to(exponent: int) -> Dyadic:
    return Dyadic(1, exponent)


# Leaf -> value: leaf k < K is the product a[k] * b[k], leaf K is C; leaves that are not named are zero.
Row = Mapping[int, Dyadic]


@dataclass(frozen=True)
class Reach:
    """What numbers rows may have, as far as the device is known to keep them.

    subnormal_operands: whether products may be made of subnormal operands; subnormal_addend: whether C may be one.
    smallest_result: exponent of the smallest power of two that is known to come back when it is the only term.
    max_same_sign: how many terms of one sign and exponent a sum may have, so that it has room for them.
    """

    subnormal_operands: bool = False
    subnormal_addend: bool = False
    smallest_result: int | None = None
    max_same_sign: int = 1 << 10


# Rows of normal numbers alone, as long as nothing is known of others.
NORMAL = Reach()


class Workbench:
    """One instruction on one device."""

    def __init__(self, log: QueryLog, known: Sequence[Exchange] = (), reach: Reach = NORMAL) -> None:
        self.log, self.inst, self.known, self.reach = log, log.inst, known, reach
        self.addend = self.inst.k

    def within(self, reach: Reach) -> Workbench:
        """The same workbench for rows of other numbers."""
        return Workbench(self.log, self.known, reach)

    def query(self, operands: Request, model: DotModel | None = None) -> Bits:
        """The device's answers, [n]. model: what they are expected to be those of."""
        return self.log.query_twice(operands, model)

    def rows(self, rows: Sequence[Row]) -> Request:
        """Operands of rows whose values all fit (see `fits`)."""
        inst, factor, addend = self.inst, self._factor, _encoder(self.inst.c)
        at: list[tuple[int, int, int, int]] = []
        asked = Request.zeros(inst, len(rows))
        for i, row in enumerate(rows):
            for leaf, value in row.items():
                if leaf == self.addend:
                    pattern = addend(value)
                    assert pattern is not None, f"{value} is no value of {inst.c}"
                    asked.c[i] = pattern
                else:
                    factors = factor(value)
                    assert factors is not None, f"{value} is no product of {inst.a} and {inst.b}"
                    at.append((i, leaf, *factors))
        if at:
            row_of, leaf_of, a_of, b_of = zip(*at, strict=True)
            asked.a[row_of, leaf_of], asked.b[row_of, leaf_of] = a_of, b_of
        return asked

    def fits(self, row: Row) -> bool:
        """Whether every value of the row is a value of its leaf, made of normal numbers where it is a product."""
        factor, addend = self._factor, _encoder(self.inst.c)
        return all((addend if leaf == self.addend else factor)(value) is not None for leaf, value in row.items())

    def holds(self, leaf: int, value: Dyadic) -> bool:
        """Whether the leaf can have that value."""
        return self.fits({leaf: value})

    def result(self, value: Dyadic) -> int | None:
        """Bit pattern of the value in the result's format, None where it has none."""
        return encode(self.inst.d, value)

    def known_operands(self) -> list[Request]:
        """Operands of the dot products that the model has to explain too: one set, or none."""
        return [joined([exchange.request(self.inst) for exchange in self.known])] if self.known else []

    def exchanges(self, operands: Request, d: Bits, which: Iterable[int]) -> tuple[Exchange, ...]:
        """The rows `which` of what was asked and answered."""
        return tuple(Exchange.of(operands, i, d) for i in which)

    def product_exponents(self) -> range:
        """Exponents of the powers of two that are products (of two normal numbers, unless subnormal ones are within reach)."""
        a, b = (_powers(fmt, self.reach.subnormal_operands) for fmt in (self.inst.a, self.inst.b))
        return range(a[0] + b[0], a[-1] + b[-1] + 1)

    def addend_exponents(self) -> range:
        """Exponents of the powers of two of C's format (normal ones, unless subnormal ones are within reach)."""
        return _powers(self.inst.c, self.reach.subnormal_addend)

    def result_exponents(self) -> range:
        """Exponents of the powers of two that came back as they are, once asked; before, the normal ones."""
        smallest = self.reach.smallest_result
        return range(self.inst.d.min_exponent if smallest is None else smallest, self.inst.d.max_exponent + 1)

    def widest_result(self, alignment_bits: int) -> int:
        """The most fraction bits that a result can have.

        Subnormal results end as many bits below the smallest normal number, unless the alignment has cut them already.
        """
        below = self.inst.d.min_exponent - self.result_exponents()[0]
        return below if below > alignment_bits else self.inst.d.mantissa_bits

    @property
    def _factor(self) -> Callable[[Dyadic], Factors]:
        return _factors(self.inst.a, self.inst.b, self.reach.subnormal_operands)


def _powers(fmt: Format, subnormals: bool) -> range:
    return range(fmt.min_exponent - (fmt.mantissa_bits if subnormals else 0), fmt.max_exponent + 1)


def encode(fmt: Format, value: Dyadic) -> int | None:
    """The bit pattern of a value, None where the format does not hold it."""
    return _encoder(fmt)(value)


@cache
def _encoder(fmt: Format) -> Callable[[Dyadic], int | None]:
    """`encode` to that format, each value once."""

    @cache
    def encoded(value: Dyadic) -> int | None:
        pattern = fmt.try_encode(abs(value.significand), value.exponent)
        if pattern is None:
            return None
        return pattern | (fmt.sign_bit if value.significand < 0 else 0)

    return encoded


LARGEST_FACTOR = 1 << 10


# Bit patterns of A and B whose product is a value.
Factors = tuple[int, int] | None


@cache
def _factors(a: Format, b: Format, subnormals: bool) -> Callable[[Dyadic], Factors]:
    """What finds the numbers of A and B whose product is a value, exponents as even as can be; None where none is found.

    Only normal numbers, unless `subnormals`. One factor's significand is at most LARGEST_FACTOR.
    """
    lowest_a = a.min_exponent - (a.mantissa_bits if subnormals else 0)
    lowest_b = b.min_exponent - (b.mantissa_bits if subnormals else 0)

    @cache
    def factors(value: Dyadic) -> Factors:
        significand = abs(value.significand)
        if significand == 0:
            return 0, 0
        trailing = (significand & -significand).bit_length() - 1
        exponent, significand = value.exponent + trailing, significand >> trailing
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

    return factors


EVIDENCE = 4


def eliminate(bench: Workbench, candidates: Mapping[Value, DotModel], operands: Request, note: str = "") -> Finding:
    """The candidate that explains the device's answers to `operands`.

    Several left: undetermined among them, the first is the value. None left: undetermined, value None, and the note says
    that no candidate explains the answers. The evidence are rows on which the candidates differ.
    """
    d = bench.query(operands)
    predictions = {value: evaluate(model, bench.inst, operands) for value, model in candidates.items()}
    left = tuple(value for value, predicted in predictions.items() if np.array_equal(predicted, d))
    evidence = _telling(bench, operands, d, list(predictions.values()))
    if len(left) == 1:
        return Finding(left[0], evidence=evidence)
    if left:
        return Finding(left[0], "undetermined", left, note or "these give the same bits on every operand tried", evidence)
    closest = min(predictions, key=lambda value: int((predictions[value] != d).sum()))
    return Finding(closest, "undetermined", note="no value explains every answer; this one explains most", evidence=evidence)


def fitting(bench: Workbench, rows: Iterable[Row]) -> Request:
    """Operands of those rows whose values the formats hold."""
    return bench.rows([row for row in rows if bench.fits(row)])


def _telling(bench: Workbench, operands: Request, d: Bits, predictions: list[Bits]) -> tuple[Exchange, ...]:
    if not len(d):
        return ()
    stacked = np.stack(predictions)
    differ = np.flatnonzero((stacked != stacked[0]).any(axis=0))
    return bench.exchanges(operands, d, differ[:EVIDENCE])
