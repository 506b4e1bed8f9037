"""Numbers for all terms of a sum at once: many of one size, tails below one that leads, zeros."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.rounding import bit_length
from accprobe.isa.instructions import Instruction
from accprobe.verify.coverage.factors import TermNumbers, Whole
from accprobe.verify.coverage.scaled_placing import table_of_products
from accprobe.verify.coverage.spans import FEW_BITS, Bounds, TermRole

LEAST_DENSE = 768  # Dot products of many terms of one size, at least.

TAILS = 1536  # Dot products of random tails.

BELOW_C = 128  # Dot products of small products and a C far above them.

CANCELLING = 256  # Sizes of terms that cancel, at most.

FACTOR_BITS = 10  # Fraction bits of a factor of these, at most: C and inner sums hold their products.

FULL_BITS = 30  # Of a random significand.


class DenseOperands:
    """Numbers [n, terms] for a sum whose terms have these roles."""

    def __init__(self, bound: Bounds, inst: Instruction, roles: tuple[TermRole, ...], rng: np.random.Generator) -> None:
        self._rng, self._bound, self._inst = rng, bound, inst
        self._width, self._x = len(roles), bound.arithmetic
        self._role = np.array(roles)
        spans = [slots.reachable for slots in bound.slots.values()]
        low, high = max(span.leads[0] for span in spans), min(span.leads[1] for span in spans)
        self._cut = self._x.alignment_bits if self._x.alignment_bits is not None else self._x.result_bits + 2
        above = [high, (low + high) // 2, low + 8, low + self._cut + 2, 0]
        if bound.floor is not None and len(bound.slots) == 1:
            above.append(bound.floor - self._cut)  # nothing else makes the last kept bit of all of them so low
        self._levels = sorted(
            {min(high, max(low, level)) for level in above} | {min(max(s.leads[1] for s in spans), low + self._cut + 1)}
        )

    def cancelling(self) -> TermNumbers:
        """A number and the same taken away, of every size that two terms can have; beside half of them a smaller third."""
        rng, shared, width = np.random.default_rng(0xCA), self._bound.cancelling, self._width
        sizes = np.unique([*shared[:: -(-len(shared) // CANCELLING)], shared[-1]])
        top = np.repeat(sizes, 2 * max(1, CANCELLING // len(sizes)))
        n, rows = len(top), np.arange(len(top))
        order = rng.permuted(np.tile(np.arange(width), (n, 1)), axis=1)
        order = np.take_along_axis(order, np.argsort(self._role[order] != "product", axis=1, kind="stable"), 1)
        products = (self._role[order[:, :2]] == "product").all(axis=1)
        factors = [np.where(products, _odd(fmt.mantissa_bits, n, rng), 1) for fmt in (self._inst.a, self._inst.b)]
        numbers = TermNumbers(*(np.full((n, width), value, np.int64) for value in (0, 0, 1, 0)))
        sign = rng.integers(0, 2, n)
        for place in range(2):
            at = rows, order[:, place]
            numbers.negative[at], numbers.first[at], numbers.second[at] = sign ^ place, *factors
            numbers.exponent[at] = top - sum(bit_length(factor) - 1 for factor in factors)
        if width > 2:
            at = rows[1::2], order[1::2, 2]
            numbers.negative[at], numbers.first[at] = rng.integers(0, 2, len(at[0])), 1
            numbers.exponent[at] = top[1::2] - rng.integers(1, max(self._cut, 1) + 1, len(at[0]))
        return numbers

    def dense(self) -> TermNumbers:
        """Terms of one size and sign: of the largest significands, but for the last, of random ones, of few bits.

        Or some lie a little lower; or where the last bit is kept, or is cut, or where half of the result's last unit is.
        """
        rng, width, inst = self._rng, self._width, self._inst
        few = {i + c for c in (1, 2, 4, 8, 16, 32, 64) for i in (-1, 0, 1)}
        counts = sorted((few | {3, width - 1, width}) & set(range(1, width + 1)))
        styles: tuple[str, ...] = ("largest", "last random", "last even", "last half", "random", "wide", "one", "few")
        styles += ("kept", "cut", "tail", "tail", "cut tail", "uneven")
        table = [(*row, style) for style in styles for row in product(counts, self._levels, (0, 1), (False, True))]
        table *= -(-LEAST_DENSE // len(table))
        count, level, sign, backwards = (np.array(column)[:, None] for column in list(zip(*table, strict=True))[:4])
        style, n = np.array([row[-1] for row in table])[:, None], len(table)
        place = np.where(backwards, np.arange(width)[::-1], np.arange(width))
        last, tail = place == width - 1, np.isin(style, ("tail", "cut tail")) & (place >= count)
        beside = (place > 0) & np.isin(style, ("kept", "cut"))
        random, even, half, one = self._significands(n)
        _, second = largest_significands(inst, self._x.scaled_products)
        largest = np.isin(style, ("largest", "tail")) | (np.isin(style, ("last random", "last even", "last half")) & ~last)
        a = np.select(
            [
                tail,
                largest,
                style == "last even",
                style == "last half",
                np.isin(style, ("last random", "random", "wide", "cut tail", "uneven")),
                np.isin(style, ("few", "cut")),
            ],
            [rng.choice(np.array([1, 1, 3]), (n, width)), one, even, half, random, np.full((n, width), 3)],
            1,
        )
        of_b = np.int64(1) << inst.b.mantissa_bits
        wide = of_b | (rng.random((n, width)) * of_b).astype(np.int64)
        product_ = self._role == "product"
        full = product_ & ~tail & np.isin(style, ("last random", "wide", "cut tail"))
        b = np.where(product_ & largest & ~tail, second, np.where(full, wide, 1))
        exponent = level - _bits_of(a, b) + 1 - np.where(beside, self._cut + (style == "cut"), 0)
        below = rng.integers(-3, self._bound.carry(reachable=True) + 1, (n, width))
        below = np.where(style == "tail", below - self._x.result_bits, -self._cut - rng.integers(1, 3, (n, width)))
        exponent = np.where(tail, level + below, exponent)
        lower = ((style == "uneven") & (place > 0)) | ((style == "last random") & last)
        exponent -= np.where(lower, rng.integers(0, np.where(last, 8, 2), (n, width)), 0)
        present = (place < count) | (tail & (rng.random((n, width)) < 0.5))
        signs = np.where(beside | tail, rng.integers(0, 2, (n, width)), sign)
        return TermNumbers(signs, np.where(present, a, 0), b, exponent)

    def _significands(self, n: int) -> tuple[Whole, Whole, Whole, Whole]:
        """Of full width, [n, terms]: random; of two bits; of these and one about half of the last unit; the largest.

        An inner sum's have as many bits as it keeps, or as a factor has.
        """
        rng, inst, x = self._rng, self._inst, self._x
        fine = {"product": inst.a.mantissa_bits, "C": inst.c.mantissa_bits, "inner sum": x.result_bits}
        coarse = (self._role == "inner sum") & (rng.random((n, 1)) < 0.5)
        bits = np.where(coarse, inst.a.mantissa_bits, np.array([fine[role] for role in self._role]))
        random = np.int64(1) << bits | (rng.random((n, self._width)) * (np.int64(1) << bits)).astype(np.int64)
        even = random >> np.maximum(bits - 2, 0) << np.maximum(bits - 2, 0)
        place = bits + self._bound.carry(reachable=True) - x.result_bits - 1 - rng.integers(0, 2, (n, 1))
        half = even | np.int64(1) << np.maximum(place, 0)
        first, _ = largest_significands(inst, x.scaled_products)
        largest = np.where((self._role == "product") | coarse, first, (np.int64(2) << bits) - 1)
        return random, even, half, largest

    def tails(self) -> TermNumbers:
        """A term that leads, sometimes one that cancels it, and smaller ones of both signs about the last bits kept."""
        rng, n, width, inst = self._rng, TAILS, self._width, self._inst
        bits, cut = self._x.result_bits, self._cut
        level = rng.choice(np.array(self._levels), n)[:, None]
        order = rng.permuted(np.broadcast_to(np.arange(width), (n, width)), axis=1)
        places = np.array([bits - 1, bits, bits + 1, bits + 2, cut - 1, cut, cut + 1, cut + 2, 1])
        first = (order == 0) | ((order == 1) & (rng.random((n, 1)) < 0.3))
        full = min(inst.a.mantissa_bits, FULL_BITS)
        leader = rng.choice(np.array([1, 1, 3, (1 << full) + 1]), (n, 1))
        at = np.where(leader > 3, level - full, level)
        exponent = np.where(first, at, level - rng.choice(places, (n, width)))
        a = np.where(first, leader, rng.choice(np.array([1, 1, 3, 5]), (n, width)))
        b = np.where(first & (leader == 3), 3, 1)
        share = rng.choice(np.array([1.5 / width, 0.3, 1.0]), n)[:, None]
        negative = rng.integers(0, 2, (n, width))
        of_leader = np.take_along_axis(negative, np.argmin(order, axis=1)[:, None], axis=1)
        negative = np.where(first & (order == 1), 1 - of_leader, negative)
        return TermNumbers(negative, np.where(first | (rng.random((n, width)) < share), a, 0), b, exponent)

    def below_c(self) -> TermNumbers:
        """C so far above small products, all of them, all but one, or few, that these lose bits."""
        rng, products = np.random.default_rng(self._width), np.flatnonzero(self._role == "product")
        if not len(products) or "C" not in self._role:
            return TermNumbers(*(np.zeros((0, self._width), np.int64) for _ in range(4)))
        n, shape = BELOW_C, (BELOW_C, self._width)
        low, high = self._bound.slots["product"].reachable.leads
        exponent = rng.integers(low, np.minimum(high, low + rng.choice(np.array([0, 1, 2, 8]), (n, 1))) + 1, shape)
        first = rng.choice(np.array([1, 3]), shape)
        many = np.resize([len(products), len(products) - 1, 2, 1], (n, 1))
        first[:, products] *= rng.permuted(np.broadcast_to(np.arange(len(products)), (n, len(products))), axis=1) < many
        is_c = self._role == "C"
        top = exponent[:, products].max(axis=1) + self._cut + rng.integers(0, 4, n)
        first, exponent = np.where(is_c, 1, first), np.where(is_c, top[:, None], exponent)
        return TermNumbers(
            rng.integers(0, 2, shape), np.where(is_c | (self._role == "product"), first, 0), np.ones_like(first), exponent
        )

    def zeros(self) -> TermNumbers:
        """Zeros of one sign, of the other, and of both; inner sums' by numbers too small for them."""
        n, width, fmt = 32, self._width, self._x.result
        signs = self._rng.integers(0, 2, (n, width))
        signs[0::4], signs[1::4] = 0, 1
        smallest = sum(f.min_exponent - f.mantissa_bits for f in (self._inst.a, self._inst.b))
        quantum = fmt.min_exponent - self._x.result_bits
        tiny = np.array([smallest, smallest + 1, quantum - 1, quantum - 2, fmt.min_exponent - 1, max(smallest, quantum - 3)])
        first = np.broadcast_to((self._role == "inner sum") & (np.arange(n) >= 8)[:, None], (n, width)).astype(np.int64)
        exponent = np.broadcast_to(self._rng.choice(tiny, (n, 1)), (n, width))
        return TermNumbers(signs, first, np.ones((n, width), np.int64), exponent)


def largest_significands(inst: Instruction, together: int | None) -> tuple[int, int]:
    """Of the factors whose product has the largest significand once it is normalised; ones in all bits of a sum of several."""
    if together is not None:
        return (1 << (table_of_products(inst.a, inst.b, together).max_sum.bit_length() - 2)) - 1, 1
    a, b = (fmt.mantissa_bits for fmt in (inst.a, inst.b))
    if max(a, b) > FEW_BITS:
        return ((1 << (a + 1)) - 1, 1) if a >= b else (1, (1 << (b + 1)) - 1)
    pairs = product(range(1 << a, 2 << a), range(1 << b, 2 << b))
    return max(pairs, key=lambda pair: pair[0] * pair[1] / 2.0 ** (pair[0] * pair[1]).bit_length())


def _bits_of(a: Whole, b: Whole) -> NDArray[np.int64]:
    """Bits of products of significands, which an integer may not hold."""
    return np.frexp(a.astype(np.float64) * b)[1].astype(np.int64)


def _odd(bits: int, n: int, rng: np.random.Generator) -> Whole:
    """Draw n odd significands of factors with at most so many fraction bits."""
    return rng.integers(0, 1 << min(bits, FACTOR_BITS), n) << 1 | 1
