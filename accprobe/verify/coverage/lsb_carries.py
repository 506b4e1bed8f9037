"""Odd terms: those with the last bit set that the alignment keeps, in sums whose result shows a carry out of that bit.

How many terms are odd decides what a sum carries out of its last place. A carry that is lost there makes the sum smaller, by
two units or more. It shows where the result of such a sum is another one: where it has the last bits of the sum, or where
these decide how it is rounded.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.rounding import encode_wide
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FloatArithmetic
from accprobe.verify.coverage.events import NO_BITS, SIGNS, Event, EventFamily
from accprobe.verify.coverage.factors import TermNumbers, Whole
from accprobe.verify.coverage.spans import Bounds, TermRole, TermsOfRole
from accprobe.verify.coverage.terms import Sums, Total

ODD_TERMS = "odd terms"  # The family of events.

ODD_SIGNS = (*SIGNS, "both signs")

CANCEL, WITH_ODD = 0, 1  # Ways of the largest terms, to which the others are aligned: two that cancel; one that is itself odd.

LEAST_ODD = 1 << 11  # Dot products of odd terms, at least.

# Times that the largest numbers of odd terms are drawn again: few of them leave a largest term that lets a carry show.
MORE = 6

# How often C is the largest term among products that have block scales, and how often there are even ones beside odd ones.
C_FIRST, FEW_EVEN = 0.7, 0.3

FACTORS = range(1, 64, 2)  # Of products that make a sum what it is to be, one factor.


def odd_events(bound: Bounds) -> EventFamily:
    """One for each number of odd terms, and for each of their signs: none has no sign, one has not both."""
    able = sum(slots.count for slots in bound.slots.values() if _able(bound, slots))
    return tuple(
        Event(f"{_counted(n)}{f', {sign}' if n else ''}, and a carry shows", "" if n <= able else NO_BITS, True)
        if i <= min(n, 2)
        else None
        for n in range(most_odd(bound) + 1)
        for i, sign in enumerate(ODD_SIGNS)
    )


def _counted(n: int) -> str:
    return f"{n or 'no'} term{'s' * (n != 1)} with the last kept bit set"


def most_odd(bound: Bounds) -> int:
    """The most odd terms that are told: all, or all but what they are aligned to.

    That is one term, or two that cancel where the result drops more bits than a term has to make up for.
    """
    dropped = _bits(bound) - bound.arithmetic.result_bits
    if dropped > max(slots.span.width for slots in bound.slots.values() if slots.role != "C" or len(bound.slots) < 2) - 2:
        return max(0, bound.terms - 2)
    return bound.terms - (not any(_leads(bound, slots) for slots in bound.slots.values()))


def _bits(bound: Bounds) -> int:
    bits = bound.arithmetic.alignment_bits
    assert bits is not None
    return bits


def _leads(bound: Bounds, slots: TermsOfRole) -> bool:
    """Whether a term of that role may be odd and the largest."""
    return slots.span.width > _bits(bound)


def _able(bound: Bounds, slots: TermsOfRole) -> bool:
    """Whether a term of that role may be odd."""
    tops = [other.span.exponents[1] for other in bound.slots.values() if other.count > (other is slots)]
    tops += [] if bound.floor is None else [bound.floor]
    return _leads(bound, slots) or any(top - _bits(bound) >= slots.span.lsb_exponent for top in tops)


def odd_codes(bound: Bounds, sums: Sums) -> tuple[Whole, Whole]:
    """Dot products whose result shows a carry, and their codes among `odd_events`."""
    signs = [np.signbit(terms.values) for terms in sums.terms.values()]
    cuts = sums.cuts.values()
    positive, negative = (
        np.sum([(cut.odd & (sign == own)).sum(axis=0) for cut, own in zip(cuts, signs, strict=True)], axis=0)
        for sign in (False, True)
    )
    count = positive + negative
    rows = np.flatnonzero(sums.finite & sums.some & (count <= most_odd(bound)))
    total = sums.total
    rows = rows[_carry_shows(Total(total.negative[rows], total.magnitude[rows], total.exponent[rows]), bound.arithmetic)]
    of_sign = np.where(negative == 0, 0, np.where(positive == 0, 1, 2))
    return rows, (len(ODD_SIGNS) * count + of_sign)[rows]


def _carry_shows(total: Total, arithmetic: FloatArithmetic) -> Truths:
    less = np.where(total.negative, -total.magnitude, total.magnitude) - 2
    own = encode_wide(total.negative, total.magnitude, total.exponent, arithmetic)
    return np.asarray(own != encode_wide(less < 0, np.abs(less), total.exponent, arithmetic))


class LsbCarryCases:
    """Numbers for a sum whose terms have these roles."""

    def __init__(self, bound: Bounds, inst: Instruction, roles: tuple[TermRole, ...], rng: np.random.Generator) -> None:
        self._bound, self._width, self._rng = bound, len(roles), rng
        self._c = roles.index("C") if inst.scale is not None and "C" in roles else None
        self._bits, self._result_bits = _bits(bound), bound.arithmetic.result_bits
        self._most = min((2 << fmt.mantissa_bits) - 1 for fmt in (inst.a, inst.b))

    def numbers(self) -> TermNumbers:
        """So many odd terms of one sign or both, others even or zero, beside the largest; [n, width].

        The first of them makes the sum end where rounding turns, or a unit above.
        """
        rng, width, bits = self._rng, self._width, self._bits
        leaders = self._leaders()
        counts = (*range(width + 1), *(width - 1, width) * MORE)
        table = list(product(counts, range(len(ODD_SIGNS)), range(len(leaders)), self._levels(), (False, True)))
        table *= -(-LEAST_ODD // len(table))
        count, sign, leader, level, backwards = (np.array(column)[:, None] for column in zip(*table, strict=True))
        shape = len(table), width
        place = rng.permuted(np.broadcast_to(np.arange(width), shape), axis=1)
        place = np.where(backwards, (place - place[:, -1:]) % width, place)
        if self._c is not None:
            place = self._with_c_first(place)
        cancel, with_odd = leader == CANCEL, leader == WITH_ODD
        leads, even = place < 1 + cancel, 1 + cancel - with_odd
        odd = (place >= even) & (place < even + count)
        negative = np.where(odd & (sign < 2), sign, rng.integers(0, 2, shape))
        of_first = np.take_along_axis(negative, np.argmin(place, axis=1)[:, None], axis=1)
        negative = np.where(cancel & (place == 1), 1 - of_first, negative)
        doubled = ~odd & ~leads & (rng.random(shape) < 0.5)
        if self._c is not None:
            doubled &= rng.random((len(table), 1)) < FEW_EVEN
        first, second = (np.where(odd | doubled, rng.choice(np.array([1, 3]), shape), 0) for _ in range(2))
        units = np.where(leads, odd, first * second << doubled) * (1 - 2 * negative)
        turns = odd & ~leads & ~cancel & (place == even + with_odd)
        turned = self._wanted(count, sign, units) - np.where(turns, 0, units).sum(axis=1, keepdims=True)
        negative = np.where(turns, turned < 0, negative)
        first, second = np.where(turns, self._factors(np.abs(turned)), (first, second))
        of_leaders, below = np.array(leaders).T
        first, second = np.where(leads, self._factors(of_leaders)[:, leader], (first, second))
        below = below[leader]
        exponent = np.where(leads, level - below, level - bits + doubled)
        return TermNumbers(negative, first, second, exponent).at((even + count <= width)[:, 0])

    def _with_c_first(self, place: Whole) -> Whole:
        """C the largest term more often: products of a block lie no further apart than their factors."""
        rows = np.flatnonzero(self._rng.random(len(place)) < C_FIRST)
        changed = place.copy()
        changed[rows, np.argmin(place[rows], axis=1)] = place[rows, self._c]
        changed[rows, self._c] = 0
        return changed

    def _leaders(self) -> list[tuple[int, int]]:
        """Significands of the largest terms, and the bits that they have below the exponent that counts in the alignment.

        CANCEL, WITH_ODD, alone, alone with half of the result's last unit; of factors whose product carries a bit that too.
        """
        half = self._result_bits + 1
        of_half = (1 << half) + 1
        return [(1, 0), ((1 << self._bits) + 1, self._bits), (1, 0), (of_half, half), (of_half, half - 1)]

    def _levels(self) -> list[int]:
        """Exponents of the largest terms."""
        spans = [slots.reachable for slots in self._bound.slots.values()]
        high = min(span.leads[1] for span in spans)
        lowest = max(*(span.leads[0] for span in spans), self._bound.arithmetic.result.min_exponent) + self._bits
        return sorted({max(lowest, level) for level in (lowest + 1, (lowest + high) // 2, high - 1, 0)})

    def _wanted(self, count: Whole, sign: Whole, units: Whole) -> Whole:
        """What the terms but for the largest are to come to, [n, 1]: where rounding turns, or a little above."""
        rng, dropped = self._rng, max(self._bits - self._result_bits, 0)
        last, half = np.int64(2) << dropped, (1 << dropped) // 2
        room = (np.abs(units).sum(axis=1, keepdims=True) // last + 1) * last
        least = np.where(count % 2, 1, 2 * rng.integers(0, 2, count.shape)) + half // 2 * 2 * rng.integers(0, 2, count.shape)
        beyond = np.where(sign == 0, room, np.where(sign == 1, -room, 0))
        return np.asarray(least + beyond)

    def _factors(self, whole: Whole) -> Whole:
        """Two factors of numbers, [2, …]; the first too large for an operand where there are none."""
        first, second = whole, np.ones_like(whole)
        for factor in FACTORS:
            better = (first > self._most) & (whole % factor == 0) & (whole // factor <= self._most)
            first, second = np.where(better, whole // factor, first), np.where(better, factor, second)
        return np.array((first, second))
