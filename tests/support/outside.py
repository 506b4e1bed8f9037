"""An evaluator of models and of departures from them, vectorised, that shares no code with `accprobe.evaluate`.

A `Wide` has the departures of sums of products from the model. Sums that add only results and C have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from outside_doubles import SMALLEST_NORMAL, fused
from outside_numbers import (
    ANY_SPECIAL,
    NOTHING,
    SPECIAL,
    USUAL,
    ZERO,
    Ints,
    Packing,
    Parts,
    apart,
    bit_length,
    cut,
    is_nan,
    is_negative,
    packed,
    shortened,
)
from sparse_semantics import of_stored

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import Addend, DotModel, FloatArithmetic, FusedSum, IntegerArithmetic, Product
from accprobe.operands.request import Request

CHUNK = 1 << 15
"""Products evaluated at once: the arrays fit into the cache of a core."""

EXACT_BITS = 52
"""Alignment bits of an exact sum of two terms: lower bits are or-ed into the last bit, which rounds to the same result."""

WIDEST_LEFT = 24
"""Bits of a left shift of terms above the exponent in use; higher bits are lost."""


@dataclass(frozen=True)
class Entry:
    """One wrong entry of a product table: code a times code b is `off` units of the product's last place off.

    k: in that product alone, None: in all.
    """

    a: int
    b: int
    off: int
    k: int | None = None


@dataclass(frozen=True)
class Wide:
    """Departures of sums of products from the model; by default none.

    product_bits, product_word: fraction bits of products before alignment, and the rounding to them. addend_bits: fraction bits
    of C and inner results. led_by: the terms whose exponents count: "products", "others", "even", "first half". others_lift:
    added to the exponent of C. word, others_word: rounding of terms, of C and inner results. others_short: fraction bits that
    C and inner results lose. short_at: (modulus, residue, bits): largest exponents at which so many
    fewer are kept of all. pairwise: terms are added in pairs, pairs of pairs, …, each sum without its last bit. lost_carry:
    (n, weight): a sum of exactly n odd terms is 2^weight too small. accumulator: "wrap" or "saturate", and the bits that it has
    above F. packing: of results. nan: "signed": a NaN has the sign of C; "invalid": NaNs of invalid operations have another
    last bit; "from C": a NaN in C passes through, in f64 as it is. entry: a wrong product. separately: f64 products are rounded
    before they are added. integers: "wrap" or "saturate", bits, and products a group, whose sum has those bits.
    """

    product_bits: int | None = None
    product_word: str = "truncate"
    addend_bits: int | None = None
    led_by: str = ""
    others_lift: int = 0
    word: str = ""
    others_word: str = ""
    others_short: int = 0
    short_at: tuple[int, int, int] | None = None
    pairwise: bool = False
    lost_carry: tuple[int, int] | None = None
    accumulator: tuple[str, int] | None = None
    packing: Packing = USUAL
    nan: str = ""
    entry: Entry | None = None
    separately: bool = False
    integers: tuple[str, int, int] | None = None


PLAIN = Wide()


class Unit:
    """The evaluator of the dot products of an instruction."""

    def __init__(self, inst: Instruction, model: DotModel, wide: Wide = PLAIN) -> None:
        self.inst, self.model, self.wide = inst, model, wide

    def dot(self, request: Request) -> Bits:
        """Return bit patterns of D, [N]."""
        step = max(1, CHUNK // self.inst.k)
        d = np.empty(len(request), self.inst.d.dtype)
        every_b = request.b if request.metadata is None else of_stored(self.inst, request.b, request.metadata)
        with np.errstate(all="ignore"):
            for start in range(0, len(d), step):
                rows = slice(start, start + step)
                a, b = (np.ascontiguousarray(x[rows].T) for x in (request.a, every_b))
                d[rows] = _Chunk(self, a, b, request.c[rows]).of(self.model.root)
        return d


class _Other(NamedTuple):
    """C or an inner result as a term."""

    patterns: Bits
    fmt: Format
    flushed: bool
    bits: int | None = None
    """Fraction bits that are read, None: all."""


class _Chunk:
    """a, b: [K, n]; c: [n]."""

    def __init__(self, unit: Unit, a: Bits, b: Bits, c: Bits) -> None:
        self.inst, self.model, self.wide = unit.inst, unit.model, unit.wide
        self.a, self.b, self.c = a, b, c
        self.flushed = unit.model.subnormal_operands == "flushed"

    def of(self, node: FusedSum) -> Bits:
        rules = node.arithmetic
        others = list(self._others(node))
        ks = [term.k for term in node.terms if isinstance(term, Product)]
        wide = self.wide if ks else PLAIN
        if isinstance(rules, IntegerArithmetic):
            return self._integers(ks, others, rules, wide)
        if rules.result.name == "f64":
            return self._doubles(ks, others, rules, wide)
        return self._floats(ks, others, rules, wide)

    def _others(self, node: FusedSum) -> Iterator[_Other]:
        for term in node.terms:
            if isinstance(term, Addend):
                yield _Other(self.c, self.inst.c, self.model.subnormal_addend == "flushed", self.model.addend_bits)
            elif isinstance(term, FusedSum):
                yield _Other(self.of(term), term.arithmetic.result, False)

    def _integers(self, ks: list[int], others: list[_Other], rules: IntegerArithmetic, wide: Wide) -> Bits:
        total = np.zeros(len(self.c), np.int64)
        products = _whole(self.inst.a, self.a[ks]) * _whole(self.inst.b, self.b[ks])
        self._spoil(products, ks, wide)
        if wide.integers:
            kind, bits, size = wide.integers
            for start in range(0, len(ks), size):
                total += _narrow(products[start : start + size].sum(axis=0), kind, bits)
        else:
            total += products.sum(axis=0)
        if wide.lost_carry:
            total -= _lost(products, wide.lost_carry)
        for other in others:
            total += _whole(other.fmt, other.patterns)
        if rules.accumulator_bits is not None:
            total = _narrow(total, rules.overflow, rules.accumulator_bits)
        return _narrow(total, rules.overflow, rules.result.bits).astype(rules.result.dtype)

    def _spoil(self, products: Ints, ks: list[int], wide: Wide, unit: int = 1) -> None:
        if entry := wide.entry:
            there = (self.a[ks] == entry.a) & (self.b[ks] == entry.b)
            if entry.k is not None:
                there &= (np.array(ks) == entry.k)[:, None]
            products[there] += entry.off * unit

    def _floats(self, ks: list[int], others: list[_Other], rules: FloatArithmetic, wide: Wide) -> Bits:
        exact = rules.alignment_bits is None
        bits = EXACT_BITS if exact else rules.alignment_bits
        assert bits is not None
        assert len(ks) + len(others) <= 2 or not exact, "sums of more than two terms that keep every bit"
        terms = [_read_term(other) for other in others]
        fractions = [other.fmt.mantissa_bits for other in others]
        if wide.addend_bits is not None:
            terms = [_shortened(part, fraction - wide.addend_bits) for part, fraction in zip(terms, fractions, strict=True)]
        leads = [part.exponent + wide.others_lift * (part.exponent > NOTHING) for part in terms]
        if ks:
            products = self._products(ks, rules, wide)
            fractions.append(self.inst.a.mantissa_bits + self.inst.b.mantissa_bits)
            terms.append(products)
            leads.append(products.leading)
        top = _largest(leads)
        special = top > ANY_SPECIAL
        if wide.led_by:
            some = _largest(_looked_at(leads, wide.led_by, bool(ks)))
            top = np.where(some < NOTHING, top, some)
        if rules.min_exponent is not None:
            top = np.maximum(top, rules.min_exponent)
        top[(top < NOTHING) | special] = 0
        kept = np.full(len(top), bits)
        if wide.short_at:
            modulus, residue, fewer = wide.short_at
            kept -= fewer * (top % modulus == residue)
        scale = top - kept
        word = "sticky" if exact else wide.word or rules.alignment_rounding
        rows = []
        for i, (part, fraction) in enumerate(zip(terms, fractions, strict=True)):
            if i < len(others):
                rows.append(_aligned(part, fraction, scale, bits, wide.others_word or word, wide.others_short))
            else:
                rows += list(_aligned(part, fraction, scale, bits, word, 0))
        total = _added(rows, wide)
        if rules.accumulator_bits is not None and not exact:
            total = _narrow(total, rules.accumulator_overflow, bits + rules.accumulator_bits)
        if wide.accumulator:
            total = _narrow(total, wide.accumulator[0], bits + 1 + wide.accumulator[1])
        d = packed(total, scale, rules, wide.packing)
        if rules.zero_sign == "ieee":
            d[(total == 0) & self._all_negative(ks, others)] = rules.result.sign_bit
        if special.any():
            d[special] = self._specials(np.flatnonzero(special), ks, others, rules, wide)
        return d.astype(rules.result.dtype)

    def _products(self, ks: list[int], rules: FloatArithmetic, wide: Wide) -> Parts:
        """Return products [k, n]; leading: the exponent in use."""
        zeros_count = rules.zero_terms == "aligned" and rules.product_exponent == "unnormalised"
        whole = slice(ks[0], ks[-1] + 1) if ks == list(range(ks[0], ks[-1] + 1)) else ks
        a = apart(self.inst.a, self.a[whole], self.flushed, zeros_count)
        b = apart(self.inst.b, self.b[whole], self.flushed, zeros_count)
        fraction = self.inst.a.mantissa_bits + self.inst.b.mantissa_bits
        significand = a.significand.astype(np.int64) * b.significand
        exponent = a.exponent + b.exponent
        self._spoil(significand, ks, wide)
        if wide.product_bits is not None and (drop := fraction - wide.product_bits) > 0:
            significand = cut(significand, np.int64(drop), wide.product_word) << drop
        if rules.product_exponent == "unnormalised":
            leading = exponent
        elif rules.product_exponent == "normalised operands":
            leading = a.leading + b.leading
        else:
            leading = exponent - fraction + bit_length(np.abs(significand)) - 1
            leading = np.where((significand == 0) & (exponent < ANY_SPECIAL), ZERO, leading)
            leading = np.where(exponent > ANY_SPECIAL, exponent, leading)
        if rules.product_bits is not None and rules.alignment_bits is not None:
            significand = shortened(significand, rules.product_bits, rules.product_rounding)
        return Parts(significand, exponent, leading)

    def _all_negative(self, ks: list[int], others: list[_Other]) -> NDArray[np.bool_]:
        found = np.ones(len(self.c), bool)
        if ks:
            found &= (is_negative(self.inst.a, self.a[ks]) != is_negative(self.inst.b, self.b[ks])).all(axis=0)
        for other in others:
            found &= is_negative(other.fmt, other.patterns)
        return found

    def _specials(
        self, rows: NDArray[np.intp], ks: list[int], others: list[_Other], rules: FloatArithmetic, wide: Wide
    ) -> Ints:
        nan, infinite = np.zeros((2, len(rows)), bool), np.zeros((2, len(rows)), bool)
        came = nan[0]
        if ks:
            a, b = self.a[ks][:, rows], self.b[ks][:, rows]
            ea, eb = (apart(fmt, x, self.flushed).exponent for fmt, x in ((self.inst.a, a), (self.inst.b, b)))
            either = is_nan(self.inst.a, a) | is_nan(self.inst.b, b)
            invalid = ~either & ((ea == SPECIAL) & (eb == ZERO) | (ea == ZERO) & (eb == SPECIAL))
            endless = ~either & ~invalid & ((ea == SPECIAL) | (eb == SPECIAL))
            minus = is_negative(self.inst.a, a) != is_negative(self.inst.b, b)
            came |= either.any(axis=0)
            nan[1] |= invalid.any(axis=0)
            infinite |= np.stack([(endless & ~minus).any(axis=0), (endless & minus).any(axis=0)])
        for other in others:
            x = other.patterns[rows]
            its = is_nan(other.fmt, x)
            endless, minus = (apart(other.fmt, x).exponent == SPECIAL) & ~its, is_negative(other.fmt, x)
            came |= its
            infinite |= np.stack([endless & ~minus, endless & minus])
        nan[1] |= infinite[0] & infinite[1]
        assert rules.result.infinity is not None
        d = np.where(infinite[1], rules.result.infinity | rules.result.sign_bit, rules.result.infinity)
        d = np.where(came | nan[1], rules.nan, d)
        if wide.nan == "invalid":
            d[nan[1] & ~came] ^= 1
        for other in others[-1:]:
            c = other.patterns[rows].astype(np.int64)
            if wide.nan == "signed":
                d = np.where(came | nan[1], d & ~rules.result.sign_bit | c & rules.result.sign_bit, d)
            if wide.nan == "from C":
                d = np.where(is_nan(other.fmt, other.patterns[rows]), c | 1 << (rules.result.mantissa_bits - 1), d)
        return d

    def _doubles(self, ks: list[int], others: list[_Other], rules: FloatArithmetic, wide: Wide) -> Bits:
        assert len(ks) <= 1
        assert len(others) == 1
        assert (rules.result_bits, rules.result_rounding, rules.alignment_bits) == (52, "RNE", None)
        (other,) = others
        c = _read(other.patterns, other.flushed)
        a = _read(self.a[ks[0]], self.flushed) if ks else np.ones_like(c)
        b = _read(self.b[ks[0]], self.flushed) if ks else np.full_like(c, -0.0)
        if wide.separately:
            product = a * b
            d = product + c
            zero = (product == -c) & np.isfinite(c)
        else:
            d, zero = fused(a, b, c)
        bits = d.view(np.uint64).copy()
        sign = bits & np.uint64(1 << 63)
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        if rules.overflow == "largest":
            bits = np.where(np.isinf(d) & finite, sign | np.uint64(0x7FEF << 48 | (1 << 48) - 1), bits)
        least = SMALLEST_NORMAL * 2.0 ** (wide.packing.flushed_below or 0)
        if rules.subnormal_results == "flushed" or wide.packing.flushed_below is not None:
            bits = np.where((np.abs(d) < least) & finite & (d != 0), sign, bits)
        if rules.underflow_sign == "positive":
            bits = np.where((bits << np.uint64(1) == 0) & ~zero, 0, bits)
        if rules.zero_sign == "positive":
            bits = np.where(zero, 0, bits)
        bits = np.where(np.isnan(d), np.uint64(rules.nan), bits)
        return self._payload(bits, ks, other, rules, wide)

    def _payload(self, d: Bits, ks: list[int], other: _Other, rules: FloatArithmetic, wide: Wide) -> Bits:
        quiet = np.uint64(0 if wide.nan == "from C" else 1 << 51)
        if rules.nan_payload != "dropped":
            operands = {"a": self.a[ks[0]], "b": self.b[ks[0]], "c": other.patterns}
            for letter in reversed(rules.nan_payload.split()):
                x = operands[letter]
                d = np.where(is_nan(self.inst.c, x), x | quiet, d)
        return d


def _read(patterns: Bits, flushed: bool) -> NDArray[np.float64]:
    x = np.ascontiguousarray(patterns).view(np.float64)
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(0.0, x), x) if flushed else x


def _read_term(other: _Other) -> Parts:
    part = apart(other.fmt, other.patterns, other.flushed)
    if other.bits is None:
        return part
    part = _shortened(part, other.fmt.mantissa_bits - other.bits)
    gone = (part.significand == 0) & (part.exponent < ANY_SPECIAL)
    return part._replace(exponent=np.where(gone, ZERO, part.exponent))


def _whole(fmt: Format, patterns: Bits) -> Ints:
    whole = patterns.astype(np.int64) & ((1 << fmt.bits) - 1)
    return whole - ((whole >> (fmt.bits - 1)) << fmt.bits) if fmt.kind == "signed" else whole


def _narrow(total: Ints, kind: str, bits: int) -> Ints:
    """Return signed numbers of that many bits, sign included."""
    limit = np.int64(1) << (bits - 1)
    return np.clip(total, -limit, limit - 1) if kind == "saturate" else ((total + limit) & (2 * limit - 1)) - limit


def _lost(terms: Ints, rule: tuple[int, int]) -> Ints:
    return ((terms & 1).sum(axis=0) == rule[0]).astype(np.int64) << rule[1]


def _shortened(part: Parts, drop: int) -> Parts:
    if drop <= 0:
        return part
    return part._replace(significand=cut(part.significand.astype(np.int64), np.int64(drop), "truncate") << drop)


def _largest(leads: list[NDArray[np.integer]]) -> Ints:
    rows = [lead.max(axis=0) if lead.ndim == 2 else lead for lead in leads]
    return np.max(rows, axis=0).astype(np.int64)


def _looked_at(leads: list[NDArray[np.integer]], which: str, has_products: bool) -> list[NDArray[np.integer]]:
    if which == "products" or len(leads) == 1 or not has_products:
        return leads[-1:]
    if which == "others":
        return leads[:-1]
    products = leads[-1]
    some = products[::2] if which == "even" else products[: max(1, len(products) // 2)]
    return [*leads[:-1], some]


def _aligned(part: Parts, fraction: int, scale: Ints, bits: int, word: str, short: int) -> Ints:
    """Return terms as multiples of 2^scale."""
    room = max(0, bits - fraction)
    right = scale + (fraction + room) - part.exponent
    value = part.significand.astype(np.int64) << room
    if right.min(initial=0) < 0:
        value = value << np.clip(-right, 0, WIDEST_LEFT)
        right = np.maximum(right, 0)
    return cut(value, right + short, word) << short if short else cut(value, right, word)


def _added(rows: list[Ints], wide: Wide) -> Ints:
    lost: Ints | int = _lost(np.stack(rows), wide.lost_carry) if wide.lost_carry else 0
    while wide.pairwise and len(rows) > 1:
        pairs = [(rows[i] + rows[i + 1]) & ~1 for i in range(0, len(rows) - 1, 2)]
        rows = pairs + rows[len(rows) // 2 * 2 :]
    return np.sum(rows, axis=0) - lost
