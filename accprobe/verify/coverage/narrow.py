"""What sums of narrow products do that no single one brings about: many together make up for C, or for others.

All products of two narrow formats are a short table. Some are given, odd ones or such as lose bits, and others are added until
the products come to what is wanted: where rounding turns beside C, what takes C away, what takes the sum beyond the largest
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import FusedSum
from accprobe.operands.request import Request, joined
from accprobe.verify.coverage.factors import Whole, encoded
from accprobe.verify.coverage.scaled_placing import table_of_products
from accprobe.verify.coverage.spans import Bounds

NARROW = 8  # Bits of an operand, at most: the table has every pair of codes.

DRAWS = 48  # Dot products of each number of given products, of each of their signs.

OTHERS = 256  # Dot products of each of the other ways.

BOTH = 2  # Signs of given products: positive, negative, both.

TablePlaces = NDArray[np.intp]


def narrow_operands(inst: Instruction, node: FusedSum, bound: Bounds) -> Request | None:
    """None of sums that have no C, no products, or wider ones."""
    bits = bound.arithmetic.alignment_bits
    wide = inst.scale is not None or max(inst.a.bits, inst.b.bits) > NARROW
    if bits is None or wide or not (node.has_addend and node.products):
        return None
    return joined(list(NarrowProducts(inst, node, bound, bits).every()))


class NarrowProducts:
    """Dot products of one sum. Products are counted in the smallest of them."""

    def __init__(self, inst: Instruction, node: FusedSum, bound: Bounds, bits: int) -> None:
        self._inst, self._bits, self._result_bits = inst, bits, bound.arithmetic.result_bits
        self._table, self._ks = table_of_products(inst.a, inst.b, 1), np.array(node.products)
        self._top = bound.slots["product"].span.exponents[1]
        self._rng = np.random.default_rng(len(self._ks))

    def every(self) -> Iterator[Request]:
        """Beside a C that leads: about its rounding and its end, and taking it away; then with a C far below."""
        lowest, most, last = self._table.lowest, self._table.max_sum.bit_length(), self._inst.c.max_exponent
        cut = range(lowest + self._bits, min(last + 1, lowest + self._bits + most))
        for lead in sorted({*cut[:2], *cut[len(cut) // 2 :][:1], *cut[-1:], min(last, lowest + self._bits + most)}):
            yield self._about_rounding(lead)
        for lead in range(max(lowest, self._inst.c.min_exponent), min(last, lowest + most + len(self._ks).bit_length()) + 1):
            yield self._taking_away(lead)
        yield self._above_c()
        yield self._dense()

    def _about_rounding(self, lead: int) -> Request:
        """C of that exponent, so many odd products or a few that are cut, others until rounding turns or a little above."""
        size, rng = len(self._ks), self._rng
        rows = [(count, sign, True) for count, sign in product(range(size + 1), range(BOTH + 1))] * DRAWS
        rows += [(count, BOTH, False) for count in (2, 3)] * OTHERS
        count, sign, odd = (np.array(column) for column in zip(*rows, strict=True))
        c, _ = self._addends(lead, len(rows))
        dropped = max(self._bits - self._result_bits, 0)
        unit = lead - self._bits - self._table.lowest
        turns = ((rng.integers(-1, 2, len(rows)) << dropped) + (rng.integers(0, 2, len(rows)) << dropped >> 1)) // 2 * 2
        wanted = turns + np.where(odd & (count % 2 == 1), 1, 2 * rng.integers(0, 2, len(rows)))
        wanted = wanted << unit if unit >= 0 else wanted >> -unit
        return self._made(max(unit, 0), unit >= 0, count, sign, odd, wanted, c)

    def _taking_away(self, lead: int) -> Request:
        """C of that exponent, products that come to as much with the other sign, or a little more or less; some are cut."""
        n, rng = OTHERS, self._rng
        c, exact = self._addends(lead, n)
        unit = max(lead - self._bits - self._table.lowest, 0)
        beside = np.where(rng.random(n) < 0.5, 0, rng.integers(-3, 4, n) << unit)
        count = np.where(rng.random(n) < 0.5, 0, 2)
        return self._made(unit, False, count, np.full(n, BOTH), np.zeros(n, bool), beside - exact, c)

    def _above_c(self) -> Request:
        """Two largest products that cancel, or none, one beside them, and C about half of the last bit of what is left."""
        n, rng, table = OTHERS * 4, self._rng, self._table
        which = np.zeros((n, len(self._ks)), np.intp)
        lone, cancel = min(2, which.shape[1] - 1), (rng.random(n) < 0.9) & (which.shape[1] > 2)
        which[:, lone] = rng.integers(0, len(table.multiples), n) >> rng.integers(0, 12, n)
        negative = rng.integers(0, 2, which.shape)
        which[cancel, :2], negative[cancel, 1:2] = len(table.multiples) - 1, 1 - negative[cancel, :1]
        left = table.multiples[which[:, lone]]
        half = bit_length(left) - 1 + table.lowest - self._result_bits - 1 - (self._top - self._bits)
        steps = rng.integers(1, 4, n) * rng.choice(np.array([-1, 1]), n)
        whole = np.where((left > 0) & (half >= 0) & (half < 40), np.int64(1) << np.clip(half, 0, 40), 0) + steps
        cut = np.where(rng.random(n) < 0.2, rng.integers(1, 4, n), 0)
        c, fits = encoded(self._inst.c, rng.integers(0, 2, n), np.abs(whole), self._top - self._bits - cut)
        return self._placed(which, negative, c)[fits]

    def _dense(self) -> Request:
        """All terms of one sign and one leading bit, C with the bit that is half of the sum's last."""
        n, rng, size = OTHERS * 2, self._rng, len(self._ks)
        lead = rng.integers(0, self._table.multiples[-1].item().bit_length(), (n, 1))
        first, end = (np.searchsorted(self._table.multiples, np.int64(1) << (lead + up)) for up in (0, 1))
        which = np.minimum(first + (rng.random((n, size)) * (end - first)).astype(np.intp), len(self._table.multiples) - 1)
        below = max(1, self._result_bits + 1 - ((size + 1).bit_length() - 1))
        whole = (1 << below) + 2 * rng.integers(0, max(1 << below >> 1, 1), n) + 1
        c, fits = encoded(self._inst.c, np.zeros(n, np.int64), whole, lead[:, 0] + self._table.lowest - below)
        return self._placed(which, np.zeros_like(which), c)[fits]

    def _addends(self, lead: int, n: int) -> tuple[Bits, Whole]:
        """C of any sign-free significand, or of ones alone, and what it comes to where products can; [n] each."""
        fmt, rng = self._inst.c, self._rng
        one, up = 1 << fmt.mantissa_bits, lead - fmt.mantissa_bits - self._table.lowest
        fraction = rng.integers(0, one, n) >> rng.integers(0, fmt.mantissa_bits + 1, n)
        whole = np.where(rng.random(n) < 0.25, 2 * one - 1, one + fraction)
        whole = whole >> max(-up, 0) << max(-up, 0)
        c, _ = encoded(fmt, np.zeros(n, np.int64), whole, np.full(n, lead - fmt.mantissa_bits))
        return c, whole << up if up >= 0 else whole >> -up

    def _made(
        self, unit: int, even: bool, count: Whole, sign: Whole, odd: NDArray[np.bool_], wanted: Whole, c: Bits
    ) -> Request:
        """Dot products with so many odd products, or cut ones, of that sign, whose products come to what is wanted.

        unit: the last bit kept. even: others have that bit not.
        """
        rng, every = self._rng, self._table.multiples
        kept = every >> unit << unit
        given = [np.flatnonzero(kept != every), np.flatnonzero((kept == every) & (every >> unit & 1 == 1))]
        others = np.flatnonzero((kept == every) & ((every >> unit & 1 == 0) | (not even)))
        possible = np.array([len(some) > 0 for some in given])[odd.astype(int)] | (count == 0)
        count, sign, odd, rest, c = (x[possible] for x in (count, sign, odd, wanted.copy(), c))
        place = np.broadcast_to(np.arange(len(self._ks)), (len(count), len(self._ks)))
        first, which = place < count[:, None], np.zeros(place.shape, np.intp)
        for is_odd, some in enumerate(given):
            if len(some):
                most = rng.integers(1, len(some) + 1, (len(count), 1))
                drawn = some[(rng.random(place.shape) * most).astype(np.intp)]
                which = np.where(first & (odd == bool(is_odd))[:, None], drawn, which)
        negative = np.where(sign[:, None] < BOTH, sign[:, None], (place + rng.integers(0, 2, (len(count), 1))) % 2)
        negative = np.where(first, negative, 0)
        rest = rest - (kept[which] * (1 - 2 * negative)).sum(axis=1)
        for column in range(len(self._ks) - 1, -1, -1):
            own = first[:, column]
            goal = rest + kept[which[:, column]] * (1 - 2 * negative[:, column])
            flipped = np.where(own, negative[:, column], goal < 0)
            size = np.where(flipped == 1, -goal, goal)
            near = others[_nearest(every[others], size)]
            if len(given[1]):
                near = np.where(own, given[1][_nearest(every[given[1]], size)], near)
            changes = (~own | odd) & (rest != 0)
            which[:, column] = np.where(changes, near, which[:, column])
            negative[:, column] = np.where(changes, flipped, negative[:, column])
            rest = goal - kept[which[:, column]] * (1 - 2 * negative[:, column])
        return self._placed(which, negative, c)[rest == 0]

    def _placed(self, which: TablePlaces, negative: Whole, c: Bits) -> Request:
        """Products of the table, [n, products], in any order; all signs of half of them turned over."""
        inst, asked = self._inst, Request.zeros(self._inst, len(c))
        turned = self._rng.integers(0, 2, len(c))
        negative, c = negative ^ turned[:, None], c ^ turned.astype(c.dtype) * c.dtype.type(inst.c.sign_bit)
        columns = self._ks[self._rng.permuted(np.broadcast_to(np.arange(len(self._ks)), which.shape), axis=1)]
        signs = negative.astype(inst.a.dtype) * inst.a.dtype.type(inst.a.sign_bit)
        np.put_along_axis(asked.a, columns, self._table.a[which] | signs, 1)
        np.put_along_axis(asked.b, columns, self._table.b[which], 1)
        asked.c[:] = c
        return asked


def _nearest(ascending: Whole, values: Whole) -> TablePlaces:
    """Places of the numbers next to these."""
    above = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    below = np.maximum(above - 1, 0)
    return np.asarray(np.where(values - ascending[below] <= ascending[above] - values, below, above))
